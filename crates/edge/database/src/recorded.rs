//! Rows of recorders: how they are added, limited in number, and read.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::params_from_iter;
use rusqlite::types::Value;
use rusqlite::{Connection, OptionalExtension, Transaction, TransactionBehavior, params};

use crate::columns::{DiskUse, NicUse, NodeSample, unsigned, whole};
use crate::error::DatabaseError;
use crate::file::fault;
use crate::limits::{TRIM_ROUNDS_MAX, TRIM_SAMPLES, TRIM_SHARE};
use crate::schema::open_to_write;

/// The recording process, and how many of its samples are kept.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecordingInfo {
    /// Name of the process in its cluster.
    pub name: String,
    /// Host and port at which clients reach its node.
    pub authority: Option<String>,
    pub is_node: bool,
    pub begun_unix_ms: u64,
    pub interval_ms: u64,
    /// Number of samples kept under this name: a count rather than an age, so that a clock that jumps deletes
    /// none.
    pub samples_max: u64,
    /// Maximum size of the file, without the log beside it.
    pub size_bytes_max: u64,
}

/// What was recorded at one moment about the interval before it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RecordedSample {
    pub at_unix_ms: u64,
    /// By the monotonic clock.
    pub interval_ms: u64,
    pub node: NodeSample,
    /// By device.
    pub disks: Vec<(String, DiskUse)>,
    pub nics: Vec<(String, NicUse)>,
}

/// A sample in a file, with the sums of its disks and of its network devices.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RecordedRow {
    pub name: String,
    pub authority: Option<String>,
    pub is_node: bool,
    pub at_unix_ms: u64,
    pub interval_ms: u64,
    pub node: NodeSample,
    pub disks: DiskUse,
    pub nics: NicUse,
}

/// A file to which a recorder adds samples.
#[derive(Debug)]
pub struct Recording {
    path: PathBuf,
    /// Device and inode: `path` may later name another file.
    file: Option<(u64, u64)>,
    connection: Connection,
    info: RecordingInfo,
    id: i64,
    stored: u64,
}

impl Recording {
    /// Opens the file at `path`, or creates it, and begins a recording in it.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn open(path: &Path, info: &RecordingInfo, wait_ms: u64) -> Result<Self, DatabaseError> {
        let connection = open_to_write(path, wait_ms)?;
        let insert = "INSERT INTO recording (name, authority, is_node, begun_unix_ms, interval_ms, version) \
                      VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
        let values = params![
            info.name,
            info.authority,
            info.is_node,
            whole(info.begun_unix_ms),
            whole(info.interval_ms),
            env!("CARGO_PKG_VERSION"),
        ];
        connection.execute(insert, values).map_err(|error| fault(path, error))?;
        let id = connection.last_insert_rowid();
        let (path, info) = (path.to_owned(), info.clone());
        Ok(Self { file: identity(&path), path, connection, info, id, stored: 0 })
    }

    /// Whether the file's path still names this file.
    pub fn is_in_place(&self) -> bool {
        identity(&self.path) == self.file
    }

    /// Adds all of `samples`, or none. Waits up to `wait_ms` for a lock of another process.
    ///
    /// # Errors
    /// The file cannot be written, or data of others has filled it to its maximum size.
    pub fn store(&mut self, samples: &[RecordedSample], wait_ms: u64) -> Result<(), DatabaseError> {
        let path = self.path.clone();
        let has_room = self.try_store(samples, wait_ms).map_err(|error| fault(&path, error))?;
        // So that the file is complete if it is moved away. A failed checkpoint is repeated after the next
        // samples.
        let _ = self.connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(()));
        let bytes_max = self.info.size_bytes_max;
        if has_room { Ok(()) } else { Err(DatabaseError::TooLarge { path, bytes_max }) }
    }

    /// Writes the log back into the file, so that it can be copied, unless another process has it open.
    pub fn close(self) {
        let _ = self.connection.busy_timeout(Duration::ZERO);
        let _ = self.connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()));
        let _ = self.connection.pragma_update(None, "journal_mode", "DELETE");
    }

    /// Returns `false` if there is no room.
    fn try_store(&mut self, samples: &[RecordedSample], wait_ms: u64) -> rusqlite::Result<bool> {
        self.connection.busy_timeout(Duration::from_millis(wait_ms))?;
        let transaction =
            self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        if !make_room(&transaction, self.info.size_bytes_max)? {
            return Ok(false);
        }
        for sample in samples {
            insert(&transaction, self.id, sample)?;
        }
        let stored = self.stored + samples.len() as u64;
        // Also before the first samples: each process may be too short-lived to reach the next trim.
        if self.stored == 0 || stored / TRIM_SAMPLES > self.stored / TRIM_SAMPLES {
            trim(&transaction, &self.info, self.id)?;
        }
        transaction.commit()?;
        self.stored = stored;
        Ok(true)
    }
}

fn identity(path: &Path) -> Option<(u64, u64)> {
    path.metadata().ok().map(|it| (it.dev(), it.ino()))
}

fn insert(
    transaction: &Transaction<'_>,
    recording: i64,
    sample: &RecordedSample,
) -> rusqlite::Result<()> {
    let mut values: Vec<Value> =
        [recording, whole(sample.at_unix_ms), whole(sample.interval_ms)].map(Value::from).into();
    values.extend(sample.node.to_sql());
    let into = "node_sample (recording, at_unix_ms, interval_ms";
    transaction.execute(&insert_sql(into, NodeSample::COLUMNS, 3), params_from_iter(values))?;
    let id = transaction.last_insert_rowid();
    let of_device = |into: &str, columns, device: &str, uses: Vec<Value>| {
        let values = [Value::from(id), Value::from(device.to_owned())].into_iter().chain(uses);
        transaction.execute(&insert_sql(into, columns, 2), params_from_iter(values))
    };
    for (device, disk) in &sample.disks {
        of_device("disk_sample (sample, device", DiskUse::COLUMNS, device, disk.to_sql())?;
    }
    for (device, nic) in &sample.nics {
        of_device("nic_sample (sample, device", NicUse::COLUMNS, device, nic.to_sql())?;
    }
    Ok(())
}

/// Builds an `INSERT`; `into` is the table with the first `before` columns.
fn insert_sql(into: &str, columns: &[&str], before: usize) -> String {
    let values = vec!["?"; before + columns.len()].join(", ");
    format!("INSERT OR REPLACE INTO {into}, {}) VALUES ({values})", columns.join(", "))
}

/// Deletes the oldest samples of all recorders until the file has room; returns `false` if it has none.
fn make_room(transaction: &Transaction<'_>, bytes_max: u64) -> rusqlite::Result<bool> {
    for _ in 0..TRIM_ROUNDS_MAX {
        if used_bytes(transaction)? < bytes_max {
            return Ok(true);
        }
        let count: i64 =
            transaction.query_row("SELECT count(*) FROM node_sample", [], |row| row.get(0))?;
        if count == 0 {
            return Ok(false);
        }
        let oldest = "SELECT id FROM node_sample ORDER BY id LIMIT 1 OFFSET ?1";
        let last = unsigned(count) / TRIM_SHARE;
        let last: i64 = transaction.query_row(oldest, [whole(last)], |row| row.get(0))?;
        delete(transaction, "<= ?1", &[Value::from(last)])?;
    }
    Ok(used_bytes(transaction)? < bytes_max)
}

/// Bytes of the pages in use.
fn used_bytes(connection: &Connection) -> rusqlite::Result<u64> {
    let pragma = |name| connection.pragma_query_value(None, name, |row| row.get::<_, i64>(0));
    let pages = pragma("page_count")?.saturating_sub(pragma("freelist_count")?);
    Ok(unsigned(pages.saturating_mul(pragma("page_size")?)))
}

/// Deletes this name's samples beyond `samples_max`, and recordings that have no samples left.
fn trim(
    transaction: &Transaction<'_>,
    info: &RecordingInfo,
    recording: i64,
) -> rusqlite::Result<()> {
    let first = "SELECT node_sample.id FROM node_sample JOIN recording ON recording.id = recording \
                 WHERE name = ?1 ORDER BY node_sample.id DESC LIMIT 1 OFFSET ?2";
    let values = params![info.name, whole(info.samples_max)];
    let beyond: Option<i64> = transaction.query_row(first, values, |row| row.get(0)).optional()?;
    if let Some(beyond) = beyond {
        let own = "<= ?1 AND SAMPLE IN (SELECT node_sample.id FROM node_sample \
                   JOIN recording ON recording.id = recording WHERE name = ?2)";
        delete(transaction, own, &[Value::from(beyond), Value::from(info.name.clone())])?;
    }
    let empty = "DELETE FROM recording WHERE id <> ?1 AND name = ?2 \
                 AND id NOT IN (SELECT recording FROM node_sample)";
    transaction.execute(empty, params![recording, info.name])?;
    Ok(())
}

/// Deletes the samples whose id satisfies `which`, after those of their devices.
fn delete(transaction: &Transaction<'_>, which: &str, values: &[Value]) -> rusqlite::Result<()> {
    for (table, id) in [("disk_sample", "sample"), ("nic_sample", "sample"), ("node_sample", "id")]
    {
        let sql = format!("DELETE FROM {table} WHERE {id} {}", which.replace("SAMPLE", id));
        transaction.execute(&sql, params_from_iter(values.iter()))?;
    }
    Ok(())
}

/// Calls `each` with all rows of recorders, in the order in which they were stored. A file of an earlier
/// build has none.
///
/// # Errors
/// The error of `each`, or the file cannot be read.
pub fn read_recorded<E: From<DatabaseError>>(
    path: &Path,
    connection: &Connection,
    mut each: impl FnMut(RecordedRow) -> Result<(), E>,
) -> Result<(), E> {
    let fault = |error| E::from(fault(path, error));
    let named = "SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = 'node_sample'";
    if connection.query_row(named, [], |_| Ok(())).optional().map_err(fault)?.is_none() {
        return Ok(());
    }
    let mut select = connection.prepare(&select()).map_err(fault)?;
    let mut rows = select.query([]).map_err(fault)?;
    while let Some(row) = rows.next().map_err(fault)? {
        let (disks_at, nics_at) =
            (5 + NodeSample::COLUMNS.len(), 5 + NodeSample::COLUMNS.len() + DiskUse::COLUMNS.len());
        let read = || {
            rusqlite::Result::Ok(RecordedRow {
                name: row.get(0)?,
                authority: row.get(1)?,
                is_node: row.get(2)?,
                at_unix_ms: unsigned(row.get(3)?),
                interval_ms: unsigned(row.get(4)?),
                node: NodeSample::read(row, 5)?,
                disks: DiskUse::read(row, disks_at)?,
                nics: NicUse::read(row, nics_at)?,
            })
        };
        each(read().map_err(fault)?)?;
    }
    Ok(())
}

fn select() -> String {
    let sums = |table: &str, columns: &[&str]| -> String {
        let sum = |column: &&str| {
            // `sum` fails if integers overflow; one damaged row must not hide all others.
            format!(
                ", (SELECT CASE WHEN count({column}) > 0 THEN CAST(total({column}) AS INTEGER) END \
                 FROM {table} WHERE sample = node_sample.id)"
            )
        };
        columns.iter().map(sum).collect()
    };
    let columns = NodeSample::COLUMNS.join(", ");
    format!(
        "SELECT name, authority, is_node, at_unix_ms, node_sample.interval_ms, {columns}{}{} \
         FROM node_sample JOIN recording ON recording.id = recording ORDER BY node_sample.id",
        sums("disk_sample", DiskUse::COLUMNS),
        sums("nic_sample", NicUse::COLUMNS),
    )
}

#[cfg(test)]
mod tests;
