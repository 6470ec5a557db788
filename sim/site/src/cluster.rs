//! The simulated cluster, as input of a run.

use crate::elastic::SimulatedElasticity;
use crate::limits::{
    DISK_BYTES_PER_S, DISK_LATENCY_US, LINK_BYTES_PER_S, NS_PER_US, PEER_BYTES_MAX,
    PEER_LATENCY_US, REQUEST_US,
};
use crate::loss::SimulatedLoss;

/// The nodes, their source, and the dispatchers that choose among them.
#[derive(Clone, Debug)]
pub struct SimulatedCluster {
    pub nodes: Vec<SimulatedNode>,
    pub source: FetchSource,
    /// Time to the first byte of a fetch, in microseconds.
    pub fetch_latency_us: u64,
    /// Whether nodes fetch from each other's memory.
    pub has_cluster_cache: bool,
    /// Whether nodes pass on what they evict and no other node has; not where nodes come and go.
    pub passes_on: bool,
    /// Time to the first byte from another node's memory, in microseconds.
    pub peer_latency_us: u64,
    /// What arrives of a segment can be sent on when there are so many bytes of it, or all; 0: from the first byte on.
    pub chunk_bytes: u64,
    /// Bytes to other nodes, and a part of those to clients, over which a node refuses other nodes.
    pub peer_bytes_max: u64,
    /// Whether policies are given the rates of links and disks; live dispatchers know only the rates of disks
    /// and origins that nodes measure.
    pub tells_rates: bool,
    /// What memories take beside the bytes of segments.
    pub memory_costs: MemoryCosts,
    /// Dispatchers, or workers of one, each with a policy of its own.
    pub workers: usize,
    /// Maximum share of a node's link that one client uses, in bytes per second.
    pub client_bytes_per_s: Option<u64>,
    /// Whether nodes are started and stopped; otherwise all are on.
    pub elasticity: Option<SimulatedElasticity>,
    /// Whether nodes are lost; not together with elasticity.
    pub loss: Option<SimulatedLoss>,
}

/// A node.
#[derive(Clone, Copy, Debug)]
pub struct SimulatedNode {
    /// The weight given to policies.
    pub weight: u32,
    pub memory_bytes: u64,
    pub link_bytes_per_s: u64,
    /// Rate of its own disk, if nodes fetch from that.
    pub disk_bytes_per_s: u64,
    /// Processor time of a request, in nanoseconds.
    pub request_ns: u64,
}

/// What a node's memory takes beside the bytes of segments; nothing, or as nodes charge it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryCosts {
    /// Of each segment.
    pub segment_bytes: u64,
    /// Of the bytes of segments one part in so many more, which allocating loses; 0: none.
    pub allocator_part: u64,
    /// Of each object that the node was asked for, until all have one part in so many of the memory.
    pub head_bytes: u64,
    pub heads_part: u64,
}

/// Where nodes fetch what no memory has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FetchSource {
    /// Each node's own disk.
    OwnDisk,
    /// One origin with this rate for all nodes.
    SharedOrigin { bytes_per_s: u64 },
}

impl SimulatedCluster {
    /// A cluster of nodes with these weights, whose speeds are proportional to them, and which together have
    /// as many resources as the same number of `node`; rates are multiplied by `scale`.
    pub fn weighted(weights: &[u32], node: SimulatedNode, scale: f64) -> Self {
        let mean = weights.iter().sum::<u32>() as f64 / weights.len() as f64;
        let node = |&weight: &u32| {
            let speed = f64::from(weight) / mean;
            let rate = |bytes_per_s: u64| (bytes_per_s as f64 * speed * scale).ceil() as u64;
            SimulatedNode {
                weight,
                memory_bytes: (node.memory_bytes as f64 * speed) as u64,
                link_bytes_per_s: rate(node.link_bytes_per_s),
                disk_bytes_per_s: rate(node.disk_bytes_per_s),
                request_ns: (node.request_ns as f64 / speed / scale) as u64,
            }
        };
        Self {
            nodes: weights.iter().map(node).collect(),
            source: FetchSource::OwnDisk,
            fetch_latency_us: DISK_LATENCY_US,
            has_cluster_cache: false,
            passes_on: false,
            tells_rates: false,
            peer_latency_us: PEER_LATENCY_US,
            chunk_bytes: 0,
            peer_bytes_max: PEER_BYTES_MAX,
            memory_costs: MemoryCosts::default(),
            workers: 1,
            client_bytes_per_s: None,
            elasticity: None,
            loss: None,
        }
    }

    /// The sum of all links' rates, in bytes per second.
    pub fn link_bytes_per_s(&self) -> u64 {
        self.nodes.iter().map(|node| node.link_bytes_per_s).sum()
    }

    /// The rate at which a node can fetch if all nodes fetch at once, in bytes per second.
    pub(crate) fn fetch_bytes_per_s(&self, node: &SimulatedNode) -> u64 {
        match self.source {
            FetchSource::OwnDisk => node.disk_bytes_per_s,
            FetchSource::SharedOrigin { bytes_per_s } => bytes_per_s / self.nodes.len() as u64,
        }
    }
}

impl SimulatedNode {
    /// A node with the usual link, disk and processor.
    pub fn usual(memory_bytes: u64) -> Self {
        Self {
            weight: 1,
            memory_bytes,
            link_bytes_per_s: LINK_BYTES_PER_S,
            disk_bytes_per_s: DISK_BYTES_PER_S,
            request_ns: REQUEST_US * NS_PER_US,
        }
    }
}
