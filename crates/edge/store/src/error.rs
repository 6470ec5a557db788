//! Errors, as sentences for the operator.

use std::path::PathBuf;

/// Why a store cannot be used at all. The process must not start.
#[derive(Debug, thiserror::Error)]
pub enum StoreOpenError {
    /// The file, or its directory, cannot be read and written.
    #[error("store file {}: {reason}; check the path, its permissions and free space", file.display())]
    Io {
        /// The file as configured.
        file: PathBuf,
        /// The kernel's error.
        reason: std::io::Error,
    },
    /// Another process has the file open.
    #[error(
        "store file {}: another process has it open; end that process or name another file",
        file.display()
    )]
    InUse {
        /// The file as configured.
        file: PathBuf,
    },
    /// The file is intact, but written by another version of Skep.
    #[error(
        "store file {}: format {found}, this version reads format {expected}; \
         use the version that wrote it, or move the file away to start anew",
        file.display()
    )]
    Version {
        /// The file as configured.
        file: PathBuf,
        /// Format of the file.
        found: String,
        /// Format of this version.
        expected: u64,
    },
    /// The file is damaged, or not a store.
    #[error(
        "store file {}: damaged, or not a store of Skep ({reason}); \
         restore it from a copy, or move it away to start anew",
        file.display()
    )]
    Corrupt {
        /// The file as configured.
        file: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// An endpoint is invalid.
    #[error(
        "store endpoint `{endpoint}`: {reason}; expected http://HOST:PORT of etcd's client port, usually 2379"
    )]
    Endpoint {
        /// The endpoint as configured.
        endpoint: String,
        /// What is wrong with it.
        reason: String,
    },
    /// There is no endpoint, or there are too many.
    #[error("{found} store endpoints; expected 1 to {max}")]
    Endpoints {
        /// Number of endpoints.
        found: usize,
        /// Maximum number.
        max: usize,
    },
    /// The cluster name cannot be part of a key.
    #[error(
        "cluster name `{0}` cannot be part of a store key; use letters, digits, `-`, `_` and `.`"
    )]
    Cluster(String),
    /// The kernel could not create a thread.
    #[error("the store's thread cannot be started: {0}")]
    Thread(std::io::Error),
}

impl StoreOpenError {
    /// Whether the disk, or the user's quota, is full.
    pub(crate) fn is_lack_of_room(&self) -> bool {
        use std::io::ErrorKind::{QuotaExceeded, StorageFull};
        matches!(self, Self::Io { reason, .. } if matches!(reason.kind(), StorageFull | QuotaExceeded))
    }
}

/// Why a call failed. Traffic continues; the caller retries later, or uses its last values.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// No endpoint answered in time. A put may nevertheless have been executed.
    #[error("no store endpoint answered in time: {problems}")]
    Unavailable {
        /// The last error of each endpoint.
        problems: String,
    },
    /// The call timed out; the disk is slow, or earlier calls were. A put may nevertheless have been
    /// executed.
    #[error("the store did not finish within {CALL_TIMEOUT_MS} ms", CALL_TIMEOUT_MS = crate::CALL_TIMEOUT_MS)]
    Timeout,
    /// etcd refused the request.
    #[error("etcd at {endpoint} refused: {reason}")]
    Refused {
        /// The endpoint.
        endpoint: String,
        /// The message of etcd.
        reason: String,
    },
    /// The value is not at the revision that a put expected. Nothing was changed.
    #[error("`{key}` is at revision {}, not as expected; read it again", revision(*.found))]
    Conflict {
        /// The key of the put.
        key: String,
        /// The present revision; `None` if there is no value.
        found: Option<u64>,
    },
    /// A key is invalid.
    #[error(
        "key `{key}` is not 1 to {max} characters of a-z, A-Z, 0-9, `-`, `_`, `.`, `:` and `/`"
    )]
    Key {
        /// The key, truncated.
        key: String,
        /// Maximum length of a key, in bytes.
        max: usize,
    },
    /// A value is too long.
    #[error("{what} has {bytes} bytes; at most {max} can be stored")]
    TooLarge {
        /// The kind of value.
        what: &'static str,
        bytes: usize,
        /// The limit, in bytes.
        max: usize,
    },
    /// A stored value is malformed.
    #[error("`{key}` in the store is not {expected}; another program wrote it: delete that key")]
    Foreign {
        key: String,
        /// The expected content.
        expected: &'static str,
    },
    /// The file failed; the next call reopens it.
    #[error(transparent)]
    File(#[from] StoreOpenError),
    /// Too many calls are waiting.
    #[error("{} calls to the store are waiting already", crate::limits::CALLS_MAX)]
    Busy,
    /// The store's thread has ended.
    #[error("the store is closed")]
    Closed,
}

fn revision(found: Option<u64>) -> String {
    found.map_or_else(|| "none (no value)".to_owned(), |found| found.to_string())
}
