//! Writes samples to the file; they wait while it cannot be written, up to a bound.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use skep_database::{DatabaseError, RecordedSample, Recording, RecordingInfo, set_damaged_aside};

use crate::limits::{RECORDER_LOCK_WAIT_MS, RECORDER_WAITING_MAX};

/// Names of the faults of the file.
pub(crate) const RECORDER_FAULTS: &[&str] = &["full", "locked", "damaged", "foreign", "other"];

/// The outcomes for samples.
#[derive(Debug, Default)]
pub struct RecorderCounts {
    stored: AtomicU64,
    dropped: AtomicU64,
    waiting: AtomicU64,
    faults: [AtomicU64; RECORDER_FAULTS.len()],
}

impl RecorderCounts {
    /// Number of samples stored in the file.
    pub fn stored(&self) -> u64 {
        self.stored.load(Ordering::Relaxed)
    }

    /// Number of samples lost.
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    /// Number of samples that are not in the file yet.
    pub fn waiting(&self) -> u64 {
        self.waiting.load(Ordering::Relaxed)
    }

    /// Number of failed attempts to store samples, by the names in [`RECORDER_FAULTS`].
    pub fn faults(&self, word: &str) -> u64 {
        let at = RECORDER_FAULTS.iter().position(|it| *it == word);
        at.map_or(0, |at| self.faults[at].load(Ordering::Relaxed))
    }
}

pub(super) struct SampleWriter {
    path: PathBuf,
    info: RecordingInfo,
    /// `None` before the file was first opened, and after a fault.
    recording: Option<Recording>,
    waiting: VecDeque<RecordedSample>,
    /// The fault of the last attempt, if any.
    fault: Option<&'static str>,
    counts: Arc<RecorderCounts>,
}

impl SampleWriter {
    pub(super) fn new(path: PathBuf, info: RecordingInfo, counts: Arc<RecorderCounts>) -> Self {
        let (recording, waiting, fault) = (None, VecDeque::new(), None);
        Self { path, info, recording, waiting, fault, counts }
    }

    /// Stores `sample`, and the samples that wait.
    pub(super) fn keep(&mut self, sample: RecordedSample) {
        if self.waiting.len() >= RECORDER_WAITING_MAX {
            self.waiting.pop_front();
            self.counts.dropped.fetch_add(1, Ordering::Relaxed);
        }
        self.waiting.push_back(sample);
        self.flush();
    }

    /// Stores the waiting samples if possible; opens the file if necessary.
    pub(super) fn flush(&mut self) {
        let mut result = self.attempt();
        if let Err(DatabaseError::Corrupt { .. }) = &result {
            self.note(&result);
            result = self.begin_anew(result);
        }
        self.note(&result);
        if result.is_ok() {
            self.counts.stored.fetch_add(self.waiting.len() as u64, Ordering::Relaxed);
            self.waiting.clear();
        }
        self.counts.waiting.store(self.waiting.len() as u64, Ordering::Relaxed);
    }

    /// Ends the recording: samples that still wait are lost.
    pub(super) fn close(mut self) {
        let lost = self.waiting.len() as u64;
        self.counts.dropped.fetch_add(lost, Ordering::Relaxed);
        if lost > 0 {
            tracing::warn!("recorder: {lost} samples are not in {}", self.path.display());
        }
        if let Some(recording) = self.recording.take() {
            recording.close();
        }
    }

    fn attempt(&mut self) -> Result<(), DatabaseError> {
        // A file that was moved or deleted is replaced by a new one.
        let recording = match self.recording.take().filter(Recording::is_in_place) {
            Some(recording) => recording,
            None => Recording::open(&self.path, &self.info, RECORDER_LOCK_WAIT_MS)?,
        };
        let recording = self.recording.insert(recording);
        if self.waiting.is_empty() {
            return Ok(());
        }
        let stored = recording.store(self.waiting.make_contiguous(), RECORDER_LOCK_WAIT_MS);
        if let Err(DatabaseError::Corrupt { .. } | DatabaseError::Disk { .. }) = &stored {
            self.recording = None;
        }
        stored
    }

    /// Continues in a new file; the damaged one is kept under another name.
    fn begin_anew(&mut self, result: Result<(), DatabaseError>) -> Result<(), DatabaseError> {
        self.recording = None;
        // Another process may have done so already.
        let again = self.attempt();
        if !matches!(again, Err(DatabaseError::Corrupt { .. })) {
            return again;
        }
        self.recording = None;
        if !set_damaged_aside(&self.path) {
            return result;
        }
        let path = self.path.display();
        tracing::warn!("recorder: {path} was renamed to {path}.damaged; a new file begins");
        self.attempt()
    }

    /// Logs each change of the fault, and counts each failed attempt.
    fn note(&mut self, result: &Result<(), DatabaseError>) {
        let word = result.as_ref().err().map(word);
        if let Some(at) = word.and_then(|word| RECORDER_FAULTS.iter().position(|it| *it == word)) {
            self.counts.faults[at].fetch_add(1, Ordering::Relaxed);
        }
        match result {
            Err(error) if self.fault != word => {
                tracing::warn!("recorder: {error}; samples wait, and the oldest go first");
            }
            Ok(()) if self.fault.is_some() => {
                tracing::info!("recorder: {} can be written to again", self.path.display());
            }
            _ => {}
        }
        self.fault = word;
    }
}

fn word(error: &DatabaseError) -> &'static str {
    match error {
        DatabaseError::Full { .. } | DatabaseError::TooLarge { .. } => "full",
        DatabaseError::Locked { .. } => "locked",
        DatabaseError::Corrupt { .. } => "damaged",
        DatabaseError::Foreign { .. } | DatabaseError::NewerSchema { .. } => "foreign",
        _ => "other",
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use std::fs::OpenOptions;
    use std::os::unix::fs::FileExt;
    use std::path::Path;

    use skep_database::{open_to_read, read_recorded};
    use tempfile::TempDir;

    use super::*;

    fn writer(path: &Path) -> SampleWriter {
        let info = RecordingInfo {
            name: "n1".to_owned(),
            interval_ms: 1000,
            samples_max: 10_000,
            size_bytes_max: 1 << 30,
            ..RecordingInfo::default()
        };
        SampleWriter::new(path.to_owned(), info, Arc::default())
    }

    fn sample(at_unix_ms: u64) -> RecordedSample {
        RecordedSample { at_unix_ms, interval_ms: 1, ..RecordedSample::default() }
    }

    fn stamps(path: &Path) -> Vec<u64> {
        let mut stamps = Vec::new();
        let connection = open_to_read(path, 0).unwrap();
        let read = read_recorded(path, &connection, |row| {
            stamps.push(row.at_unix_ms);
            Ok::<_, DatabaseError>(())
        });
        read.unwrap();
        stamps
    }

    fn counted(writer: &SampleWriter, word: &str) -> (u64, u64, u64) {
        (writer.counts.stored(), writer.counts.waiting(), writer.counts.faults(word))
    }

    #[test]
    fn samples_wait_for_a_folder_that_is_not_there_yet_and_the_oldest_go_first() {
        let folder = TempDir::new().unwrap();
        let path = folder.path().join("later/a.db");
        let mut writer = writer(&path);
        let many = RECORDER_WAITING_MAX as u64;
        (0..many + 2).for_each(|at| writer.keep(sample(at)));
        assert_eq!(counted(&writer, "other"), (0, many, many + 2));
        assert_eq!(writer.counts.dropped(), 2);
        std::fs::create_dir(folder.path().join("later")).unwrap();
        writer.keep(sample(many + 2));
        assert_eq!((writer.counts.stored(), writer.counts.waiting()), (many, 0));
        assert_eq!(stamps(&path)[0], 3);
    }

    #[test]
    fn a_damaged_file_is_kept_and_a_new_one_begins() {
        let folder = TempDir::new().unwrap();
        let path = folder.path().join("a.db");
        let mut writer = writer(&path);
        writer.keep(sample(1));
        writer.recording.take().unwrap().close();
        let file = OpenOptions::new().write(true).open(&path).unwrap();
        let length = path.metadata().unwrap().len();
        file.write_all_at(&vec![0xa5; (length - 100) as usize], 100).unwrap();
        writer.keep(sample(2));
        assert_eq!(counted(&writer, "damaged"), (2, 0, 1));
        assert_eq!(stamps(&path), [2]);
        assert_eq!(folder.path().join("a.db.damaged").metadata().unwrap().len(), length);
    }

    #[test]
    fn a_file_that_was_cut_within_its_header_is_kept_and_a_new_one_begins() {
        let folder = TempDir::new().unwrap();
        let path = folder.path().join("a.db");
        let mut first = writer(&path);
        first.keep(sample(1));
        first.close();
        OpenOptions::new().write(true).open(&path).unwrap().set_len(50).unwrap();
        writer(&path).keep(sample(2));
        assert_eq!(stamps(&path), [2]);
        assert_eq!(folder.path().join("a.db.damaged").metadata().unwrap().len(), 50);
    }

    #[test]
    fn files_of_others_are_left_alone() {
        let folder = TempDir::new().unwrap();
        let path = folder.path().join("notes");
        std::fs::write(&path, "no database ".repeat(100)).unwrap();
        let mut writer = writer(&path);
        writer.keep(sample(1));
        assert_eq!(counted(&writer, "foreign"), (0, 1, 1));
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
        // The file is deleted.
        std::fs::remove_file(&path).unwrap();
        writer.keep(sample(2));
        assert_eq!(stamps(&path), [1, 2]);
    }

    #[test]
    fn a_file_that_was_moved_away_has_its_samples_and_a_successor() {
        let folder = TempDir::new().unwrap();
        let (path, old) = (folder.path().join("a.db"), folder.path().join("old.db"));
        let mut writer = writer(&path);
        writer.keep(sample(1));
        std::fs::rename(&path, &old).unwrap();
        writer.keep(sample(2));
        assert_eq!((stamps(&path), writer.counts.stored()), (vec![2], 2));
        assert_eq!(stamps(&old), [1]);
    }
}
