//! What the outside tells a process, and the one line that it tells first.

use std::io::Write;

use anyhow::Context;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// What a signal asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wish {
    /// SIGHUP.
    Reload,
    /// SIGTERM: finish what is in work.
    Drain,
    /// SIGINT: the operator at the terminal; asked twice, now.
    Interrupt,
}

/// The signals that a process listens to.
pub(crate) struct Signals {
    hangup: Signal,
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    /// Listens from now on.
    pub(crate) fn listen() -> anyhow::Result<Self> {
        let listen = |kind| signal(kind).context("cannot listen for signals");
        Ok(Self {
            hangup: listen(SignalKind::hangup())?,
            terminate: listen(SignalKind::terminate())?,
            interrupt: listen(SignalKind::interrupt())?,
        })
    }

    pub(crate) async fn next(&mut self) -> Wish {
        tokio::select! {
            _ = self.hangup.recv() => Wish::Reload,
            _ = self.terminate.recv() => Wish::Drain,
            _ = self.interrupt.recv() => Wish::Interrupt,
        }
    }
}

/// Prints the ready line on standard output; tools wait for it. From then on signals
/// count: listen first.
pub(crate) fn announce(line: &str) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "skep: {line}").and_then(|()| out.flush()).context("cannot write the ready line")
}

/// Leaves signals that mean others too (Ctrl-C, the end of a service) to them.
pub(crate) fn outlive_others() -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    // Who is registered once stays so for as long as the process lives.
    let _in = runtime.enter();
    drop(signal(SignalKind::terminate())?);
    drop(signal(SignalKind::interrupt())?);
    Ok(())
}
