//! The reasons why the bytes of an object cannot be fetched, by source.
//!
//! The same error type is used from the failure to the reply's status, its `Cache-Status`, the
//! counters and the log: `docs/operate/troubleshooting.md` explains each cause.

use rustix::io::Errno;
use skep_telemetry::Counter;

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FetchError {
    /// This node could not read the file.
    #[error(transparent)]
    File(DiskError),
    /// An origin of the site failed.
    #[error("the origin failed ({fault})")]
    Origin {
        /// The kind of failure, as in the counters.
        fault: &'static str,
        /// The status of the reply to the client.
        status: u16,
    },
    /// An origin responded with this error status.
    #[error("the origin answered {0}")]
    OriginStatus(u16),
    /// An origin has a version other than the one whose transfer began, or changes it faster than
    /// it can be read.
    #[error("the origin has another version by now")]
    OriginChanged,
    /// None of the other nodes that hold the bytes responds.
    #[error("no node that has the bytes answers")]
    Peer,
    /// The node that has, or may have, the file cannot be reached, but may soon be back.
    #[error("the node that may have the file is away")]
    NodeAway,
    /// This machine has no connection left to reach another node.
    #[error("no connection to another node is left")]
    NoConnection,
    /// No memory is available for the bytes at the moment.
    #[error("no memory for a reply")]
    NoMemory,
    /// The bytes were received once, are no longer in memory, and cannot be requested again: those
    /// of a stored response of a pool, or of a compressed variant.
    #[error("the bytes are in no memory any more")]
    Lost,
    /// The fill ended early because its worker ended.
    #[error("the fill ended early")]
    Abandoned,
}

impl FetchError {
    /// Returns the status of the reply to the client.
    pub fn status(self) -> u16 {
        match self {
            Self::File(DiskError::NotFound) => 404,
            Self::File(DiskError::Forbidden) => 403,
            Self::File(DiskError::Exhausted | DiskError::Changed | DiskError::Abandoned) => 503,
            Self::File(DiskError::WouldBlock | DiskError::Failed(_)) => 500,
            Self::Origin { status, .. } | Self::OriginStatus(status) => status,
            Self::Peer => 502,
            Self::OriginChanged
            | Self::NodeAway
            | Self::NoConnection
            | Self::NoMemory
            | Self::Lost
            | Self::Abandoned => 503,
        }
    }

    /// Whether this is a regular answer to the request rather than a failure.
    pub fn is_answer(self) -> bool {
        matches!(self, Self::File(DiskError::NotFound | DiskError::Forbidden))
    }

    /// Returns the `Cache-Status` field line for the reply (RFC 9211 2.8); empty for a regular
    /// answer.
    pub fn cache_status(self) -> Vec<u8> {
        if self.is_answer() {
            return Vec::new();
        }
        let detail = match self {
            Self::File(DiskError::Changed) => "file-changed",
            Self::File(DiskError::Exhausted) => "file-exhausted",
            Self::File(_) => "file-error",
            Self::Origin { fault, .. } => {
                return format!("Cache-Status: skep; fwd=miss; detail=origin-{fault}\r\n").into();
            }
            Self::OriginStatus(status) => {
                let status = format!("fwd-status={status}; detail=origin-status");
                return format!("Cache-Status: skep; fwd=miss; {status}\r\n").into();
            }
            Self::OriginChanged => "origin-changed",
            Self::Peer => "peer",
            Self::NodeAway => "node-away",
            Self::NoConnection => "no-connection",
            Self::NoMemory => "no-memory",
            Self::Lost => "lost",
            Self::Abandoned => "abandoned",
        };
        format!("Cache-Status: skep; fwd=miss; detail={detail}\r\n").into()
    }

    /// Returns the counter of error replies sent instead of the bytes.
    pub fn counter(self) -> Counter {
        match self {
            Self::File(_) => Counter::FetchErrorsFile,
            Self::Origin { .. } | Self::OriginStatus(_) | Self::OriginChanged => {
                Counter::FetchErrorsOrigin
            }
            Self::Peer | Self::NodeAway => Counter::FetchErrorsPeer,
            Self::NoConnection => Counter::FetchErrorsConnection,
            Self::NoMemory => Counter::FetchErrorsMemory,
            Self::Lost => Counter::FetchErrorsLost,
            Self::Abandoned => Counter::FetchErrorsAbandoned,
        }
    }

    /// Returns the counter of replies cut short, and the reason for the log.
    pub fn cut(self) -> (Counter, &'static str) {
        match self {
            Self::File(DiskError::Changed | DiskError::NotFound) => {
                (Counter::RepliesCutFile, "the file changed while it was sent")
            }
            Self::File(_) => (Counter::RepliesCutFile, "the file could not be read on"),
            Self::OriginChanged => {
                (Counter::RepliesCutOrigin, "the origin's object changed while it was sent")
            }
            Self::Origin { .. } | Self::OriginStatus(_) => {
                (Counter::RepliesCutOrigin, "the origin failed while its object was sent")
            }
            Self::Peer | Self::NodeAway => {
                (Counter::RepliesCutPeer, "the node that has the bytes does not answer")
            }
            Self::NoConnection => {
                (Counter::RepliesCutConnection, "no connection for the rest of a reply is left")
            }
            Self::NoMemory => (Counter::RepliesCutMemory, "no memory for the rest of a reply"),
            Self::Lost => (Counter::RepliesCutLost, "the rest of a reply is in no memory any more"),
            Self::Abandoned => (Counter::RepliesCutAbandoned, "the fill of the rest ended early"),
        }
    }
}

impl From<DiskError> for FetchError {
    fn from(error: DiskError) -> Self {
        match error {
            DiskError::Abandoned => Self::Abandoned,
            error => Self::File(error),
        }
    }
}

/// Why a file cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DiskError {
    /// The file does not exist.
    #[error("no such file")]
    NotFound,
    /// The file may not be served: permissions, a link out of the root, or not a regular file.
    #[error("not permitted")]
    Forbidden,
    /// The answer would have to wait for the disk.
    #[error("would wait for the disk")]
    WouldBlock,
    /// The process or the machine has no descriptors or memory left.
    #[error("out of descriptors or memory")]
    Exhausted,
    /// The file changed or shrank while it was read.
    #[error("the file changed while it was read")]
    Changed,
    /// The process ended before the file was read.
    #[error("the process ends")]
    Abandoned,
    /// The disk failed.
    #[error("input/output error {0}")]
    Failed(i32),
}

impl From<Errno> for DiskError {
    fn from(errno: Errno) -> Self {
        match errno {
            Errno::NOENT | Errno::NOTDIR | Errno::NAMETOOLONG => Self::NotFound,
            Errno::ACCESS | Errno::PERM | Errno::XDEV | Errno::LOOP | Errno::NXIO => {
                Self::Forbidden
            }
            Errno::AGAIN => Self::WouldBlock,
            Errno::MFILE | Errno::NFILE | Errno::NOMEM => Self::Exhausted,
            other => Self::Failed(other.raw_os_error()),
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
        let late = FetchError::Origin { fault: "late", status: 504 };
        assert_eq!(of(late), (504, line("detail=origin-late")));
        let status = line("fwd-status=500; detail=origin-status");
        assert_eq!(of(FetchError::OriginStatus(500)), (500, status));
        assert_eq!(of(FetchError::Peer), (502, line("detail=peer")));
        assert_eq!(of(FetchError::NodeAway), (503, line("detail=node-away")));
        assert_eq!(of(FetchError::NoConnection), (503, line("detail=no-connection")));
        assert_eq!(of(DiskError::Abandoned.into()), (503, line("detail=abandoned")));
        assert_eq!(of(FetchError::NoMemory), (503, line("detail=no-memory")));
        assert_eq!(of(FetchError::Lost), (503, line("detail=lost")));
    }

    #[test]
    fn the_page_explains_each_detail() {
        let page = include_str!("../../../../docs/operate/troubleshooting.md");
        let mut errors = vec![FetchError::OriginStatus(500), FetchError::OriginChanged];
        errors.extend([FetchError::Peer, FetchError::NodeAway, FetchError::NoMemory]);
        errors.extend([FetchError::Lost, FetchError::Abandoned, FetchError::NoConnection]);
        errors.extend(
            [DiskError::Changed, DiskError::Exhausted, DiskError::Failed(5)].map(FetchError::from),
        );
        for error in errors {
            let status = String::from_utf8_lossy(&error.cache_status()).into_owned();
            let detail = status.trim_end().rsplit("detail=").next().unwrap_or_default();
            let cell = format!("`{detail}`");
            let first = |line: &str| line.split('|').nth(1).is_some_and(|it| it.contains(&cell));
            assert!(page.lines().any(first), "no row of {status}");
        }
    }
}
