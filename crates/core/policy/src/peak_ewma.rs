//! `peak-ewma`: of two random candidates, the one that is expected to answer first.
//!
//! Cost: estimated latency, times the number of requests that would wait including the new one,
//! over the slow-start share (Finagle's and linkerd's load balancer; the choice of two is
//! Mitzenmacher's). A node of unknown latency is probed by one request, and by no other until that
//! is answered. Without latencies (`redirect`, `handoff`), unanswered requests are compared.

use skep_units::{NodeId, Now, Rng};

use crate::latency::{Expected, Latencies};
use crate::limits::SLOW_START_PERMILLE_FULL;
use crate::{AttemptEnd, ClusterView, Decision, NodeView, Policy, RequestKey};

pub(crate) struct PeakEwma {
    name: &'static str,
    latencies: Latencies,
    rng: Rng,
}

impl PeakEwma {
    pub(crate) fn new(name: &'static str, rng: Rng) -> Self {
        Self { name, latencies: Latencies::default(), rng }
    }

    /// The cost of a node; nodes of unknown latency come last.
    fn cost(&self, position: usize, node: &NodeView, now: Now) -> (bool, f64) {
        let waiting = f64::from(node.outstanding_requests) + 1.0;
        let slowness = f64::from(SLOW_START_PERMILLE_FULL) / node.share_permille() as f64;
        match self.latencies.expected(position, now) {
            Expected::Us(us) => (false, us * waiting * slowness),
            Expected::Unknown => (true, waiting * slowness),
        }
    }
}

impl Policy for PeakEwma {
    fn name(&self) -> &'static str {
        self.name
    }

    fn pick(&mut self, _: &RequestKey<'_>, view: &ClusterView, exclude: &[NodeId]) -> Decision {
        self.latencies.refresh(view);
        let Some([a, b]) = view.two_random(&mut self.rng, exclude) else { return Decision::None };
        let cost = |at: usize| self.cost(at, &view.nodes[at], view.now);
        Decision::Node(view.nodes[if cost(b) < cost(a) { b } else { a }].id)
    }

    fn started(&mut self, node: NodeId) {
        self.latencies.started(node);
    }

    fn finished(&mut self, now: Now, node: NodeId, end: AttemptEnd) {
        self.latencies.finished(now, node, end);
    }
}
