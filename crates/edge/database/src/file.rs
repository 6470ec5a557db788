//! The layer below the tables: the file's header, how SQLite opens the file, and what its errors mean.

use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::path::{Path, PathBuf};

use rusqlite::{Connection, ErrorCode, OpenFlags};

use crate::error::DatabaseError;

/// Size of the header of a SQLite file, and its first bytes.
const HEADER_BYTES: usize = 100;
const MAGIC: &[u8] = b"SQLite format 3\0";

/// Offsets of numbers in the header, in bytes (sqlite.org/fileformat.html, 1.3).
const USER_VERSION_AT: usize = 60;
const APPLICATION_ID_AT: usize = 68;

/// The two numbers in a file's header by which its program and its tables are identified.
pub(crate) struct Header {
    pub(crate) application_id: i32,
    pub(crate) user_version: i32,
}

impl Header {
    /// Reads the header without SQLite; `None` if the file is empty or missing.
    pub(crate) fn read(path: &Path) -> Result<Option<Self>, DatabaseError> {
        let mut bytes = Vec::new();
        let read = File::open(path)
            .and_then(|file| file.take(HEADER_BYTES as u64).read_to_end(&mut bytes));
        match read {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(unreadable(path, &error)),
            Ok(0) => return Ok(None),
            Ok(_) => {}
        }
        let path = path.to_owned();
        if bytes.iter().zip(MAGIC).any(|(byte, expected)| byte != expected) {
            let found = "a file that is no database".to_owned();
            return Err(DatabaseError::Foreign { path, found });
        }
        let number = |at: usize| Some(i32::from_be_bytes(*bytes.get(at..)?.first_chunk()?));
        match (bytes.len(), number(APPLICATION_ID_AT), number(USER_VERSION_AT)) {
            (HEADER_BYTES, Some(application_id), Some(user_version)) => {
                Ok(Some(Self { application_id, user_version }))
            }
            (length, ..) => {
                Err(DatabaseError::Corrupt { path, why: format!("it has {length} bytes") })
            }
        }
    }
}

fn unreadable(path: &Path, error: &io::Error) -> DatabaseError {
    let (path, why) = (path.to_owned(), error.to_string());
    match error.kind() {
        // The path is a folder, or has a file where it should have a folder.
        ErrorKind::IsADirectory | ErrorKind::NotADirectory => {
            DatabaseError::CannotOpen { path, why }
        }
        _ => DatabaseError::CannotRead { path, why },
    }
}

/// Opens a file by its path, even if the path looks like a URI.
pub(crate) fn connect(path: &Path, flags: OpenFlags) -> rusqlite::Result<Connection> {
    // SQLite gives `file:...` and `:memory:` a special meaning, but only without a folder before them.
    Connection::open_with_flags(Path::new(".").join(path), flags - OpenFlags::SQLITE_OPEN_URI)
}

/// Opens a file without modifying it, even on a read-only file system: there a file in WAL mode can be read
/// only if it has no log, and if SQLite is told that it does not change (`immutable`).
pub(crate) fn connect_to_read(path: &Path) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = connect(path, flags)?;
    let first = connection.query_row("SELECT count(*) FROM sqlite_schema", [], |_| Ok(()));
    let is_refused = first.as_ref().err().and_then(error_code) == Some(ErrorCode::CannotOpen);
    match is_refused && !has_log(path) {
        true => connect_immutable(path),
        false => first.map(|()| connection),
    }
}

fn connect_immutable(path: &Path) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    Connection::open_with_flags(immutable_uri(path), flags | OpenFlags::SQLITE_OPEN_URI)
}

fn has_log(path: &Path) -> bool {
    let mut log = path.as_os_str().to_owned();
    log.push("-wal");
    PathBuf::from(log).metadata().is_ok_and(|log| log.len() > 0)
}

fn immutable_uri(path: &Path) -> String {
    use std::fmt::Write as _;
    let mut uri = "file:".to_owned();
    for byte in Path::new(".").join(path).as_os_str().as_encoded_bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'.' | b'-' | b'_' => {
                uri.push(char::from(*byte));
            }
            other => {
                let _ = write!(uri, "%{other:02x}");
            }
        }
    }
    uri + "?immutable=1"
}

/// Returns SQLite's error code.
pub fn error_code(error: &rusqlite::Error) -> Option<ErrorCode> {
    error.sqlite_error_code()
}

/// Converts an error of SQLite to one of this crate.
pub fn fault(path: &Path, error: rusqlite::Error) -> DatabaseError {
    let path = path.to_owned();
    let code = error_code(&error);
    let why = error.to_string();
    match code {
        Some(ErrorCode::NotADatabase) => {
            DatabaseError::Foreign { path, found: "a file that is no database".to_owned() }
        }
        Some(ErrorCode::DiskFull) => DatabaseError::Full { path },
        Some(ErrorCode::SystemIoFailure) => DatabaseError::Disk { path, why },
        Some(ErrorCode::DatabaseCorrupt) => DatabaseError::Corrupt { path, why },
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => DatabaseError::Locked { path },
        Some(ErrorCode::CannotOpen | ErrorCode::ReadOnly | ErrorCode::PermissionDenied) => {
            DatabaseError::CannotOpen { path, why }
        }
        _ => DatabaseError::Other { path, why },
    }
}

/// Renames a damaged file that is marked as ours to `FILE.damaged`, replacing an earlier one, so that a new
/// file can be begun. Returns whether it was renamed.
pub(crate) fn set_aside(path: &Path, application_id: i32) -> bool {
    let is_own = match Header::read(path) {
        Ok(header) => header.is_some_and(|it| it.application_id == application_id),
        // Truncated within its header: no program can use this SQLite file any more.
        Err(error) => matches!(error, DatabaseError::Corrupt { .. }),
    };
    let beside = |ending: &str| {
        let mut name = path.as_os_str().to_owned();
        name.push(ending);
        PathBuf::from(name)
    };
    let is_done = is_own && std::fs::rename(path, beside(".damaged")).is_ok();
    if is_done {
        // The log and its index belong to the file that was renamed.
        let _ = (std::fs::remove_file(beside("-wal")), std::fs::remove_file(beside("-shm")));
    }
    is_done
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    /// Permissions do not apply to root, as whom tests run: this tests the fallback that they would lead to.
    #[test]
    fn a_file_of_wal_mode_can_be_read_where_nothing_can_be_written() {
        let folder = tempfile::TempDir::new().unwrap();
        let path = folder.path().join("a?b%25 c#d.db");
        let file = connect(&path, OpenFlags::default()).unwrap();
        file.pragma_update(None, "journal_mode", "WAL").unwrap();
        file.execute_batch("CREATE TABLE sample (id INTEGER)").unwrap();
        assert!(has_log(&path));
        drop(file);
        assert!(!has_log(&path));
        let file = connect_immutable(&path).unwrap();
        file.query_row("SELECT count(*) FROM sample", [], |_| Ok(())).unwrap();
        assert!(file.execute_batch("DROP TABLE sample").is_err());
        // Not even the log's index, which readers create.
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
