//! `prequal`: of the candidates that are not among the busiest, the one with the lowest latency.
//!
//! Prequal's selection rule, hot-cold lexicographic (Wydrowski, Kleinberg, Rumble, Archer, "Load is
//! not what you should balance: introducing Prequal", NSDI 2024, section 4.2): nodes with more
//! requests in flight than the quantile `Q_RIF` of all are hot, and are selected only if all are;
//! among the others the lowest latency wins. Prequal probes the requests in flight of a few
//! servers; here nodes report them, and up to a fixed number, starting from a random one, are
//! compared. Latencies are those that the balancer has measured, as a peak-sensitive mean: without
//! them, the fewest requests win. Among fewer than five none is hot.

use std::cmp::Ordering;

use skep_units::{NodeId, Now, Rng};

use crate::latency::{Expected, Latencies};
use crate::limits::{PREQUAL_COMPARED_MAX, PREQUAL_HOT_PERCENT};
use crate::{AttemptEnd, ClusterView, Decision, NodeView, Policy, RequestKey};

pub(crate) struct Prequal {
    name: &'static str,
    latencies: Latencies,
    rng: Rng,
}

/// The data of a candidate.
#[derive(Clone, Copy)]
struct Candidate {
    id: NodeId,
    in_flight: u64,
    latency_us: f64,
}

impl Prequal {
    pub(crate) fn new(name: &'static str, rng: Rng) -> Self {
        Self { name, latencies: Latencies::default(), rng }
    }

    fn candidate(&self, position: usize, node: &NodeView, now: Now) -> Candidate {
        let latency_us = match self.latencies.expected(position, now) {
            Expected::Us(us) => us,
            Expected::Unknown => f64::INFINITY,
        };
        Candidate { id: node.id, in_flight: node.warm_requests(), latency_us }
    }
}

impl Policy for Prequal {
    fn name(&self) -> &'static str {
        self.name
    }

    fn pick(&mut self, _: &RequestKey<'_>, view: &ClusterView, exclude: &[NodeId]) -> Decision {
        self.latencies.refresh(view);
        let start = self.rng.below(view.nodes.len().max(1) as u64) as usize;
        let positions = (start..view.nodes.len()).chain(0..start);
        let candidates = positions.filter(|&at| view.nodes[at].is_candidate(exclude));
        let compared = || candidates.clone().take(PREQUAL_COMPARED_MAX);
        let Some(last) = compared().count().checked_sub(1) else { return Decision::None };
        let mut loads = [0; PREQUAL_COMPARED_MAX];
        for (load, at) in loads.iter_mut().zip(compared()) {
            *load = view.nodes[at].warm_requests();
        }
        loads[..=last].sort_unstable();
        let hot_above = loads[(last * PREQUAL_HOT_PERCENT + 50) / 100];
        let cold = compared().map(|at| self.candidate(at, &view.nodes[at], view.now));
        let cold = cold.filter(|it| it.in_flight <= hot_above);
        let best = cold.min_by(|one, other| {
            let by_latency = one.latency_us.partial_cmp(&other.latency_us);
            by_latency.unwrap_or(Ordering::Equal).then(one.in_flight.cmp(&other.in_flight))
        });
        best.map(|it| it.id).into()
    }

    fn started(&mut self, node: NodeId) {
        self.latencies.started(node);
    }

    fn finished(&mut self, now: Now, node: NodeId, end: AttemptEnd) {
        self.latencies.finished(now, node, end);
    }
}
