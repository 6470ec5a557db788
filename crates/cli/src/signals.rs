//! The signals that a process receives, and the one line that it prints when it is ready.

use std::io::Write;

use anyhow::Context;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// What a signal asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SignalAction {
    /// SIGHUP.
    Reload,
    /// SIGTERM: complete the work in progress.
    Drain,
    /// SIGINT: the operator at the terminal; a second one ends the process at once.
    Interrupt,
}

/// The signals that a process listens to.
pub struct Signals {
    hangup: Signal,
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    /// Listens from now on, within a runtime.
    ///
    /// # Errors
    /// The system does not let it.
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

/// Prints the ready line on standard output; tools wait for it. From then on signals
/// count: listen first.
///
/// # Errors
/// Standard output is closed.
pub fn announce(line: &str) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "skep: {line}").and_then(|()| out.flush()).context("cannot write the ready line")
}
