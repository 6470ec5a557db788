//! The power states of all nodes: which are on, since when, and what draining nodes have to hand over.

use std::collections::VecDeque;

use skep_cluster::elasticity::Elasticity;

use crate::elastic::{ElasticOutcome, NodeCount, SimulatedElasticity};
use crate::limits::{ELASTIC_SAMPLES, NS_PER_MS, NS_PER_S};
use crate::memory::SegmentNumber;

/// The power states of all nodes.
pub(crate) struct Power {
    pub(crate) elastic: SimulatedElasticity,
    pub(crate) controller: Elasticity,
    pub(crate) nodes: Vec<SimulatedPower>,
    pub(crate) on_ns: u64,
    pub(crate) outcome: ElasticOutcome,
    pub(crate) is_over: bool,
}

#[derive(Clone, Debug)]
pub(crate) enum SimulatedPower {
    Off,
    /// Since this time.
    Booting(u64),
    On {
        since_ns: u64,
        served_ns: u64,
    },
    Draining {
        since_ns: u64,
        /// Segments still to be handed over.
        left: VecDeque<(SegmentNumber, u64)>,
        /// The segment in transfer, its bytes, and the node to which it goes.
        moving: Option<(SegmentNumber, u64, u32)>,
    },
}

impl Power {
    pub(crate) fn new(elastic: SimulatedElasticity, nodes: usize) -> Self {
        let node = |number| match number < elastic.on_first {
            true => SimulatedPower::On { since_ns: 0, served_ns: 0 },
            false => SimulatedPower::Off,
        };
        let nodes: Vec<_> = (0..nodes).map(node).collect();
        Self {
            elastic,
            controller: Elasticity::new(elastic.settings),
            nodes,
            on_ns: 0,
            outcome: ElasticOutcome::default(),
            is_over: false,
        }
    }

    pub(crate) fn tick_ns(&self) -> u64 {
        self.elastic.settings.interval_ms * NS_PER_MS / ELASTIC_SAMPLES
    }

    /// The nodes that get requests.
    pub(crate) fn serving(&self) -> impl Iterator<Item = u32> {
        let serves = |(_, node): &(u32, &SimulatedPower)| matches!(node, SimulatedPower::On { .. });
        (0..).zip(&self.nodes).filter(serves).map(|(node, _)| node)
    }

    pub(crate) fn note_count(&mut self, now: u64) {
        let nodes = self.serving().count();
        if self.outcome.counts.last().is_none_or(|last| last.nodes != nodes) {
            self.outcome.counts.push(NodeCount { at_ms: now / NS_PER_MS, nodes });
        }
    }

    /// Ends what is measured.
    pub(crate) fn end(&mut self, now: u64) {
        if std::mem::replace(&mut self.is_over, true) {
            return;
        }
        let left = self.nodes.iter().filter_map(SimulatedPower::since_ns);
        let on_ns = self.on_ns + left.map(|since| now - since).sum::<u64>();
        self.outcome.node_s = on_ns as f64 / NS_PER_S as f64;
        self.outcome.run_s = now as f64 / NS_PER_S as f64;
    }
}

impl SimulatedPower {
    pub(crate) fn since_ns(&self) -> Option<u64> {
        match *self {
            Self::Off => None,
            Self::Booting(since_ns)
            | Self::On { since_ns, .. }
            | Self::Draining { since_ns, .. } => Some(since_ns),
        }
    }
}
