//! The question: a log, a cluster, and the policies to compare.

use std::ops::Range;

use skep_config::DispatchMode;
use skep_policy::policies;
use skep_site_sim::SimulatedCluster;
use skep_units::SEGMENT_BYTES;
use skep_workload::{LogTrace, LoggedRequest};

use crate::limits::WINDOW_SEGMENTS_MAX;

/// Which policy is best for a site.
#[derive(Clone, Copy, Debug)]
pub struct AdviceQuestion<'a> {
    pub trace: &'a LogTrace,
    pub cluster: &'a SimulatedCluster,
    /// The policies to compare.
    pub policies: &'a [&'static str],
    /// The policy of the service: one of `policies`, kept unless another is better.
    pub current: &'static str,
    /// Speed relative to the log.
    pub speed: f64,
    /// Requests of a window, at most.
    pub requests_max: u64,
    /// Number of windows, each of which is simulated under each policy.
    pub repetitions: u64,
    /// Time after which no further window is begun once there are two, in milliseconds.
    pub time_ms: u64,
}

/// The policies that a dispatch mode supports with the behaviour that the simulator assumes. Under `redirect`
/// and `handoff` latencies are not observed: policies that use them behave differently there, and are
/// excluded.
pub fn policies_of(mode: DispatchMode) -> Vec<&'static str> {
    let suits = |info: &&skep_policy::PolicyInfo| match mode {
        DispatchMode::Direct => info.direct.is_some(),
        DispatchMode::Redirect | DispatchMode::Handoff => !info.learns_latencies,
        DispatchMode::Proxy => true,
    };
    policies().iter().filter(suits).map(|info| info.name).collect()
}

impl AdviceQuestion<'_> {
    /// The windows, spread evenly over the trace. If the trace is too short they overlap; if it is no longer
    /// than one window, each is the whole trace, and they differ only in what the log does not specify.
    pub(crate) fn windows(&self) -> Vec<Range<usize>> {
        let requests = self.trace.requests();
        let length = self.window_from(0).len();
        let room = requests.len() - length;
        let last = (self.repetitions - 1).max(1) as usize;
        (0..self.repetitions as usize).map(|at| self.window_from(room * at / last)).collect()
    }

    fn window_from(&self, first: usize) -> Range<usize> {
        let requests = &self.trace.requests()[first..];
        let mut segments = 0;
        let fits = |request: &&LoggedRequest| {
            segments += 1 + request.bytes / SEGMENT_BYTES;
            segments <= WINDOW_SEGMENTS_MAX
        };
        let most = self.requests_max as usize;
        let count = requests.iter().take(most).take_while(fits).count();
        // A request that exceeds all bounds still forms a window.
        first..first + count.max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_have_the_policies_that_they_can_carry() {
        let has = |mode, policy| policies_of(mode).contains(&policy);
        assert_eq!(policies_of(DispatchMode::Proxy).len(), policies().len());
        for (policy, redirect, direct) in [
            ("round-robin", true, true),
            ("lard", true, false),
            ("transfer-time", true, false),
            ("peak-ewma", false, false),
            ("maglev-address", true, true),
        ] {
            assert_eq!(has(DispatchMode::Redirect, policy), redirect, "{policy}");
            assert_eq!(has(DispatchMode::Handoff, policy), redirect, "{policy}");
            assert_eq!(has(DispatchMode::Direct, policy), direct, "{policy}");
        }
    }
}
