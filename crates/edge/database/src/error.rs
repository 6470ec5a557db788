//! What may be wrong with a file of samples, in sentences for people.

use std::path::PathBuf;

/// A file of samples cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum DatabaseError {
    /// There is none.
    #[error("{}: no such file: expected one that `skep probe run --out` or a recorder has written", path.display())]
    Missing { path: PathBuf },
    /// It is something else.
    #[error(
        "{}: expected samples of `skep probe run` or of a recorder, found {found}: name another file", path.display()
    )]
    Foreign {
        path: PathBuf,
        /// What it is.
        found: String,
    },
    /// A later build has written it.
    #[error(
        "{}: expected tables of version {newest} or earlier, found {found}: use the skep that has written it", path.display()
    )]
    NewerSchema {
        path: PathBuf,
        /// Version of its tables.
        found: i32,
        /// The version that this build has.
        newest: i32,
    },
    /// It cannot be created or opened to write to it.
    #[error("{}: cannot open it ({why}): expected a folder that exists and can be written to", path.display())]
    CannotOpen {
        path: PathBuf,
        /// SQLite's words.
        why: String,
    },
    /// It cannot be read.
    #[error("{}: cannot read it ({why}): expected a file that may be read", path.display())]
    CannotRead {
        path: PathBuf,
        /// The words of SQLite, or of the system.
        why: String,
    },
    /// Another process writes, or has begun to, and does not end.
    #[error(
        "{}: another process has it locked: a backup, or an open transaction of sqlite3? `fuser` names it; end it, or name another file", path.display()
    )]
    Locked { path: PathBuf },
    /// There is no room.
    #[error(
        "{}: the disk is full: free some space, or name another file", path.display()
    )]
    Full { path: PathBuf },
    /// The disk refuses. SQLite names some calls so that fail for want of room.
    #[error("{}: cannot read or write it ({why}): is the disk full, or broken?", path.display())]
    Disk {
        path: PathBuf,
        /// SQLite's words.
        why: String,
    },
    /// Part of it is missing, or was overwritten.
    #[error("{}: the file is damaged ({why}): was it copied in part? `sqlite3 FILE .recover` may save samples", path.display())]
    Corrupt {
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// It is as large as it may be, and not by what its writer may delete.
    #[error(
        "{}: expected less than {bytes_max} bytes of others in it, found more: `recorder.size_bytes_max` leaves no room", path.display()
    )]
    TooLarge {
        path: PathBuf,
        /// What it may have.
        bytes_max: u64,
    },
    /// It has no samples.
    #[error("{}: expected samples of a probe, found none (`skep probe export --recorded` has those of recorders)", path.display())]
    Empty { path: PathBuf },
    /// Anything else.
    #[error("{}: {why}", path.display())]
    Other {
        path: PathBuf,
        /// SQLite's words.
        why: String,
    },
}
