//! What the outside tells a process, and the one line that it tells first.

use std::io::Write;

use anyhow::Context;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// What a signal asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wish {
    /// SIGHUP.
    Reload,
    /// SIGTERM: finish what is in work.
    Drain,
    /// SIGINT: the operator at the terminal; asked twice, now.
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

    pub async fn next(&mut self) -> Wish {
        tokio::select! {
            _ = self.hangup.recv() => Wish::Reload,
            _ = self.terminate.recv() => Wish::Drain,
            _ = self.interrupt.recv() => Wish::Interrupt,
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
