//! The terms of direct dispatch: how packets are steered to nodes.
//!
//! A service has a **table** of [`ROWS`] rows. A flow's hash selects a row, and a row lists the
//! nodes that may own such a flow: first the `choices` nodes from which the policy selects one for
//! a new flow, then the nodes that owned the row under earlier tables. So, without any per-flow
//! state, a machine with the table knows the nodes, at most [`ROW_NODES`], that can own a packet: a
//! dispatcher that lost its flow table sends it to the first node, and nodes hand it on to the
//! others of the row until it reaches the node with the socket.

use std::net::{IpAddr, SocketAddr};

use serde::{Deserialize, Serialize};
use skep_units::stable_hash;

/// Rows of a table: a prime, as Maglev's permutations need (NSDI 2016, 3.4).
pub const ROWS: usize = 65_537;

/// Nodes that a row can name.
pub const ROW_NODES: usize = 8;

/// Candidates of a row for new flows, at most.
pub const CHOICES_MAX: usize = 4;

/// Nodes of a cluster to which packets can be steered: all of them.
pub const NODES_MAX: usize = skep_units::NODES_MAX;

/// Services in direct dispatch: one for each address.
pub const SERVICES_MAX: usize = skep_units::DIRECT_ADDRESSES_MAX;

/// A node's index in the tables; below [`NODES_MAX`].
pub type NodeIndex = u16;

/// An empty entry of a row.
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

/// How the candidate for a new flow is selected from a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Measure {
    /// The first one: consistent hashing.
    First,
    /// The fewest flows assigned under this table, relative to its weight: round robin.
    Turns,
    /// The least load last reported plus flows assigned since, relative to its weight.
    Load,
}

/// A service in the form used by the packet programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DatapathService {
    /// Its number in the whole cluster, whatever its index in a config; below [`SERVICES_MAX`].
    pub id: u16,
    /// Virtual address and port.
    pub address: SocketAddr,
    pub protocol: Protocol,
    /// Candidates of a row, from 1 to [`CHOICES_MAX`].
    pub choices: u8,
    /// How the candidate for a new flow is selected.
    pub measure: Measure,
    /// Whether the hash omits the client's port, so that all flows of a client go to the same node,
    /// whatever the service.
    pub by_address: bool,
}

/// Whether a node receives flows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ForwardingState {
    /// Receives new flows and keeps its own.
    Up,
    /// Keeps its own, but receives no new flows.
    Draining,
    /// Receives nothing.
    Down,
}

/// A node in the form used by the packet programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DatapathNode {
    /// Its index in the tables.
    pub index: NodeIndex,
    /// Destination of frames for it.
    pub mac: [u8; 6],
    /// The device through which frames for it are sent.
    pub device_index: u32,
    /// Largest IP packet that it accepts, in bytes; 0 for no limit.
    pub mtu: u32,
    /// Whether it receives flows.
    pub state: ForwardingState,
    /// Whether it is this machine.
    pub is_local: bool,
}

/// A node's share and load within one service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WeightedLoad {
    pub node: NodeIndex,
    /// Its share of new flows relative to the other weights, from 1.
    pub weight: u32,
    /// The load reported by the node, in units of the service's policy.
    pub load: u64,
}

/// A node as a member of a service: one that receives its new flows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServiceMember {
    /// Its index in the tables.
    pub index: NodeIndex,
    /// `stable_hash` of its name.
    pub name_hash: u64,
    /// Its share relative to the others', from 1.
    pub weight: u32,
}

/// A network of clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Network {
    /// Its first address.
    pub address: IpAddr,
    /// Significant bits, at most 32 or 128.
    pub prefix_bits: u8,
}

/// A flow of a service, from the client's side.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Flow {
    pub client: SocketAddr,
    /// The id of the service.
    pub service: u16,
    /// Its owner.
    pub node: NodeIndex,
}

/// A flow whose owner changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct OwnerChange {
    /// The flow with its new owner.
    pub flow: Flow,
    /// The previous owner; `None` for any.
    pub from: Option<NodeIndex>,
}

/// Packets and bytes of one counter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Count {
    pub packets: u64,
    /// Bytes of their frames.
    pub bytes: u64,
}

/// The result for a packet. The order is that of `enum verdict` in `bpf/abi.h`.
macro_rules! verdicts {
    ($($(#[doc = $doc:literal])+ $variant:ident = $name:literal,)+) => {
        /// The result for a packet; numbered as `enum verdict` in `bpf/abi.h`.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
        #[repr(u32)]
        pub enum Verdict {
            $($(#[doc = $doc])+ $variant,)+
        }

        impl Verdict {
            /// All verdicts, in the order of their numbers.
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
    /// To the kernel: for a virtual address, but for no service at it.
    PassNoService = "pass_no_service",
    /// To the kernel, which refuses it: the service has no node.
    PassNoNode = "pass_no_node",
    /// To the kernel: this machine is the node.
    PassLocal = "pass_local",
    /// To the kernel: a dispatcher or node of the cluster has steered it here.
    PassSteered = "pass_steered",
    /// To the owner according to the flow table.
    ForwardFlow = "forward_flow",
    /// To the node that the policy chose for a new flow.
    ForwardNew = "forward_new",
    /// To the first node of its row: mid-flow, and not in the flow table.
    ForwardRow = "forward_row",
    /// To the first node of its row: a new flow above the rate limit of new flows.
    ForwardGuarded = "forward_guarded",
    /// An ICMP error, to the owner of the flow that it concerns.
    ForwardIcmp = "forward_icmp",
    /// An echo request to a virtual address, answered.
    AnswerEcho = "answer_echo",
    /// Too big for the path to its node; the sender was notified.
    AnswerTooBig = "answer_too_big",
    /// Dropped: shorter than its headers.
    DropTruncated = "drop_truncated",
    /// Dropped: headers that contradict each other.
    DropMalformed = "drop_malformed",
    /// Dropped: a fragment.
    DropFragment = "drop_fragment",
    /// Dropped: IPv4 options or IPv6 extension headers.
    DropOptions = "drop_options",
    /// Dropped: the sender's network is not allowed.
    DropDenied = "drop_denied",
    /// Dropped: sent by this machine.
    DropLoop = "drop_loop",
    /// Node: this machine has its socket, or it opens a connection.
    NodeOwn = "node_own",
    /// Node: handed on to the next node of the row.
    NodeHandOn = "node_hand_on",
    /// Node: the row has no further node; the kernel refuses the packet.
    NodeLast = "node_last",
    /// Node, dropped: its connection is being handed off, and no node may receive its packets now.
    NodeBlocked = "node_blocked",
    /// Node: to the node that received its connection in a handoff.
    NodeMoved = "node_moved",
}

/// A hash that identifies the service at this address on all machines, whatever its id.
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

/// Whether this is a valid node index.
pub(crate) fn is_index(index: NodeIndex) -> bool {
    usize::from(index) < NODES_MAX
}
