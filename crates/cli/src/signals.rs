//! The signals that a process receives, and the one line that it prints when it is ready.

use std::io::Write;

use anyhow::Context;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// The action that a signal requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SignalAction {
    /// SIGHUP.
    Reload,
    /// SIGTERM: complete the work in progress.
    Drain,
    /// SIGINT, from the operator at the terminal; a second one ends the process at once.
    Interrupt,
}

/// The signals that a process handles.
pub struct Signals {
    hangup: Signal,
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    /// Registers the handlers; must be called within a runtime.
    ///
    /// # Errors
    /// The system refuses to.
    pub fn listen() -> anyhow::Result<Self> {
        let listen = |kind| signal(kind).context("cannot listen for signals");
        Ok(Self {
            hangup: listen(SignalKind::hangup())?,
            terminate: listen(SignalKind::terminate())?,
            interrupt: listen(SignalKind::interrupt())?,
        })
    }

    pub async fn next(&mut self) -> SignalAction {
        tokio::select! {
            _ = self.hangup.recv() => SignalAction::Reload,
            _ = self.terminate.recv() => SignalAction::Drain,
            _ = self.interrupt.recv() => SignalAction::Interrupt,
        }
    }
}

/// Prints the ready line on standard output, for which tools wait. Signals may be sent from then on, so their
/// handlers must be registered before.
///
/// # Errors
/// Standard output is closed.
pub fn announce(line: &str) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "skep: {line}").and_then(|()| out.flush()).context("cannot write the ready line")
}
