//! Allocates ports on this machine for a cluster.
//!
//! A port is reserved by a socket that is bound but does not listen, as long as the cluster runs: a restarted
//! child finds it free. Such a socket excludes every process except one that binds exactly this address with
//! SO_REUSEADDR, as the child does.

use std::collections::HashSet;
use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};

use anyhow::bail;
use skep_config::Config;
use socket2::{Domain, Protocol, Socket, Type};

use super::limits::PORTS;

/// Allocates each port once.
pub(super) struct Ports {
    taken: HashSet<u16>,
    held: Vec<Socket>,
    next: u16,
}

impl Ports {
    /// Creates an allocator for ports that no cluster of `running` uses.
    pub(super) fn beside(running: &[Config]) -> Self {
        let taken = running.iter().flat_map(addresses).map(|address| address.port()).collect();
        // Clusters start at different ports, so that ports are not reused soon: a browser may have cached
        // responses from there.
        let count = PORTS.end() - PORTS.start() + 1;
        let offset = u16::try_from(std::process::id() % u32::from(count)).unwrap_or(0);
        Self { taken, held: Vec::new(), next: PORTS.start() + offset }
    }

    /// Allocates a free port of `ip`, which is held until drop.
    pub(super) fn any(&mut self, ip: IpAddr) -> anyhow::Result<SocketAddr> {
        for _ in PORTS {
            let address = SocketAddr::new(ip, self.next);
            self.next = if self.next == *PORTS.end() { *PORTS.start() } else { self.next + 1 };
            if self.taken.contains(&address.port()) {
                continue;
            }
            // Nodes receive load reports over UDP.
            let is_free = UdpSocket::bind(address).is_ok();
            if let (Ok(held), true) = (hold(address), is_free) {
                self.taken.insert(address.port());
                self.held.push(held);
                return Ok(address);
            }
        }
        bail!("no free port from {} to {} on {ip}", PORTS.start(), PORTS.end());
    }

    /// Allocates exactly this address without holding it; returns false if it is in use.
    pub(super) fn take(&mut self, address: SocketAddr) -> bool {
        let is_free = !self.taken.contains(&address.port()) && skep_serve::bind(address, 1).is_ok();
        if is_free {
            self.taken.insert(address.port());
        }
        is_free
    }
}

/// Binds `address` if it is free, and sets SO_REUSEADDR only then: set before, the socket could be bound
/// beside another one of this kind.
fn hold(address: SocketAddr) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.bind(&address.into())?;
    socket.set_reuse_address(true)?;
    Ok(socket)
}

fn addresses(config: &Config) -> impl Iterator<Item = SocketAddr> {
    let nodes = config.nodes.iter().map(|node| node.address);
    let services = config.services.iter().flat_map(|service| service.listen.iter().copied());
    nodes.chain(services).chain(config.admin.listen)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use std::net::{Ipv4Addr, TcpListener, TcpStream};

    use skep_config::NodeConfig;

    use super::*;

    const LOCALHOST: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

    #[test]
    fn each_port_is_given_once() {
        let mut ports = Ports::beside(&[]);
        let mut given: Vec<_> = (0..20).map(|_| ports.any(LOCALHOST).unwrap().port()).collect();
        given.sort_unstable();
        given.dedup();
        assert_eq!(given.len(), 20);
        assert!(given.iter().all(|port| PORTS.contains(port)));
    }

    #[test]
    fn a_held_port_is_for_the_child_alone() {
        let mut ports = Ports::beside(&[]);
        let address = ports.any(LOCALHOST).unwrap();
        assert!(hold(address).is_err(), "another cluster passes over it");
        for _ in 0..2 {
            let child = skep_serve::bind(address, 2).unwrap();
            assert!(TcpStream::connect(address).is_ok());
            drop(child);
        }
        assert!(hold(address).is_err(), "while the child is restarted, too");
        drop(ports);
        assert!(skep_serve::bind(address, 1).is_ok());
    }

    #[test]
    fn ports_of_others_are_not_given() {
        let held = TcpListener::bind((LOCALHOST, 0)).unwrap();
        let mut ports = Ports::beside(&[]);
        assert!(!ports.take(held.local_addr().unwrap()));
        // A node's port stays reserved even while the node is not running.
        let address = ports.any(LOCALHOST).unwrap();
        let node = NodeConfig { name: "n".into(), address, ..NodeConfig::default() };
        let other = Config { nodes: vec![node], ..Config::default() };
        assert!(!Ports::beside(std::slice::from_ref(&other)).take(address));
    }
}
