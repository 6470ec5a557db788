//! Ctrl-C and SIGTERM: recorded in a flag that every wait of this program checks, so that the destructors
//! stop everything that was started, as after any error.

use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result, bail};
use tokio::signal::unix::{SignalKind, signal};

static HAS_COME: AtomicBool = AtomicBool::new(false);

/// Starts the thread that waits for the signals.
pub(crate) fn watch() -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .build()
        .context("a runtime for signals")?;
    let (mut interrupt, mut terminate, mut hang_up) = {
        let _inside = runtime.enter();
        let of = |kind| signal(kind).context("a handler of signals");
        (of(SignalKind::interrupt())?, of(SignalKind::terminate())?, of(SignalKind::hangup())?)
    };
    std::thread::spawn(move || {
        runtime.block_on(async {
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
                _ = hang_up.recv() => {}
            }
        });
        HAS_COME.store(true, Ordering::Relaxed);
        eprintln!("skep-conformance: interrupted, stopping what was started");
    });
    Ok(())
}

/// Whether a signal was received.
pub(crate) fn has_come() -> bool {
    HAS_COME.load(Ordering::Relaxed)
}

/// Returns an error once a signal was received.
pub(crate) fn check() -> Result<()> {
    if has_come() {
        bail!("interrupted");
    }
    Ok(())
}
