//! Notifications of changes to devices and their addresses: up or down, carrier gained or lost, created or
//! removed.

use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd};

use rustix::net::netlink::SocketAddrNetlink;
use socket2::Socket;

use crate::error::{Error, NET_ADMIN};
use crate::netlink::raw_socket;

/// Multicast groups for changes to devices and addresses.
const GROUPS: i32 = libc::RTMGRP_LINK | libc::RTMGRP_IPV4_IFADDR | libc::RTMGRP_IPV6_IFADDR;

/// Reports that some device or address changed. [`crate::Netif::devices`] returns the new state, so
/// notifications lost in a burst do no harm. Its descriptor can be polled for reading; needs no privilege.
#[derive(Debug)]
pub struct LinkWatch {
    socket: Socket,
}

impl LinkWatch {
    /// Starts watching.
    pub fn open() -> Result<Self, Error> {
        let open = || -> io::Result<_> {
            let socket = raw_socket()?;
            socket.set_nonblocking(true)?;
            let groups = SocketAddrNetlink::new(0, GROUPS as u32);
            rustix::net::bind(&socket, &groups)?;
            Ok(socket)
        };
        let refused = |cause| Error::refused("listen to news of devices", NET_ADMIN, cause);
        Ok(Self { socket: open().map_err(refused)? })
    }

    /// Whether any device or address changed since the last call. Does not wait.
    pub fn has_changes(&mut self) -> Result<bool, Error> {
        let mut has_changes = false;
        // The contents of messages do not matter, so they may be truncated.
        let mut buffer = [0; 16];
        loop {
            match (&self.socket).read(&mut buffer) {
                Ok(_) => has_changes = true,
                // Notifications were lost.
                Err(cause) if cause.raw_os_error() == Some(libc::ENOBUFS) => has_changes = true,
                Err(cause) if cause.kind() == io::ErrorKind::WouldBlock => return Ok(has_changes),
                Err(cause) => {
                    return Err(Error::refused("read device events", NET_ADMIN, cause));
                }
            }
        }
    }
}

impl AsFd for LinkWatch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
