//! Threads that may wait for a disk.

use skep_segments::DiskError;
use tokio::task::JoinHandle;

/// Runs `job` on a thread that may wait for a disk.
pub(crate) async fn pool<T: Send + 'static>(
    job: impl FnOnce() -> Result<T, DiskError> + Send + 'static,
) -> Result<T, DiskError> {
    on_pool(job).await.unwrap_or(Err(DiskError::Exhausted))
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
