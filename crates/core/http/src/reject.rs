//! Why a message was refused. One constant per reason, so that counters, logs
//! and tests speak of the same thing.
//!
//! Invariant: after a [`Reject`] the connection closes; nothing that follows
//! in the buffer is looked at (no resynchronisation).

/// A refusal: the status to answer with and a short reason for logs and
/// counters (kebab-case, stable).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[error("{status} {reason}")]
pub struct Reject {
    /// Status code of the reply.
    pub status: u16,
    /// Stable kebab-case name, for logs and counters.
    pub reason: &'static str,
}

impl Reject {
    /// A line ended with LF alone (RFC 9112 2.2).
    pub const BARE_LF: Reject = Reject { status: 400, reason: "bare-lf" };
}
