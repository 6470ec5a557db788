//! How fast nodes answer: a mean that forgets, and follows a rise at once.
//!
//! Peak-EWMA, as in Finagle and linkerd: a sample above the estimate replaces it, one below is averaged in with
//! `1 - exp(-dt / tau)`; a node that gets nothing is forgiven by and by.

use skep_units::{NodeId, Now};

use crate::limits::LATENCY_DECAY_MS;
use crate::{ClusterView, NodeView};

/// Estimates of all nodes of a view.
#[derive(Default)]
pub(crate) struct Latencies {
    version: Option<u64>,
    now: Now,
    /// By position in the view.
    estimates: Vec<Estimate>,
}

#[derive(Clone, Copy)]
struct Estimate {
    id: NodeId,
    /// `None`: nothing is known.
    us: Option<f64>,
    at: Now,
}

impl Latencies {
    /// Follows the nodes and the time of a view.
    pub(crate) fn refresh(&mut self, view: &ClusterView) {
        self.now = view.now;
        if self.version == Some(view.version) && self.estimates.len() == view.nodes.len() {
            return;
        }
        self.version = Some(view.version);
        let known = std::mem::take(&mut self.estimates);
        let of = |node: &NodeView| {
            let known = known.iter().find(|it| it.id == node.id).copied();
            known.unwrap_or(Estimate { id: node.id, us: None, at: view.now })
        };
        self.estimates = view.nodes.iter().map(of).collect();
    }

    /// A node has answered. One that answers in no time has not answered.
    pub(crate) fn record(&mut self, node: NodeId, latency_us: u64) {
        let now = self.now;
        let Some(it) = self.estimates.iter_mut().find(|it| it.id == node) else { return };
        if latency_us == 0 {
            return;
        }
        let sample = latency_us as f64;
        let mean = it.us.map_or(sample, |us| {
            let weight = weight(now.since_ms(it.at));
            (us * weight + sample * (1.0 - weight)).max(sample)
        });
        (it.us, it.at) = (Some(mean), now);
    }

    /// The estimate for the node at a position, in microseconds. `None`: nothing is known.
    pub(crate) fn us(&self, position: usize) -> Option<f64> {
        let it = self.estimates.get(position)?;
        Some(it.us? * weight(self.now.since_ms(it.at)))
    }
}

/// What is left of an estimate after so long.
fn weight(age_ms: u64) -> f64 {
    (-(age_ms as f64) / LATENCY_DECAY_MS as f64).exp()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;
    use crate::tests::view;

    fn at(latencies: &mut Latencies, ms: u64) {
        latencies.refresh(&ClusterView { now: Now(ms), ..view(2) });
    }

    #[test]
    fn a_rise_counts_at_once_and_a_fall_by_and_by() {
        let mut latencies = Latencies::default();
        at(&mut latencies, 0);
        assert_eq!(latencies.us(0), None);
        latencies.record(NodeId(0), 1_000);
        latencies.record(NodeId(0), 9_000);
        assert_eq!(latencies.us(0), Some(9_000.0));
        // Another one at the same time says nothing new.
        latencies.record(NodeId(0), 1_000);
        assert_eq!(latencies.us(0), Some(9_000.0));
        at(&mut latencies, LATENCY_DECAY_MS);
        let left = latencies.us(0).unwrap();
        assert!((3_000.0..3_500.0).contains(&left), "9,000 / e: {left}");
        latencies.record(NodeId(0), 1_000);
        let mean = latencies.us(0).unwrap();
        assert!((3_900.0..4_000.0).contains(&mean), "{mean}");
    }

    #[test]
    fn what_is_known_outlives_a_change_of_nodes_and_no_answer_is_no_sample() {
        let mut latencies = Latencies::default();
        at(&mut latencies, 0);
        latencies.record(NodeId(1), 500);
        latencies.record(NodeId(1), 0);
        latencies.record(NodeId(7), 500);
        let mut other = view(3);
        (other.version, other.nodes[0].id) = (2, NodeId(9));
        latencies.refresh(&other);
        assert_eq!([0, 1, 2, 3].map(|at| latencies.us(at)), [None, Some(500.0), None, None]);
    }
}
