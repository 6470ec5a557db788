//! What can go wrong, in words for the operator.

use std::path::PathBuf;

/// Why a store cannot be used at all. The process should not start.
#[derive(Debug, thiserror::Error)]
pub enum StoreOpenError {
    /// The file, or its directory, cannot be read and written.
    #[error("store file {}: {reason}; check the path, its permissions and free space", file.display())]
    Io {
        /// The file as it was named.
        file: PathBuf,
        /// What the kernel said.
        reason: std::io::Error,
    },
    /// Another process has the file open.
    #[error(
        "store file {}: another process has it open; end that process or name another file",
        file.display()
    )]
    InUse {
        /// The file as it was named.
        file: PathBuf,
    },
    /// The file is whole, but written by another version of Skep.
    #[error(
        "store file {}: format {found}, this version reads format {expected}; \
         use the version that wrote it, or move the file away to start anew",
        file.display()
    )]
    Version {
        /// The file as it was named.
        file: PathBuf,
        /// What stands in it.
        found: String,
        /// What this version writes.
        expected: u64,
    },
    /// The file is damaged, or not one of ours.
    #[error(
        "store file {}: damaged, or not a store of Skep ({reason}); \
         restore it from a copy, or move it away to start anew",
        file.display()
    )]
    Corrupt {
        /// The file as it was named.
        file: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// An endpoint that cannot be one.
    #[error(
        "store endpoint `{endpoint}`: {reason}; expected http://HOST:PORT of etcd's client port, usually 2379"
    )]
    Endpoint {
        /// The endpoint as it was written.
        endpoint: String,
        /// What is wrong with it.
        reason: String,
    },
    /// No endpoint, or too many.
    #[error("{found} store endpoints; expected 1 to {max}")]
    Endpoints {
        /// How many there are.
        found: usize,
        /// How many there may be.
        max: usize,
    },
    /// A cluster name that cannot be part of a key.
    #[error(
        "cluster name `{0}` cannot be part of a store key; use letters, digits, `-`, `_` and `.`"
    )]
    Cluster(String),
    /// The kernel gave no thread.
    #[error("the store's thread cannot be started: {0}")]
    Thread(std::io::Error),
}

/// Why a call failed. Traffic goes on; the caller tries again later, or lives
/// with what it knows.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// No endpoint gave an answer in time. A put may have happened.
    #[error("no store endpoint answered in time: {problems}")]
    Unavailable {
        /// What each endpoint said last.
        problems: String,
    },
    /// No outcome in time; the disk is slow, or calls before this one were. A
    /// put may have happened.
    #[error("the store did not finish within {CALL_TIMEOUT_MS} ms", CALL_TIMEOUT_MS = crate::CALL_TIMEOUT_MS)]
    Timeout,
    /// etcd understood and said no.
    #[error("etcd at {endpoint} refused: {reason}")]
    Refused {
        /// Who said so.
        endpoint: String,
        /// In its words.
        reason: String,
    },
    /// The value is not at the revision that a put expected. Nothing changed.
    #[error("`{key}` is at revision {}, not as expected; read it again", revision(*.found))]
    Conflict {
        /// The key of the put.
        key: String,
        /// Where it is now; `None` if there is no value.
        found: Option<u64>,
    },
    /// Not a key.
    #[error(
        "key `{key}` is not 1 to {max} characters of a-z, A-Z, 0-9, `-`, `_`, `.`, `:` and `/`"
    )]
    Key {
        /// As it was given, shortened.
        key: String,
        /// Longest key, in bytes.
        max: usize,
    },
    /// Too long a value.
    #[error("{what} has {bytes} bytes; at most {max} can be stored")]
    TooLarge {
        /// What was to be stored.
        what: &'static str,
        bytes: usize,
        /// The limit, in bytes.
        max: usize,
    },
    /// A stored value is not what its key says.
    #[error("`{key}` in the store is not {expected}; another program wrote it: delete that key")]
    Foreign {
        key: String,
        /// What should have been there.
        expected: &'static str,
    },
    /// The file failed; the next call opens it again.
    #[error(transparent)]
    File(#[from] StoreOpenError),
    /// As many calls wait as may.
    #[error("{} calls to the store are waiting already", crate::limits::CALLS_MAX)]
    Busy,
    /// The store's thread has ended.
    #[error("the store is closed")]
    Closed,
}

fn revision(found: Option<u64>) -> String {
    found.map_or_else(|| "none (no value)".to_owned(), |found| found.to_string())
}
