//! Elasticity, as a run is given it, and what came of it.

use skep_cluster::elasticity::ElasticitySettings;

/// Nodes are started and stopped by the load.
#[derive(Clone, Copy, Debug)]
pub struct SimulatedElasticity {
    pub settings: ElasticitySettings,
    /// Nodes that are on at first, with nothing in memory.
    pub on_first: usize,
    /// Time from the order to start a node until it serves, in milliseconds.
    pub start_ms: u64,
    /// Time over which its share grows then, in milliseconds.
    pub slow_start_ms: u64,
}

/// What elasticity did in a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ElasticOutcome {
    /// Time that nodes were not off, summed over them, up to the last client's end.
    pub node_s: f64,
    /// The same time of one node.
    pub run_s: f64,
    pub starts: u64,
    pub stops: u64,
    /// How many nodes served, whenever that changed.
    pub counts: Vec<NodeCount>,
    /// What draining nodes gave to others, and what they would have but nobody had room for.
    pub handed_over_bytes: u64,
    pub lost_bytes: u64,
}

/// So many nodes serve from a time on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeCount {
    pub at_ms: u64,
    pub nodes: usize,
}

impl ElasticOutcome {
    /// How often the number of nodes began to fall after it had risen, or to rise after it had fallen, from a time on.
    pub fn reversals(&self, from_ms: u64) -> usize {
        let counts = self.counts.windows(2).filter(|it| it[1].at_ms >= from_ms);
        let rises: Vec<bool> = counts.map(|it| it[1].nodes > it[0].nodes).collect();
        rises.windows(2).filter(|it| it[0] != it[1]).count()
    }

    /// How often the number of nodes changed, from a time on.
    pub fn changes(&self, from_ms: u64) -> usize {
        self.counts.iter().skip(1).filter(|count| count.at_ms >= from_ms).count()
    }
}
