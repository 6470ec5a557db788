//! The server side: a service for connections from other nodes.

use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use skep_serve::{
    AcceptEvent, Conn, ConnectionHandler, ConnectionRefusal, Output, SharedSlice, TimeoutCause,
};
use skep_wire::cache::frame::{PING, write_frame};
use skep_wire::cache::peer::chunk_end;
use skep_wire::cache::{
    FrameDecoder, FrameHead, Handshake, HelloError, Identity, PeerReply, PeerRequest, Purpose,
    Reason,
};
use skep_wire::limits::PEER_REQUEST_BYTES_MAX;
use skep_wire::message::Name;

use super::error::PeerError;
use crate::limits::{
    FETCH_HANDSHAKES, PEER_BATCH_BYTES_MAX, PEER_PING_MS, PEER_REQUEST_MS, PEER_SERVE_IDLE_MS,
    PEER_STALL_MS,
};
use crate::stream::counts::{StreamCount, StreamCounts};
use crate::stream::greet::{GreetError, greet_conn, nonce};
use crate::stream::handshake_permits::HandshakePermits;

/// A role's handler of requests from other nodes. One value per worker.
pub trait PeerHandler: 'static {
    /// The type that provides the bytes of a segment.
    type Source: ChunkSource;

    /// Answers a request of the node `peer`.
    fn answer(
        &self,
        peer: &Name,
        request: PeerRequest,
    ) -> impl Future<Output = PeerAnswer<Self::Source>>;
}

#[derive(Debug)]
pub enum PeerAnswer<S> {
    /// The chunks requested by a [`PeerRequest::Fetch`].
    Coming(S),
    /// A reply other than [`PeerReply::Coming`].
    Reply(PeerReply),
}

/// The bytes of a segment, as they become available. Dropped after the last one is sent, or when sending ends
/// early.
pub trait ChunkSource {
    /// Ready when the bytes `start..end` are available: a whole chunk ([`chunk_end`]), or the rest of one.
    fn poll_chunk(
        &mut self,
        cx: &mut Context<'_>,
        start: u32,
        end: u32,
    ) -> Poll<Result<Chunk, SourceFailed>>;
}

/// The bytes of one chunk, in the cache's memory.
#[derive(Clone)]
pub struct Chunk {
    /// Keeps the memory alive while the bytes are sent.
    pub bytes: SharedSlice,
    /// Their [`checksum`](skep_wire::cache::frame::checksum).
    pub checksum: u32,
}

/// The source will provide no further chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the source of a segment has failed")]
pub struct SourceFailed;

/// Serves connections from other nodes; pass it to [`accept_loop`](skep_serve::accept_loop).
pub struct PeerService<H> {
    handler: H,
    identity: Identity,
    counts: Arc<StreamCounts>,
    handshakes: Rc<HandshakePermits>,
}

impl<H: PeerHandler> PeerService<H> {
    /// A service for this machine. `counts` may be shared by all workers.
    pub fn new(handler: H, identity: &Identity, counts: &Arc<StreamCounts>) -> Rc<Self> {
        let (identity, counts) = (identity.clone(), Arc::clone(counts));
        let handshakes = HandshakePermits::new(&[], FETCH_HANDSHAKES);
        Rc::new(Self { handler, identity, counts, handshakes })
    }

    pub fn handler(&self) -> &H {
        &self.handler
    }

    /// Returns the name of the connected node; `None` if the handshake failed. Strangers hold a permit
    /// meanwhile, so that silent ones do not use up the connections of nodes.
    async fn greet(&self, conn: Conn) -> Option<(Conn, Name)> {
        let permit = match conn.is_of_member() {
            true => None,
            false => self.handshakes.take(conn.peer().ip()),
        };
        if permit.is_none() && !conn.is_of_member() {
            self.counts.count_refused(HelloError::Here(Reason::Full));
            return None;
        }
        let nonce = nonce().ok()?;
        let handshake = Handshake::server(&self.identity, Purpose::Fetch, nonce);
        match greet_conn(&conn, handshake, &self.counts).await {
            Ok(peer) => Some((conn, peer)),
            Err(error) => {
                tracing::debug!(%error, address = %conn.peer(), "a node's connection was not accepted");
                if matches!(error, GreetError::Hello(_)) {
                    drop(permit);
                    conn.linger().await;
                }
                None
            }
        }
    }

    /// Answers requests one after the other.
    async fn converse(&self, conn: &Conn, peer: &Name) -> Result<(), PeerError> {
        let mut output = Output::default();
        output.copy(&Handshake::welcome());
        conn.send(&mut output, PEER_REQUEST_MS).await?;
        let mut frames = FrameDecoder::new(PEER_REQUEST_BYTES_MAX);
        while let Some(request) = next_request(conn, &mut frames).await? {
            conn.timer().clear();
            let range = match &request {
                PeerRequest::Fetch { bytes, from, .. } => Some((*from, *bytes)),
                PeerRequest::Head { .. } | PeerRequest::Offer { .. } => None,
            };
            let sent = match (self.handler.answer(peer, request).await, range) {
                (PeerAnswer::Reply(reply), _) => send_reply(conn, &mut output, &reply).await,
                (PeerAnswer::Coming(source), Some(range)) => {
                    self.send_chunks(conn, &mut output, source, range).await
                }
                (PeerAnswer::Coming(_), None) => panic!("only segments come in chunks"),
            };
            sent?;
            self.counts.count(StreamCount::Answered);
            if conn.worker().is_draining() {
                break;
            }
        }
        Ok(())
    }

    async fn send_chunks(
        &self,
        conn: &Conn,
        output: &mut Output,
        mut source: H::Source,
        (mut at, bytes): (u32, u32),
    ) -> Result<(), PeerError> {
        output.inline(|stream| write_frame(stream, &PeerReply::Coming.encode()));
        while at < bytes {
            let end = chunk_end(at, bytes);
            let polled = std::future::poll_fn(|cx| Poll::Ready(source.poll_chunk(cx, at, end)));
            let chunk = match polled.await {
                Poll::Ready(chunk) => Some(chunk),
                // Available chunks are sent before waiting.
                Poll::Pending if !output.is_empty() => None,
                Poll::Pending => {
                    let chunk = wait(&mut source, at, end).await;
                    if chunk.is_none() {
                        output.copy(&PING);
                    }
                    chunk
                }
            };
            match chunk {
                Some(Ok(chunk)) => {
                    put(output, chunk, end - at);
                    self.counts.count(StreamCount::ChunksSent);
                    at = end;
                    if output.len() < PEER_BATCH_BYTES_MAX {
                        continue;
                    }
                }
                None => {}
                Some(Err(SourceFailed)) => {
                    conn.send(output, PEER_STALL_MS).await?;
                    return Err(PeerError::Closed);
                }
            }
            conn.send(output, PEER_STALL_MS).await?;
        }
        Ok(conn.send(output, PEER_STALL_MS).await?)
    }
}

impl<H: PeerHandler> ConnectionHandler for PeerService<H> {
    async fn serve(self: Rc<Self>, conn: Conn) {
        let Some((conn, peer)) = self.greet(conn).await else { return };
        if let Err(error) = self.converse(&conn, &peer).await {
            let error = error.counted(&self.counts);
            tracing::debug!(%error, %peer, "the connection of a node has ended");
        }
    }

    fn refusal(&self, _: ConnectionRefusal) -> Vec<u8> {
        self.counts.count_refused(HelloError::Here(Reason::Full));
        Handshake::refusal(Reason::Full).to_vec()
    }

    fn observe(&self, _: AcceptEvent) {}
}

/// Reads the next request; `None` at the end of the stream.
async fn next_request(
    conn: &Conn,
    frames: &mut FrameDecoder,
) -> Result<Option<PeerRequest>, PeerError> {
    conn.expire_after(PEER_SERVE_IDLE_MS, TimeoutCause::Idle);
    loop {
        if let Some(payload) = frames.next_payload()? {
            return Ok(Some(PeerRequest::decode(payload)?));
        }
        let was_idle = frames.is_empty();
        let received = std::future::poll_fn(|cx| {
            conn.worker().with_input(|input| {
                conn.poll_recv(cx, input).map_ok(|bytes| {
                    frames.push(&input[..bytes]);
                    bytes
                })
            })
        });
        if received.await? == 0 {
            return if was_idle { Ok(None) } else { Err(PeerError::Closed) };
        }
        if was_idle {
            conn.expire_after(PEER_REQUEST_MS, TimeoutCause::Head);
        }
    }
}

async fn send_reply(conn: &Conn, output: &mut Output, reply: &PeerReply) -> Result<(), PeerError> {
    assert!(*reply != PeerReply::Coming, "chunks have a source");
    output.inline(|stream| write_frame(stream, &reply.encode()));
    Ok(conn.send(output, PEER_STALL_MS).await?)
}

/// Waits for a chunk; `None` when a keepalive is due.
async fn wait<S: ChunkSource>(
    source: &mut S,
    start: u32,
    end: u32,
) -> Option<Result<Chunk, SourceFailed>> {
    let coming = std::future::poll_fn(|cx| source.poll_chunk(cx, start, end));
    tokio::time::timeout(Duration::from_millis(PEER_PING_MS), coming).await.ok()
}

fn put(output: &mut Output, chunk: Chunk, bytes: u32) {
    assert_eq!(chunk.bytes.len(), bytes, "the bytes that were asked for");
    output.copy(&FrameHead { bytes, checksum: chunk.checksum }.to_bytes());
    output.share(chunk.bytes);
}
