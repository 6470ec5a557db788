//! Sockets of connections that are handed off: sets the options that only a privileged process may set, and
//! checks the descriptors of other processes before it does.
//!
//! In repair mode (`TCP_REPAIR`) a socket sends no data but still accepts packets: it would acknowledge bytes
//! that are in no snapshot. Therefore a filter that drops everything is attached first. It belongs to the
//! socket, and stands between TCP and the packet program, which another processor may have left just before
//! the connection was blocked.
//!
//! **Invariant:** every socket in repair mode has the filter.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroU32;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, ipproto, sockopt};
use skep_wire::handoff::SocketId;
use skep_wire::handoff::guard::CONTROL_PROTOCOL;

use crate::diag::Diag;
use crate::limits::{CONTROL_BUFFER_BYTES, RECEIVE_BUFFER_BYTES};
use crate::sys;

/// Switches sockets to repair mode and back, and creates them.
#[derive(Debug)]
pub struct SocketSwitch {
    drop_all: OwnedFd,
    diag: Diag,
}

/// Why a descriptor is not the connection's socket, or cannot be switched.
#[derive(Debug, thiserror::Error)]
pub enum SocketError {
    #[error("the descriptor is no TCP socket")]
    NotTcp,
    #[error("the socket's local address is {0}, not that of the order")]
    OtherServer(SocketAddr),
    #[error("the socket's peer is {0}, not the order's client")]
    OtherClient(SocketAddr),
    #[error("the connection is not established (state {0} of the kernel's)")]
    NotEstablished(u8),
    #[error("cannot {doing}: {error}")]
    Io { doing: &'static str, error: io::Error },
}

/// `TCP_ESTABLISHED` of the kernel's net/tcp_states.h.
const ESTABLISHED: u8 = 1;

/// Values of `TCP_REPAIR`.
const REPAIR_ON: i32 = 1;
/// Off, with a window probe, which the peer answers.
const REPAIR_OFF: i32 = 0;
const REPAIR_OFF_NO_PROBE: i32 = -1;

impl SocketSwitch {
    /// Loads the filter. Needs CAP_BPF.
    pub fn new() -> Result<Self, SocketError> {
        Ok(Self {
            drop_all: sys::load_drop_all().doing("load the filter that drops all")?,
            diag: Diag::open().doing("open a socket to ask for connections")?,
        })
    }

    /// Drops all packets for the socket from now on; those received before are in its queue.
    pub fn deafen(&self, socket: BorrowedFd<'_>) -> Result<(), SocketError> {
        sys::attach_filter(socket, self.drop_all.as_fd()).doing("attach the filter")
    }

    /// Undoes [`Self::deafen`].
    pub fn hear(&self, socket: BorrowedFd<'_>) -> Result<(), SocketError> {
        match sys::detach_filter(socket) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            outcome => outcome.doing("detach the filter"),
        }
    }

    /// Turns repair mode on. The socket's pending work is done when this returns.
    ///
    /// # Errors
    /// [`SocketError::NotEstablished`] if the peer has closed meanwhile: repair mode is then off again.
    pub fn repair(&self, socket: BorrowedFd<'_>) -> Result<(), SocketError> {
        sys::set_repair(socket, REPAIR_ON).doing("turn repair mode on")?;
        let checked = check_established(socket);
        if checked.is_err() {
            self.leave_repair(socket)?;
        }
        checked
    }

    /// Turns repair mode off without sending anything.
    pub fn leave_repair(&self, socket: BorrowedFd<'_>) -> Result<(), SocketError> {
        Self::leave(socket, REPAIR_OFF_NO_PROBE)
    }

    /// Turns repair mode off and sends a window probe: the peer acknowledges, and so reports its window.
    pub fn start(&self, socket: BorrowedFd<'_>) -> Result<(), SocketError> {
        Self::leave(socket, REPAIR_OFF)
    }

    fn leave(socket: BorrowedFd<'_>, how: i32) -> Result<(), SocketError> {
        sys::set_repair(socket, how).doing("turn repair mode off")?;
        // Repair mode cleared the option, without which no listener could be bound to the address while the
        // socket is open.
        sockopt::set_socket_reuseaddr(socket, true).doing("let the address be used again")
    }

    /// Ends the connection with RST, even if other processes have the socket open.
    pub fn reset(&self, socket: BorrowedFd<'_>) -> Result<(), SocketError> {
        if is_in_repair(socket)? {
            self.leave_repair(socket)?;
        }
        match rustix::net::connect_unspec(socket) {
            // The connection has already ended.
            Err(Errno::NOTCONN) => Ok(()),
            outcome => outcome.doing("reset the connection"),
        }
    }

    /// Whether this machine has a socket of the connection, in repair mode or not.
    pub fn has_connection(&self, id: SocketId) -> Result<bool, SocketError> {
        self.diag.has(id).doing("ask for the connection")
    }

    /// Creates a socket in repair mode that is bound to the server's address, beside any listener.
    pub fn create(&self, id: SocketId) -> Result<OwnedFd, SocketError> {
        let family = family_of(id.server.ip());
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket =
            rustix::net::socket_with(family, SocketType::STREAM, flags, Some(ipproto::TCP))
                .doing("make a socket")?;
        let fd = socket.as_fd();
        self.deafen(fd)?;
        // Before `bind`: repair mode is what allows sharing the address.
        sys::set_repair(fd, REPAIR_ON).doing("turn repair mode on")?;
        if id.server.is_ipv6() {
            sockopt::set_ipv6_v6only(fd, true).doing("bind to IPv6 only")?;
        }
        sys::set_receive_buffer(fd, RECEIVE_BUFFER_BYTES).doing("set the receive buffer")?;
        rustix::net::bind(fd, &id.server).doing("bind to the server's address")?;
        Ok(socket)
    }
}

/// Checks that a descriptor is the socket of the connection `id`, and that this is established.
pub fn check_socket(socket: BorrowedFd<'_>, id: SocketId) -> Result<(), SocketError> {
    check_ends(socket, id)?;
    check_established(socket)
}

/// Checks the same of a connection that may have ended meanwhile, whose socket then has no addresses.
pub fn check_any_state(socket: BorrowedFd<'_>, id: SocketId) -> Result<(), SocketError> {
    match check_ends(socket, id) {
        Err(SocketError::Io { error, .. }) if error.kind() == io::ErrorKind::NotConnected => Ok(()),
        outcome => outcome,
    }
}

/// Returns whether a TCP socket is in repair mode.
pub fn is_in_repair(socket: BorrowedFd<'_>) -> Result<bool, SocketError> {
    Ok(sys::repair(socket).doing("ask for repair mode")? == REPAIR_ON)
}

/// Opens a raw socket for the control messages of handoffs, bound to one address of this machine: it receives
/// only packets of that protocol to that address.
pub fn control_socket(own: IpAddr) -> Result<OwnedFd, SocketError> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let protocol = NonZeroU32::new(CONTROL_PROTOCOL.into()).map(rustix::net::Protocol::from_raw);
    let family = family_of(own);
    let socket = rustix::net::socket_with(family, SocketType::RAW, flags, protocol)
        .doing("make a raw socket")?;
    sys::set_receive_buffer(socket.as_fd(), CONTROL_BUFFER_BYTES)
        .doing("set the receive buffer")?;
    rustix::net::bind(&socket, &SocketAddr::new(own, 0)).doing("bind to the node's address")?;
    Ok(socket)
}

fn check_ends(socket: BorrowedFd<'_>, id: SocketId) -> Result<(), SocketError> {
    // Other families use the same protocol number, but their addresses are not those of TCP.
    if !matches!(sockopt::socket_protocol(socket), Ok(Some(ipproto::TCP))) {
        return Err(SocketError::NotTcp);
    }
    let server = rustix::net::getsockname(socket).doing("ask for the socket's local address")?;
    let server = SocketAddr::try_from(server).map(plain).map_err(|_| SocketError::NotTcp)?;
    if server != plain(id.server) {
        return Err(SocketError::OtherServer(server));
    }
    let peer = rustix::net::getpeername(socket).doing("ask for the socket's peer")?;
    let client = peer.ok_or(SocketError::NotTcp)?;
    let client = SocketAddr::try_from(client).map(plain).map_err(|_| SocketError::NotTcp)?;
    match client == plain(id.client) {
        true => Ok(()),
        false => Err(SocketError::OtherClient(client)),
    }
}

fn check_established(socket: BorrowedFd<'_>) -> Result<(), SocketError> {
    match sys::tcp_state(socket).doing("ask for the connection's state")? {
        ESTABLISHED => Ok(()),
        other => Err(SocketError::NotEstablished(other)),
    }
}

/// The address in the form that orders have: without scope, flow information or mapping of IPv6.
fn plain(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

fn family_of(address: IpAddr) -> AddressFamily {
    if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 }
}

trait Doing<T> {
    fn doing(self, doing: &'static str) -> Result<T, SocketError>;
}

impl<T, E: Into<io::Error>> Doing<T> for Result<T, E> {
    fn doing(self, doing: &'static str) -> Result<T, SocketError> {
        self.map_err(|error| SocketError::Io { doing, error: error.into() })
    }
}
