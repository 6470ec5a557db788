//! Threads that may wait for a disk.

use skep_segments::DiskError;
use tokio::task::{JoinError, JoinHandle};

/// Runs `job` on a thread that may wait for a disk. A panic of the job is resumed here.
pub(crate) async fn pool<T: Send + 'static, E: From<DiskError> + Send + 'static>(
    job: impl FnOnce() -> Result<T, E> + Send + 'static,
) -> Result<T, E> {
    match on_pool(job).await.map_err(JoinError::try_into_panic) {
        Ok(done) => done,
        Err(Ok(panic)) => std::panic::resume_unwind(panic),
        Err(Err(_cancelled)) => Err(DiskError::Abandoned.into()),
    }
}

/// The same, for a job whose end need not be awaited.
pub(crate) fn on_pool<T: Send + 'static>(
    job: impl FnOnce() -> T + Send + 'static,
) -> JoinHandle<T> {
    #[expect(
        clippy::disallowed_methods,
        reason = "each worker's pool has a few threads; its \
        queue is bounded by the requests in work"
    )]
    tokio::task::spawn_blocking(job)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use tokio::runtime::Builder;

    use super::*;

    #[test]
    #[should_panic(expected = "a bug of ours")]
    fn a_panic_of_a_job_is_no_failure_of_a_disk() {
        let runtime = Builder::new_current_thread().build().unwrap();
        let job = || -> Result<(), DiskError> { panic!("a bug of ours") };
        runtime.block_on(pool(job)).unwrap();
    }

    #[test]
    fn a_job_that_the_end_of_the_runtime_forbids_is_abandoned() {
        let runtime = Builder::new_current_thread().build().unwrap();
        let handle = runtime.handle().clone();
        runtime.shutdown_background();
        let _entered = handle.enter();
        let job = pin!(pool(|| -> Result<(), DiskError> { panic!("it ran") }));
        let done = job.poll(&mut Context::from_waker(Waker::noop()));
        assert_eq!(done, Poll::Ready(Err(DiskError::Abandoned)));
    }
}
