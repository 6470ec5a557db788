//! Listening sockets: one address, one socket per worker.

use std::io;
use std::net::{SocketAddr, TcpListener};

use socket2::{Domain, Protocol, Socket, Type};

use crate::limits::{BACKLOG_MAX, UNSENT_BYTES_MAX};

/// Why an address could not be listened on.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// Another process listens on the address.
    #[error(
        "cannot listen on {address}: another program already does. Stop it, or choose another \
         address (`ss -ltnp` shows who listens)"
    )]
    InUse {
        /// The address asked for.
        address: SocketAddr,
    },
    /// The kernel denies the port to this user.
    #[error(
        "cannot listen on {address}: not permitted. Ports below 1024 need root, the capability \
         CAP_NET_BIND_SERVICE, or systemd socket activation"
    )]
    Denied {
        /// The address asked for.
        address: SocketAddr,
    },
    /// No interface has the address.
    #[error("cannot listen on {address}: no interface of this machine has that address")]
    NoSuchAddress {
        /// The address asked for.
        address: SocketAddr,
    },
    /// Any other error of the kernel.
    #[error("cannot listen on {address}: {cause}")]
    Other {
        /// The address asked for.
        address: SocketAddr,
        /// The kernel's error.
        cause: io::Error,
    },
}

/// Sockets that share one address; the kernel spreads connections over them.
#[derive(Debug)]
pub struct ListenerGroup {
    address: SocketAddr,
    sockets: Vec<TcpListener>,
}

impl ListenerGroup {
    /// The bound address: with the real port if 0 was requested.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The sockets, one per worker.
    pub fn into_sockets(self) -> Vec<TcpListener> {
        self.sockets
    }
}

/// Listens on `address` with `count` sockets.
pub fn bind(address: SocketAddr, count: usize) -> Result<ListenerGroup, ListenError> {
    assert!(count > 0, "a group has at least one socket");
    let first = bound(address, false).map_err(|cause| explain(address, cause))?;
    let address = local(&first).map_err(|cause| explain(address, cause))?;
    let mut sockets = vec![first];
    for _ in 1..count {
        sockets[0].set_reuse_port(true).map_err(|cause| explain(address, cause))?;
        sockets.push(bound(address, true).map_err(|cause| explain(address, cause))?);
    }
    let listening = sockets
        .into_iter()
        .map(|socket| socket.listen(BACKLOG_MAX).map(|()| socket.into()))
        .collect::<io::Result<_>>()
        .map_err(|cause| explain(address, cause))?;
    Ok(ListenerGroup { address, sockets: listening })
}

fn bound(address: SocketAddr, share: bool) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    socket.set_reuse_port(share)?;
    socket.set_nonblocking(true)?;
    // Inherited by every accepted socket: saves system calls per connection.
    socket.set_tcp_nodelay(true)?;
    socket.set_tcp_notsent_lowat(UNSENT_BYTES_MAX)?;
    socket.bind(&address.into())?;
    Ok(socket)
}

fn local(socket: &Socket) -> io::Result<SocketAddr> {
    socket.local_addr()?.as_socket().ok_or_else(|| io::Error::other("not an IP socket"))
}

fn explain(address: SocketAddr, cause: io::Error) -> ListenError {
    match cause.kind() {
        io::ErrorKind::AddrInUse => ListenError::InUse { address },
        io::ErrorKind::PermissionDenied => ListenError::Denied { address },
        io::ErrorKind::AddrNotAvailable => ListenError::NoSuchAddress { address },
        _ => ListenError::Other { address, cause },
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn a_group_shares_one_port_and_strangers_are_refused() {
        let any: SocketAddr = "127.0.0.1:0".parse().unwrap();
        let group = bind(any, 3).unwrap();
        assert_ne!(group.address().port(), 0);
        let address = group.address();
        assert!(matches!(bind(address, 1), Err(ListenError::InUse { .. })));
        assert_eq!(group.into_sockets().len(), 3);
        assert!(bind(address, 2).is_ok(), "free again once the group is gone");
    }

    #[test]
    fn an_address_of_nobody_is_named() {
        let foreign: SocketAddr = "192.0.2.1:80".parse().unwrap();
        assert!(matches!(bind(foreign, 1), Err(ListenError::NoSuchAddress { .. })));
    }
}
