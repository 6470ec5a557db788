//! Messages between dispatchers and nodes in sealed datagrams.
//!
//! Invariant: a decoded message is within the bounds of
//! [`limits`](crate::limits), and the indexes in it are valid.

use std::net::{IpAddr, SocketAddr};

use serde::{Deserialize, Serialize};
use skep_units::{ARMS_MAX, EPOCH_MAX};

use crate::delta::TableDelta;
use crate::limits::{ADDRESSES_MAX, FLOWS_PER_BATCH_MAX};
pub use crate::limits::{ARM_CELLS_MAX, CLIENTS_PER_MESSAGE_MAX, OBJECTS_PER_MESSAGE_MAX};
pub use crate::machine::{Mac, Name, NameTooLong};
use crate::seal::PeerId;
use crate::steer::{Flow, NODES_MAX, NodeIndex, SERVICES_MAX, is_index};
use crate::table::{Table, TableVersion};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Message {
    /// A dispatcher is alive.
    Dispatcher(DispatcherHeartbeat),
    /// A node is alive.
    Node(NodeHeartbeat),
    /// The table of the active dispatcher, which all machines use for steering.
    Table(Table),
    /// Flows of the active dispatcher, for a standby.
    Flows(FlowBatch),
    /// A standby has received a batch.
    FlowsTaken(FlowsTaken),
    /// The load of a node, if no heartbeat carries it.
    Load(NodeLoad),
    /// A new table as a difference from an earlier one, for machines that have the latter.
    TableDelta(TableDelta),
    /// From the active dispatcher: the work of all nodes, for nodes that choose which node answers.
    Loads(LoadDigest),
    /// From a dispatcher: arms of clients in an A/B test of policies, for the other dispatchers.
    ArmClients(ArmClients),
    /// From a node, or forwarded by a dispatcher: objects served by the node.
    Served(ServedObjects),
    /// From the active dispatcher: the A/B tests of services whose nodes choose.
    Arms(ArmsInForce),
    /// From a node: its counts for an arm of such a test.
    ArmCounts(ArmCounts),
    /// From a node: the rates of its link and its backends, for policies.
    Rates(TransferRates),
}

/// The stage of a dispatcher.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Stage {
    /// Just started: it only receives.
    Joining,
    /// Ready to take over.
    Standby,
    /// Holds the virtual addresses.
    Active,
    /// Does not hold them: it is stopping, or a machine outside the cluster holds them.
    Leaving,
}

/// A dispatcher's heartbeat.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DispatcherHeartbeat {
    /// Its name in the config.
    pub name: Name,
    /// Its stage.
    pub stage: Stage,
    /// The epoch of its term if it is active, otherwise the greatest epoch seen.
    pub epoch: u64,
    /// Preference for being active when all dispatchers are healthy: the highest wins.
    pub priority: u32,
    /// Whether it has all flows of the active dispatcher.
    pub flows_synced: bool,
    /// The table that it uses, or would use, for steering.
    pub table: TableVersion,
    /// The active dispatcher whose heartbeats it receives.
    pub hears: Option<Hears>,
    /// MAC address of its device; if two clusters have the same address, the lower one wins.
    pub mac: Mac,
}

/// Evidence that an active dispatcher is alive: its own heartbeat, not another machine's report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hears {
    pub dispatcher: PeerId,
    pub epoch: u64,
    /// Its age, in milliseconds.
    pub ago_ms: u32,
}

/// A node's heartbeat.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeHeartbeat {
    /// Its name in the config.
    pub name: Name,
    /// Its index in the table it applied.
    pub index: Option<NodeIndex>,
    /// MAC address of the device that receives steered packets.
    pub mac: Mac,
    /// Largest IP packet of that device, in bytes.
    pub mtu: u32,
    /// Addresses of that device.
    pub addresses: Vec<IpAddr>,
    /// Services at whose addresses it listens, by [`service_hash`](crate::steer::service_hash): it
    /// accepts connections of no others.
    pub services: Vec<u64>,
    /// The table that it applied last.
    pub table: TableVersion,
    /// The active dispatcher whose heartbeats it receives.
    pub hears: Option<Hears>,
    /// Whether it is about to stop: it must receive no new flows.
    pub is_leaving: bool,
    pub load: NodeLoad,
}

/// A node's load and the hit ratio of its memory. Rates cover the last second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeLoad {
    /// Client connections.
    pub connections: u64,
    /// Requests in progress.
    pub requests_in_flight: u64,
    /// Bytes of replies to clients and nodes that are still to be sent; for a large object, those
    /// of the segment being sent.
    pub bytes_outstanding: u64,
    /// The process's CPU usage, in thousandths of all CPUs.
    pub cpu_permille: u16,
    /// Memory of the process, in bytes, including cached files.
    pub memory_bytes: u64,
    /// Bytes sent to clients and nodes, per second.
    pub sent_bytes_s: u64,
    /// Bytes read from origins, per second.
    pub filled_bytes_s: u64,
    /// Share of lookups in its memory that were hits, in thousandths.
    pub hit_permille: u16,
}

/// Rates of a node: that of its link, and those that it has measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TransferRates {
    /// Bytes a second of its link to the clients, as its config says; 0: not known.
    pub link_bytes_per_s: u64,
    /// Bytes a second that its disk and its origins fill its memory with while it reads them; 0: not known.
    pub fetch_bytes_per_s: u64,
}

/// The work of nodes as they last reported it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoadDigest {
    /// Time to the next one, in milliseconds.
    pub interval_ms: u32,
    /// At most [`NODES_MAX`].
    pub nodes: Vec<NodeWork>,
}

/// The work of one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeWork {
    /// Its index in the table.
    pub node: NodeIndex,
    /// Client connections.
    pub connections: u32,
    /// Requests in progress.
    pub requests: u32,
    /// Bytes of replies that are still to be sent.
    pub bytes: u64,
}

/// Some flows. A dump begins with a batch that is `is_first`; batches after `is_last` contain new
/// flows. Numbers increase by one; a receiver that misses one requests a new dump by acknowledging
/// nothing more.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlowBatch {
    /// The dump to which it belongs or which it follows.
    pub dump: u64,
    /// Its number in the dump, from 0.
    pub number: u64,
    /// Whether it begins the dump.
    pub is_first: bool,
    /// Whether it completes the dump.
    pub is_last: bool,
    /// At most [`FLOWS_PER_BATCH_MAX`].
    pub flows: Vec<Flow>,
}

/// Some clients of an A/B test of policies, with their arms.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArmClients {
    /// The test: a hash of its service and arms.
    pub test: u64,
    /// The number of clients known to the sender.
    pub known: u32,
    /// A hash of all these clients with their arms.
    pub digest: u64,
    /// At most [`CLIENTS_PER_MESSAGE_MAX`].
    pub clients: Vec<ArmClient>,
}

/// A client and its arm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArmClient {
    /// A hash of its address.
    pub client: u64,
    /// Index of its arm in the test.
    pub arm: u8,
}

/// The A/B tests of policies at services whose nodes choose; empty if there are none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArmsInForce {
    /// At most [`SERVICES_MAX`].
    pub services: Vec<ServiceArms>,
}

/// The A/B test of a service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServiceArms {
    /// The service's addresses, at most [`SERVICES_MAX`].
    pub addresses: Vec<SocketAddr>,
    /// The test: a hash of its service and arms.
    pub test: u64,
    /// At least one, at most [`ARMS_MAX`].
    pub arms: Vec<ToldArm>,
}

/// An arm, as sent to nodes that choose.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToldArm {
    pub policy: Name,
    /// Its share of the clients, at least 1.
    pub weight: u32,
    /// Its group, at most [`NODES_MAX`]; if empty, all nodes.
    pub nodes: Vec<PeerId>,
}

/// A node's counts for an arm.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArmCounts {
    /// The test.
    pub test: u64,
    /// Index of the arm in the test.
    pub arm: u8,
    /// A new number each time the node starts counting.
    pub session: u64,
    /// Duration of counting, in milliseconds.
    pub counted_ms: u64,
    /// At most [`ARM_CELLS_MAX`].
    pub cells: Vec<u64>,
}

/// Some objects served by a node, with their sizes: for machines that choose nodes and do not see
/// responses.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServedObjects {
    /// The node that served them.
    pub node: PeerId,
    /// At most [`OBJECTS_PER_MESSAGE_MAX`].
    pub objects: Vec<SizedObject>,
}

/// An object and its size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SizedObject {
    /// A hash of host, path and query, as used by policies.
    pub url_hash: u64,
    pub bytes: u64,
}

/// All batches of a dump up to this number were received.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlowsTaken {
    pub dump: u64,
    pub number: u64,
}

/// The bytes are not a message, or it exceeds its bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no message")]
pub struct NotAMessage;

impl Message {
    /// Encodes the message.
    pub fn encode(&self) -> Vec<u8> {
        #[expect(clippy::expect_used, reason = "fails only for types that are not used here")]
        postcard::to_allocvec(self).expect("maps and unsized sequences are not in any message")
    }

    /// Decodes the message that occupies all of `bytes`.
    pub fn decode(bytes: &[u8]) -> Result<Self, NotAMessage> {
        let (message, rest) = postcard::take_from_bytes(bytes).map_err(|_| NotAMessage)?;
        if rest.is_empty() && Self::is_sound(&message) { Ok(message) } else { Err(NotAMessage) }
    }

    fn is_sound(&self) -> bool {
        match self {
            // The result of a delta is checked when it is applied.
            Self::FlowsTaken(_) | Self::TableDelta(_) => true,
            // Policies take any rate.
            Self::Rates(_) => true,
            Self::Dispatcher(heartbeat) => {
                heartbeat.epoch <= EPOCH_MAX
                    && heartbeat.table.is_sound()
                    && heartbeat.hears.is_none_or(Hears::is_sound)
            }
            Self::Node(heartbeat) => {
                heartbeat.addresses.len() <= ADDRESSES_MAX
                    && heartbeat.table.is_sound()
                    && heartbeat.hears.is_none_or(Hears::is_sound)
                    && heartbeat.services.len() <= SERVICES_MAX
                    && heartbeat.index.is_none_or(is_index)
                    && heartbeat.load.is_sound()
            }
            Self::Load(load) => load.is_sound(),
            // The receiver knows which arms exist.
            Self::ArmClients(told) => told.clients.len() <= CLIENTS_PER_MESSAGE_MAX,
            Self::Arms(arms) => {
                arms.services.len() <= SERVICES_MAX
                    && arms.services.iter().all(ServiceArms::is_sound)
            }
            // The receiver knows which arms and cells exist.
            Self::ArmCounts(counts) => counts.cells.len() <= ARM_CELLS_MAX,
            // Policies accept any size.
            Self::Served(served) => served.objects.len() <= OBJECTS_PER_MESSAGE_MAX,
            Self::Loads(digest) => {
                digest.nodes.len() <= NODES_MAX && digest.nodes.iter().all(|it| is_index(it.node))
            }
            Self::Table(table) => table.is_sound(),
            Self::Flows(batch) => {
                let is_sound =
                    |flow: &Flow| is_index(flow.node) && usize::from(flow.service) < SERVICES_MAX;
                batch.flows.len() <= FLOWS_PER_BATCH_MAX && batch.flows.iter().all(is_sound)
            }
        }
    }
}

impl Hears {
    fn is_sound(self) -> bool {
        self.epoch <= EPOCH_MAX
    }
}

impl ServiceArms {
    fn is_sound(&self) -> bool {
        let is_sound = |arm: &ToldArm| arm.weight > 0 && arm.nodes.len() <= NODES_MAX;
        self.addresses.len() <= SERVICES_MAX
            && (1..=ARMS_MAX).contains(&self.arms.len())
            && self.arms.iter().all(is_sound)
    }
}

impl NodeLoad {
    /// Whether shares are at most 1000 thousandths.
    fn is_sound(&self) -> bool {
        self.cpu_permille <= 1000 && self.hit_permille <= 1000
    }
}
