//! Orders that a serving process may send to `skep netguard`, which holds the privileges that a
//! serving process lacks.
//!
//! Orders name no device, no file and no program: netguard uses those of its own copy of the
//! config. So an attacker who takes over the serving process can steer the packets of the
//! configured services, and nothing else.

use std::net::{IpAddr, SocketAddr};

use serde::{Deserialize, Serialize};

use crate::steer::{
    Count, DatapathNode, DatapathService, Flow, Network, NodeIndex, OwnerChange, Protocol,
    ServiceMember, Verdict, WeightedLoad,
};

/// Bytes of one order or answer, at most: the limit of one message on a unix socket
/// under Linux's default buffer of 208 KiB, with room to spare.
pub const MESSAGE_BYTES_MAX: usize = 128 * 1024;

/// Flows of one order or answer, at most; 2,000 are about 80 KiB.
pub const FLOWS_MAX: usize = 2_000;

/// The first message of a connection, answered by [`OrderReply::Done`]. Netguard executes no order
/// of a process that begins with another greeting: messages carry no field names, so those of
/// another build could be misinterpreted. No order begins with these bytes, so that a netguard that
/// does not know them refuses them.
///
/// The number increases with every change of an order, an answer, or a type within them; the tests
/// detect most changes.
pub const GREETING: &[u8] = b"\xffskep netguard 4";

/// One of the two packet programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Side {
    /// The dispatcher's program, which steers.
    Dispatch,
    /// The node's program, which hands on packets for other nodes.
    Node,
}

/// A machine of the cluster that has already steered the frames it sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Steerer {
    Dispatcher,
    /// A node that handed the frame on.
    Node,
}

/// Settings that both programs use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProgramSettings {
    /// Secret of the flow hash, the same on all machines of a cluster.
    pub hash_seed: u64,
    /// New flows per second that the flow table accepts.
    pub new_flows_max: u64,
    /// The same for one source address.
    pub new_flows_per_source_max: u64,
    /// Whether new flows are reported for a standby.
    pub stream: bool,
    /// Node program: index of this machine as a node.
    pub own_node: NodeIndex,
}

/// An operation that requires privileges.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Order {
    /// Load a program, or take over the program left by an earlier process, and attach it to the
    /// device in the config. Answered by [`OrderReply::Opened`].
    Open(Side),
    /// Write the settings.
    Settings(Side, ProgramSettings),
    /// Replace the services: services not listed are removed.
    Services(Side, Vec<DatapathService>),
    /// Build and write the rows of a service from its memberships, the present one first.
    Rows {
        /// The program concerned.
        side: Side,
        /// The service, with the number of choices of its policy.
        service: DatapathService,
        /// Members that receive new flows, then those of earlier tables.
        memberships: Vec<Vec<ServiceMember>>,
    },
    /// Replace the nodes.
    Nodes(Side, Vec<DatapathNode>),
    /// Replace the MAC addresses whose frames have already been steered.
    Steerers(Side, Vec<([u8; 6], Steerer)>),
    /// Write the loads and weights of nodes, which are the same for all these services, given by
    /// their ids.
    Loads(Vec<u16>, Vec<WeightedLoad>),
    /// Write which client networks are allowed.
    Networks {
        /// Allowed networks; if empty, all are allowed.
        allow: Vec<Network>,
        /// Denied networks.
        deny: Vec<Network>,
    },
    /// Insert flows into the flow table.
    InsertFlows(Vec<Flow>),
    /// Change the owners of flows in the flow table. A flow whose owner is not `from` is left
    /// unchanged: it has moved on, or the client has opened another connection from the same port.
    /// Answered by [`OrderReply::Flows`] with the changed flows.
    ChangeOwners(Vec<OwnerChange>),
    /// Start listing the flow table. Answered by [`OrderReply::Flows`].
    FirstFlows,
    /// Continue listing. Answered by [`OrderReply::Flows`]; an empty reply marks the end.
    NextFlows,
    /// Return the flows begun since the last such order. Answered by [`OrderReply::Flows`].
    NewFlows,
    /// Answered by [`OrderReply::Counters`].
    Counters(Side),
    /// Add the virtual addresses to the dispatcher's device and announce them.
    Claim,
    /// Announce the virtual addresses again.
    Announce,
    /// Remove the virtual addresses.
    Release,
    /// Verify what orders have set up on the machine, compare a part of the packet program's maps
    /// with what was written to them and, as dispatcher, look for other claims of the virtual
    /// addresses since the last call. Answered by [`OrderReply::Machine`].
    Look {
        side: Side,
        /// Whether to probe the network for other owners, too, which takes [`PROBE_MS`].
        probe: bool,
    },
    /// Add the virtual addresses of this node's services to `lo`, without announcing them.
    Hold,
    /// Check devices, addresses and routes for faults, which takes up to [`PROBE_MS`]. Answered by
    /// [`OrderReply::Checked`].
    Check(Side, Expectations),
    /// Detach and remove everything that orders to this guard have added to the machine where
    /// nothing existed before: the start has failed.
    Abort,
}

/// A machine's knowledge of the others, for checking the results.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Expectations {
    /// Whether this machine is the active dispatcher.
    pub is_active: bool,
    /// MAC address of the active dispatcher, if it is known and another machine.
    pub active: Option<[u8; 6]>,
    /// The other machines that must be on the segment.
    pub peers: Vec<ExpectedPeer>,
}

/// Another machine, as described by itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExpectedPeer {
    pub name: String,
    /// Its own address on the segment.
    pub address: IpAddr,
    /// MAC address of its device there.
    pub mac: [u8; 6],
    /// Largest IP packet of that device, in bytes; 0 if unknown.
    pub mtu: u32,
}

/// How long to wait for an answer to a probe for a virtual address, in milliseconds: a machine in
/// the same layer-2 network answers within a few.
pub const PROBE_MS: u64 = 100;

/// The result of an order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum OrderReply {
    Done,
    /// The program is running.
    Opened(AttachedProgram),
    /// Flows, at most [`FLOWS_MAX`].
    Flows(Vec<Flow>),
    Counters(PacketCounters),
    Machine(MachineState),
    /// Findings about this machine and its segment, as sentences.
    Checked {
        wrong: Vec<String>,
        /// Possible faults, as far as visible from this machine.
        doubtful: Vec<String>,
    },
    /// The order failed, with the reason.
    Refused(String),
}

/// A program attached to its device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttachedProgram {
    /// How it is attached, for display: "native XDP".
    pub how: String,
    /// Name of the device.
    pub device: String,
    /// Index of the device.
    pub device_index: u32,
    /// Its MAC address.
    pub mac: [u8; 6],
    /// Its largest IP packet, in bytes.
    pub mtu: u32,
}

/// The state of the machine and its segment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MachineState {
    /// Other machines that claim virtual addresses.
    pub owners: Vec<VipHolder>,
    /// Missing virtual addresses of this side and missing settings that they require, for display:
    /// `192.0.2.1 on eth0`.
    pub missing: Vec<String>,
    /// Name of the device of this side.
    pub device: String,
    /// Whether the packet program is attached to that device.
    pub is_attached: bool,
    /// Maps of the packet program that differ from what orders wrote, as far as they were compared
    /// this time.
    pub changed_maps: Vec<ChangedMap>,
    /// Whether devices or addresses have changed since the last look.
    pub has_changed: bool,
    /// The number of netguard's messages that were not logged, since nobody read earlier ones.
    pub messages_dropped: u64,
}

/// A map of a packet program that was changed by others.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangedMap {
    pub map: ProgramMap,
    /// The first key with another value, or without one, for display.
    pub key: String,
}

/// A map that only orders fill; of `rows`, the part of one service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ProgramMap {
    Settings,
    Networks,
    Nodes,
    Steerers,
    Services,
    Vips,
    Rows(SocketAddr, Protocol),
    /// Netguard rewrites it by itself.
    Loads,
}

impl ProgramMap {
    /// The name of its pinned file.
    pub fn name(self) -> &'static str {
        match self {
            Self::Settings => "settings",
            Self::Networks => "networks",
            Self::Nodes => "nodes",
            Self::Steerers => "steerers",
            Self::Services => "services",
            Self::Vips => "vips",
            Self::Rows(..) => "rows",
            Self::Loads => "loads",
        }
    }

    /// Whether it is filled from tables rather than the config.
    pub fn is_of_table(self) -> bool {
        !matches!(self, Self::Settings | Self::Networks)
    }
}

/// A machine that claims a virtual address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VipHolder {
    /// The address.
    pub vip: IpAddr,
    /// The sender's MAC address.
    pub mac: [u8; 6],
}

/// Counters of a program since it was loaded.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PacketCounters {
    /// By verdict.
    pub verdicts: Vec<(Verdict, Count)>,
    /// By service, in the order of the services.
    pub services: Vec<Count>,
    /// By node, in the order of the nodes.
    pub nodes: Vec<Count>,
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use skep_units::stable_hash;

    use super::*;
    use crate::steer::{ForwardingState, Measure};

    /// Every order, with an element in each list.
    fn orders() -> Vec<Order> {
        let address: SocketAddr = "192.0.2.1:80".parse().unwrap();
        let settings = ProgramSettings {
            hash_seed: 1,
            new_flows_max: 2,
            new_flows_per_source_max: 3,
            stream: true,
            own_node: 4,
        };
        let (protocol, measure) = (Protocol::Tcp, Measure::Load);
        let service =
            DatapathService { id: 5, address, protocol, choices: 2, measure, by_address: true };
        let member = ServiceMember { index: 6, name_hash: 7, weight: 8 };
        let node = DatapathNode {
            index: 9,
            mac: [1; 6],
            device_index: 10,
            mtu: 11,
            state: ForwardingState::Draining,
            is_local: true,
        };
        let network = Network { address: address.ip(), prefix_bits: 24 };
        let flow = Flow { client: address, service: 12, node: 13 };
        let peer = ExpectedPeer { name: "n".into(), address: address.ip(), mac: [2; 6], mtu: 14 };
        let expected = Expectations { is_active: true, active: Some([3; 6]), peers: vec![peer] };
        let side = Side::Dispatch;
        vec![
            Order::Open(Side::Node),
            Order::Settings(side, settings),
            Order::Services(side, vec![service]),
            Order::Rows { side, service, memberships: vec![vec![member]] },
            Order::Nodes(side, vec![node]),
            Order::Steerers(side, vec![([4; 6], Steerer::Node)]),
            Order::Loads(vec![15], vec![WeightedLoad { node: 16, weight: 17, load: 18 }]),
            Order::Networks { allow: vec![network], deny: vec![network] },
            Order::InsertFlows(vec![flow]),
            Order::ChangeOwners(vec![OwnerChange { flow, from: Some(14) }]),
            Order::FirstFlows,
            Order::NextFlows,
            Order::NewFlows,
            Order::Counters(side),
            Order::Claim,
            Order::Announce,
            Order::Release,
            Order::Look { side, probe: true },
            Order::Hold,
            Order::Check(side, expected),
            Order::Abort,
        ]
    }

    /// Every answer, with an element in each list.
    fn answers() -> Vec<OrderReply> {
        let address: SocketAddr = "192.0.2.1:80".parse().unwrap();
        let (how, device) = ("XDP".to_owned(), "eth0".to_owned());
        let opened =
            AttachedProgram { how, device: device.clone(), device_index: 1, mac: [1; 6], mtu: 2 };
        let count = Count { packets: 3, bytes: 4 };
        let verdicts = Verdict::ALL.iter().map(|verdict| (*verdict, count)).collect();
        let maps = [
            ProgramMap::Settings,
            ProgramMap::Networks,
            ProgramMap::Nodes,
            ProgramMap::Steerers,
            ProgramMap::Services,
            ProgramMap::Vips,
            ProgramMap::Rows(address, Protocol::Udp),
            ProgramMap::Loads,
        ];
        let changed = |map| ChangedMap { map, key: "5".to_owned() };
        let machine = MachineState {
            owners: vec![VipHolder { vip: address.ip(), mac: [2; 6] }],
            missing: vec!["6".to_owned()],
            device,
            is_attached: true,
            changed_maps: maps.into_iter().map(changed).collect(),
            has_changed: true,
            messages_dropped: 8,
        };
        vec![
            OrderReply::Done,
            OrderReply::Opened(opened),
            OrderReply::Flows(vec![Flow { client: address, service: 7, node: 8 }]),
            OrderReply::Counters(PacketCounters {
                verdicts,
                services: vec![count],
                nodes: vec![count],
            }),
            OrderReply::Machine(machine),
            OrderReply::Checked { wrong: vec!["9".to_owned()], doubtful: vec!["10".to_owned()] },
            OrderReply::Refused("11".to_owned()),
        ]
    }

    #[test]
    fn the_number_of_the_greeting_rises_with_changes_of_orders_and_answers() {
        let bytes = postcard::to_allocvec(&(orders(), answers())).unwrap();
        let known: (&[u8], u64) = (b"\xffskep netguard 4", 10_129_305_198_541_122_692);
        assert_eq!((GREETING, stable_hash(&bytes, 0)), known, "another number, another hash");
    }

    #[test]
    fn no_order_begins_as_the_greeting() {
        assert!(postcard::take_from_bytes::<Order>(GREETING).is_err());
    }
}
