//! Figures of each policy with their intervals.

use skep_site_sim::{Estimate, RatioEstimate, RunOutcome};

/// Figures of a policy: means over the windows with their 95 % intervals.
#[derive(Clone, Debug, PartialEq)]
pub struct AdvisedPolicy {
    pub policy: &'static str,
    pub mean_s: Estimate,
    pub p50_s: Estimate,
    pub p99_s: Estimate,
    /// Share of bytes served from memory: the node's own or, with a cluster cache, that of any node.
    pub hit_share: Estimate,
    /// Share of these that came from other nodes.
    pub peer_share: Estimate,
    /// Bytes of the busiest link divided by the mean.
    pub busiest_over_mean: Estimate,
    /// Utilisation of the busiest link.
    pub busiest_link_share: Estimate,
    /// Mean and 99th percentile of response times divided by those of the service's policy, paired by
    /// window.
    pub mean_ratio: RatioEstimate,
    pub p99_ratio: RatioEstimate,
    /// Mean response time divided by the shortest, paired by window.
    pub behind_first: RatioEstimate,
}

/// Measurements of a policy, one for each window.
#[derive(Clone, Debug)]
pub(crate) struct Samples {
    policy: &'static str,
    mean_s: Vec<f64>,
    p50_s: Vec<f64>,
    p99_s: Vec<f64>,
    hit_share: Vec<f64>,
    peer_share: Vec<f64>,
    busiest_over_mean: Vec<f64>,
    busiest_link_share: Vec<f64>,
}

impl Samples {
    pub(crate) fn of(policy: &'static str) -> Self {
        Self {
            policy,
            mean_s: Vec::new(),
            p50_s: Vec::new(),
            p99_s: Vec::new(),
            hit_share: Vec::new(),
            peer_share: Vec::new(),
            busiest_over_mean: Vec::new(),
            busiest_link_share: Vec::new(),
        }
    }

    pub(crate) fn policy(&self) -> &'static str {
        self.policy
    }

    /// The value by which policies are ranked.
    pub(crate) fn mean_sum_s(&self) -> f64 {
        self.mean_s.iter().sum()
    }

    pub(crate) fn add(&mut self, outcome: &RunOutcome) {
        self.mean_s.push(outcome.all.mean_s());
        self.p50_s.push(outcome.all.quantile_s(0.5));
        self.p99_s.push(outcome.all.quantile_s(0.99));
        let bytes = &outcome.bytes;
        self.hit_share.push(bytes.share(bytes.memory + bytes.peer));
        self.peer_share.push(bytes.share(bytes.peer));
        self.busiest_over_mean.push(outcome.busiest_over_mean);
        self.busiest_link_share.push(outcome.link_use * outcome.busiest_over_mean);
    }

    pub(crate) fn figures(&self, current: &Self, first: &Self) -> AdvisedPolicy {
        let estimate = |values: &[f64]| Estimate::of(values.iter().copied());
        let ratio = |own: &[f64], base: &[f64]| {
            RatioEstimate::of(own.iter().copied().zip(base.iter().copied()))
        };
        AdvisedPolicy {
            policy: self.policy,
            mean_s: estimate(&self.mean_s),
            p50_s: estimate(&self.p50_s),
            p99_s: estimate(&self.p99_s),
            hit_share: estimate(&self.hit_share),
            peer_share: estimate(&self.peer_share),
            busiest_over_mean: estimate(&self.busiest_over_mean),
            busiest_link_share: estimate(&self.busiest_link_share),
            mean_ratio: ratio(&self.mean_s, &current.mean_s),
            p99_ratio: ratio(&self.p99_s, &current.p99_s),
            behind_first: ratio(&self.mean_s, &first.mean_s),
        }
    }
}
