//! The end of a process that cannot keep its promises, and what its supervisor learns.
//!
//! Such a process ends with a failure, so that its supervisor starts it anew. Under systemd
//! (`Type=notify`, sd_notify(3)) it says when it is ready and, as long as all watched threads run,
//! that it is well (`WatchdogSec`).

use std::ffi::OsString;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::process;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Duration;

use anyhow::bail;
use rustix::process::Signal;
use skep_peer::{ThreadFault, Watchdog};

/// How often threads are looked at: a [`Watchdog`] counts seconds.
const LOOK: Duration = Duration::from_secs(1);

/// Time for a last line of the log, which may be what a stalled thread waits for.
const LAST_LINE: Duration = Duration::from_millis(200);

/// Why this process ends, if it does so by itself.
static FAILURE: OnceLock<String> = OnceLock::new();

/// Whether it was told to end.
static STOPS: AtomicBool = AtomicBool::new(false);

/// The socket of the supervisor, if there is one.
static SUPERVISOR: OnceLock<UnixDatagram> = OnceLock::new();

/// Ends this process in good order, with a failure, unless it ends already. Packets are still
/// steered by what is pinned.
pub(crate) fn fail(why: &str) {
    if STOPS.load(Ordering::Relaxed) || FAILURE.set(why.to_owned()).is_err() {
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

/// Connects to the supervisor, if there is one, while there are descriptors and the privilege.
pub(crate) fn find_supervisor() {
    let Some(name) = std::env::var_os("NOTIFY_SOCKET") else { return };
    match connect(&name) {
        // A process has one, and calls this once.
        Ok(socket) => drop(SUPERVISOR.set(socket)),
        Err(error) => {
            tracing::warn!("the supervisor at {} cannot be told: {error}", name.display())
        }
    }
}

/// Tells the supervisor that this process is ready.
pub(crate) fn notify_ready() {
    notify("READY=1");
}

/// This process was told to end: tells the supervisor so.
pub(crate) fn notify_stopping() {
    STOPS.store(true, Ordering::Relaxed);
    notify("STOPPING=1");
}

/// Looks at the watched threads once a second, on a thread of its own, to the end of the process.
pub(crate) fn watch(watchdog: Arc<Watchdog>) -> io::Result<()> {
    let watch = move || {
        loop {
            thread::sleep(LOOK);
            match watchdog.look() {
                None => notify("WATCHDOG=1"),
                Some(fault @ ThreadFault::Panicked { .. }) => fail(&fault.to_string()),
                Some(fault @ ThreadFault::Stalled { .. }) => end_at_once(fault),
            }
        }
    };
    thread::Builder::new().name("skep-watchdog".into()).spawn(watch).map(drop)
}

/// What waits for a stalled thread would not end, and the log may be what it waits for.
#[expect(clippy::disallowed_methods, reason = "an end in good order waits for that thread")]
fn end_at_once(fault: ThreadFault) {
    let last_line = move || tracing::error!("{fault}: this process ends at once");
    // Without it there is no line.
    let _ = thread::Builder::new().spawn(last_line);
    thread::sleep(LAST_LINE);
    process::exit(1);
}

/// `name` as in sd_notify(3): a path, or `@` and an abstract name. Never waits: a supervisor that
/// does not read is told later.
fn connect(name: &OsString) -> io::Result<UnixDatagram> {
    let address = match name.as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
        _ => SocketAddr::from_pathname(name)?,
    };
    let socket = UnixDatagram::unbound()?;
    socket.connect_addr(&address)?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

fn notify(state: &str) {
    let sent = SUPERVISOR.get().map(|socket| socket.send(state.as_bytes()));
    if let Some(Err(error)) = sent {
        tracing::debug!("the supervisor cannot be told {state}: {error}");
    }
}
