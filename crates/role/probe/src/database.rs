//! The probe's rows in an SQLite file (`edge/database`, to which recorders write as well).

use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::{Connection, Row, Statement, TransactionBehavior, params};
use skep_database::{
    DatabaseError, RecordedRow, fault, open_to_read, open_to_write, read_recorded, unsigned, whole,
};

use crate::limits::DATABASE_WAIT_MS;
use crate::plan::ProbePlan;
use crate::sample::{ProbeFailure, ProbePhase, ProbeSample};

/// Columns of a sample after its run and its URL, in the order of [`insert_sample`] and
/// [`read_sample`].
const COLUMNS: [&str; 17] = [
    "turn",
    "at_unix_ms",
    "since_begin_ms",
    "lookup_us",
    "redirect_connect_us",
    "redirect_us",
    "connect_us",
    "tls_us",
    "first_byte_us",
    "data_us",
    "total_us",
    "status",
    "body_bytes",
    "redirects",
    "node",
    "failure",
    "failure_text",
];

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
    COLUMNS.join(", ")
}

/// A file of samples that a run writes to.
pub(crate) struct SampleWriter {
    path: PathBuf,
    connection: Connection,
    run: i64,
}

impl SampleWriter {
    /// Opens the plan's file, or creates it, and adds a run to it.
    pub(crate) fn open(plan: &ProbePlan, begun_unix_ms: u64) -> Result<Self, DatabaseError> {
        let path = &plan.out;
        let fault = |error| fault(path, error);
        let connection = open_to_write(path, DATABASE_WAIT_MS)?;
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
        connection.execute(insert, values).map_err(fault)?;
        let run = connection.last_insert_rowid();
        Ok(Self { path: path.clone(), connection, run })
    }

    /// Stores `samples`: all of them, or none. Waits at most this long for a lock of another process.
    pub(crate) fn store(
        &mut self,
        samples: &[ProbeSample],
        turns_skipped: u64,
        wait_ms: u64,
    ) -> Result<(), DatabaseError> {
        let path = self.path.clone();
        self.try_store(samples, turns_skipped, wait_ms).map_err(|error| fault(&path, error))
    }

    /// Ends the run. The last of several runs leaves one file without a log, which can be copied, and
    /// read on a read-only file system.
    pub(crate) fn close(&self) {
        // Other runs and readers may have the file open; the samples are safe in any case.
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
    pub(crate) fn open(path: &Path) -> Result<Self, DatabaseError> {
        let connection = open_to_read(path, DATABASE_WAIT_MS)?;
        Ok(Self { path: path.to_owned(), connection })
    }

    /// Number of turns that were skipped, by label.
    pub(crate) fn turns_skipped(&self) -> Result<Vec<(String, u64)>, DatabaseError> {
        let read = || {
            let by_label = "SELECT label, sum(turns_skipped) FROM run GROUP BY label";
            let mut select = self.connection.prepare(by_label)?;
            let rows = select.query_map([], |row| Ok((row.get(0)?, unsigned(row.get(1)?))))?;
            rows.collect::<rusqlite::Result<_>>()
        };
        read().map_err(|error| fault(&self.path, error))
    }

    /// Calls `each` with the label and the sample of each row, in the order of storage.
    pub(crate) fn for_each<E: From<DatabaseError>>(
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
            true => Err(DatabaseError::Empty { path: self.path.clone() }.into()),
            false => Ok(()),
        }
    }

    /// Calls `each` with the rows of recorders, if there are any.
    pub(crate) fn for_each_recorded<E: From<DatabaseError>>(
        &self,
        each: impl FnMut(RecordedRow) -> Result<(), E>,
    ) -> Result<(), E> {
        read_recorded(&self.path, &self.connection, each)
    }
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

/// Parses a row of [`select`].
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn a_full_disk_is_said_and_what_was_stored_stays() {
        let folder = tempfile::TempDir::new().unwrap();
        let plan = ProbePlan::empty(folder.path());
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
        // Simulates a disk without room for more pages.
        let pages: i64 =
            writer.connection.pragma_query_value(None, "page_count", |row| row.get(0)).unwrap();
        writer.connection.pragma_update(None, "max_page_count", pages).unwrap();
        let error = writer.store(&samples(10_000), 0, 0).unwrap_err();
        assert!(matches!(error, DatabaseError::Full { .. }), "{error}");
        assert!(error.to_string().contains("the disk is full"), "{error}");
        let mut stored = 0;
        let count = |_, _| -> Result<(), DatabaseError> {
            stored += 1;
            Ok(())
        };
        SampleReader::open(&plan.out).unwrap().for_each(count).unwrap();
        assert_eq!(stored, 3);
    }
}
