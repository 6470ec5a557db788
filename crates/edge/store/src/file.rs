//! The file behind `store = "embedded"`: a redb database with a format version.
//!
//! A write is on disk before it is confirmed (redb syncs on commit), and a crash during a write leaves the
//! earlier state. After any failure the database is closed; the next operation reopens it, since redb refuses
//! to continue after an I/O error. No content of a file causes a panic: failed assertions of redb are caught
//! here and reported as damage.

use std::fs;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use redb::{
    Database, DatabaseError, ReadableDatabase, ReadableTable, StorageError, TableDefinition,
};

use crate::error::{StoreError, StoreOpenError};
use crate::limits::FILE_CACHE_BYTES;
use crate::types::{Expected, StoredValue};

/// Format of the tables below; incremented if the tables change.
const FORMAT: u64 = 1;

/// `format`, and `revision` of the last write.
const META: TableDefinition<'static, &str, u64> = TableDefinition::new("skep.meta");

/// Maps a key to its revision and value.
const ENTRIES: TableDefinition<'static, &str, (u64, &[u8])> = TableDefinition::new("skep.entries");

/// The value of a key, if there is one, as of a revision of the whole store.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Read {
    pub(crate) entry: Option<StoredValue>,
    pub(crate) as_of: u64,
}

/// The file, open unless the last operation failed.
pub(crate) struct File {
    path: PathBuf,
    database: Option<Database>,
}

impl File {
    /// Opens the file, or creates it; its directory must exist. An empty file is not accepted as a store: its
    /// contents were lost, which the operator must know.
    pub(crate) fn open(path: &Path) -> Result<Self, StoreOpenError> {
        let mut file = Self { path: path.to_owned(), database: None };
        file.with(|_| Ok(()))?;
        Ok(file)
    }

    /// As [`Self::open`], but if the disk has no room for the file, only operations fail, since room may be
    /// made while the process runs.
    pub(crate) fn open_or_wait(path: &Path) -> Result<Self, StoreOpenError> {
        match Self::open(path) {
            Err(error) if error.is_lack_of_room() => {
                tracing::error!("{error}");
                Ok(Self { path: path.to_owned(), database: None })
            }
            opened => opened,
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Reads the value at `key`.
    pub(crate) fn get(&mut self, key: &str) -> Result<Read, StoreError> {
        Ok(self.with(|database| {
            let reading = database.begin_read()?;
            let entries = reading.open_table(ENTRIES)?;
            let entry = entries.get(key)?.map(|stored| {
                let (revision, value) = stored.value();
                StoredValue { value: value.to_vec(), revision }
            });
            let as_of = reading.open_table(META)?.get("revision")?.map_or(0, |last| last.value());
            Ok(Read { entry, as_of })
        })?)
    }

    /// Writes `value` at `key` if the present value is as expected; returns the revision.
    pub(crate) fn put(
        &mut self,
        key: &str,
        value: &[u8],
        expected: Expected,
    ) -> Result<u64, StoreError> {
        let written = self.with(|database| write(database, key, value, expected))?;
        written.map_err(|found| StoreError::Conflict { key: key.to_owned(), found })
    }

    /// Runs `operation` on the database, which is opened first if necessary. Any failure closes it.
    fn with<T>(
        &mut self,
        operation: impl FnOnce(&Database) -> Result<T, redb::Error>,
    ) -> Result<T, StoreOpenError> {
        let taken = self.database.take();
        let path = &self.path;
        // After a panic the database is dropped as a whole, so no broken invariant is ever observed.
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            let database = taken.map_or_else(|| open(path), Ok)?;
            let value = operation(&database).map_err(|error| explain(path, error))?;
            Ok((database, value))
        }));
        let broken = |_| StoreOpenError::Corrupt {
            file: path.clone(),
            reason: "its pages contradict each other".to_owned(),
        };
        let (database, value) = outcome.map_err(broken)??;
        self.database = Some(database);
        Ok(value)
    }
}

/// Performs one write; returns `Err(found)` if the present value is not as expected.
fn write(
    database: &Database,
    key: &str,
    value: &[u8],
    expected: Expected,
) -> Result<Result<u64, Option<u64>>, redb::Error> {
    let writing = database.begin_write()?;
    let revision = {
        let mut entries = writing.open_table(ENTRIES)?;
        let found = entries.get(key)?.map(|stored| stored.value().0);
        if !expected.allows(found) {
            return Ok(Err(found));
        }
        let mut meta = writing.open_table(META)?;
        let revision = meta.get("revision")?.map_or(0, |last| last.value()) + 1;
        meta.insert("revision", revision)?;
        entries.insert(key, (revision, value))?;
        revision
    };
    writing.commit()?;
    Ok(Ok(revision))
}

/// Opens the file, or creates it, and checks its format.
fn open(path: &Path) -> Result<Database, StoreOpenError> {
    match path.try_exists() {
        Ok(true) => {}
        Ok(false) => make(path)?,
        Err(reason) => return Err(StoreOpenError::Io { file: path.to_owned(), reason }),
    }
    let database = builder().open(path).map_err(|error| explain_open(path, error))?;
    let found = format_of(&database).map_err(|error| explain(path, error))?;
    if found == FORMAT {
        return Ok(database);
    }
    let found = found.to_string();
    Err(StoreOpenError::Version { file: path.to_owned(), found, expected: FORMAT })
}

/// Creates the file under another name first: redb cannot open a file whose creation was interrupted by the
/// end of the process or a full disk.
fn make(path: &Path) -> Result<(), StoreOpenError> {
    let io = |reason| StoreOpenError::Io { file: path.to_owned(), reason };
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let directory = fs::File::open(parent.unwrap_or(Path::new("."))).map_err(io)?;
    // One process at a time, since several may have their files in one directory: a wait for a few writes.
    // The lock is released with `directory`.
    directory.lock().map_err(io)?;
    if path.try_exists().map_err(io)? {
        return Ok(());
    }
    let mut unfinished = path.as_os_str().to_owned();
    unfinished.push(".new");
    match fs::remove_file(&unfinished) {
        Err(reason) if reason.kind() != io::ErrorKind::NotFound => return Err(io(reason)),
        _ => {}
    }
    let made = builder().create(&unfinished).map_err(|error| explain_open(path, error));
    let made =
        made.and_then(|database| initialise(&database).map_err(|error| explain(path, error)));
    if let Err(error) = made {
        // The first error is reported; the next attempt removes the file.
        let _ = fs::remove_file(&unfinished);
        return Err(error);
    }
    fs::rename(&unfinished, path).and_then(|()| directory.sync_all()).map_err(io)
}

fn builder() -> redb::Builder {
    let mut builder = Database::builder();
    // The file is small and is read completely anyway: damage is found now rather than when a damaged page is
    // needed.
    builder.set_cache_size(FILE_CACHE_BYTES).set_check_integrity_on_open(true);
    builder
}

/// Returns the format of the file. A file without one is not a store.
fn format_of(database: &Database) -> Result<u64, redb::Error> {
    let reading = database.begin_read()?;
    let format = reading.open_table(META)?.get("format")?.map(|format| format.value());
    format.ok_or_else(|| redb::Error::Corrupted("no format number".to_owned()))
}

fn initialise(database: &Database) -> Result<(), redb::Error> {
    let writing = database.begin_write()?;
    writing.open_table(META)?.insert("format", FORMAT)?;
    writing.open_table(ENTRIES)?;
    writing.commit()?;
    Ok(())
}

fn explain_open(path: &Path, error: DatabaseError) -> StoreOpenError {
    let file = path.to_owned();
    match error {
        DatabaseError::DatabaseAlreadyOpen => StoreOpenError::InUse { file },
        DatabaseError::UpgradeRequired(found) => {
            StoreOpenError::Version { file, found: format!("of redb {found}"), expected: FORMAT }
        }
        DatabaseError::Storage(StorageError::Io(reason)) => explain_io(file, reason),
        other => StoreOpenError::Corrupt { file, reason: other.to_string() },
    }
}

fn explain(path: &Path, error: redb::Error) -> StoreOpenError {
    let file = path.to_owned();
    match error {
        redb::Error::Io(reason) => explain_io(file, reason),
        other => StoreOpenError::Corrupt { file, reason: other.to_string() },
    }
}

/// redb reports a file that is too short or begins with other bytes as an I/O error.
fn explain_io(file: PathBuf, reason: io::Error) -> StoreOpenError {
    match reason.kind() {
        io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof => {
            StoreOpenError::Corrupt { file, reason: reason.to_string() }
        }
        _ => StoreOpenError::Io { file, reason },
    }
}

#[cfg(test)]
mod tests;
