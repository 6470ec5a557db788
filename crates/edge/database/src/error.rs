//! Errors of files of samples, as sentences for people.

use std::path::PathBuf;

/// A file of samples cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum DatabaseError {
    /// The file does not exist.
    #[error("{}: no such file: expected one that `skep probe run --out` or a recorder has written", path.display())]
    Missing { path: PathBuf },
    /// The file is not one of samples.
    #[error(
        "{}: expected samples of `skep probe run` or of a recorder, found {found}: name another file", path.display()
    )]
    Foreign {
        path: PathBuf,
        /// What the file contains instead.
        found: String,
    },
    /// A later build wrote the file.
    #[error(
        "{}: expected tables of version {newest} or earlier, found {found}: use the skep that has written it", path.display()
    )]
    NewerSchema {
        path: PathBuf,
        /// Version of its tables.
        found: i32,
        /// The newest version that this build supports.
        newest: i32,
    },
    /// The file cannot be created, or opened for writing.
    #[error("{}: cannot open it ({why}): expected a folder that exists and can be written to", path.display())]
    CannotOpen {
        path: PathBuf,
        /// SQLite's message.
        why: String,
    },
    /// The file cannot be read.
    #[error("{}: cannot read it ({why}): expected a file that may be read", path.display())]
    CannotRead {
        path: PathBuf,
        /// SQLite's message, or the system's.
        why: String,
    },
    /// Another process holds a lock on the file and did not release it in time.
    #[error(
        "{}: another process has it locked: a backup, or an open transaction of sqlite3? `fuser` names it; end it, or name another file", path.display()
    )]
    Locked { path: PathBuf },
    /// The disk is full.
    #[error(
        "{}: the disk is full: free some space, or name another file", path.display()
    )]
    Full { path: PathBuf },
    /// An I/O error. SQLite reports some calls so that failed for lack of space.
    #[error("{}: cannot read or write it ({why}): is the disk full, or broken?", path.display())]
    Disk {
        path: PathBuf,
        /// SQLite's message.
        why: String,
    },
    /// Part of the file is missing or was overwritten.
    #[error("{}: the file is damaged ({why}): was it copied in part? `sqlite3 FILE .recover` may save samples", path.display())]
    Corrupt {
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// The file has reached its maximum size with data that its writer must not delete.
    #[error(
        "{}: expected less than {bytes_max} bytes of others in it, found more: `recorder.size_bytes_max` leaves no room", path.display()
    )]
    TooLarge {
        path: PathBuf,
        /// The maximum size.
        bytes_max: u64,
    },
    /// The file has no samples.
    #[error("{}: expected samples of a probe, found none (`skep probe export --recorded` has those of recorders)", path.display())]
    Empty { path: PathBuf },
    /// Any other error.
    #[error("{}: {why}", path.display())]
    Other {
        path: PathBuf,
        /// SQLite's message.
        why: String,
    },
}
