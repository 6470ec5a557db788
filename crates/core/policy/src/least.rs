//! `least-connections`, `weighted-least-connections`, `least-outstanding`,
//! `least-bytes` and `power-of-two`: the candidate with the least load.
//!
//! Loads count relative to capacity (slow-start share, times weight if the policy uses weights),
//! compared exactly, by cross-multiplication. A node with share `s < 1` counts as if it already had
//! `1 - s` of a request, so it does not win against an idle warm node, and under load it is kept at
//! about `s` times the others' load.

use std::cmp::Ordering;

use skep_units::{NodeId, Rng};

use crate::limits::SLOW_START_PERMILLE_FULL;
use crate::{ClusterView, Decision, NodeView, Policy, RequestKey};

/// The quantity that counts as load.
#[derive(Clone, Copy, Debug)]
pub(crate) enum CostMeasure {
    Connections,
    ConnectionsPerWeight,
    Requests,
    /// Bytes to send, and requests whose lengths are not known yet.
    Bytes,
}

/// The least-loaded candidate. Ties are broken at random in proportion to capacity, so that an idle
/// cluster does not send everything to the first node.
pub(crate) struct Least {
    name: &'static str,
    measure: CostMeasure,
    rng: Rng,
}

impl Least {
    pub(crate) fn new(name: &'static str, measure: CostMeasure, rng: Rng) -> Self {
        Self { name, measure, rng }
    }
}

impl Policy for Least {
    fn name(&self) -> &'static str {
        self.name
    }

    fn pick(&mut self, _: &RequestKey<'_>, view: &ClusterView, exclude: &[NodeId]) -> Decision {
        let mut best: Option<(NodeId, Cost)> = None;
        let mut tied_capacity = 0;
        for node in view.candidates(exclude) {
            let cost = self.measure.cost(node);
            match best.map_or(Ordering::Less, |(_, least)| cost.compare(&least)) {
                Ordering::Greater => continue,
                Ordering::Less => tied_capacity = cost.capacity,
                // Reservoir sampling: each of the tied candidates is chosen with probability
                // capacity / sum of capacities, in one pass.
                Ordering::Equal => {
                    tied_capacity += cost.capacity;
                    if self.rng.below(tied_capacity) >= cost.capacity {
                        continue;
                    }
                }
            }
            best = Some((node.id, cost));
        }
        best.map(|(id, _)| id).into()
    }
}

/// Of two random candidates the one with fewer unanswered requests (Mitzenmacher, IEEE TPDS 12(10),
/// 2001): almost as good as comparing all, and many dispatchers with stale loads do not herd to the
/// same node.
pub(crate) struct PowerOfTwo {
    name: &'static str,
    rng: Rng,
}

impl PowerOfTwo {
    pub(crate) fn new(name: &'static str, rng: Rng) -> Self {
        Self { name, rng }
    }
}

impl Policy for PowerOfTwo {
    fn name(&self) -> &'static str {
        self.name
    }

    fn pick(&mut self, _: &RequestKey<'_>, view: &ClusterView, exclude: &[NodeId]) -> Decision {
        let Some(pair) = view.two_random(&mut self.rng, exclude) else { return Decision::None };
        let [a, b] = pair.map(|at| &view.nodes[at]);
        let b_is_better =
            CostMeasure::Requests.cost(b).compare(&CostMeasure::Requests.cost(a)) == Ordering::Less;
        Decision::Node(if b_is_better { b.id } else { a.id })
    }
}

/// The fraction `load / capacity`, both in thousandths.
#[derive(Clone, Copy, Debug)]
struct Cost {
    load: u128,
    capacity: u64,
}

impl CostMeasure {
    fn cost(self, node: &NodeView) -> Cost {
        let (count, weight): (u64, u64) = match self {
            Self::Connections => (node.connections.into(), 1),
            Self::ConnectionsPerWeight => (node.connections.into(), node.weight_at_least_one()),
            Self::Requests => (node.outstanding_requests.into(), 1),
            Self::Bytes => (node.work().replies(), 1),
        };
        let full = u64::from(SLOW_START_PERMILLE_FULL);
        let share = node.share_permille();
        let load = u128::from(count) * u128::from(full) + u128::from(full - share);
        Cost { load, capacity: weight * share }
    }
}

impl Cost {
    fn compare(&self, other: &Self) -> Ordering {
        let left = self.load.saturating_mul(other.capacity.into());
        let right = other.load.saturating_mul(self.capacity.into());
        left.cmp(&right)
    }
}
