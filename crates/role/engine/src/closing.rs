//! Counters of the reasons why connections end, and the texts of error replies.

use skep_serve::{ConnError, ConnectionRefusal, TimeoutCause};
use skep_telemetry::Counter;

use crate::context::Context;

/// How a connection ends.
#[derive(Clone, Copy)]
pub(crate) struct End {
    pub(crate) counter: Counter,
    /// The peer may still be sending; see [`skep_serve::Conn::linger`].
    pub(crate) linger: bool,
}

impl End {
    pub(crate) const CLIENT: Self = Self { counter: Counter::ClosedClient, linger: false };
    pub(crate) const REJECT: Self = Self { counter: Counter::ClosedReject, linger: true };
    pub(crate) const ERROR: Self = Self { counter: Counter::ClosedError, linger: false };

    pub(crate) const MOVED: Self = Self { counter: Counter::ClosedMoved, linger: false };

    /// The connection closes after this reply, as announced.
    pub(crate) fn after_reply(context: &Context) -> Self {
        let draining = context.worker().is_draining();
        let counter = if draining { Counter::ClosedDraining } else { Counter::ClosedClient };
        Self { counter, linger: true }
    }

    /// The connection failed or timed out.
    pub(crate) fn failed(error: &ConnError) -> Self {
        Self { counter: closed_by(error), linger: false }
    }
}

/// The counter of a connection that ended with `error`.
fn closed_by(error: &ConnError) -> Counter {
    match error {
        ConnError::Io(_) => Counter::ClosedClient,
        ConnError::Expired(cause) => match cause {
            TimeoutCause::Head => Counter::ClosedHeadTimeout,
            TimeoutCause::Body => Counter::ClosedBodySlow,
            TimeoutCause::WriteStall => Counter::ClosedWriteStall,
            TimeoutCause::SendRate => Counter::ClosedSendSlow,
            TimeoutCause::Idle => Counter::ClosedIdle,
            TimeoutCause::Lifetime => Counter::ClosedLifetime,
            TimeoutCause::Drain | TimeoutCause::Evacuate => Counter::ClosedDraining,
            TimeoutCause::Connect | TimeoutCause::Response => Counter::ClosedError,
        },
    }
}

/// The counter of a request that the engine itself refused.
pub(crate) fn rejected(status: u16) -> Counter {
    match status {
        400 => Counter::Reject400,
        408 => Counter::Reject408,
        413 => Counter::Reject413,
        414 => Counter::Reject414,
        417 => Counter::Reject417,
        431 => Counter::Reject431,
        501 => Counter::Reject501,
        503 => Counter::Reject503,
        505 => Counter::Reject505,
        _ => Counter::RejectOther,
    }
}

/// The counter of a connection that was refused on accept.
pub(crate) fn refused(refusal: ConnectionRefusal) -> Counter {
    match refusal {
        ConnectionRefusal::Total => Counter::RefusedTotal,
        ConnectionRefusal::PerAddress => Counter::RefusedAddress,
        ConnectionRefusal::Descriptors => Counter::RefusedDescriptors,
        ConnectionRefusal::Draining => Counter::RefusedDraining,
    }
}

/// The error reply to a client that is refused on accept: 429 if it has too many connections
/// itself, otherwise 503.
pub(crate) fn refusal_words(refusal: ConnectionRefusal, retry_after_s: u32) -> Vec<u8> {
    let (status, body) = match refusal {
        ConnectionRefusal::PerAddress => ("429 Too Many Requests", "429 Too Many Requests\n"),
        _ => ("503 Service Unavailable", "503 Service Unavailable\n"),
    };
    format!(
        "HTTP/1.1 {status}\r\nServer: skep\r\nRetry-After: {retry_after_s}\r\nContent-Type: \
         text/plain; charset=utf-8\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}
