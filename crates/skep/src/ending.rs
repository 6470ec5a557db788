//! The end of a process that cannot keep its promises, and what its supervisor learns.
//!
//! Such a process ends with an exit code of failure, so that its supervisor starts it anew. Under
//! systemd (`Type=notify`) it says when it is ready and, as long as all watched threads run, that it
//! is well (`WatchdogSec`).

use std::io;
use std::process;
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Duration;

use anyhow::bail;
use rustix::process::Signal;
use sd_notify::NotifyState;
use skep_peer::{ThreadFault, Watchdog};

/// How often threads are looked at: a [`Watchdog`] counts seconds.
const LOOK: Duration = Duration::from_secs(1);

/// Why this process ends, if it does so by itself.
static FAILURE: OnceLock<String> = OnceLock::new();

/// Ends this process in good order, with a failure. Packets are still steered by what is pinned.
pub(crate) fn fail(why: &str) {
    if FAILURE.set(why.to_owned()).is_err() {
        return;
    }
    tracing::error!("{why}: this process ends, to be started anew");
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

/// Tells the supervisor that this process is ready.
pub(crate) fn notify_ready() {
    notify(NotifyState::Ready);
}

/// Tells the supervisor that this process drains.
pub(crate) fn notify_stopping() {
    notify(NotifyState::Stopping);
}

/// Looks at the watched threads once a second, on a thread of its own, to the end of the process.
pub(crate) fn watch(watchdog: Arc<Watchdog>) -> io::Result<()> {
    let watch = move || {
        loop {
            thread::sleep(LOOK);
            match watchdog.look() {
                None => notify(NotifyState::Watchdog),
                Some(fault @ ThreadFault::Panicked { .. }) => fail(&fault.to_string()),
                Some(fault @ ThreadFault::Stalled { .. }) => end_at_once(&fault),
            }
        }
    };
    thread::Builder::new().name("skep-watchdog".into()).spawn(watch).map(drop)
}

#[expect(clippy::disallowed_methods, reason = "what waits for a stalled thread would not end")]
fn end_at_once(fault: &ThreadFault) {
    tracing::error!("{fault}: this process ends at once, to be started anew");
    process::exit(1);
}

fn notify(state: NotifyState<'_>) {
    if let Err(error) = sd_notify::notify(&[state]) {
        tracing::debug!("the supervisor cannot be told: {error}");
    }
}
