//! Simulates each window of the trace under each policy.

use std::ops::ControlFlow;
use std::time::Instant;

use skep_policy::UnknownPolicy;
use skep_site_sim::{OfferedLoad, RunOutcome, SiteRun, SiteTooLarge, SiteWorkload};

use crate::advice::{AdvisedSite, PolicyAdvice};
use crate::figures::Samples;
use crate::limits::{REPETITIONS_MIN, WARM_UP_PERCENT};
use crate::question::AdviceQuestion;

/// There is no result.
#[derive(Debug, thiserror::Error)]
pub enum AdviceError {
    /// A policy does not exist.
    #[error(transparent)]
    Policy(#[from] UnknownPolicy),
    /// The site is too large to be simulated in memory.
    #[error("cannot simulate the log: {0}")]
    Site(#[from] SiteTooLarge),
    /// It was stopped before there was a result.
    #[error("ended before two windows of the log were simulated under all policies")]
    Stopped,
}

/// Progress of the simulations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AdviceProgress {
    /// Completed simulations, and the total.
    pub done: u64,
    pub of: u64,
    /// The policy being simulated.
    pub policy: &'static str,
}

/// Answers a question. `progress` is called before each simulation, and stops the run by returning a break:
/// the completed simulations then form the result.
///
/// # Errors
/// There is no such policy, there is too little memory for the site, or the run was stopped too early.
pub fn advise(
    question: &AdviceQuestion<'_>,
    mut progress: impl FnMut(AdviceProgress) -> ControlFlow<()>,
) -> Result<PolicyAdvice, AdviceError> {
    let begin = Instant::now();
    let windows = question.windows();
    let of = windows.len() as u64 * question.policies.len() as u64;
    let mut samples: Vec<Samples> = question.policies.iter().copied().map(Samples::of).collect();
    let mut site = AdvisedSite::default();
    let mut repetitions = 0;
    for window in windows {
        let is_late = begin.elapsed().as_millis() as u64 >= question.time_ms;
        if is_late && repetitions >= REPETITIONS_MIN {
            break;
        }
        let seed = repetitions + 1;
        let workload = SiteWorkload::of_log(question.trace, window, question.speed, seed)?;
        let mut outcomes = Vec::with_capacity(samples.len());
        for (at, policy) in (0..).zip(question.policies.iter().copied()) {
            let done = repetitions * question.policies.len() as u64 + at;
            if progress(AdviceProgress { done, of, policy }).is_break() {
                break;
            }
            outcomes.push(simulate(question, &workload, policy, seed)?);
        }
        if outcomes.len() < samples.len() {
            break;
        }
        samples.iter_mut().zip(outcomes).for_each(|(samples, outcome)| samples.add(&outcome));
        site.add(&workload);
        repetitions += 1;
    }
    match repetitions {
        0..REPETITIONS_MIN => Err(AdviceError::Stopped),
        _ => Ok(PolicyAdvice::new(question, repetitions, site, &samples)),
    }
}

fn simulate(
    question: &AdviceQuestion<'_>,
    site: &SiteWorkload,
    policy: &str,
    seed: u64,
) -> Result<RunOutcome, UnknownPolicy> {
    let run = SiteRun {
        site,
        cluster: question.cluster,
        load: OfferedLoad::Logged,
        requests: site.logged_requests(),
        warm_up_share: WARM_UP_PERCENT as f64 / 100.0,
        seed,
    };
    run.under(policy)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use skep_config::DispatchMode;
    use skep_site_sim::{SimulatedCluster, SimulatedNode};
    use skep_workload::{LogTrace, TraceReader};

    use super::*;
    use crate::plot::plot_advice;
    use crate::question::policies_of;

    /// A log with this number of objects of one megabyte, requested in random order ten times per second.
    fn log(objects: u64, requests: u64) -> LogTrace {
        let mut reader = TraceReader::default();
        let mut state = 1_u64;
        for number in 0..requests {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let (second, path) = (number / 10, (state >> 33) % objects);
            let (minute, second) = (second / 60, second % 60);
            let line = format!(
                "10.0.0.{} - - [10/Oct/2000:13:{minute:02}:{second:02} +0000] \"GET /{path} HTTP/1.1\" 200 1000000",
                number % 50
            );
            assert!(reader.line(number + 1, line.as_bytes()));
        }
        reader.finish().unwrap()
    }

    struct Asked {
        trace: LogTrace,
        cluster: SimulatedCluster,
        policies: Vec<&'static str>,
    }

    impl Asked {
        fn of(objects: u64, memory_bytes: u64) -> Self {
            let node = SimulatedNode::usual(memory_bytes);
            Self {
                trace: log(objects, 3_000),
                cluster: SimulatedCluster::weighted(&[1; 4], node, 1.0),
                policies: policies_of(DispatchMode::Proxy),
            }
        }

        fn question(&self) -> AdviceQuestion<'_> {
            AdviceQuestion {
                trace: &self.trace,
                cluster: &self.cluster,
                policies: &self.policies,
                current: "round-robin",
                speed: 1.0,
                requests_max: 1_500,
                repetitions: 3,
                time_ms: u64::MAX,
            }
        }
    }

    fn go_on(_: AdviceProgress) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }

    #[test]
    fn a_site_that_fits_into_all_memories_but_not_into_one_gets_a_policy_that_reads_requests() {
        let asked = Asked::of(60, 20_000_000);
        let mut last = None;
        let told = |progress: AdviceProgress| {
            last = Some(progress);
            go_on(progress)
        };
        let advice = advise(&asked.question(), told).unwrap();
        let named = |name: &str| advice.policies.iter().find(|it| it.policy == name).unwrap();
        let info = |name: &str| skep_policy::policies().iter().find(|it| it.name == name).unwrap();
        assert!(advice.verdict.is_change && info(advice.verdict.policy).content_aware);
        assert!(advice.policies.is_sorted_by_key(|it| it.mean_s.mean));
        let (by_url, turns) = (named("maglev-url"), named("round-robin"));
        assert!(by_url.mean_ratio.high < 0.9, "{by_url:?}");
        assert!(by_url.hit_share.mean > turns.hit_share.mean + 0.3);
        assert_eq!(turns.mean_ratio.mean, 1.0);
        let count = asked.policies.len() as u64;
        assert_eq!(last.map(|it| (it.done, it.of)), Some((3 * count - 1, 3 * count)));
        assert!(!advice.is_overloaded() && !advice.is_cut);

        let again = advise(&asked.question(), go_on).unwrap();
        assert_eq!(again.to_json(), advice.to_json());
        let svg = plot_advice(&advice, "a <log>").unwrap();
        assert!(svg.contains("a &lt;log&gt;") && svg.ends_with("</svg>\n"), "{svg}");
        assert!(asked.policies.iter().all(|name| svg.contains(name)), "{svg}");
    }

    #[test]
    fn a_site_in_every_memory_keeps_its_policy_and_an_end_leaves_what_is_complete() {
        let mut asked = Asked::of(5, 20_000_000);
        asked.policies = vec!["round-robin", "random", "maglev-url", "lard"];
        let advice = advise(&asked.question(), go_on).unwrap();
        assert_eq!((advice.verdict.policy, advice.verdict.is_change), ("round-robin", false));
        assert!(advice.policies[0].hit_share.mean > 0.99, "{:?}", advice.policies[0]);

        let until = |end| {
            move |it: AdviceProgress| match it.done < end {
                true => ControlFlow::Continue(()),
                false => ControlFlow::Break(()),
            }
        };
        let cut = advise(&asked.question(), until(9)).unwrap();
        assert_eq!((cut.repetitions, cut.is_cut), (2, true));
        let error = advise(&asked.question(), until(7)).unwrap_err();
        assert!(matches!(error, AdviceError::Stopped), "{error}");
        let hurried = AdviceQuestion { time_ms: 0, ..asked.question() };
        assert_eq!(advise(&hurried, go_on).unwrap().repetitions, 2);
    }

    #[test]
    fn windows_are_spread_over_the_log_and_a_link_that_is_full_is_told() {
        let mut asked = Asked::of(20, 1_000_000);
        asked.policies = vec!["round-robin", "random"];
        let question = AdviceQuestion { requests_max: 1_000, ..asked.question() };
        assert_eq!(question.windows(), [0..1_000, 1_000..2_000, 2_000..3_000]);
        let question = AdviceQuestion { requests_max: 5_000, ..question };
        assert_eq!(question.windows(), [0..3_000, 0..3_000, 0..3_000]);
        let question = AdviceQuestion { speed: 1_000.0, ..question };
        let advice = advise(&question, go_on).unwrap();
        assert!(advice.is_overloaded(), "{advice:?}");
    }
}
