//! The client side: a worker's connections to other nodes.

use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

use skep_serve::{Conn, TimeoutCause, Worker};
use skep_upstream::{ConnectionPool, PoolLimits, PooledConn};
use skep_wire::cache::frame::write_frame;
use skep_wire::cache::{
    FrameDecoder, Handshake, HelloError, Identity, PeerReply, PeerRequest, Purpose, Reason,
};
use skep_wire::limits::PEER_REPLY_BYTES_MAX;

use super::error::PeerError;
use super::fetching::Fetching;
use crate::limits::{
    PEER_CONNECT_MS, PEER_CONNECTIONS_MAX, PEER_FIRST_READ_BYTES, PEER_IDLE_MS, PEER_REPLY_MS,
    PEER_REQUEST_MS,
};
use crate::stream::counts::{StreamCount, StreamCounts};
use crate::stream::greet::{greet_conn, nonce};

/// A worker's connections to other nodes, kept and reused by address.
pub struct PeerPool {
    connections: Rc<ConnectionPool>,
    identity: Identity,
    counts: Arc<StreamCounts>,
}

/// A connection with its reply.
struct Exchange {
    lease: PooledConn,
    reply: PeerReply,
    /// Bytes received after the reply.
    rest: Vec<u8>,
}

impl PeerPool {
    /// An empty pool for `worker`. `counts` may be shared by all workers.
    pub fn new(worker: &Rc<Worker>, identity: &Identity, counts: &Arc<StreamCounts>) -> Rc<Self> {
        let limits = PoolLimits {
            connections_max: PEER_CONNECTIONS_MAX,
            idle_ms: PEER_IDLE_MS,
            connect_timeout_ms: PEER_CONNECT_MS,
        };
        let connections = ConnectionPool::new(worker, limits);
        Rc::new(Self { connections, identity: identity.clone(), counts: Arc::clone(counts) })
    }

    /// Requests the bytes of a segment from the node at `address`, with a [`PeerRequest::Fetch`].
    ///
    /// # Errors
    /// Why the fetch could not start.
    ///
    /// # Panics
    /// If `request` is of another kind.
    pub async fn fetch(
        &self,
        address: SocketAddr,
        request: &PeerRequest,
    ) -> Result<Fetching, PeerError> {
        let &PeerRequest::Fetch { bytes, from, .. } = request else {
            panic!("only segments come in chunks")
        };
        let Exchange { lease, reply, rest } = self.exchange(address, request).await?;
        match reply {
            PeerReply::Coming => {
                Ok(Fetching::new(&self.connections, &self.counts, lease, rest, from..bytes))
            }
            PeerReply::Refused(refusal) => {
                self.finish(lease, &rest)?;
                Err(PeerError::Refused(refusal))
            }
            PeerReply::Head { .. } | PeerReply::HeadAfter { .. } | PeerReply::Taken => {
                Err(PeerError::Unexpected.counted(&self.counts))
            }
        }
    }

    /// Sends the node at `address` a request that is answered by a reply alone: a
    /// [`PeerRequest::Head`] or [`PeerRequest::Offer`].
    ///
    /// # Errors
    /// Why the request failed.
    ///
    /// # Panics
    /// If `request` is of another kind.
    pub async fn ask(
        &self,
        address: SocketAddr,
        request: &PeerRequest,
    ) -> Result<PeerReply, PeerError> {
        let Exchange { lease, reply, rest } = self.exchange(address, request).await?;
        let is_answer = match (request, &reply) {
            (_, PeerReply::Refused(_)) => true,
            (PeerRequest::Head { .. }, reply) => {
                matches!(reply, PeerReply::Head { .. } | PeerReply::HeadAfter { .. })
            }
            (PeerRequest::Offer { .. }, reply) => matches!(reply, PeerReply::Taken),
            (PeerRequest::Fetch { .. }, _) => panic!("segments come in chunks"),
        };
        if !is_answer {
            return Err(PeerError::Unexpected.counted(&self.counts));
        }
        self.finish(lease, &rest)?;
        match reply {
            PeerReply::Refused(refusal) => Err(PeerError::Refused(refusal)),
            reply => Ok(reply),
        }
    }

    /// The numbers of connections to `address`: in use, and idle.
    pub fn connections(&self, address: SocketAddr) -> (usize, usize) {
        self.connections.counts(address)
    }

    /// Completes an exchange without chunks.
    fn finish(&self, lease: PooledConn, rest: &[u8]) -> Result<(), PeerError> {
        if !rest.is_empty() {
            return Err(PeerError::Unexpected.counted(&self.counts));
        }
        lease.give_back(&self.connections);
        Ok(())
    }

    async fn exchange(
        &self,
        address: SocketAddr,
        request: &PeerRequest,
    ) -> Result<Exchange, PeerError> {
        self.counts.count(StreamCount::Asked);
        let mut frame = Vec::new();
        write_frame(&mut frame, &request.encode());
        if let Some(lease) = self.connections.reuse(address) {
            match self.say(lease, &frame).await {
                // The connection was closed while it was idle. All requests may safely be repeated.
                Err(error) if error.is_of_connection() => {}
                said => return said,
            }
        }
        let lease = self.dial(address).await?;
        self.say(lease, &frame).await
    }

    async fn dial(&self, address: SocketAddr) -> Result<PooledConn, PeerError> {
        let lease = self.connections.dial(address).await?;
        let nonce = nonce().map_err(PeerError::Io)?;
        // The names of segments determine what their bytes must be, so it does not matter which node the peer
        // is.
        let handshake = Handshake::client(&self.identity, Purpose::Fetch, None, nonce);
        let other = greet_conn(&lease.conn, handshake, &self.counts).await?;
        if other == *self.identity.name() {
            let error = HelloError::Here(Reason::Name);
            self.counts.count_refused(error);
            return Err(error.into());
        }
        Ok(lease)
    }

    async fn say(&self, lease: PooledConn, frame: &[u8]) -> Result<Exchange, PeerError> {
        let conn = &lease.conn;
        let mut output = conn.worker().take_output();
        output.copy(frame);
        conn.expire_after(PEER_REQUEST_MS, TimeoutCause::WriteStall);
        let sent = conn.send(&mut output, PEER_REQUEST_MS).await;
        conn.worker().put_output(output);
        sent?;
        conn.expire_after(PEER_REPLY_MS, TimeoutCause::Response);
        let (reply, rest) = hear(conn).await.map_err(|error| error.counted(&self.counts))?;
        Ok(Exchange { lease, reply, rest })
    }
}

/// Reads a reply, and returns it with the bytes after it.
async fn hear(conn: &Conn) -> Result<(PeerReply, Vec<u8>), PeerError> {
    let mut frames = FrameDecoder::new(PEER_REPLY_BYTES_MAX);
    loop {
        let bytes = std::future::poll_fn(|cx| {
            conn.worker().with_input(|input| {
                let received = conn.poll_recv(cx, &mut input[..PEER_FIRST_READ_BYTES]);
                received.map_ok(|bytes| {
                    frames.push(&input[..bytes]);
                    bytes
                })
            })
        });
        if bytes.await? == 0 {
            return Err(PeerError::Closed);
        }
        if let Some(payload) = frames.next_payload()? {
            let reply = PeerReply::decode(payload)?;
            return Ok((reply, frames.into_rest()));
        }
    }
}
