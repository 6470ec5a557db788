//! Latencies of nodes: a decaying mean that follows a rise at once.
//!
//! Peak-EWMA, as in Finagle and linkerd: a sample above the estimate replaces it, one below is
//! averaged in with `1 - exp(-dt / tau)`; the estimate of a node without requests decays. Each
//! instance knows only the replies that it has seen.

use skep_units::{NodeId, Now};

use crate::limits::{FAILED_LATENCY_US, LATENCY_DECAY_MS, TRIED_MS_MAX};
use crate::{AttemptEnd, ClusterView, NodeView};

/// Estimates of all nodes of a view.
#[derive(Default)]
pub(crate) struct Latencies {
    version: Option<u64>,
    now: Now,
    /// By index in the view.
    estimates: Vec<Estimate>,
}

#[derive(Clone, Copy)]
struct Estimate {
    id: NodeId,
    /// `None` if unknown.
    us: Option<f64>,
    at: Now,
    /// Attempts of this instance that have not ended.
    waiting: u32,
    /// Since when there have been such attempts.
    waits_since: Now,
}

/// The expected latency of a node.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Expected {
    /// In microseconds.
    Us(f64),
    /// Unknown, and a request is probing it.
    Unknown,
}

impl Latencies {
    /// Updates the nodes to those of a view.
    pub(crate) fn refresh(&mut self, view: &ClusterView) {
        self.now = view.now;
        if self.version == Some(view.version) && self.estimates.len() == view.nodes.len() {
            return;
        }
        self.version = Some(view.version);
        let known = std::mem::take(&mut self.estimates);
        let of = |node: &NodeView| {
            let known = known.iter().find(|it| it.id == node.id).copied();
            known.unwrap_or(Estimate {
                id: node.id,
                us: None,
                at: view.now,
                waiting: 0,
                waits_since: view.now,
            })
        };
        self.estimates = view.nodes.iter().map(of).collect();
    }

    pub(crate) fn started(&mut self, node: NodeId) {
        let now = self.now;
        if let Some(it) = self.of(node) {
            if it.waiting == 0 {
                it.waits_since = now;
            }
            it.waiting = it.waiting.saturating_add(1);
        }
    }

    pub(crate) fn finished(&mut self, now: Now, node: NodeId, end: AttemptEnd) {
        let Some(it) = self.of(node) else { return };
        it.waiting = it.waiting.saturating_sub(1);
        let sample = match end {
            AttemptEnd::Answered { latency_us } => latency_us.max(1) as f64,
            // A node that fails fast is not fast.
            AttemptEnd::Failed => FAILED_LATENCY_US,
            AttemptEnd::Inconclusive => return,
        };
        let mean = it.us.map_or(sample, |us| {
            let weight = weight(now.since_ms(it.at));
            (us * weight + sample * (1.0 - weight)).max(sample)
        });
        (it.us, it.at) = (Some(mean), now);
    }

    /// The expected latency of the node at an index. An unknown node is probed with one request, as
    /// if it were as fast as the fastest one.
    pub(crate) fn expected(&self, position: usize, now: Now) -> Expected {
        let Some(it) = self.estimates.get(position) else { return Expected::Unknown };
        match it.us_at(now) {
            Some(us) => Expected::Us(us),
            None if it.waiting > 0 => match now.since_ms(it.waits_since) {
                waited if waited < TRIED_MS_MAX => Expected::Unknown,
                waited => Expected::Us(waited as f64 * 1e3),
            },
            None => {
                let known = self.estimates.iter().filter_map(|it| it.us_at(now));
                Expected::Us(known.min_by(f64::total_cmp).unwrap_or(1.0))
            }
        }
    }

    fn of(&mut self, node: NodeId) -> Option<&mut Estimate> {
        self.estimates.iter_mut().find(|it| it.id == node)
    }
}

impl Estimate {
    fn us_at(&self, now: Now) -> Option<f64> {
        Some(self.us? * weight(now.since_ms(self.at)))
    }
}

/// The remaining weight of an estimate of this age.
fn weight(age_ms: u64) -> f64 {
    (-(age_ms as f64) / LATENCY_DECAY_MS as f64).exp()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;
    use crate::tests::view;

    const NODE: NodeId = NodeId(0);

    fn answered(latency_us: u64) -> AttemptEnd {
        AttemptEnd::Answered { latency_us }
    }

    fn us(latencies: &Latencies, position: usize, now: Now) -> f64 {
        match latencies.expected(position, now) {
            Expected::Us(us) => us,
            Expected::Unknown => panic!("nothing is known"),
        }
    }

    #[test]
    fn a_rise_counts_at_once_and_a_fall_by_and_by() {
        let mut latencies = Latencies::default();
        latencies.refresh(&view(2));
        latencies.finished(Now(0), NODE, answered(1_000));
        latencies.finished(Now(0), NODE, answered(9_000));
        assert_eq!(us(&latencies, 0, Now(0)), 9_000.0);
        // Another sample at the same time changes nothing.
        latencies.finished(Now(0), NODE, answered(1_000));
        assert_eq!(us(&latencies, 0, Now(0)), 9_000.0);
        let later = Now(LATENCY_DECAY_MS);
        assert!((3_000.0..3_500.0).contains(&us(&latencies, 0, later)), "9,000 / e");
        latencies.finished(later, NODE, answered(1_000));
        assert!((3_900.0..4_000.0).contains(&us(&latencies, 0, later)));
    }

    #[test]
    fn who_fails_is_slow_and_what_says_nothing_is_no_sample() {
        let mut latencies = Latencies::default();
        latencies.refresh(&view(2));
        latencies.finished(Now(0), NODE, answered(500));
        latencies.finished(Now(0), NODE, AttemptEnd::Inconclusive);
        assert_eq!(us(&latencies, 0, Now(0)), 500.0);
        latencies.finished(Now(0), NODE, AttemptEnd::Failed);
        assert_eq!(us(&latencies, 0, Now(0)), FAILED_LATENCY_US);
        latencies.finished(Now(0), NodeId(7), answered(500));
    }

    #[test]
    fn an_unknown_node_is_tried_once_whoever_else_it_serves() {
        let mut latencies = Latencies::default();
        latencies.refresh(&view(3));
        latencies.finished(Now(0), NODE, answered(500));
        assert_eq!(us(&latencies, 1, Now(0)), 500.0);
        latencies.started(NodeId(1));
        assert_eq!(latencies.expected(1, Now(0)), Expected::Unknown);
        // A slow one is informative, too.
        assert_eq!(latencies.expected(1, Now(TRIED_MS_MAX - 1)), Expected::Unknown);
        assert_eq!(us(&latencies, 1, Now(2 * TRIED_MS_MAX)), 2_000.0 * TRIED_MS_MAX as f64);
        latencies.finished(Now(0), NodeId(1), AttemptEnd::Inconclusive);
        assert_eq!(us(&latencies, 1, Now(0)), 500.0, "nothing is known still");
    }

    #[test]
    fn what_is_known_outlives_a_change_of_nodes() {
        let mut latencies = Latencies::default();
        latencies.refresh(&view(2));
        latencies.finished(Now(0), NodeId(1), answered(500));
        let mut other = view(3);
        (other.version, other.nodes[0].id) = (2, NodeId(9));
        latencies.refresh(&other);
        assert_eq!(us(&latencies, 1, Now(0)), 500.0);
        assert_eq!(latencies.expected(3, Now(0)), Expected::Unknown, "there is no such node");
    }
}
