//! The results of the simulations: ranked policies.

use skep_site_sim::SiteWorkload;

use crate::figures::{AdvisedPolicy, Samples};
use crate::limits::FULL_SHARE;
use crate::question::AdviceQuestion;
use crate::verdict::PolicyVerdict;

/// Policies for a site, the one with the shortest mean response time first.
#[derive(Clone, Debug)]
pub struct PolicyAdvice {
    pub policies: Vec<AdvisedPolicy>,
    /// The policy of the service.
    pub current: &'static str,
    pub verdict: PolicyVerdict,
    pub site: AdvisedSite,
    /// Number of windows of the log that were simulated.
    pub repetitions: u64,
    /// Whether time ran out before all windows were simulated.
    pub is_cut: bool,
    pub speed: f64,
    /// Number of requests in the log, of which the windows are a part.
    pub log_requests: u64,
}

/// Means over the windows' workloads.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct AdvisedSite {
    pub requests: f64,
    /// Bytes of responses.
    pub bytes: f64,
    /// Bytes of the requested objects: what memories would have to hold.
    pub objects_bytes: f64,
    pub length_s: f64,
    windows: f64,
}

impl PolicyAdvice {
    pub(crate) fn new(
        question: &AdviceQuestion<'_>,
        repetitions: u64,
        site: AdvisedSite,
        samples: &[Samples],
    ) -> Self {
        let mean = Samples::mean_sum_s;
        let first = samples.iter().min_by(|a, b| mean(a).total_cmp(&mean(b)));
        let current = samples.iter().find(|it| it.policy() == question.current);
        let figures = |it: &Samples| it.figures(current.unwrap_or(it), first.unwrap_or(it));
        let mut policies: Vec<AdvisedPolicy> = samples.iter().map(figures).collect();
        policies.sort_by(|a, b| a.mean_s.mean.total_cmp(&b.mean_s.mean));
        Self {
            verdict: PolicyVerdict::of(&policies, question.current),
            policies,
            current: question.current,
            site,
            repetitions,
            is_cut: repetitions < question.repetitions,
            speed: question.speed,
            log_requests: question.trace.requests().len() as u64,
        }
    }

    /// Whether a link is saturated under each policy: response times then grow with the length of the log,
    /// under any policy.
    pub fn is_overloaded(&self) -> bool {
        self.policies.iter().all(|it| it.busiest_link_share.mean >= FULL_SHARE)
    }
}

impl AdvisedSite {
    pub(crate) fn add(&mut self, site: &SiteWorkload) {
        self.windows += 1.0;
        let windows = self.windows;
        let mean = |mean: &mut f64, value: f64| *mean += (value - *mean) / windows;
        mean(&mut self.requests, site.logged_requests() as f64);
        mean(&mut self.bytes, site.logged_bytes() as f64);
        mean(&mut self.objects_bytes, site.bytes() as f64);
        mean(&mut self.length_s, site.logged_s());
    }
}
