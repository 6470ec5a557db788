//! Names and addresses of a bed's machines: all are derived from its slot, the
//! number of its /24 network, so that a killed machine restarts with the same ones.
//!
//! ```text
//!             IPv4 198.(18|19).S.x   IPv6                         hosts
//!  lan        .0/25                  fd00:736b:6570:S::/64        1 router, 2-9 dispatchers,
//!                                                                 10 origin, 11 host, 12-27
//!                                                                 clients, 32-95 nodes, 100- VIPs
//!  out        .128/25                fd00:736b:6570:8000+S::/64   129 router, 130- clients
//! ```

use std::net::{Ipv4Addr, Ipv6Addr};

use serde::{Deserialize, Serialize};

use crate::topology::Topology;

/// Bits of a LAN's IPv4 prefix.
pub(crate) const V4_BITS: u8 = 25;
/// Bits of a LAN's IPv6 prefix.
pub(crate) const V6_BITS: u8 = 64;

const ROUTER: u8 = 1;
const DISPATCHERS: u8 = 2;
const ORIGIN: u8 = 10;
const HOST: u8 = 11;
const CLIENTS: u8 = 12;
const NODES: u8 = 32;
const VIPS: u8 = 100;
const OUT_ROUTER: u8 = 129;
const OUT_CLIENTS: u8 = 130;

/// What a machine is for. The order is that of a bed's machines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MachineRole {
    /// Asks.
    Client,
    /// Between the clients' LAN and the others'.
    Router,
    /// Steers.
    Dispatcher,
    /// Answers.
    Node,
    /// Where nodes fetch from.
    Origin,
}

impl MachineRole {
    /// Its word in names of machines.
    pub fn name(self) -> &'static str {
        match self {
            Self::Client => "client",
            Self::Router => "router",
            Self::Dispatcher => "dispatcher",
            Self::Node => "node",
            Self::Origin => "origin",
        }
    }
}

/// A bridge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lan {
    /// That of dispatchers and nodes.
    Inner,
    /// That of clients behind a router.
    Outer,
}

impl Lan {
    /// The bridge's name.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Inner => "lan",
            Self::Outer => "out",
        }
    }
}

/// One link: a device of a machine and its port in the switch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Link {
    pub(crate) lan: Lan,
    /// The machine's device.
    pub(crate) device: &'static str,
    /// The bridge's.
    pub(crate) port: String,
    pub(crate) mac: [u8; 6],
    pub(crate) ipv4: Ipv4Addr,
    pub(crate) ipv6: Ipv6Addr,
}

/// One machine as it is to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MachinePlan {
    pub(crate) name: String,
    pub(crate) role: MachineRole,
    /// At least one; only a router has two.
    pub(crate) links: Vec<Link>,
    /// Where what is for other networks goes.
    pub(crate) gateway: Option<(Ipv4Addr, Ipv6Addr)>,
}

/// The machines of a bed with this slot, in the order of their roles.
pub(crate) fn machines(topology: &Topology, slot: u16) -> Vec<MachinePlan> {
    let place = |lan, first: u8, index: usize| (lan, first + index as u8);
    let clients = |index| match topology.router {
        true => place(Lan::Outer, OUT_CLIENTS, index),
        false => place(Lan::Inner, CLIENTS, index),
    };
    let numbered = |role: MachineRole, count: usize| {
        (0..count).map(move |index| (role, format!("{}-{}", role.name(), index + 1), index))
    };
    let single =
        |role: MachineRole, is_there: bool| is_there.then(|| (role, role.name().to_owned(), 0));
    numbered(MachineRole::Client, topology.clients)
        .chain(single(MachineRole::Router, topology.router))
        .chain(numbered(MachineRole::Dispatcher, topology.dispatchers))
        .chain(numbered(MachineRole::Node, topology.nodes))
        .chain(single(MachineRole::Origin, topology.origin))
        .map(|(role, name, index)| {
            let (lan, host) = match role {
                MachineRole::Client => clients(index),
                MachineRole::Router => (Lan::Inner, ROUTER),
                MachineRole::Dispatcher => place(Lan::Inner, DISPATCHERS, index),
                MachineRole::Node => place(Lan::Inner, NODES, index),
                MachineRole::Origin => (Lan::Inner, ORIGIN),
            };
            machine(topology, slot, role, name, (lan, host))
        })
        .collect()
}

fn machine(
    topology: &Topology,
    slot: u16,
    role: MachineRole,
    name: String,
    (lan, host): (Lan, u8),
) -> MachinePlan {
    let mut links = vec![link(slot, lan, host, "eth0", name.clone())];
    if role == MachineRole::Router {
        links.push(link(slot, Lan::Outer, OUT_ROUTER, "eth1", format!("{name}-out")));
    }
    let router = match lan {
        Lan::Inner => ROUTER,
        Lan::Outer => OUT_ROUTER,
    };
    let has_gateway = topology.router && role != MachineRole::Router;
    let gateway = has_gateway.then(|| (ipv4(slot, router), ipv6(slot, lan, router)));
    MachinePlan { name, role, links, gateway }
}

/// The link of the host's own namespace; its device is named after the slot.
pub(crate) fn host_link(slot: u16) -> Link {
    link(slot, Lan::Inner, HOST, "", "host".to_owned())
}

/// Name of the host's device on the LAN of a bed.
pub(crate) fn host_device(slot: u16) -> String {
    format!("skep-lab{slot}")
}

/// The virtual addresses with this index.
pub(crate) fn vip(slot: u16, index: usize) -> (Ipv4Addr, Ipv6Addr) {
    let host = VIPS + index as u8;
    (ipv4(slot, host), ipv6(slot, Lan::Inner, host))
}

fn link(slot: u16, lan: Lan, host: u8, device: &'static str, port: String) -> Link {
    let [high, low] = slot.to_be_bytes();
    // Locally administered (IEEE 802, 8.4), so no maker's.
    let mac = [0x02, 0x5c, high, low, lan as u8, host];
    Link { lan, device, port, mac, ipv4: ipv4(slot, host), ipv6: ipv6(slot, lan, host) }
}

fn ipv4(slot: u16, host: u8) -> Ipv4Addr {
    let [high, low] = slot.to_be_bytes();
    Ipv4Addr::new(198, 18 + high, low, host)
}

/// In a prefix that spells `skep`, within fd00::/8 (RFC 4193).
fn ipv6(slot: u16, lan: Lan, host: u8) -> Ipv6Addr {
    let net = match lan {
        Lan::Inner => slot,
        Lan::Outer => 0x8000 + slot,
    };
    Ipv6Addr::new(0xfd00, 0x736b, 0x6570, net, 0, 0, 0, u16::from(host))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use std::collections::BTreeSet;

    use super::*;
    use crate::limits::{CLIENTS_MAX, DISPATCHERS_MAX, NODES_MAX, SLOTS, VIPS_MAX};

    fn largest(router: bool) -> Topology {
        Topology {
            clients: CLIENTS_MAX,
            router,
            dispatchers: DISPATCHERS_MAX,
            nodes: NODES_MAX,
            origin: true,
            ..Topology::default()
        }
    }

    #[test]
    fn no_two_of_the_largest_beds_share_an_address_a_mac_or_a_name() {
        for router in [false, true] {
            let mut seen = BTreeSet::new();
            for slot in [0, 255, 256, SLOTS - 1] {
                let mut ports = BTreeSet::new();
                let links = machines(&largest(router), slot).into_iter().flat_map(|it| it.links);
                for link in links.chain([host_link(slot)]) {
                    assert!(link.port.len() <= 15, "{}: IFNAMSIZ", link.port);
                    assert!(ports.insert(link.port));
                    assert!(seen.insert(format!("{:?}", link.mac)));
                    assert!(
                        seen.insert(link.ipv4.to_string()) && seen.insert(link.ipv6.to_string())
                    );
                    assert_eq!(link.ipv4.octets()[3] >= 128, link.lan == Lan::Outer);
                }
                for index in 0..VIPS_MAX {
                    let (v4, v6) = vip(slot, index);
                    assert!(seen.insert(v4.to_string()) && seen.insert(v6.to_string()));
                    assert!(v4.octets()[3] < 127, "the LAN's broadcast address");
                }
            }
        }
        assert_eq!(ipv4(SLOTS - 1, 1), Ipv4Addr::new(198, 19, 255, 1));
    }

    #[test]
    fn machines_come_in_the_order_of_their_roles() {
        let plans = machines(&largest(true), 7);
        assert!(plans.is_sorted_by_key(|plan| plan.role));
        let router = plans.iter().find(|plan| plan.role == MachineRole::Router).unwrap();
        assert_eq!((router.links.len(), router.gateway), (2, None));
        let client = &plans[0];
        assert_eq!((client.name.as_str(), client.links[0].lan), ("client-1", Lan::Outer));
        assert_eq!(client.gateway.unwrap().0, router.links[1].ipv4);
    }
}
