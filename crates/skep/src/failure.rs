//! A process that cannot do its work exits with a failure, so that its supervisor restarts it.

use std::io;
use std::process;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Duration;

use anyhow::bail;
use rustix::process::Signal;
use skep_peer::{ThreadFault, Watchdog};

use crate::supervisor;

/// Interval at which threads are checked: a [`Watchdog`] counts seconds.
const LOOK: Duration = Duration::from_secs(1);

/// Time for the log's thread to write the last line, for which `exit` does not wait.
pub(crate) const LAST_LINE: Duration = Duration::from_millis(200);

/// Why this process ends, if it ends because of a failure.
static FAILURE: OnceLock<String> = OnceLock::new();

/// Whether this process was ordered to end.
static STOPS: AtomicBool = AtomicBool::new(false);

/// Ends this process in an orderly way as failed, unless it is ending already. Packets are still steered by
/// the pinned programs.
pub(crate) fn fail(why: &str) {
    if STOPS.load(Ordering::Relaxed) || FAILURE.set(why.to_owned()).is_err() {
        return;
    }
    tracing::error!("{why}: this process ends with code 1, for its supervisor to restart it");
    // Fails only if the process does not exist.
    let _ = rustix::process::kill_process(rustix::process::getpid(), Signal::TERM);
}

/// Returns the failure for which this process has ended, if there was one.
pub(crate) fn outcome() -> anyhow::Result<()> {
    match FAILURE.get() {
        Some(why) => bail!("ended: {why}"),
        None => Ok(()),
    }
}

/// Records that this process was ordered to end: later faults do not count as failures.
pub(crate) fn expect_end() {
    STOPS.store(true, Ordering::Relaxed);
}

/// Checks the watched threads once a second, on a separate thread, until the process ends.
pub(crate) fn watch(watchdog: Arc<Watchdog>) -> io::Result<()> {
    let watch = move || {
        loop {
            thread::sleep(LOOK);
            match watchdog.look() {
                None => supervisor::notify_watchdog(),
                Some(fault @ ThreadFault::Panicked { .. }) => fail(&fault.to_string()),
                Some(fault @ ThreadFault::Stalled { .. }) => end_at_once(fault),
            }
        }
    };
    thread::Builder::new().name("skep-watchdog".into()).spawn(watch).map(drop)
}

/// Ends the process at once, since an orderly end would wait for the stalled thread.
#[expect(clippy::disallowed_methods, reason = "an end in good order waits for that thread")]
fn end_at_once(fault: ThreadFault) {
    tracing::error!("{fault}: this process ends at once");
    thread::sleep(LAST_LINE);
    process::exit(1);
}
