//! Ports on this machine for a cluster.
//!
//! A port can't be kept by holding it, since the child is to bind it. Among the
//! clusters of one user their configs say which ones are taken, also while a
//! node is being restarted; for the rest a look whether it is free must do.

use std::collections::HashSet;
use std::net::{IpAddr, SocketAddr};

use anyhow::bail;
use skep_config::Config;

use super::limits::PORTS;

/// Gives out ports, each once.
pub(super) struct Ports {
    taken: HashSet<u16>,
    next: u16,
}

impl Ports {
    /// Ports that no cluster of `running` has.
    pub(super) fn beside(running: &[Config]) -> Self {
        let taken = running.iter().flat_map(addresses).map(|address| address.port()).collect();
        // Clusters start at different places, so that ports are not reused at
        // once: a browser may remember what it saw there.
        let count = PORTS.end() - PORTS.start() + 1;
        let offset = u16::try_from(std::process::id() % u32::from(count)).unwrap_or(0);
        Self { taken, next: PORTS.start() + offset }
    }

    /// A free port of `ip`.
    pub(super) fn any(&mut self, ip: IpAddr) -> anyhow::Result<SocketAddr> {
        for _ in PORTS {
            let address = SocketAddr::new(ip, self.next);
            self.next = if self.next == *PORTS.end() { *PORTS.start() } else { self.next + 1 };
            if self.take(address) {
                return Ok(address);
            }
        }
        bail!("no free port from {} to {} on {ip}", PORTS.start(), PORTS.end());
    }

    /// Takes exactly this address; false: somebody has it.
    pub(super) fn take(&mut self, address: SocketAddr) -> bool {
        let is_free = !self.taken.contains(&address.port()) && skep_serve::bind(address, 1).is_ok();
        if is_free {
            self.taken.insert(address.port());
        }
        is_free
    }
}

fn addresses(config: &Config) -> impl Iterator<Item = SocketAddr> {
    let nodes = config.nodes.iter().map(|node| node.address);
    let services = config.services.iter().flat_map(|service| service.listen.iter().copied());
    nodes.chain(services).chain(config.admin.listen)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use std::net::{Ipv4Addr, TcpListener};

    use skep_config::Node;

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
    fn ports_of_others_are_not_given() {
        let held = TcpListener::bind((LOCALHOST, 0)).unwrap();
        let mut ports = Ports::beside(&[]);
        assert!(!ports.take(held.local_addr().unwrap()));
        // A node's port is its own even while it is not running.
        let address = ports.any(LOCALHOST).unwrap();
        let node = Node { name: "n".into(), address, ..Node::default() };
        let other = Config { nodes: vec![node], ..Config::default() };
        assert!(!Ports::beside(std::slice::from_ref(&other)).take(address));
        assert!(Ports::beside(&[]).take(address));
    }
}
