//! Stores samples in the file: they are kept while another process has locked it, and stored by a
//! separate thread, so that the run still reacts to signals.

use std::path::PathBuf;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

use crate::database::SampleWriter;
use crate::limits::{
    DATABASE_WAIT_BRIEF_MS, DATABASE_WAIT_MS, PENDING_SAMPLES_MAX, STORE_INTERVAL_MS,
    STORE_SAMPLES_MAX,
};
use crate::sample::ProbeSample;
use skep_database::DatabaseError;

/// Samples that are not in the file yet, and the thread that stores them.
pub(crate) struct SampleStore {
    jobs: mpsc::SyncSender<StoreJob>,
    pending: Vec<ProbeSample>,
    /// Time of the last attempt to store.
    tried_at: Instant,
    since_tried: usize,
}

impl SampleStore {
    /// Starts the thread that stores; it ends when the store is dropped.
    pub(crate) fn begin(path: PathBuf, writer: SampleWriter) -> Result<Self, DatabaseError> {
        // One job at a time.
        let (jobs, taken) = mpsc::sync_channel(1);
        let thread = thread::Builder::new().name("probe-store".to_owned());
        let begun = thread.spawn(move || store_all(writer, &taken));
        begun.map_err(|error| DatabaseError::Other { path, why: error.to_string() })?;
        Ok(Self { jobs, pending: Vec::new(), tried_at: Instant::now(), since_tried: 0 })
    }

    pub(crate) fn push(&mut self, sample: ProbeSample) {
        self.pending.push(sample);
        self.since_tried += 1;
    }

    /// Whether samples must not wait for the end of their turn.
    pub(crate) fn is_due(&self) -> bool {
        self.since_tried >= STORE_SAMPLES_MAX
            || self.tried_at.elapsed() >= Duration::from_millis(STORE_INTERVAL_MS)
    }

    /// Number of samples that are not in the file.
    pub(crate) fn pending(&self) -> u64 {
        self.pending.len() as u64
    }

    /// Stores the pending samples. A lock on the file is an error only if too many would be kept.
    pub(crate) async fn store(&mut self, turns_skipped: u64) -> Result<(), DatabaseError> {
        match self.attempt(turns_skipped, DATABASE_WAIT_BRIEF_MS, false).await {
            Err(DatabaseError::Locked { .. }) if self.pending.len() < PENDING_SAMPLES_MAX => Ok(()),
            result => result,
        }
    }

    /// Stores the pending samples for the last time, and closes the file.
    pub(crate) async fn finish(&mut self, turns_skipped: u64) -> Result<(), DatabaseError> {
        self.attempt(turns_skipped, DATABASE_WAIT_MS, true).await
    }

    async fn attempt(
        &mut self,
        turns_skipped: u64,
        wait_ms: u64,
        is_last: bool,
    ) -> Result<(), DatabaseError> {
        let (reply, stored) = oneshot::channel();
        let samples = std::mem::take(&mut self.pending);
        let job = StoreJob { samples, turns_skipped, wait_ms, is_last, reply };
        let Ok(()) = self.jobs.send(job) else { panic!("the thread that stores outlives it") };
        let Ok((samples, result)) = stored.await else { panic!("each job has a reply") };
        (self.tried_at, self.since_tried) = (Instant::now(), 0);
        if result.is_err() {
            self.pending = samples;
        }
        result
    }
}

/// Samples to store now.
struct StoreJob {
    samples: Vec<ProbeSample>,
    turns_skipped: u64,
    wait_ms: u64,
    is_last: bool,
    /// Returns the samples.
    reply: oneshot::Sender<(Vec<ProbeSample>, Result<(), DatabaseError>)>,
}

fn store_all(mut writer: SampleWriter, jobs: &mpsc::Receiver<StoreJob>) {
    for job in jobs {
        let result = writer.store(&job.samples, job.turns_skipped, job.wait_ms);
        if job.is_last && result.is_ok() {
            writer.close();
        }
        // The receiver may have been dropped.
        let _ = job.reply.send((job.samples, result));
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use std::path::Path;

    use rusqlite::Connection;
    use tempfile::TempDir;

    use super::*;
    use crate::plan::ProbePlan;

    fn store(folder: &Path) -> SampleStore {
        let plan = ProbePlan::empty(folder);
        SampleStore::begin(plan.out.clone(), SampleWriter::open(&plan, 0).unwrap()).unwrap()
    }

    fn stored(folder: &Path) -> i64 {
        let file = Connection::open(folder.join("samples.db")).unwrap();
        file.query_row("SELECT count(*) FROM sample", [], |row| row.get(0)).unwrap()
    }

    fn block_on<T>(future: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
    }

    #[test]
    fn samples_are_kept_up_to_a_bound_while_the_file_is_locked() {
        let folder = TempDir::new().unwrap();
        let mut store = store(folder.path());
        let other = Connection::open(folder.path().join("samples.db")).unwrap();
        other.execute_batch("BEGIN IMMEDIATE").unwrap();
        block_on(async {
            store.push(ProbeSample::default());
            store.store(0).await.unwrap();
            assert_eq!(store.pending(), 1);
            while store.pending() < PENDING_SAMPLES_MAX as u64 {
                store.push(ProbeSample::default());
            }
            let error = store.store(0).await.unwrap_err();
            assert!(matches!(error, DatabaseError::Locked { .. }), "{error}");
            assert!(error.to_string().contains("samples.db: another process"), "{error}");
            other.execute_batch("COMMIT").unwrap();
            store.finish(0).await.unwrap();
        });
        assert_eq!((store.pending(), stored(folder.path())), (0, PENDING_SAMPLES_MAX as i64));
    }

    #[test]
    fn samples_of_a_long_turn_do_not_wait_for_its_end() {
        let folder = TempDir::new().unwrap();
        let mut store = store(folder.path());
        for _ in 0..STORE_SAMPLES_MAX {
            assert!(!store.is_due());
            store.push(ProbeSample::default());
        }
        assert!(store.is_due());
        block_on(store.store(0)).unwrap();
        assert!(!store.is_due());
        store.tried_at -= Duration::from_millis(STORE_INTERVAL_MS);
        assert!(store.is_due());
    }
}
