//! Netguard's end of the socket.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, sockopt};
use skep_wire::guard::{GREETING, MESSAGE_BYTES_MAX, Order, OrderReply};

use crate::limits::WAITING_MAX;
use crate::message::{decoded, put, take};

/// The refusal of messages that cannot be decoded.
pub(crate) const OTHER_BUILD: &str = "skep run and netguard are of different builds: install both from the same \
    one, then restart netguard, then skep run";

/// A socket at a path, which is removed on drop.
#[derive(Debug)]
pub struct Listener {
    socket: OwnedFd,
    path: PathBuf,
    /// Users that are served.
    users: Vec<u32>,
}

/// A peer that may give orders.
#[derive(Debug)]
pub struct Visit {
    socket: OwnedFd,
    buffer: Vec<u8>,
}

/// Executes the orders of peers.
pub trait Serve {
    /// Executes one order.
    fn perform(&mut self, order: Order) -> OrderReply;

    /// Called when no order was received for as long as a peer may be silent.
    fn silent(&mut self);
}

impl Listener {
    /// Listens at `path` for processes of `users`; those of other users have access through `group`, if one
    /// is given. The socket of a dead netguard is replaced; a live one is an error.
    pub fn bind(path: &Path, users: Vec<u32>, group: Option<u32>) -> io::Result<Self> {
        if rustix::net::connect(unconnected()?, &SocketAddrUnix::new(path)?).is_ok() {
            return Err(io::ErrorKind::AddrInUse.into());
        }
        Ok(Self { socket: listen_at(path, group)?, path: path.to_owned(), users })
    }

    /// Path of the socket.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Waits up to `silence_max` for a peer that is permitted to give orders; others are disconnected.
    pub fn accept(&self, silence_max: Duration) -> io::Result<Option<Visit>> {
        let end = Instant::now() + silence_max;
        loop {
            if !is_readable(self.socket.as_fd(), end)? {
                return Ok(None);
            }
            let socket = rustix::io::retry_on_intr(|| {
                rustix::net::accept_with(&self.socket, SocketFlags::CLOEXEC)
            })?;
            let peer = sockopt::socket_peercred(&socket)?;
            let (user, process) = (peer.uid.as_raw(), peer.pid.as_raw_pid());
            if self.users.contains(&user) {
                tracing::info!(user, process, "netguard takes orders");
                return Ok(Some(Visit { socket, buffer: Vec::new() }));
            }
            tracing::warn!(user, process, allowed = ?self.users, "netguard refused a client of another user");
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        // It is no error if the file is gone.
        let _ = std::fs::remove_file(&self.path);
    }
}

impl Visit {
    /// Has `server` execute orders until the peer disconnects, and calls [`Serve::silent`] whenever there was
    /// none for `silence_max`. An invalid order is refused, and the connection stays open; all orders of a
    /// peer that has not sent [`GREETING`] first are refused.
    pub fn serve(mut self, silence_max: Duration, server: &mut impl Serve) -> io::Result<()> {
        let mut has_greeted = false;
        loop {
            if !is_readable(self.socket.as_fd(), Instant::now() + silence_max)? {
                server.silent();
                continue;
            }
            let order = match take(self.socket.as_fd(), &mut self.buffer) {
                Ok(GREETING) => {
                    has_greeted = true;
                    put(self.socket.as_fd(), &encode(&OrderReply::Done))?;
                    continue;
                }
                Ok(message) => decoded(message).filter(|_| has_greeted),
                Err(error) if error.kind() == io::ErrorKind::InvalidData => None,
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
                Err(error) => return Err(error),
            };
            let answer = match order {
                Some(order) => server.perform(order),
                None => OrderReply::Refused(OTHER_BUILD.to_owned()),
            };
            put(self.socket.as_fd(), &encode(&answer))?;
        }
    }
}

/// Opens a socket that listens at `path` for processes of this user and, if one is given, of the `group`. An
/// existing file is replaced.
pub(crate) fn listen_at(path: &Path, group: Option<u32>) -> io::Result<OwnedFd> {
    let (socket, address) = (unconnected()?, SocketAddrUnix::new(path)?);
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    rustix::net::bind(&socket, &address)?;
    // A filter of system calls may deny this call even if it changes nothing.
    let own = rustix::process::getegid().as_raw();
    if group.is_some_and(|group| group != own) {
        std::os::unix::fs::chown(path, None, group)?;
    }
    let mode = if group.is_some() { 0o660 } else { 0o600 };
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))?;
    rustix::net::listen(&socket, WAITING_MAX)?;
    Ok(socket)
}

/// Waits until `end` for a connection to accept or data to read.
fn is_readable(socket: BorrowedFd<'_>, end: Instant) -> io::Result<bool> {
    loop {
        let left = end.saturating_duration_since(Instant::now());
        let timeout = Timespec::try_from(left).map_err(|_| io::ErrorKind::InvalidInput)?;
        let mut waited = [PollFd::from_borrowed_fd(socket, PollFlags::IN)];
        match poll(&mut waited, Some(&timeout)) {
            Ok(count) => return Ok(count > 0),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
}

fn unconnected() -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC;
    Ok(rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?)
}

fn encode(answer: &OrderReply) -> Vec<u8> {
    let long = || OrderReply::Refused("the answer is too long for one message".to_owned());
    match postcard::to_allocvec(answer) {
        Ok(message) if message.len() <= MESSAGE_BYTES_MAX => message,
        // A short text always fits.
        _ => postcard::to_allocvec(&long()).unwrap_or_default(),
    }
}
