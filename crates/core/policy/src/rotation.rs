//! `round-robin` and `weighted-round-robin`: nodes take turns.

use skep_units::{NodeId, Rng};

use crate::{ClusterView, Decision, Policy, RequestKey};

/// Turns in the order of the view. Starts at a random node, so that the cores of a dispatcher are
/// not in step.
pub(crate) struct RoundRobin {
    name: &'static str,
    rng: Rng,
    /// Index after the last picked node.
    next: usize,
}

impl RoundRobin {
    pub(crate) fn new(name: &'static str, mut rng: Rng) -> Self {
        // Any number will do: it is reduced modulo the number of nodes at each pick.
        let next = rng.below(u64::from(u32::MAX)) as usize;
        Self { name, rng, next }
    }
}

impl Policy for RoundRobin {
    fn name(&self) -> &'static str {
        self.name
    }

    /// A warming node takes its turn with the probability of its share. The warmest candidate
    /// always takes its turn, so one round is enough.
    fn pick(&mut self, _: &RequestKey<'_>, view: &ClusterView, exclude: &[NodeId]) -> Decision {
        let Some(warmest) = view.warmest_permille(exclude) else { return Decision::None };
        let count = view.nodes.len();
        let start = self.next % count;
        for position in (start..count).chain(0..start) {
            let node = &view.nodes[position];
            if !node.is_candidate(exclude) {
                continue;
            }
            let share = node.share_permille();
            if share == warmest || self.rng.below(warmest) < share {
                self.next = position + 1;
                return Decision::Node(node.id);
            }
        }
        unreachable!("the warmest candidate takes its turn")
    }
}

/// nginx's smooth weighted round robin: every candidate earns its weight, the richest is picked and
/// pays the sum of what all earned. With weights 5, 1, 1 this yields `a a b a c a a`, not `a a a a
/// a b c`. (nginx 1.3.1, "smooth weighted round-robin balancing".)
pub(crate) struct WeightedRoundRobin {
    name: &'static str,
    rng: Rng,
    version: Option<u64>,
    /// The credit of each node, by index in the view.
    credit: Vec<i64>,
}

impl WeightedRoundRobin {
    pub(crate) fn new(name: &'static str, rng: Rng) -> Self {
        Self { name, rng, version: None, credit: Vec::new() }
    }

    /// Restarts if the nodes or weights have changed, a few turns into the cycle, so that the cores
    /// of a dispatcher are not in step.
    fn refresh(&mut self, view: &ClusterView) {
        if self.version == Some(view.version) && self.credit.len() == view.nodes.len() {
            return;
        }
        self.version = Some(view.version);
        self.credit.clear();
        self.credit.resize(view.nodes.len(), 0);
        for _ in 0..self.rng.below(view.nodes.len().max(1) as u64) {
            self.turn(view, &[]);
        }
    }

    fn turn(&mut self, view: &ClusterView, exclude: &[NodeId]) -> Option<NodeId> {
        let mut earned = 0;
        let mut richest: Option<usize> = None;
        for (position, node) in view.nodes.iter().enumerate() {
            if !node.is_candidate(exclude) {
                continue;
            }
            // At most 2^32 * 1000 for each of 4096 nodes: far below the range of i64.
            let income = (node.weight_at_least_one() * node.share_permille()) as i64;
            earned += income;
            self.credit[position] += income;
            if richest.is_none_or(|best| self.credit[position] > self.credit[best]) {
                richest = Some(position);
            }
        }
        let best = richest?;
        self.credit[best] -= earned;
        Some(view.nodes[best].id)
    }
}

impl Policy for WeightedRoundRobin {
    fn name(&self) -> &'static str {
        self.name
    }

    fn pick(&mut self, _: &RequestKey<'_>, view: &ClusterView, exclude: &[NodeId]) -> Decision {
        self.refresh(view);
        self.turn(view, exclude).into()
    }
}
