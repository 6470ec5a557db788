//! Threads without the privileges that this process starts with.

use anyhow::Context;
use skep_guard::privileges;

/// Runs `job` on a thread that has given up all privileges, and waits for it.
/// Threads that `job` starts have none either.
pub(crate) fn unprivileged<T: Send + 'static>(
    job: impl FnOnce() -> anyhow::Result<T> + Send + 'static,
) -> anyhow::Result<T> {
    let ran = std::thread::spawn(move || {
        privileges::keep_nothing().context("cannot give up privileges")?;
        job()
    });
    ran.join().map_err(|_| anyhow::anyhow!("a thread of the start has panicked"))?
}
