//! The terms of direct dispatch: how packets are steered to nodes.
//!
//! A service has a **table** of [`ROWS`] rows. A flow's hash selects a row, and a
//! row lists the nodes that may own such a flow: first the `choices` nodes from
//! which the policy takes one for a new flow, then the nodes that owned the row
//! under earlier tables. So, without any per-flow state, a machine with the
//! table knows the nodes, at most [`ROW_NODES`], that can own a packet: a
//! dispatcher that lost its flow table sends it to the first, and nodes hand it
//! on to the others of the row until it reaches the node with the socket.

use std::net::{IpAddr, SocketAddr};

use serde::{Deserialize, Serialize};
use skep_units::stable_hash;

/// Rows of a table: a prime, as Maglev's permutations need (NSDI 2016, 3.4).
pub const ROWS: usize = 65_537;

/// Nodes that a row can name.
pub const ROW_NODES: usize = 8;

/// Candidates of a row for new flows, at most.
pub const CHOICES_MAX: usize = 4;

/// Nodes of a cluster that packets can be steered to: all of them.
pub const NODES_MAX: usize = skep_units::NODES_MAX;

/// Services in direct dispatch: one for each address.
pub const SERVICES_MAX: usize = skep_units::DIRECT_ADDRESSES_MAX;

/// A node's place in the tables; below [`NODES_MAX`].
pub type NodeIndex = u16;

/// An empty place in a row.
pub const NO_NODE: NodeIndex = u16::MAX;

/// The nodes that may own the flows of one row: candidates, then earlier
/// owners, then [`NO_NODE`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Row(pub [NodeIndex; ROW_NODES]);

/// Transport protocol of a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Protocol {
    /// TCP, protocol number 6.
    Tcp,
    /// UDP, protocol number 17.
    Udp,
}

/// What makes one of a row's candidates the best for a new flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Measure {
    /// Being first: consistent hashing.
    First,
    /// The fewest flows assigned under this table, for its weight: turns.
    Turns,
    /// The least load last reported, and flows assigned since, for its weight.
    Load,
}

/// A service as the packet programs know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DatapathService {
    /// Its number in the whole cluster, whatever its position in a config; below [`SERVICES_MAX`].
    pub id: u16,
    /// Virtual address and port.
    pub address: SocketAddr,
    pub protocol: Protocol,
    /// Candidates of a row, from 1 to [`CHOICES_MAX`].
    pub choices: u8,
    /// Which of them takes a new flow.
    pub measure: Measure,
    /// Whether the hash leaves out the client's port, so that all flows of a
    /// client stay together, whatever the service.
    pub by_address: bool,
}

/// Whether a node takes flows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ForwardingState {
    /// Takes new flows and keeps its own.
    Up,
    /// Keeps its own.
    Draining,
    /// Takes nothing.
    Down,
}

/// A node as the packet programs know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DatapathNode {
    /// Its place in the tables.
    pub index: NodeIndex,
    /// Where frames for it go.
    pub mac: [u8; 6],
    /// The device that frames for it leave by.
    pub device_index: u32,
    /// Largest IP packet that it takes, in bytes; 0 is no limit.
    pub mtu: u32,
    /// Whether it takes flows.
    pub state: ForwardingState,
    /// Whether it is this machine itself.
    pub is_local: bool,
}

/// A node's share and load within one service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WeightedLoad {
    pub node: NodeIndex,
    /// Its share of new flows against the others' weights, from 1.
    pub weight: u32,
    /// What the node reported, in units of the service's policy.
    pub load: u64,
}

/// A node as a member of a service: one that takes its new flows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServiceMember {
    /// Its place in the tables.
    pub index: NodeIndex,
    /// `stable_hash` of its name.
    pub name_hash: u64,
    /// Its share against the others', from 1.
    pub weight: u32,
}

/// A network of clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Network {
    /// Its first address.
    pub address: IpAddr,
    /// Bits that count, at most 32 or 128.
    pub prefix_bits: u8,
}

/// A flow of a service, from the client's side.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Flow {
    pub client: SocketAddr,
    /// The service's id.
    pub service: u16,
    /// Its owner.
    pub node: NodeIndex,
}

/// A flow whose owner changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct OwnerChange {
    /// With its new owner.
    pub flow: Flow,
    /// The owner before; `None`: any.
    pub from: Option<NodeIndex>,
}

/// Packets and bytes of one counter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Count {
    pub packets: u64,
    /// Bytes of their frames.
    pub bytes: u64,
}

/// What became of a packet. The order is that of `enum verdict` in `bpf/abi.h`.
macro_rules! verdicts {
    ($($(#[doc = $doc:literal])+ $variant:ident = $name:literal,)+) => {
        /// What became of a packet; numbered as `enum verdict` in `bpf/abi.h`.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
        #[repr(u32)]
        pub enum Verdict {
            $($(#[doc = $doc])+ $variant,)+
        }

        impl Verdict {
            /// All, in the order of their numbers.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// Its name in metrics.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)+
                }
            }
        }
    };
}

verdicts! {
    /// To the kernel: neither IPv4 nor IPv6.
    PassNotIp = "pass_not_ip",
    /// To the kernel: not for a virtual address.
    PassNotVip = "pass_not_vip",
    /// To the kernel: for a virtual address, but for no service there.
    PassNoService = "pass_no_service",
    /// To the kernel, which refuses: the service has no node.
    PassNoNode = "pass_no_node",
    /// To the kernel: this machine is the node.
    PassLocal = "pass_local",
    /// To the kernel: a dispatcher or node of the cluster has steered it here.
    PassSteered = "pass_steered",
    /// To the owner that the flow table names.
    ForwardFlow = "forward_flow",
    /// To the node that the policy chose for a new flow.
    ForwardNew = "forward_new",
    /// To the first of its row: mid-flow, and not in the flow table.
    ForwardRow = "forward_row",
    /// To the first of its row: new, but over the rate of new flows.
    ForwardGuarded = "forward_guarded",
    /// An ICMP error, to the owner of the flow that it is about.
    ForwardIcmp = "forward_icmp",
    /// An echo request to a virtual address, answered.
    AnswerEcho = "answer_echo",
    /// Too big for the path to its node; the sender was notified.
    AnswerTooBig = "answer_too_big",
    /// Dropped: ends before its headers do.
    DropTruncated = "drop_truncated",
    /// Dropped: headers that contradict each other.
    DropMalformed = "drop_malformed",
    /// Dropped: a fragment.
    DropFragment = "drop_fragment",
    /// Dropped: IPv4 options or IPv6 extension headers.
    DropOptions = "drop_options",
    /// Dropped: the network of its sender is not allowed.
    DropDenied = "drop_denied",
    /// Dropped: this machine has sent it.
    DropLoop = "drop_loop",
    /// Node: this machine has its socket, or it opens a connection.
    NodeOwn = "node_own",
    /// Node: handed on to the next of the row.
    NodeHandOn = "node_hand_on",
    /// Node: the row has no further node; the kernel refuses the packet.
    NodeLast = "node_last",
    /// Node, dropped: its connection is being handed off, and nobody may take packets for it now.
    NodeBlocked = "node_blocked",
    /// Node: to the node that its connection was handed off to.
    NodeMoved = "node_moved",
}

/// What machines call the service at this address, whatever its id.
pub fn service_hash(address: SocketAddr) -> u64 {
    let ip = match address.ip() {
        IpAddr::V4(ip) => ip.to_ipv6_mapped(),
        IpAddr::V6(ip) => ip,
    };
    let mut bytes = [0; 18];
    bytes[..16].copy_from_slice(&ip.octets());
    bytes[16..].copy_from_slice(&address.port().to_be_bytes());
    stable_hash(&bytes, 0)
}

/// Whether that is a place for a node.
pub(crate) fn is_index(index: NodeIndex) -> bool {
    usize::from(index) < NODES_MAX
}
