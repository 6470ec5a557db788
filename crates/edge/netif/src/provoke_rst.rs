//! Provokes RSTs for the clients of a dead machine, so that they detect the failure.
//!
//! ```text
//!   guard                              client                 dispatcher, nodes
//!     | ACK of the virtual address,      |                          |
//!     | outside of any window ---------->|                          |
//!     |                                  | ACK: what it expects --->| steered to a node
//!     |                                  |<-- RST, just as expected | that has no such
//! ```
//!
//! A waiting client sends nothing, so no other machine knows a sequence number that it would accept (RFC 5961
//! section 3). The acknowledgment makes it send one.

use std::io;
use std::net::{IpAddr, SocketAddr};

use socket2::{Domain, Protocol, SockFilter, Socket, Type};

use crate::error::{Error, NET_RAW};
use crate::frame::question_of_connection;
use crate::limits::{BURST_CLIENTS, BURST_PAUSE, ROUND_PAUSES};

/// Two sequence numbers so far apart that no window contains both.
const SEQUENCES: [u32; 2] = [0, 1 << 31];

/// The outcome of a round.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProvokedClients {
    /// Clients to which a segment was sent.
    pub asked: u64,
    /// Clients to which this machine could not send.
    pub failed: u64,
}

/// Provokes an RST for each of these connections to services of this machine: the client answers a probe with the
/// sequence number that it expects, and the answer is reset. Probes in several rounds, each of a second per
/// 50,000 connections, until `is_held`, whether this machine has the addresses, is false; `report` gets the outcome of
/// the first round. Needs CAP_NET_RAW.
pub fn provoke_rst(
    connections: &[(SocketAddr, Vec<SocketAddr>)],
    is_held: impl Fn() -> bool,
    report: impl Fn(SocketAddr, Result<ProvokedClients, Error>),
) {
    for (round, pause) in ROUND_PAUSES.into_iter().enumerate() {
        std::thread::sleep(pause);
        for (service, clients) in connections {
            let outcome = ask_all(*service, clients, &is_held);
            if round == 0 {
                report(*service, outcome);
            }
        }
    }
}

fn ask_all(
    service: SocketAddr,
    clients: &[SocketAddr],
    is_held: &impl Fn() -> bool,
) -> Result<ProvokedClients, Error> {
    let socket = open(service.ip()).map_err(|cause| {
        Error::refused(format!("open a raw socket at {}", service.ip()), NET_RAW, cause)
    })?;
    let mut provoked = ProvokedClients::default();
    for some in clients.chunks(BURST_CLIENTS).take_while(|_| is_held()) {
        for &client in some {
            match ask(&socket, service, client) {
                Ok(()) => provoked.asked += 1,
                Err(_) => provoked.failed += 1,
            }
        }
        std::thread::sleep(BURST_PAUSE);
    }
    Ok(provoked)
}

fn open(source: IpAddr) -> io::Result<Socket> {
    let domain = if source.is_ipv4() { Domain::IPV4 } else { Domain::IPV6 };
    let socket = Socket::new(domain, Type::RAW, Some(Protocol::TCP))?;
    // Without a filter it would receive a copy of every TCP packet of this machine.
    let nothing = [SockFilter::new(libc::BPF_RET as u16 | libc::BPF_K as u16, 0, 0, 0)];
    socket.attach_filter(&nothing)?;
    socket.bind(&SocketAddr::new(source, 0).into())?;
    Ok(socket)
}

fn ask(socket: &Socket, service: SocketAddr, client: SocketAddr) -> io::Result<()> {
    // Raw sockets have no ports; those of IPv6 refuse them.
    let to = SocketAddr::new(client.ip(), 0).into();
    for sequence in SEQUENCES {
        let ends = ((service.ip(), service.port()), (client.ip(), client.port()));
        socket.send_to(&question_of_connection(ends.0, ends.1, sequence), &to)?;
    }
    Ok(())
}
