//! Samples in a file of SQLite: one transaction for each turn.
//!
//! The file says whose it is (`application_id`) and which tables it has (`user_version`), so that a
//! file of another program, or of a later build, is refused and never changed.

use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::{Connection, ErrorCode, OpenFlags, OptionalExtension, Row, Statement, params};

use crate::limits::DATABASE_WAIT_MS;
use crate::plan::ProbePlan;
use crate::sample::{ProbePhase, ProbeSample};

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

const INSERT: &str = "INSERT INTO sample (run, url, turn, at_unix_ms, since_begin_ms, lookup_us, \
    redirect_connect_us, redirect_us, connect_us, tls_us, first_byte_us, data_us, total_us, status, \
    body_bytes, redirects, node, failure, failure_text) \
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19)";

const SELECT: &str = "SELECT run.label, url.url, turn, at_unix_ms, since_begin_ms, lookup_us, \
    redirect_connect_us, redirect_us, connect_us, tls_us, first_byte_us, data_us, total_us, status, \
    body_bytes, redirects, node, failure, failure_text \
    FROM sample JOIN run ON run.id = sample.run JOIN url ON url.id = sample.url ORDER BY sample.id";

/// A file of samples cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ProbeDatabaseError {
    /// There is none.
    #[error("{}: no such file: expected one that `skep probe run --out` has written", path.display())]
    Missing {
        /// The file.
        path: PathBuf,
    },
    /// It is something else.
    #[error(
        "{}: expected samples of `skep probe run`, found {found}: name another file", path.display()
    )]
    Foreign {
        /// The file.
        path: PathBuf,
        /// What it is.
        found: String,
    },
    /// A later build has written it.
    #[error(
        "{}: expected tables of version {SCHEMA_VERSION} or earlier, found {found}: use the skep that has written it", path.display()
    )]
    Later {
        /// The file.
        path: PathBuf,
        /// Version of its tables.
        found: i32,
    },
    /// It cannot be created or opened.
    #[error("{}: cannot open it ({why}): expected a folder that exists and can be written to", path.display())]
    Closed {
        /// The file.
        path: PathBuf,
        /// SQLite's words.
        why: String,
    },
    /// There is no room.
    #[error(
        "{}: the disk is full: the samples until the last turn are stored; free some space, or name another file with --out", path.display()
    )]
    Full {
        /// The file.
        path: PathBuf,
    },
    /// It has no samples.
    #[error("{}: expected samples, found none: the run has ended before its first", path.display())]
    Empty {
        /// The file.
        path: PathBuf,
    },
    /// Anything else.
    #[error("{}: {why}", path.display())]
    Other {
        /// The file.
        path: PathBuf,
        /// SQLite's words.
        why: String,
    },
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
        let fault = |error| fault(path, error);
        let mut connection = Connection::open(path).map_err(fault)?;
        connection.busy_timeout(Duration::from_millis(DATABASE_WAIT_MS)).map_err(fault)?;
        let transaction = connection
            .transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)
            .map_err(fault)?;
        if is_fresh(&transaction).map_err(fault)? {
            transaction.execute_batch(SCHEMA).map_err(fault)?;
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

    /// Stores what a turn has measured: all of it, or nothing.
    pub(crate) fn store(
        &mut self,
        samples: &[ProbeSample],
        turns_skipped: u64,
    ) -> Result<(), ProbeDatabaseError> {
        let path = self.path.clone();
        self.try_store(samples, turns_skipped).map_err(|error| fault(&path, error))
    }

    fn try_store(&mut self, samples: &[ProbeSample], turns_skipped: u64) -> rusqlite::Result<()> {
        let transaction = self.connection.transaction()?;
        let mut insert = transaction.prepare(INSERT)?;
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
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let fault = |error| fault(path, error);
        let connection = Connection::open_with_flags(path, flags).map_err(fault)?;
        connection.busy_timeout(Duration::from_millis(DATABASE_WAIT_MS)).map_err(fault)?;
        if is_fresh(&connection).map_err(fault)? {
            return Err(ProbeDatabaseError::Empty { path: path.to_owned() });
        }
        check_owner(path, &connection)?;
        Ok(Self { path: path.to_owned(), connection })
    }

    /// Calls `each` with the label and the sample of each row, in the order in which they were stored.
    pub(crate) fn for_each<E: From<ProbeDatabaseError>>(
        &self,
        mut each: impl FnMut(String, ProbeSample) -> Result<(), E>,
    ) -> Result<(), E> {
        let fault = |error| E::from(fault(&self.path, error));
        let mut select = self.connection.prepare(SELECT).map_err(fault)?;
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

fn check_owner(path: &Path, connection: &Connection) -> Result<(), ProbeDatabaseError> {
    let pragma = |name| pragma(connection, name).map_err(|error| fault(path, error));
    if pragma("application_id")? != APPLICATION_ID {
        let found = "a database of another program".to_owned();
        return Err(ProbeDatabaseError::Foreign { path: path.to_owned(), found });
    }
    match pragma("user_version")? {
        found if found > SCHEMA_VERSION => {
            Err(ProbeDatabaseError::Later { path: path.to_owned(), found })
        }
        _ => Ok(()),
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
        sample.failure.as_ref().map(|failure| &failure.0),
        sample.failure.as_ref().map(|failure| &failure.1),
    ])
}

/// A row of [`SELECT`].
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
    let (word, text): (Option<String>, Option<String>) = (row.get(17)?, row.get(18)?);
    sample.failure = word.map(|word| (word, text.unwrap_or_default()));
    Ok((row.get(0)?, sample))
}

/// SQLite's integers are signed.
fn whole(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn unsigned(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}

fn fault(path: &Path, error: rusqlite::Error) -> ProbeDatabaseError {
    let path = path.to_owned();
    let code = error.sqlite_error_code();
    let why = error.to_string();
    match code {
        Some(ErrorCode::NotADatabase) => {
            ProbeDatabaseError::Foreign { path, found: "a file that is no database".to_owned() }
        }
        Some(ErrorCode::DiskFull) => ProbeDatabaseError::Full { path },
        Some(ErrorCode::CannotOpen | ErrorCode::ReadOnly | ErrorCode::PermissionDenied) => {
            ProbeDatabaseError::Closed { path, why }
        }
        _ => ProbeDatabaseError::Other { path, why },
    }
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
        writer.store(&samples(3), 0).unwrap();
        // As on a disk without room for more pages.
        let pages: i64 =
            writer.connection.pragma_query_value(None, "page_count", |row| row.get(0)).unwrap();
        writer.connection.pragma_update(None, "max_page_count", pages).unwrap();
        let error = writer.store(&samples(10_000), 0).unwrap_err();
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
