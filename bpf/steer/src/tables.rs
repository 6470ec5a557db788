//! The tables that the programs read and write: the maps of `bpf/abi.h`.
//!
//! Plain data. Addresses are IPv6, with IPv4 mapped into it (`::ffff:a.b.c.d`),
//! because that is how the programs compare them.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv6Addr;
use std::sync::Arc;

pub use skep_wire::message::Mac;
use skep_wire::steer::{
    Count, DatapathNode, DatapathService, Flow, Network, NodeIndex, Row, Verdict,
};

/// All that a program knows.
#[derive(Clone, Debug, Default)]
pub struct Tables {
    /// What holds for all packets.
    pub settings: Settings,
    /// Virtual addresses; each service's must be there.
    pub virtual_addresses: BTreeSet<Ipv6Addr>,
    pub services: Vec<DatapathService>,
    /// [`skep_wire::steer::ROWS`] rows of each service, by its id; shared, since
    /// they are many and seldom change.
    pub rows: BTreeMap<u16, Arc<Vec<Row>>>,
    /// Nodes, by index.
    pub nodes: BTreeMap<NodeIndex, DatapathNode>,
    /// Machines of the cluster, by source of their frames.
    pub steerers: BTreeMap<Mac, Steerer>,
    /// Loads of nodes, by service and node.
    pub loads: BTreeMap<(u16, NodeIndex), LoadEntry>,
    /// Flows that nodes were given, ever, by service and node.
    pub assigned: BTreeMap<(u16, NodeIndex), u64>,
    /// Owners of flows.
    pub flows: BTreeMap<FlowKey, FlowEntry>,
    /// Node program: connections that are being handed off, or have been.
    pub moves: BTreeMap<MoveKey, Move>,
    /// Networks that are let in or kept out; the longest that fits counts.
    pub networks: Vec<(Network, NetworkAccess)>,
    /// New flows of each source; of IPv6 the first 64 bits.
    pub sources: BTreeMap<Ipv6Addr, Rate>,
    /// New flows of all.
    pub total: Rate,
    /// What was counted.
    pub counters: Counters,
    /// New flows reported, oldest first.
    pub events: Vec<Flow>,
}

/// What holds for all packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// Secret seed of the rows' hash.
    pub hash_seed: u64,
    /// New flows in a second, in total; 0 is no limit.
    pub new_flows_max: u64,
    /// New flows in a second from one source; 0 is no limit.
    pub new_flows_per_source_max: u64,
    /// Another whenever networks or steerers change.
    pub generation: u32,
    /// Whether who is in no network is denied.
    pub is_allow_listed: bool,
    /// Whether new flows are reported.
    pub is_streaming: bool,
    /// Node program: whether connections are handed off.
    pub has_moves: bool,
    /// The device that answers leave by.
    pub own_device_index: u32,
    /// Node program: which node this is.
    pub own_node: NodeIndex,
    /// Where frames for this machine go, and what it sends from.
    pub own_mac: Mac,
}

/// Who else steers packets, by the source of their frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Steerer {
    /// Another dispatcher.
    Dispatcher,
    /// A node, which hands packets on.
    Node,
    /// This machine.
    Itself,
}

/// A node's share and load within one service.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LoadEntry {
    /// What the node reported.
    pub reported: u64,
    /// Flows assigned when it did.
    pub assigned_at_report: u64,
    /// Flows assigned when the table came.
    pub assigned_at_table: u64,
    /// Its share against the others' weights.
    pub weight: u32,
}

/// A flow, from the client's side.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FlowKey {
    pub client: Ipv6Addr,
    /// The client's port.
    pub port: u16,
    /// The service's id.
    pub service: u16,
}

/// What is noted of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowEntry {
    /// Its owner.
    pub node: NodeIndex,
    /// Whether a FIN or RST was seen: another SYN begins anew.
    pub is_closing: bool,
    /// Generation of the settings under which it was checked.
    pub generation: u32,
    /// Source of the frame that was checked.
    pub via: Mac,
    /// Of the last SYN, the low half of its sequence number; 0 if none was seen.
    pub syn_sequence_low: u16,
}

/// A connection, by both its ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MoveKey {
    pub client: Ipv6Addr,
    pub vip: Ipv6Addr,
    pub client_port: u16,
    pub vip_port: u16,
}

/// What handing off makes of a connection's packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Move {
    /// Nobody takes them now.
    Blocked,
    /// The node that has it.
    Redirect(NodeIndex),
}

/// Whether a network's clients are let in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NetworkAccess {
    /// They are.
    Allow,
    /// They are not.
    Deny,
}

/// New flows in the present window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rate {
    /// When it began, nanoseconds.
    pub window_began_ns: u64,
    /// New flows in it.
    pub new_flows: u64,
}

/// What the programs count.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// By verdict; those that never came are not there.
    pub verdicts: BTreeMap<u32, Count>,
    /// Of each service, by id.
    pub services: BTreeMap<u16, Count>,
    /// Of each node, by index.
    pub nodes: BTreeMap<NodeIndex, Count>,
}

impl Counters {
    /// Adds a frame of so many bytes.
    pub(crate) fn add(
        &mut self,
        verdict: Verdict,
        service: Option<u16>,
        node: Option<NodeIndex>,
        bytes: usize,
    ) {
        let bytes = bytes as u64;
        add(self.verdicts.entry(verdict as u32).or_default(), bytes);
        if let Some(id) = service {
            add(self.services.entry(id).or_default(), bytes);
        }
        if let Some(index) = node {
            add(self.nodes.entry(index).or_default(), bytes);
        }
    }

    /// Frames that met a verdict.
    pub fn packets(&self, verdict: Verdict) -> u64 {
        self.verdicts.get(&(verdict as u32)).map_or(0, |count| count.packets)
    }
}

fn add(count: &mut Count, bytes: u64) {
    count.packets += 1;
    count.bytes += bytes;
}
