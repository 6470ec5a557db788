//! The rest of a response that is not needed: read in the background for a moment, so that the member
//! can complete it and the connection can be reused. Then the connection is closed.
//!
//! ```text
//!   attempt --nobody wants more--> the caller goes on
//!      '-- connection, codec, accounting --> a task: end, REST_MS or REST_BYTES_MAX
//! ```
//! Invariant: until then the request counts at the member, which is still processing it.

use std::future::poll_fn;
use std::task::{Context, Poll, ready};

use skep_http::BodyDecoder;
use skep_serve::{Conn, ConnError, TimeoutCause};
use skep_upstream::PooledConn;

use crate::limits::{REST_BYTES_MAX, REST_MS};
use crate::request::gateway::codec::{GatewayCodec, GatewayEvent};
use crate::request::in_flight::InFlight;

/// How the connection to a member is treated after a response.
pub(super) enum AfterResponse {
    /// It may be used for another request.
    Idle,
    /// The member switched protocols; these bytes followed its head.
    Switched(Vec<u8>),
    /// The rest of the response is not needed.
    Unread(UnreadResponse),
    Close,
}

pub(super) struct UnreadResponse {
    wire: UnreadDecoder,
    bytes_left: u64,
}

enum UnreadDecoder {
    Http {
        decoder: BodyDecoder,
        /// The member keeps the connection open after the response.
        is_kept: bool,
    },
    Gateway {
        codec: Box<GatewayCodec>,
        /// Bytes of standard error that were already counted.
        counted_bytes: u64,
    },
}

/// How the connection is treated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// It may be used for another request.
    Idle,
    Close,
}

impl UnreadResponse {
    /// The rest of an HTTP response. `None`: it is known to be too long to be read.
    pub(super) fn of_http(decoder: BodyDecoder, is_kept: bool) -> Option<Self> {
        let is_short = decoder.left_bytes().is_none_or(|bytes| bytes <= REST_BYTES_MAX);
        is_short.then(|| Self::new(UnreadDecoder::Http { decoder, is_kept }))
    }

    /// The rest of a reply in the protocol of `codec`.
    pub(super) fn of_gateway(codec: GatewayCodec) -> Self {
        let counted_bytes = codec.stderr_dropped_bytes();
        Self::new(UnreadDecoder::Gateway { codec: Box::new(codec), counted_bytes })
    }

    fn new(wire: UnreadDecoder) -> Self {
        Self { wire, bytes_left: REST_BYTES_MAX }
    }

    /// Reads it from `lease` in a task of its own.
    pub(super) fn read_beside(mut self, lease: PooledConn, mut in_flight: InFlight) {
        tokio::task::spawn_local(async move {
            lease.conn.expire_after(REST_MS, TimeoutCause::Response);
            let end = self.read(&lease.conn, &mut in_flight).await;
            self.count(&in_flight);
            if matches!(end, Ok(End::Idle)) {
                lease.give_back(in_flight.connections());
            }
        });
    }

    async fn read(&mut self, conn: &Conn, in_flight: &mut InFlight) -> Result<End, ConnError> {
        loop {
            if let Some(end) = poll_fn(|cx| self.poll_once(cx, conn, in_flight)).await? {
                return Ok(end);
            }
        }
    }

    /// Reads once; `None`: the end was not reached.
    fn poll_once(
        &mut self,
        cx: &Context<'_>,
        conn: &Conn,
        in_flight: &mut InFlight,
    ) -> Poll<Result<Option<End>, ConnError>> {
        conn.worker().with_input(|input| {
            let bytes = ready!(conn.poll_recv(cx, input))?;
            self.bytes_left = self.bytes_left.saturating_sub(bytes as u64);
            Poll::Ready(Ok(match bytes {
                0 => Some(End::Close),
                bytes => self.receive(&input[..bytes], in_flight),
            }))
        })
    }

    fn receive(&mut self, bytes: &[u8], in_flight: &mut InFlight) -> Option<End> {
        let end = match &mut self.wire {
            UnreadDecoder::Http { decoder, is_kept } => decode(decoder, *is_kept, bytes, in_flight),
            UnreadDecoder::Gateway { codec, .. } => receive(codec, bytes, in_flight),
        };
        end.or((self.bytes_left == 0).then_some(End::Close))
    }

    fn count(&mut self, in_flight: &InFlight) {
        if let UnreadDecoder::Gateway { codec, counted_bytes } = &mut self.wire {
            if let Some(line) = codec.stderr_rest() {
                in_flight.log_stderr(&line);
            }
            in_flight.count_dropped((0, codec.stderr_dropped_bytes() - *counted_bytes));
        }
    }
}

fn decode(
    decoder: &mut BodyDecoder,
    is_kept: bool,
    bytes: &[u8],
    in_flight: &mut InFlight,
) -> Option<End> {
    let mut at = 0;
    while at < bytes.len() && !decoder.is_done() {
        let Ok(decoded) = decoder.decode(&bytes[at..]) else { return Some(End::Close) };
        in_flight.receive(decoded.data.len() as u64);
        at += decoded.consumed;
    }
    // Bytes after a response belong to no request (RFC 9112 9.2).
    let may_stay = is_kept && at == bytes.len();
    decoder.is_done().then_some(if may_stay { End::Idle } else { End::Close })
}

fn receive(codec: &mut GatewayCodec, bytes: &[u8], in_flight: &mut InFlight) -> Option<End> {
    let mut at = 0;
    loop {
        let Ok((consumed, event)) = codec.receive(&bytes[at..]) else { return Some(End::Close) };
        at += consumed;
        match event? {
            GatewayEvent::Body(range) => in_flight.receive(range.len() as u64),
            GatewayEvent::Stderr(line) => in_flight.log_stderr(&line),
            GatewayEvent::Flush => {}
            GatewayEvent::End if codec.is_reusable(bytes.len() - at) => return Some(End::Idle),
            // A second head is invalid, and the request can no longer be sent.
            GatewayEvent::Head(_) | GatewayEvent::Wants | GatewayEvent::End => {
                return Some(End::Close);
            }
        }
    }
}
