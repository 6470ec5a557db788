//! `random`: any candidate, with a probability proportional to its slow-start share.

use skep_units::{NodeId, Rng};

use crate::{ClusterView, Decision, NodeView, Policy, RequestKey};

pub(crate) struct Random {
    name: &'static str,
    rng: Rng,
}

impl Random {
    pub(crate) fn new(name: &'static str, rng: Rng) -> Self {
        Self { name, rng }
    }
}

impl Policy for Random {
    fn name(&self) -> &'static str {
        self.name
    }

    fn pick(&mut self, _: &RequestKey<'_>, view: &ClusterView, exclude: &[NodeId]) -> Decision {
        let shares: u64 = view.candidates(exclude).map(NodeView::share_permille).sum();
        if shares == 0 {
            return Decision::None;
        }
        let mut left = self.rng.below(shares);
        let drawn = view.candidates(exclude).find(|node| {
            let share = node.share_permille();
            let hit = left < share;
            left = left.saturating_sub(share);
            hit
        });
        drawn.map(|node| node.id).into()
    }
}
