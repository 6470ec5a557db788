//! What lies below the tables: the file's header, how SQLite opens it, and what its errors mean.

use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::path::{Path, PathBuf};

use rusqlite::{Connection, ErrorCode, OpenFlags};

use crate::error::DatabaseError;

/// Bytes of the header of SQLite's files, and what they begin with.
const HEADER_BYTES: usize = 100;
const MAGIC: &[u8] = b"SQLite format 3\0";

/// Where the header has its numbers, in bytes from the beginning (sqlite.org/fileformat.html, 1.3).
const USER_VERSION_AT: usize = 60;
const APPLICATION_ID_AT: usize = 68;

/// What a file says of itself.
pub(crate) struct Header {
    pub(crate) application_id: i32,
    pub(crate) user_version: i32,
}

impl Header {
    /// Reads it without SQLite; `None`: the file is empty, or not there.
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
        // A folder, or one on the way to the file that is none.
        ErrorKind::IsADirectory | ErrorKind::NotADirectory => {
            DatabaseError::CannotOpen { path, why }
        }
        _ => DatabaseError::CannotRead { path, why },
    }
}

/// Opens a file by its name, whatever that looks like.
pub(crate) fn connect(path: &Path, flags: OpenFlags) -> rusqlite::Result<Connection> {
    // SQLite takes `file:...` and `:memory:` for more than names, but no path with a folder.
    Connection::open_with_flags(Path::new(".").join(path), flags - OpenFlags::SQLITE_OPEN_URI)
}

/// Opens a file of which nothing is changed, not even where nothing can be: a file of WAL mode can
/// be read there only if it has no log, and is said to stay as it is.
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

/// SQLite's own code.
pub fn error_code(error: &rusqlite::Error) -> Option<ErrorCode> {
    error.sqlite_error_code()
}

/// An error of SQLite in this file's terms.
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

/// Renames a damaged file that says that it is ours to `FILE.damaged`, in place of an earlier one, so that a new file can
/// begin. Whether it did.
pub(crate) fn set_aside(path: &Path, application_id: i32) -> bool {
    let is_own = match Header::read(path) {
        Ok(header) => header.is_some_and(|it| it.application_id == application_id),
        // Cut within its header: a file of SQLite that can be nobody's any more.
        Err(error) => matches!(error, DatabaseError::Corrupt { .. }),
    };
    let beside = |ending: &str| {
        let mut name = path.as_os_str().to_owned();
        name.push(ending);
        PathBuf::from(name)
    };
    let is_done = is_own && std::fs::rename(path, beside(".damaged")).is_ok();
    if is_done {
        // They are of the file that is gone.
        let _ = (std::fs::remove_file(beside("-wal")), std::fs::remove_file(beside("-shm")));
    }
    is_done
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    /// Permissions do not hold for root, who tests: what they lead to is tested here.
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
        // Not even the index of the log, which readers write.
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
