//! Whether this machine has a socket of a connection, by one query to the kernel (sock_diag(7)).
//!
//! A kernel without `CONFIG_INET_DIAG` reports that there is none; connecting a new socket then fails if the
//! connection has a socket on this machine.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;

use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink, recv, send,
};
use skep_wire::handoff::SocketId;

/// A netlink socket for queries.
#[derive(Debug)]
pub(crate) struct Diag {
    socket: OwnedFd,
}

/// `SOCK_DIAG_BY_FAMILY`: the type of queries and replies.
const BY_FAMILY: u16 = 20;
/// `NLM_F_REQUEST`.
const REQUEST: u16 = 1;
/// Bytes of `struct nlmsghdr`.
const HEADER_BYTES: usize = 16;
/// Connection states in which a second socket of the same connection is impossible, by the numbers of
/// net/tcp_states.h: all but SYN_RECV, TIME_WAIT, CLOSE and LISTEN.
const TAKEN: [u8; 7] = [1, 2, 4, 5, 8, 9, 11];

impl Diag {
    pub(crate) fn open() -> io::Result<Self> {
        let (family, kind) = (AddressFamily::NETLINK, SocketType::DGRAM);
        let protocol = Some(netlink::SOCK_DIAG);
        let socket = rustix::net::socket_with(family, kind, SocketFlags::CLOEXEC, protocol)?;
        Ok(Self { socket })
    }

    /// Whether there is a live socket with these two addresses.
    pub(crate) fn has(&self, id: SocketId) -> io::Result<bool> {
        send(&self.socket, &question(id), SendFlags::empty())?;
        let mut answer = [0; 512];
        // The kernel has replied within the call above.
        let (_, len) = recv(&self.socket, &mut answer[..], RecvFlags::DONTWAIT)?;
        let answer = &answer[..len.min(answer.len())];
        let is_found = answer.get(4..6) == Some(&BY_FAMILY.to_ne_bytes());
        let state = answer.get(HEADER_BYTES + 1).filter(|_| is_found);
        Ok(state.is_some_and(|state| TAKEN.contains(state)))
    }
}

/// A query: `struct nlmsghdr` and `struct inet_diag_req_v2`.
fn question(id: SocketId) -> Vec<u8> {
    let family = if id.server.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
    let mut body = vec![family as u8, libc::IPPROTO_TCP as u8, 0, 0];
    body.extend(u32::MAX.to_ne_bytes());
    for end in [id.server, id.client] {
        body.extend(end.port().to_be_bytes());
    }
    body.extend(address_of(id.server));
    body.extend(address_of(id.client));
    // Any device, and no cookie.
    body.extend(0_u32.to_ne_bytes());
    body.extend(u64::MAX.to_ne_bytes());
    let mut message = Vec::with_capacity(HEADER_BYTES + body.len());
    message.extend(((HEADER_BYTES + body.len()) as u32).to_ne_bytes());
    message.extend(BY_FAMILY.to_ne_bytes());
    message.extend(REQUEST.to_ne_bytes());
    message.extend([0; 8]);
    message.extend(body);
    message
}

/// The bytes of an address; IPv4 occupies the first four.
fn address_of(end: SocketAddr) -> [u8; 16] {
    let mut bytes = [0; 16];
    match end.ip() {
        IpAddr::V4(ip) => bytes[..4].copy_from_slice(&ip.octets()),
        IpAddr::V6(ip) => bytes.copy_from_slice(&ip.octets()),
    }
    bytes
}
