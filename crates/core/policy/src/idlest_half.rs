//! `idlest-half`: round robin among the half of the nodes with the fewest unanswered requests.
//!
//! A scheme tried by Summers and Thompson ("Awesome Web Server", CMU 15-418, 2012), whose balancer
//! periodically tells the dispatcher which half that is. Here it is determined anew when each node
//! of the half has had a turn.

use skep_units::{NodeId, Rng};

use crate::{ClusterView, Decision, NodeView, Policy, RequestKey};

pub(crate) struct IdlestHalf {
    name: &'static str,
    rng: Rng,
    /// Candidates by load, then at random, as of when the half was determined.
    ranked: Vec<(u64, u64, NodeId)>,
    /// How many nodes of the half have not had their turn: a prefix of `ranked`.
    left: usize,
}

impl IdlestHalf {
    pub(crate) fn new(name: &'static str, rng: Rng) -> Self {
        Self { name, rng, ranked: Vec::new(), left: 0 }
    }

    fn rank(&mut self, view: &ClusterView, exclude: &[NodeId]) {
        let Self { rng, ranked, .. } = self;
        ranked.clear();
        let lot = |node: &NodeView| (node.warm_requests(), rng.below(u64::MAX), node.id);
        ranked.extend(view.candidates(exclude).map(lot));
        ranked.sort_unstable();
        self.left = self.ranked.len().div_ceil(2);
    }

    /// The next node of the half that may be picked.
    fn next(&mut self, view: &ClusterView, exclude: &[NodeId]) -> Option<NodeId> {
        while self.left > 0 {
            self.left -= 1;
            let id = self.ranked[self.left].2;
            if view.node(id).is_some_and(|node| node.is_candidate(exclude)) {
                return Some(id);
            }
        }
        None
    }
}

impl Policy for IdlestHalf {
    fn name(&self) -> &'static str {
        self.name
    }

    fn pick(&mut self, _: &RequestKey<'_>, view: &ClusterView, exclude: &[NodeId]) -> Decision {
        if let Some(id) = self.next(view, exclude) {
            return Decision::Node(id);
        }
        self.rank(view, exclude);
        self.next(view, exclude).into()
    }
}
