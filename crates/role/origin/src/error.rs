//! Errors of requests to origins.

use std::sync::Arc;

use skep_http::Reject;
use skep_serve::ConnError;
use skep_upstream::UpstreamError;

/// An origin failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("origin {origin}: {fault}")]
pub struct OriginError {
    /// URL of the last origin that was asked.
    pub origin: Arc<str>,
    /// The failure.
    pub fault: Fault,
}

/// A failure of an origin, or of this machine.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// The path or host cannot be sent: the caller is to blame.
    #[error("cannot ask: {0}")]
    Ask(&'static str),
    /// Its name has no address.
    #[error("its name has no address: {0}")]
    Name(String),
    /// None of its addresses could be connected to.
    #[error("{0}")]
    Connect(String),
    /// As many connections as allowed are in use, or this machine has no resources left. The origin
    /// is not to blame.
    #[error("{0}")]
    Busy(String),
    /// The head was not received in time.
    #[error("did not answer in time")]
    Late,
    /// No byte of the body was received in time.
    #[error("stalled in the body at byte {at}")]
    Stalled {
        /// Number of bytes received.
        at: u64,
    },
    /// The connection ended before the head was complete.
    #[error("its connection broke before an answer")]
    Broken,
    /// The head or the chunks are not valid HTTP.
    #[error("answered malformed HTTP: {0}")]
    Malformed(&'static str),
    /// The body ended before its announced length.
    #[error("the body ended at byte {at} instead of {}", Wanted(*.expected))]
    Short {
        /// Number of bytes received.
        at: u64,
        /// Number of bytes announced, if known.
        expected: Option<u64>,
    },
    /// The body is longer than announced, or further bytes followed it.
    #[error("sent more than the {expected} bytes that it had announced")]
    Long {
        /// Number of bytes announced.
        expected: u64,
    },
    /// A partial response with another range than requested, or a contradictory one.
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
    /// A response 500, 502, 503 or 504: not a fault, but a reason to ask another origin.
    Status,
}

impl FaultKind {
    /// All kinds, in the order of their numbers.
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

    /// Stable name, used in labels.
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

    /// Whether the origin is to blame, rather than this machine.
    pub fn blames_origin(&self) -> bool {
        !matches!(self, Self::Ask(_) | Self::Busy(_))
    }

    /// A fault of the connection before the head was complete.
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

/// A number of bytes that may be unknown, as text.
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
