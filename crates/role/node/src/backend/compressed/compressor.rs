//! The compression threads, and admission to them.
//!
//! ```text
//!  enter --> waits for a place, at most so many do --> CompressorPermit: run, run, ... --> leaves
//!    '-> Busy: sent as it is
//! ```

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, mpsc};

use tokio::sync::{Semaphore, SemaphorePermit, oneshot};

use crate::limits::{COMPRESSIONS_WAITING_MAX, COMPRESSOR_CORES_PART};

type Job = Box<dyn FnOnce() + Send>;

/// The threads are started by the first job.
#[derive(Debug)]
pub(crate) struct Compressor {
    threads: usize,
    places: Semaphore,
    waiting: AtomicUsize,
    jobs: OnceLock<mpsc::SyncSender<Job>>,
}

/// Too many callers are waiting already.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Busy;

/// Permission to use one thread.
pub(crate) struct CompressorPermit<'a> {
    compressor: &'a Compressor,
    _permit: SemaphorePermit<'a>,
    /// Whether more callers wait than there are threads.
    pub(crate) is_hurried: bool,
}

/// Counts one waiting caller.
struct Waiting<'a>(&'a AtomicUsize);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Compressor {
    pub(crate) fn new() -> Arc<Self> {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let threads = (cores / COMPRESSOR_CORES_PART).max(1);
        let places = Semaphore::new(threads);
        Arc::new(Self { threads, places, waiting: AtomicUsize::new(0), jobs: OnceLock::new() })
    }

    /// Waits for a free thread.
    ///
    /// # Errors
    /// Too many callers wait.
    pub(crate) async fn enter(&self) -> Result<CompressorPermit<'_>, Busy> {
        let before = self.waiting.fetch_add(1, Ordering::Relaxed);
        let waiting = Waiting(&self.waiting);
        if before >= COMPRESSIONS_WAITING_MAX {
            return Err(Busy);
        }
        let permit = self.places.acquire().await.map_err(|_| Busy)?;
        drop(waiting);
        let is_hurried = self.waiting.load(Ordering::Relaxed) > self.threads;
        Ok(CompressorPermit { compressor: self, _permit: permit, is_hurried })
    }

    fn send(&self, job: Job) -> Result<(), Busy> {
        let jobs = match self.jobs.get() {
            Some(jobs) => jobs,
            None => {
                let started = start(self.threads).map_err(|error| {
                    tracing::warn!(%error, "no thread for compression: responses are sent as they are");
                    Busy
                })?;
                self.jobs.get_or_init(|| started)
            }
        };
        jobs.try_send(job).map_err(|_| Busy)
    }
}

impl CompressorPermit<'_> {
    /// Runs `job` on a thread. A permit runs one job at a time, so a thread is free. `None`: the
    /// job panicked, or no thread could be started.
    pub(crate) async fn run<T: Send + 'static>(
        &mut self,
        job: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        let (done, result) = oneshot::channel();
        let job = Box::new(move || {
            // The receiver may be gone.
            let _ = done.send(job());
        });
        self.compressor.send(job).ok()?;
        result.await.ok()
    }
}

/// Starts the threads; they end with the sender.
fn start(threads: usize) -> std::io::Result<mpsc::SyncSender<Job>> {
    let (sender, jobs) = mpsc::sync_channel::<Job>(threads);
    let jobs = Arc::new(Mutex::new(jobs));
    for _ in 0..threads {
        let jobs = Arc::clone(&jobs);
        let work = move || {
            loop {
                let job = jobs.lock().unwrap_or_else(PoisonError::into_inner).recv();
                let Ok(job) = job else { return };
                // A panic ends the job but not the thread; the receiver sees the dropped sender.
                if std::panic::catch_unwind(std::panic::AssertUnwindSafe(job)).is_err() {
                    tracing::error!("a compression ended in a panic");
                }
            }
        };
        std::thread::Builder::new().name("skep-compress".into()).spawn(work)?;
    }
    Ok(sender)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[tokio::test]
    async fn who_comes_when_too_many_wait_is_turned_away() {
        let compressor = Compressor::new();
        let mut held = Vec::new();
        for _ in 0..compressor.threads {
            held.push(compressor.enter().await.unwrap());
        }
        let mut waiting: Vec<_> =
            (0..COMPRESSIONS_WAITING_MAX).map(|_| Box::pin(compressor.enter())).collect();
        for one in &mut waiting {
            assert!(
                std::future::poll_fn(|cx| std::task::Poll::Ready(
                    one.as_mut().poll(cx).is_pending()
                ))
                .await
            );
        }
        assert!(compressor.enter().await.is_err());
        held.pop();
        let place = waiting.remove(0).await.unwrap();
        assert!(place.is_hurried);
        drop(waiting);
        drop(place);
        assert!(!compressor.enter().await.unwrap().is_hurried);
    }

    #[tokio::test]
    async fn a_panic_ends_one_job() {
        let compressor = Compressor::new();
        let mut place = compressor.enter().await.unwrap();
        assert_eq!(place.run(|| -> u8 { std::panic::resume_unwind(Box::new("")) }).await, None);
        assert_eq!(place.run(|| 7).await, Some(7));
    }
}
