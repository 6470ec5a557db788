//! Why the bytes of an object cannot be had, by where they come from.
//!
//! One error from where it happens to the reply's status, its `Cache-Status`, the
//! counters and the log: `docs/operate/troubleshooting.md` explains each cause.

use skep_origin::{Fault, FaultKind, OriginError};
use skep_telemetry::Counter;

use crate::disk::DiskError;

/// See the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum FetchError {
    /// This node's disk.
    #[error(transparent)]
    File(#[from] DiskError),
    /// An origin of the site failed.
    #[error("the origin failed ({})", .0.name())]
    Origin(FaultKind),
    /// An origin answered that it is in trouble.
    #[error("the origin answered {0}")]
    OriginStatus(u16),
    /// An origin has another version than the one that was begun, or changes faster
    /// than it can be read.
    #[error("the origin has another version by now")]
    OriginChanged,
    /// No other node that has the bytes answers.
    #[error("no node that has the bytes answers")]
    Peer,
    /// No memory may be taken for the bytes now.
    #[error("no memory for a reply")]
    NoMemory,
    /// The fill ended early: its worker did.
    #[error("the fill ended early")]
    Abandoned,
}

impl From<&OriginError> for FetchError {
    fn from(error: &OriginError) -> Self {
        Self::from(&error.fault)
    }
}

impl From<&Fault> for FetchError {
    fn from(fault: &Fault) -> Self {
        Self::Origin(fault.kind())
    }
}

impl FetchError {
    /// The status of the reply that says so.
    pub(crate) fn status(self) -> u16 {
        match self {
            Self::File(DiskError::NotFound) => 404,
            Self::File(DiskError::Forbidden) => 403,
            Self::File(DiskError::Exhausted | DiskError::Changed) => 503,
            Self::File(DiskError::WouldBlock | DiskError::Failed(_)) => 500,
            Self::Origin(FaultKind::Ask) => 400,
            Self::Origin(FaultKind::Busy) => 503,
            Self::Origin(FaultKind::Late | FaultKind::Stalled) => 504,
            Self::Origin(_) | Self::Peer => 502,
            Self::OriginStatus(status) => status,
            Self::OriginChanged | Self::NoMemory | Self::Abandoned => 503,
        }
    }

    /// Whether it answers the request, rather than failing to.
    pub(crate) fn is_answer(self) -> bool {
        matches!(self, Self::File(DiskError::NotFound | DiskError::Forbidden))
    }

    /// The field line of the reply that says so (RFC 9211 2.8); empty for an answer.
    pub(crate) fn cache_status(self) -> Vec<u8> {
        if self.is_answer() {
            return Vec::new();
        }
        let detail = match self {
            Self::File(DiskError::Changed) => "file-changed",
            Self::File(DiskError::Exhausted) => "file-exhausted",
            Self::File(_) => "file-error",
            Self::Origin(kind) => {
                let kind = kind.name();
                return format!("Cache-Status: skep; fwd=miss; detail=origin-{kind}\r\n").into();
            }
            Self::OriginStatus(status) => {
                let status = format!("fwd-status={status}; detail=origin-status");
                return format!("Cache-Status: skep; fwd=miss; {status}\r\n").into();
            }
            Self::OriginChanged => "origin-changed",
            Self::Peer => "peer",
            Self::NoMemory => "no-memory",
            Self::Abandoned => "abandoned",
        };
        format!("Cache-Status: skep; fwd=miss; detail={detail}\r\n").into()
    }

    /// Counts an error reply that is sent instead of the bytes.
    pub(crate) fn counter(self) -> Counter {
        match self {
            Self::File(_) => Counter::FetchErrorsFile,
            Self::Origin(_) | Self::OriginStatus(_) | Self::OriginChanged => {
                Counter::FetchErrorsOrigin
            }
            Self::Peer => Counter::FetchErrorsPeer,
            Self::NoMemory => Counter::FetchErrorsMemory,
            Self::Abandoned => Counter::FetchErrorsAbandoned,
        }
    }

    /// Counts a reply that is cut short, and says why in a log.
    pub(crate) fn cut(self) -> (Counter, &'static str) {
        match self {
            Self::File(DiskError::Changed | DiskError::NotFound) => {
                (Counter::RepliesCutFile, "the file changed while it was sent")
            }
            Self::File(_) => (Counter::RepliesCutFile, "the file could not be read on"),
            Self::OriginChanged => {
                (Counter::RepliesCutOrigin, "the origin's object changed while it was sent")
            }
            Self::Origin(_) | Self::OriginStatus(_) => {
                (Counter::RepliesCutOrigin, "the origin failed while its object was sent")
            }
            Self::Peer => (Counter::RepliesCutPeer, "the node that has the bytes does not answer"),
            Self::NoMemory => (Counter::RepliesCutMemory, "no memory for the rest of a reply"),
            Self::Abandoned => (Counter::RepliesCutAbandoned, "the fill of the rest ended early"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_cause_has_a_status_and_says_where_it_happened() {
        let of = |error: FetchError| {
            (error.status(), String::from_utf8_lossy(&error.cache_status()).into_owned())
        };
        let line = |detail: &str| format!("Cache-Status: skep; fwd=miss; {detail}\r\n");
        assert_eq!(of(DiskError::NotFound.into()), (404, String::new()));
        assert_eq!(of(DiskError::Failed(5).into()), (500, line("detail=file-error")));
        assert_eq!(of(FetchError::Origin(FaultKind::Late)), (504, line("detail=origin-late")));
        let status = line("fwd-status=500; detail=origin-status");
        assert_eq!(of(FetchError::OriginStatus(500)), (500, status));
        assert_eq!(of(FetchError::Peer), (502, line("detail=peer")));
        assert_eq!(of(FetchError::NoMemory), (503, line("detail=no-memory")));
    }
}
