//! Samples in a file of SQLite.
//!
//! The file says whose it is (`application_id`) and which tables it has (`user_version`), so that a
//! file of another program, or of a later build, is refused and never changed.

use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::{
    Connection, ErrorCode, OpenFlags, OptionalExtension, Row, Statement, TransactionBehavior,
    params,
};

use crate::database_error::ProbeDatabaseError;
use crate::database_file::{Header, connect, connect_to_read, error_code, fault};
use crate::limits::DATABASE_WAIT_MS;
use crate::plan::ProbePlan;
use crate::sample::{ProbeFailure, ProbePhase, ProbeSample};

/// Marks files of the probe: `SkPr`.
const APPLICATION_ID: i32 = 0x536b_5072;

/// Version of the tables below; counted up by each change of them.
const SCHEMA_VERSION: i32 = 1;

const SCHEMA: &str = "
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
";

/// Columns of a sample behind its run and its URL, in the order of [`insert_sample`] and
/// [`read_sample`].
const COLUMNS: [(&str, &str); 17] = [
    ("turn", "INTEGER NOT NULL"),
    ("at_unix_ms", "INTEGER NOT NULL"),
    ("since_begin_ms", "INTEGER NOT NULL"),
    ("lookup_us", "INTEGER"),
    ("redirect_connect_us", "INTEGER"),
    ("redirect_us", "INTEGER"),
    ("connect_us", "INTEGER"),
    ("tls_us", "INTEGER"),
    ("first_byte_us", "INTEGER"),
    ("data_us", "INTEGER"),
    ("total_us", "INTEGER NOT NULL"),
    ("status", "INTEGER"),
    ("body_bytes", "INTEGER NOT NULL"),
    ("redirects", "INTEGER NOT NULL"),
    ("node", "TEXT"),
    ("failure", "TEXT"),
    ("failure_text", "TEXT"),
];

fn sample_table() -> String {
    let columns: String =
        COLUMNS.iter().map(|(name, kind)| format!(",\n    {name} {kind}")).collect();
    format!(
        "CREATE TABLE sample (\n    id INTEGER PRIMARY KEY,\n    run INTEGER NOT NULL REFERENCES run,\n    \
         url INTEGER NOT NULL REFERENCES url{columns}\n) STRICT;"
    )
}

fn insert() -> String {
    let values = ", ?".repeat(COLUMNS.len());
    format!("INSERT INTO sample (run, url, {}) VALUES (?, ?{values})", column_names())
}

fn select() -> String {
    format!(
        "SELECT run.label, url.url, {} FROM sample JOIN run ON run.id = sample.run \
         JOIN url ON url.id = sample.url ORDER BY sample.id",
        column_names()
    )
}

fn column_names() -> String {
    COLUMNS.map(|(name, _)| name).join(", ")
}

/// A file of samples that a run writes to.
pub(crate) struct SampleWriter {
    path: PathBuf,
    connection: Connection,
    run: i64,
}

impl SampleWriter {
    /// Opens the plan's file, or creates it, and begins a run in it.
    pub(crate) fn open(plan: &ProbePlan, begun_unix_ms: u64) -> Result<Self, ProbeDatabaseError> {
        let path = &plan.out;
        if path == Path::new(":memory:") {
            let why = "it would keep nothing".to_owned();
            return Err(ProbeDatabaseError::CannotOpen { path: path.clone(), why });
        }
        // Before SQLite: it changes files of others even by reading them, if they have a log.
        if let Some(header) = Header::read(path)? {
            check_header(path, &header)?;
        }
        let fault = |error| fault(path, error);
        let mut connection = connect(path, OpenFlags::default()).map_err(fault)?;
        connection.busy_timeout(Duration::from_millis(DATABASE_WAIT_MS)).map_err(fault)?;
        let transaction =
            connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(fault)?;
        if is_fresh(&transaction).map_err(fault)? {
            transaction.execute_batch(SCHEMA).map_err(fault)?;
            transaction.execute_batch(&sample_table()).map_err(fault)?;
            transaction.pragma_update(None, "application_id", APPLICATION_ID).map_err(fault)?;
            transaction.pragma_update(None, "user_version", SCHEMA_VERSION).map_err(fault)?;
        }
        check_owner(path, &transaction)?;
        let insert = "INSERT INTO run (label, begun_unix_ms, interval_ms, timeout_ms, version) \
                      VALUES (?1, ?2, ?3, ?4, ?5)";
        let version = env!("CARGO_PKG_VERSION");
        let values = params![
            plan.label,
            whole(begun_unix_ms),
            whole(plan.interval_ms),
            whole(plan.timeout_ms),
            version
        ];
        transaction.execute(insert, values).map_err(fault)?;
        let run = transaction.last_insert_rowid();
        transaction.commit().map_err(fault)?;
        // Readers do not wait for the run, nor the run for them.
        connection.pragma_update(None, "journal_mode", "WAL").map_err(fault)?;
        connection.pragma_update(None, "synchronous", "NORMAL").map_err(fault)?;
        Ok(Self { path: path.clone(), connection, run })
    }

    /// Stores `samples`: all of them, or none. A lock of another process is waited for so long.
    pub(crate) fn store(
        &mut self,
        samples: &[ProbeSample],
        turns_skipped: u64,
        wait_ms: u64,
    ) -> Result<(), ProbeDatabaseError> {
        let path = self.path.clone();
        self.try_store(samples, turns_skipped, wait_ms).map_err(|error| fault(&path, error))
    }

    /// Ends the run: the last of several leaves one file without a log, which can be copied and read
    /// where nothing can be written.
    pub(crate) fn close(&self) {
        // Other runs and readers may have the file; the samples are safe in any case.
        let _ = self.connection.busy_timeout(Duration::ZERO);
        let _ = self.connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()));
        let _ = self.connection.pragma_update(None, "journal_mode", "DELETE");
    }

    fn try_store(
        &mut self,
        samples: &[ProbeSample],
        turns_skipped: u64,
        wait_ms: u64,
    ) -> rusqlite::Result<()> {
        self.connection.busy_timeout(Duration::from_millis(wait_ms))?;
        let transaction =
            self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let mut insert = transaction.prepare(&insert())?;
        for sample in samples {
            let url = url_id(&transaction, &sample.url)?;
            insert_sample(&mut insert, self.run, url, sample)?;
        }
        drop(insert);
        let update = "UPDATE run SET turns_skipped = ?1 WHERE id = ?2";
        transaction.execute(update, params![whole(turns_skipped), self.run])?;
        transaction.commit()
    }
}

/// A file of samples that is read.
pub(crate) struct SampleReader {
    path: PathBuf,
    connection: Connection,
}

impl SampleReader {
    pub(crate) fn open(path: &Path) -> Result<Self, ProbeDatabaseError> {
        if !path.exists() {
            return Err(ProbeDatabaseError::Missing { path: path.to_owned() });
        }
        let Some(header) = Header::read(path)? else {
            return Err(ProbeDatabaseError::Empty { path: path.to_owned() });
        };
        check_header(path, &header)?;
        let fault = |error| match error_code(&error) {
            Some(ErrorCode::CannotOpen | ErrorCode::ReadOnly | ErrorCode::PermissionDenied) => {
                ProbeDatabaseError::CannotRead { path: path.to_owned(), why: error.to_string() }
            }
            _ => fault(path, error),
        };
        let connection = connect_to_read(path).map_err(fault)?;
        connection.busy_timeout(Duration::from_millis(DATABASE_WAIT_MS)).map_err(fault)?;
        check_owner(path, &connection)?;
        Ok(Self { path: path.to_owned(), connection })
    }

    /// Turns that did not take place, by label.
    pub(crate) fn turns_skipped(&self) -> Result<Vec<(String, u64)>, ProbeDatabaseError> {
        let read = || {
            let by_label = "SELECT label, sum(turns_skipped) FROM run GROUP BY label";
            let mut select = self.connection.prepare(by_label)?;
            let rows = select.query_map([], |row| Ok((row.get(0)?, unsigned(row.get(1)?))))?;
            rows.collect::<rusqlite::Result<_>>()
        };
        read().map_err(|error| fault(&self.path, error))
    }

    /// Calls `each` with the label and the sample of each row, in the order in which they were stored.
    pub(crate) fn for_each<E: From<ProbeDatabaseError>>(
        &self,
        mut each: impl FnMut(String, ProbeSample) -> Result<(), E>,
    ) -> Result<(), E> {
        let fault = |error| E::from(fault(&self.path, error));
        let mut select = self.connection.prepare(&select()).map_err(fault)?;
        let mut rows = select.query([]).map_err(fault)?;
        let mut is_empty = true;
        while let Some(row) = rows.next().map_err(fault)? {
            is_empty = false;
            let (label, sample) = read_sample(row).map_err(fault)?;
            each(label, sample)?;
        }
        match is_empty {
            true => Err(ProbeDatabaseError::Empty { path: self.path.clone() }.into()),
            false => Ok(()),
        }
    }

    /// Mean load of the nodes in each hour since 1970, if a recorder has written any.
    pub(crate) fn loads_by_hour(&self) -> Result<Vec<(u64, f64)>, ProbeDatabaseError> {
        self.try_loads_by_hour().map_err(|error| fault(&self.path, error))
    }

    /// The recorder's table is `node_load (at_unix_ms, node, load1)`: see the docs of the probe.
    fn try_loads_by_hour(&self) -> rusqlite::Result<Vec<(u64, f64)>> {
        let named = "SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = 'node_load'";
        if self.connection.query_row(named, [], |_| Ok(())).optional()?.is_none() {
            return Ok(Vec::new());
        }
        let by_hour = "SELECT at_unix_ms / 3600000 AS hour, avg(load1) FROM node_load \
                       WHERE load1 IS NOT NULL GROUP BY hour ORDER BY hour";
        let mut select = self.connection.prepare(by_hour)?;
        let rows = select.query_map([], |row| Ok((unsigned(row.get(0)?), row.get(1)?)))?;
        rows.collect()
    }
}

/// Whether nothing was written yet.
fn is_fresh(connection: &Connection) -> rusqlite::Result<bool> {
    let tables: i64 =
        connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
    Ok(tables == 0
        && pragma(connection, "application_id")? == 0
        && pragma(connection, "user_version")? == 0)
}

/// What the file says of itself, before SQLite opens it.
fn check_header(path: &Path, header: &Header) -> Result<(), ProbeDatabaseError> {
    check_ids(path, header.application_id, header.user_version)
}

fn check_owner(path: &Path, connection: &Connection) -> Result<(), ProbeDatabaseError> {
    let pragma = |name| pragma(connection, name).map_err(|error| fault(path, error));
    check_ids(path, pragma("application_id")?, pragma("user_version")?)
}

fn check_ids(path: &Path, application: i32, version: i32) -> Result<(), ProbeDatabaseError> {
    if application != APPLICATION_ID {
        let found = "a database of another program".to_owned();
        return Err(ProbeDatabaseError::Foreign { path: path.to_owned(), found });
    }
    match version > SCHEMA_VERSION {
        true => Err(ProbeDatabaseError::NewerSchema {
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

fn url_id(connection: &Connection, url: &str) -> rusqlite::Result<i64> {
    let mut insert = connection.prepare("INSERT OR IGNORE INTO url (url) VALUES (?1)")?;
    insert.execute([url])?;
    connection.prepare("SELECT id FROM url WHERE url = ?1")?.query_row([url], |row| row.get(0))
}

fn insert_sample(
    insert: &mut Statement<'_>,
    run: i64,
    url: i64,
    sample: &ProbeSample,
) -> rusqlite::Result<usize> {
    let phase = |phase| sample.phase_us(phase).map(whole);
    insert.execute(params![
        run,
        url,
        whole(sample.turn),
        whole(sample.at_unix_ms),
        whole(sample.since_begin_ms),
        phase(ProbePhase::Lookup),
        phase(ProbePhase::RedirectConnect),
        phase(ProbePhase::Redirect),
        phase(ProbePhase::Connect),
        phase(ProbePhase::Tls),
        phase(ProbePhase::FirstByte),
        phase(ProbePhase::Data),
        whole(sample.total_us),
        sample.status,
        whole(sample.body_bytes),
        sample.redirects,
        sample.node,
        sample.failure.as_ref().map(|failure| &failure.kind),
        sample.failure.as_ref().map(|failure| &failure.text),
    ])
}

/// A row of [`select`].
fn read_sample(row: &Row<'_>) -> rusqlite::Result<(String, ProbeSample)> {
    let number = |at: usize| row.get(at).map(unsigned);
    let mut sample = ProbeSample {
        url: row.get(1)?,
        turn: number(2)?,
        at_unix_ms: number(3)?,
        since_begin_ms: number(4)?,
        total_us: number(12)?,
        status: row.get(13)?,
        body_bytes: number(14)?,
        redirects: row.get(15)?,
        node: row.get(16)?,
        ..ProbeSample::default()
    };
    for (at, phase) in (5..).zip(ProbePhase::ALL) {
        let us: Option<i64> = row.get(at)?;
        sample.phases_us[phase as usize] = us.map(unsigned);
    }
    let (kind, text): (Option<String>, Option<String>) = (row.get(17)?, row.get(18)?);
    sample.failure = kind.map(|kind| ProbeFailure { kind, text: text.unwrap_or_default() });
    Ok((row.get(0)?, sample))
}

/// SQLite's integers are signed.
fn whole(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn unsigned(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn a_full_disk_is_said_and_what_was_stored_stays() {
        let folder = tempfile::TempDir::new().unwrap();
        let plan = ProbePlan {
            urls: Vec::new(),
            label: "test".to_owned(),
            interval_ms: 1,
            timeout_ms: 1,
            turns_max: None,
            ca: None,
            out: folder.path().join("samples.db"),
        };
        let mut writer = SampleWriter::open(&plan, 0).unwrap();
        let samples = |count: u64| -> Vec<ProbeSample> {
            let sample = |turn| ProbeSample {
                turn,
                url: format!("http://a/{turn}"),
                ..ProbeSample::default()
            };
            (0..count).map(sample).collect()
        };
        writer.store(&samples(3), 0, 0).unwrap();
        // As on a disk without room for more pages.
        let pages: i64 =
            writer.connection.pragma_query_value(None, "page_count", |row| row.get(0)).unwrap();
        writer.connection.pragma_update(None, "max_page_count", pages).unwrap();
        let error = writer.store(&samples(10_000), 0, 0).unwrap_err();
        assert!(matches!(error, ProbeDatabaseError::Full { .. }), "{error}");
        assert!(error.to_string().contains("the disk is full"), "{error}");
        let mut stored = 0;
        let count = |_, _| -> Result<(), ProbeDatabaseError> {
            stored += 1;
            Ok(())
        };
        SampleReader::open(&plan.out).unwrap().for_each(count).unwrap();
        assert_eq!(stored, 3);
    }
}
