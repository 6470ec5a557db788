//! Signals that end a run. The main thread receives them while the run has a thread of its own, so that no
//! wait, for a file or for a terminal, keeps the process alive.

use std::thread;

use anyhow::{Context, bail};
use tokio::sync::oneshot;

use crate::signals::{SignalAction, Signals};

/// Calls `work` in a thread named `name`, with a receiver of the first SIGINT or SIGTERM, and returns its
/// result. Does not wait for it after the second signal, or after the first if `work` has dropped the
/// receiver.
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
        // After the second signal there is no receiver.
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

/// Returns after SIGINT or SIGTERM; there is nothing to reload.
async fn until_stopped(signals: &mut Signals) {
    while signals.next().await == SignalAction::Reload {}
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use std::sync::mpsc::sync_channel;

    use rustix::process::{Signal, getpid, kill_process};

    use super::*;

    /// A single test, since signals are sent to the whole process.
    #[test]
    fn a_run_that_waits_for_ever_is_left_at_the_second_signal_or_once_it_hears_none() {
        let signal = |signal| kill_process(getpid(), signal).unwrap();
        let (release, released) = sync_channel::<()>(0);
        let result = with_signals("run", move |stopped| {
            signal(Signal::TERM);
            stopped.blocking_recv()?;
            signal(Signal::INT);
            // As if blocked on a terminal that accepts no more output.
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
