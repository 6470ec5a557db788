//! The tables of a file, and how it is opened.

use std::path::Path;
use std::time::Duration;

use rusqlite::{Connection, ErrorCode, OpenFlags, TransactionBehavior};

use crate::columns;
use crate::error::DatabaseError;
use crate::file::{Header, connect, connect_to_read, error_code, fault, set_aside};
use crate::limits::LOG_BYTES_MAX;

/// Marks our files: `SkPr`.
const APPLICATION_ID: i32 = 0x536b_5072;

/// Version of the tables below, incremented with each change of them. Version 1 had no tables of recorders.
const SCHEMA_VERSION: i32 = 2;

/// Tables of probes; the columns of samples are defined in the probes' crate.
const PROBE_TABLES: &str = "
CREATE TABLE run (
    id INTEGER PRIMARY KEY,
    label TEXT NOT NULL,
    begun_unix_ms INTEGER NOT NULL,
    interval_ms INTEGER NOT NULL,
    timeout_ms INTEGER NOT NULL,
    turns_skipped INTEGER NOT NULL DEFAULT 0,
    version TEXT NOT NULL
) STRICT;
CREATE TABLE url (
    id INTEGER PRIMARY KEY,
    url TEXT NOT NULL UNIQUE
) STRICT;
CREATE TABLE sample (
    id INTEGER PRIMARY KEY,
    run INTEGER NOT NULL REFERENCES run,
    url INTEGER NOT NULL REFERENCES url,
    turn INTEGER NOT NULL,
    at_unix_ms INTEGER NOT NULL,
    since_begin_ms INTEGER NOT NULL,
    lookup_us INTEGER,
    redirect_connect_us INTEGER,
    redirect_us INTEGER,
    connect_us INTEGER,
    tls_us INTEGER,
    first_byte_us INTEGER,
    data_us INTEGER,
    total_us INTEGER NOT NULL,
    status INTEGER,
    body_bytes INTEGER NOT NULL,
    redirects INTEGER NOT NULL,
    node TEXT,
    failure TEXT,
    failure_text TEXT
) STRICT;
";

/// Tables of recorders: each start of a process is a recording.
const RECORDER_TABLES: &str = "
CREATE TABLE recording (
    id INTEGER PRIMARY KEY,
    name TEXT NOT NULL,
    authority TEXT,
    is_node INTEGER NOT NULL,
    begun_unix_ms INTEGER NOT NULL,
    interval_ms INTEGER NOT NULL,
    version TEXT NOT NULL
) STRICT;
";

/// Opens the file at `path` for adding rows, or creates it. Waits up to `wait_ms` for a lock of another
/// process.
///
/// # Errors
/// The file belongs to another program, or cannot be written.
pub fn open_to_write(path: &Path, wait_ms: u64) -> Result<Connection, DatabaseError> {
    if path == Path::new(":memory:") {
        let why = "it would keep nothing".to_owned();
        return Err(DatabaseError::CannotOpen { path: path.to_owned(), why });
    }
    // Checked before SQLite opens the file: even by reading, SQLite changes a file of another program that
    // has a log.
    if let Some(header) = Header::read(path)? {
        check_ids(path, header.application_id, header.user_version)?;
    }
    let mut connection = connect(path, OpenFlags::default()).map_err(|error| fault(path, error))?;
    make_tables(path, &mut connection, wait_ms)?;
    let set = || {
        // Readers do not wait for writers, nor writers for readers.
        connection.pragma_update(None, "journal_mode", "WAL")?;
        connection.pragma_update(None, "journal_size_limit", LOG_BYTES_MAX)?;
        connection.pragma_update(None, "synchronous", "NORMAL")
    };
    set().map_err(|error| fault(path, error))?;
    Ok(connection)
}

/// Opens the file at `path` without modifying it.
///
/// # Errors
/// The file is missing, empty, or belongs to another program.
pub fn open_to_read(path: &Path, wait_ms: u64) -> Result<Connection, DatabaseError> {
    if !path.exists() {
        return Err(DatabaseError::Missing { path: path.to_owned() });
    }
    let Some(header) = Header::read(path)? else {
        return Err(DatabaseError::Empty { path: path.to_owned() });
    };
    check_ids(path, header.application_id, header.user_version)?;
    let fault = |error| match error_code(&error) {
        Some(ErrorCode::CannotOpen | ErrorCode::ReadOnly | ErrorCode::PermissionDenied) => {
            DatabaseError::CannotRead { path: path.to_owned(), why: error.to_string() }
        }
        _ => fault(path, error),
    };
    let connection = connect_to_read(path).map_err(fault)?;
    connection.busy_timeout(Duration::from_millis(wait_ms)).map_err(fault)?;
    check_owner(path, &connection)?;
    Ok(connection)
}

/// Renames a damaged file of Skep's to `FILE.damaged`, replacing an earlier one, so that a new one can be
/// created. Returns whether it was renamed.
pub fn set_damaged_aside(path: &Path) -> bool {
    set_aside(path, APPLICATION_ID)
}

/// Creates the missing tables.
fn make_tables(
    path: &Path,
    connection: &mut Connection,
    wait_ms: u64,
) -> Result<(), DatabaseError> {
    let fault = |error| fault(path, error);
    connection.busy_timeout(Duration::from_millis(wait_ms)).map_err(fault)?;
    let transaction =
        connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(fault)?;
    if is_fresh(&transaction).map_err(fault)? {
        transaction.execute_batch(PROBE_TABLES).map_err(fault)?;
        transaction.pragma_update(None, "application_id", APPLICATION_ID).map_err(fault)?;
    }
    check_owner(path, &transaction)?;
    if pragma(&transaction, "user_version").map_err(fault)? < SCHEMA_VERSION {
        transaction.execute_batch(RECORDER_TABLES).map_err(fault)?;
        transaction.execute_batch(&columns::tables()).map_err(fault)?;
        transaction.pragma_update(None, "user_version", SCHEMA_VERSION).map_err(fault)?;
    }
    transaction.commit().map_err(fault)
}

/// Whether nothing was written to the file yet.
fn is_fresh(connection: &Connection) -> rusqlite::Result<bool> {
    let tables: i64 =
        connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
    Ok(tables == 0
        && pragma(connection, "application_id")? == 0
        && pragma(connection, "user_version")? == 0)
}

fn check_owner(path: &Path, connection: &Connection) -> Result<(), DatabaseError> {
    let pragma = |name| pragma(connection, name).map_err(|error| fault(path, error));
    check_ids(path, pragma("application_id")?, pragma("user_version")?)
}

/// Checks whose file it is, and the version of its tables.
fn check_ids(path: &Path, application: i32, version: i32) -> Result<(), DatabaseError> {
    if application != APPLICATION_ID {
        let found = "a database of another program".to_owned();
        return Err(DatabaseError::Foreign { path: path.to_owned(), found });
    }
    match version > SCHEMA_VERSION {
        true => Err(DatabaseError::NewerSchema {
            path: path.to_owned(),
            found: version,
            newest: SCHEMA_VERSION,
        }),
        false => Ok(()),
    }
}

fn pragma(connection: &Connection, name: &str) -> rusqlite::Result<i32> {
    connection.pragma_query_value(None, name, |row| row.get(0))
}
