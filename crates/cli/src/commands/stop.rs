//! Signals that end a run. The main thread hears them, and the run has another, so that nothing which
//! waits, for a file or for a terminal, keeps the process.

use std::thread;

use anyhow::{Context, bail};
use tokio::sync::oneshot;

use crate::signals::{SignalAction, Signals};

/// Calls `work` in a thread of that name, with what hears of the first SIGINT or SIGTERM, and returns what it
/// returns. It is not waited for after the second, or after the first once it hears no more.
pub(super) fn with_signals(
    name: &str,
    work: impl FnOnce(oneshot::Receiver<()>) -> anyhow::Result<()> + Send + 'static,
) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let signals = Signals::listen()?;
        let (stop, stopped) = oneshot::channel();
        let (end, ended) = oneshot::channel();
        let thread = thread::Builder::new().name(name.to_owned());
        // Nobody receives it behind the second signal.
        thread.spawn(move || end.send(work(stopped)).ok()).context("cannot begin the run")?;
        tokio::select! {
            result = ended => result.context("the run has panicked")?,
            () = until_second(signals, stop) => {
                bail!("ended by a signal before all output was written")
            }
        }
    })
}

async fn until_second(mut signals: Signals, stop: oneshot::Sender<()>) {
    until_stopped(&mut signals).await;
    if stop.send(()).is_ok() {
        until_stopped(&mut signals).await;
    }
}

/// Until SIGINT or SIGTERM; there is nothing to reload.
async fn until_stopped(signals: &mut Signals) {
    while signals.next().await == SignalAction::Reload {}
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use std::sync::mpsc::sync_channel;

    use rustix::process::{Signal, getpid, kill_process};

    use super::*;

    /// One test: signals are the whole process's.
    #[test]
    fn a_run_that_waits_for_ever_is_left_at_the_second_signal_or_once_it_hears_none() {
        let signal = |signal| kill_process(getpid(), signal).unwrap();
        let (release, released) = sync_channel::<()>(0);
        let result = with_signals("run", move |stopped| {
            signal(Signal::TERM);
            stopped.blocking_recv()?;
            signal(Signal::INT);
            // As for a terminal that takes no more.
            Ok(released.recv()?)
        });
        assert!(result.unwrap_err().to_string().contains("ended by a signal"));
        drop(release);

        let (release, released) = sync_channel::<()>(0);
        let result = with_signals("run", move |stopped| {
            drop(stopped);
            signal(Signal::TERM);
            Ok(released.recv()?)
        });
        assert!(result.unwrap_err().to_string().contains("ended by a signal"));
        drop(release);

        with_signals("run", move |stopped| {
            signal(Signal::INT);
            Ok(stopped.blocking_recv()?)
        })
        .unwrap();
    }
}
