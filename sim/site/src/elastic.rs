//! Elasticity as input of a run, and its outcome.

use skep_cluster::elasticity::ElasticitySettings;

/// Nodes are started and stopped according to the load.
#[derive(Clone, Copy, Debug)]
pub struct SimulatedElasticity {
    pub settings: ElasticitySettings,
    /// Number of nodes that are on at first, with empty memories.
    pub on_first: usize,
    /// Time from the order to start a node until it serves, in milliseconds.
    pub start_ms: u64,
    /// Time over which the node's share then grows, in milliseconds.
    pub slow_start_ms: u64,
}

/// What elasticity did in a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ElasticOutcome {
    /// Time that nodes were not off, summed over the nodes, up to the last client's end.
    pub node_s: f64,
    /// The length of that time, that is for one node that is always on.
    pub run_s: f64,
    pub starts: u64,
    pub stops: u64,
    /// The number of serving nodes, whenever it changed.
    pub counts: Vec<NodeCount>,
    /// Bytes that draining nodes handed over to others, and bytes for which no other node had room.
    pub handed_over_bytes: u64,
    pub lost_bytes: u64,
}

/// The number of serving nodes from a time on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeCount {
    pub at_ms: u64,
    pub nodes: usize,
}

impl ElasticOutcome {
    /// How often the number of nodes began to fall after it had risen, or to rise after it had fallen, from
    /// `from_ms` on.
    pub fn reversals(&self, from_ms: u64) -> usize {
        let counts = self.counts.windows(2).filter(|it| it[1].at_ms >= from_ms);
        let rises: Vec<bool> = counts.map(|it| it[1].nodes > it[0].nodes).collect();
        rises.windows(2).filter(|it| it[0] != it[1]).count()
    }

    /// How often the number of nodes changed, from `from_ms` on.
    pub fn changes(&self, from_ms: u64) -> usize {
        self.counts.iter().skip(1).filter(|count| count.at_ms >= from_ms).count()
    }
}
