//! Errors of requests to origins.

use std::sync::Arc;

use skep_http::Reject;
use skep_serve::ConnError;
use skep_upstream::UpstreamError;

/// An origin failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("origin {origin}: {fault}")]
pub struct OriginError {
    /// URL of the origin that was asked last.
    pub origin: Arc<str>,
    /// The failure.
    pub fault: Fault,
}

/// A failure of an origin, or of this machine.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// The path or host can't be sent as they are: the caller is to blame.
    #[error("cannot ask: {0}")]
    Ask(&'static str),
    /// Its name has no address.
    #[error("its name has no address: {0}")]
    Name(String),
    /// No connection to any of its addresses.
    #[error("{0}")]
    Connect(String),
    /// As many connections as allowed are in use, or this machine has none
    /// left. The origin is not to blame.
    #[error("{0}")]
    Busy(String),
    /// No head in time.
    #[error("did not answer in time")]
    Late,
    /// No byte of the body in time.
    #[error("stalled in the body at byte {at}")]
    Stalled {
        /// Bytes that came.
        at: u64,
    },
    /// The connection ended before the head was complete.
    #[error("its connection broke before an answer")]
    Broken,
    /// The head or the chunks are not HTTP as we accept it.
    #[error("answered malformed HTTP: {0}")]
    Malformed(&'static str),
    /// The body ended before what its head announced.
    #[error("the body ended at byte {at} instead of {}", Wanted(*.expected))]
    Short {
        /// Bytes that came.
        at: u64,
        /// Bytes that were announced, if they were.
        expected: Option<u64>,
    },
    /// The body, or what came behind it, is longer than announced.
    #[error("sent more than the {expected} bytes that it had announced")]
    Long {
        /// Bytes that were announced.
        expected: u64,
    },
    /// A partial response for another range than requested, or one that contradicts itself.
    #[error("answered another range than it was asked for: {0}")]
    Range(&'static str),
}

/// A [`Fault`] without its details, for counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultKind {
    Ask,
    Name,
    Connect,
    Busy,
    Late,
    Stalled,
    Broken,
    Malformed,
    Short,
    Long,
    Range,
    /// An answer 500, 502, 503 or 504: no fault, but reason to ask elsewhere.
    Status,
}

impl FaultKind {
    /// Every kind, in the order of its number.
    pub const ALL: [Self; 12] = [
        Self::Ask,
        Self::Name,
        Self::Connect,
        Self::Busy,
        Self::Late,
        Self::Stalled,
        Self::Broken,
        Self::Malformed,
        Self::Short,
        Self::Long,
        Self::Range,
        Self::Status,
    ];

    /// Stable name, for labels.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ask => "ask",
            Self::Name => "name",
            Self::Connect => "connect",
            Self::Busy => "busy",
            Self::Late => "late",
            Self::Stalled => "stalled",
            Self::Broken => "broken",
            Self::Malformed => "malformed",
            Self::Short => "short",
            Self::Long => "long",
            Self::Range => "range",
            Self::Status => "status",
        }
    }
}

impl Fault {
    /// Its kind.
    pub fn kind(&self) -> FaultKind {
        match self {
            Self::Ask(_) => FaultKind::Ask,
            Self::Name(_) => FaultKind::Name,
            Self::Connect(_) => FaultKind::Connect,
            Self::Busy(_) => FaultKind::Busy,
            Self::Late => FaultKind::Late,
            Self::Stalled { .. } => FaultKind::Stalled,
            Self::Broken => FaultKind::Broken,
            Self::Malformed(_) => FaultKind::Malformed,
            Self::Short { .. } => FaultKind::Short,
            Self::Long { .. } => FaultKind::Long,
            Self::Range(_) => FaultKind::Range,
        }
    }

    /// Whether the origin is to blame, not this machine.
    pub fn blames_origin(&self) -> bool {
        !matches!(self, Self::Ask(_) | Self::Busy(_))
    }

    /// Of the connection, before the head was complete.
    pub(crate) fn before_head(error: &ConnError) -> Self {
        match error {
            ConnError::Io(_) => Self::Broken,
            ConnError::Expired(_) => Self::Late,
        }
    }
}

impl From<UpstreamError> for Fault {
    fn from(error: UpstreamError) -> Self {
        match error.blames_node() {
            true => Self::Connect(error.to_string()),
            false => Self::Busy(error.to_string()),
        }
    }
}

impl From<Reject> for Fault {
    fn from(reject: Reject) -> Self {
        Self::Malformed(reject.reason)
    }
}

/// A number of bytes that may be unknown, in words.
struct Wanted(Option<u64>);

impl std::fmt::Display for Wanted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            Some(bytes) => write!(f, "{bytes}"),
            None => f.write_str("at its last chunk"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_find_their_place() {
        for (place, kind) in FaultKind::ALL.into_iter().enumerate() {
            assert_eq!(kind as usize, place, "{}", kind.name());
        }
    }
}
