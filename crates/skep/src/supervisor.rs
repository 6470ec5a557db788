//! Notifies this process's supervisor by sd_notify(3): systemd with `Type=notify`.

use std::ffi::OsString;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::OnceLock;

/// The supervisor, if there is one.
static SUPERVISOR: OnceLock<Supervisor> = OnceLock::new();

struct Supervisor {
    socket: UnixDatagram,
    /// The socket is not connected, since a restarted supervisor listens on another socket with the same
    /// name.
    address: SocketAddr,
}

/// Finds the supervisor, if there is one, while descriptors are available.
pub(crate) fn find() {
    let Some(name) = std::env::var_os("NOTIFY_SOCKET") else { return };
    match Supervisor::named(&name) {
        // This function is called once per process.
        Ok(supervisor) => drop(SUPERVISOR.set(supervisor)),
        Err(error) => {
            tracing::warn!("the supervisor at {} cannot be notified: {error}", name.display())
        }
    }
}

/// Reports that this process is ready.
pub(crate) fn notify_ready() {
    notify("READY=1");
}

/// Reports that all watched threads run. To be sent more often than `WatchdogSec`.
pub(crate) fn notify_watchdog() {
    notify("WATCHDOG=1");
}

/// Reports that this process was ordered to end.
pub(crate) fn notify_stopping() {
    notify("STOPPING=1");
}

impl Supervisor {
    /// Parses `name`: a path, or `@` and an abstract name.
    fn named(name: &OsString) -> io::Result<Self> {
        let address = match name.as_bytes() {
            [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
            _ => SocketAddr::from_pathname(name)?,
        };
        let socket = UnixDatagram::unbound()?;
        // A supervisor that does not read must not block the sender.
        socket.set_nonblocking(true)?;
        Ok(Self { socket, address })
    }
}

fn notify(state: &str) {
    let sent = SUPERVISOR.get().map(|it| it.socket.send_to_addr(state.as_bytes(), &it.address));
    if let Some(Err(error)) = sent {
        tracing::debug!("the supervisor cannot be notified of {state}: {error}");
    }
}
