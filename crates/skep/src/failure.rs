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

/// How often threads are looked at: a [`Watchdog`] counts seconds.
const LOOK: Duration = Duration::from_secs(1);

/// Time for the thread of the log to write the last line: `exit` does not wait for it.
pub(crate) const LAST_LINE: Duration = Duration::from_millis(200);

/// Why this process ends, if it does so by itself.
static FAILURE: OnceLock<String> = OnceLock::new();

/// Whether it was told to end.
static STOPS: AtomicBool = AtomicBool::new(false);

/// Ends this process in good order, with a failure, unless it ends already. Packets are still
/// steered by what is pinned.
pub(crate) fn fail(why: &str) {
    if STOPS.load(Ordering::Relaxed) || FAILURE.set(why.to_owned()).is_err() {
        return;
    }
    tracing::error!("{why}: this process ends with code 1, for its supervisor to restart it");
    // Only a process that is gone cannot be told.
    let _ = rustix::process::kill_process(rustix::process::getpid(), Signal::TERM);
}

/// The failure for which this process has ended, if it has.
pub(crate) fn outcome() -> anyhow::Result<()> {
    match FAILURE.get() {
        Some(why) => bail!("ended: {why}"),
        None => Ok(()),
    }
}

/// This process was told to end: what breaks from now on is no failure.
pub(crate) fn expect_end() {
    STOPS.store(true, Ordering::Relaxed);
}

/// Looks at the watched threads once a second, on a thread of its own, to the end of the process.
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

/// An end in good order would wait for the stalled thread.
#[expect(clippy::disallowed_methods, reason = "an end in good order waits for that thread")]
fn end_at_once(fault: ThreadFault) {
    tracing::error!("{fault}: this process ends at once");
    thread::sleep(LAST_LINE);
    process::exit(1);
}
