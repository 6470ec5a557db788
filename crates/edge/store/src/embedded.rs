//! The thread of the embedded store's file: only this thread waits for the disk.

use std::path::PathBuf;
use std::thread::{self, JoinHandle};

use tokio::sync::{mpsc, oneshot, watch};

use crate::error::{StoreError, StoreOpenError};
use crate::file::{File, Read};
use crate::limits::DISK_JOBS_MAX;
use crate::types::{Expected, Health};

type Job = Box<dyn FnOnce(&mut File) + Send>;

/// A handle to the file, which is owned by the store's thread.
pub(crate) struct Embedded {
    path: PathBuf,
    /// `None` only during drop.
    jobs: Option<mpsc::Sender<Job>>,
    /// Revision of the last write, for watches.
    written: watch::Sender<u64>,
    thread: Option<JoinHandle<()>>,
}

impl Embedded {
    /// Moves `file` to a thread of its own.
    pub(crate) fn start(mut file: File) -> Result<Self, StoreOpenError> {
        let path = file.path().to_owned();
        let (jobs, mut queue) = mpsc::channel::<Job>(DISK_JOBS_MAX);
        let work = move || {
            while let Some(job) = queue.blocking_recv() {
                job(&mut file);
            }
        };
        let thread = thread::Builder::new().name("skep-store-disk".to_owned()).spawn(work);
        Ok(Self {
            path,
            jobs: Some(jobs),
            written: watch::Sender::new(0),
            thread: Some(thread.map_err(StoreOpenError::Thread)?),
        })
    }

    /// Reads the value at `key`.
    pub(crate) async fn get(&self, key: &str) -> Result<Read, StoreError> {
        let key = key.to_owned();
        self.run(move |file| file.get(&key)).await
    }

    /// Writes `value` at `key`; returns the revision.
    pub(crate) async fn put(
        &self,
        key: &str,
        value: &[u8],
        expected: Expected,
    ) -> Result<u64, StoreError> {
        let (key, value) = (key.to_owned(), value.to_owned());
        let revision = self.run(move |file| file.put(&key, &value, expected)).await?;
        self.written.send_replace(revision);
        Ok(revision)
    }

    /// Returns after a write later than revision `as_of`.
    pub(crate) async fn changed(&self, as_of: u64) {
        // The sender lives as long as `self`.
        let _ = self.written.subscribe().wait_for(|written| *written > as_of).await;
    }

    /// Whether the file can be read.
    pub(crate) async fn health(&self) -> Health {
        let problem = self.run(|file| file.get("health").map(drop)).await.err();
        Health {
            answering: usize::from(problem.is_none()),
            of: 1,
            what: "files",
            problems: problem.iter().map(ToString::to_string).collect(),
        }
    }

    pub(crate) fn path(&self) -> &std::path::Path {
        &self.path
    }

    async fn run<T: Send + 'static>(
        &self,
        operation: impl FnOnce(&mut File) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let (reply, outcome) = oneshot::channel();
        let job: Job = Box::new(move |file| {
            // After the deadline nobody waits for the reply.
            let _ = reply.send(operation(file));
        });
        let jobs = self.jobs.as_ref().ok_or(StoreError::Closed)?;
        jobs.send(job).await.map_err(|_| StoreError::Closed)?;
        outcome.await.unwrap_or(Err(StoreError::Closed))
    }
}

impl Drop for Embedded {
    /// Waits for the file's thread, so that the file is closed and the next process can open it.
    fn drop(&mut self) {
        self.jobs = None;
        if let Some(thread) = self.thread.take() {
            // The thread never panics: faults of jobs are caught in `File`.
            let _ = thread.join();
        }
    }
}
