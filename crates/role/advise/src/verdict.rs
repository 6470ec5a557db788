//! Selects a policy: among those whose mean response time does not differ measurably from the shortest, the
//! one with the shortest 99th percentile; the service's own, if it is one of them and no other has a
//! significantly shorter 99th percentile.

use skep_site_sim::RatioEstimate;

use crate::figures::AdvisedPolicy;
use crate::limits::WORTH_SHARE;

/// The recommendation.
#[derive(Clone, Debug, PartialEq)]
pub struct PolicyVerdict {
    /// The policy to use; that of the service, if none is better.
    pub policy: &'static str,
    pub is_change: bool,
    /// Policies whose mean response time differs from the shortest by less than the interval, or by too
    /// little to matter.
    pub as_good: Vec<&'static str>,
    /// The reason, in a sentence or two.
    pub sentence: String,
}

impl PolicyVerdict {
    /// The verdict on policies in the order of their means; `current` is one of them.
    pub(crate) fn of(policies: &[AdvisedPolicy], current: &'static str) -> Self {
        let equal: Vec<&AdvisedPolicy> =
            policies.iter().filter(|it| !is_longer(it.behind_first)).collect();
        let own = equal.iter().find(|it| it.policy == current);
        let is_better = |it: &&&AdvisedPolicy| {
            is_shorter(it.p99_ratio) || (own.is_none() && is_shorter(it.mean_ratio))
        };
        let p99 = |it: &AdvisedPolicy| it.p99_s.mean;
        let better = equal.iter().filter(is_better).min_by(|a, b| p99(a).total_cmp(&p99(b)));
        let Some(chosen) = better.or(own).or(equal.first()) else { return Self::keep(current) };
        let as_good = equal.iter().map(|it| it.policy).filter(|it| *it != chosen.policy);
        let is_change = chosen.policy != current;
        Self {
            policy: chosen.policy,
            is_change,
            as_good: as_good.collect(),
            sentence: match is_change {
                true => change(chosen, current),
                false => keep(chosen, &policies[0]),
            },
        }
    }

    /// The verdict without any figures.
    fn keep(policy: &'static str) -> Self {
        let sentence = format!("Keep {policy}: there is nothing to compare.");
        Self { policy, is_change: false, as_good: Vec::new(), sentence }
    }
}

/// Whether a ratio exceeds 1 by more than its interval, and by enough to matter.
fn is_longer(ratio: RatioEstimate) -> bool {
    ratio.low > 1.0 && ratio.mean > 1.0 + WORTH_SHARE
}

fn is_shorter(ratio: RatioEstimate) -> bool {
    ratio.high < 1.0 && ratio.mean < 1.0 - WORTH_SHARE
}

fn change(chosen: &AdvisedPolicy, current: &str) -> String {
    let (mean, p99) = (chosen.mean_ratio, chosen.p99_ratio);
    let why = match (is_shorter(mean), is_shorter(p99)) {
        (true, _) => "The difference of the means exceeds its 95 % interval",
        (false, true) => "The means do not differ beyond their interval; the 99th percentiles do",
        // The ratio is that of the current policy to the first one, so it is inverted.
        (false, false) => {
            "It has the shortest mean, and the current policy is behind that beyond the interval"
        }
    };
    format!(
        "Choose {}: its mean response time is {}, its 99th percentile {}. {why}.",
        chosen.policy,
        compared(mean, &format!(" {current}'s")),
        compared(p99, "")
    )
}

fn keep(current: &AdvisedPolicy, first: &AdvisedPolicy) -> String {
    match current.policy == first.policy {
        true => format!("Keep {}: no other policy has a shorter mean response time.", first.policy),
        false => format!(
            "Keep {}: no other policy is better by more than the interval. The shortest mean response time, \
             that of {}, is {}.",
            current.policy,
            first.policy,
            compared(first.mean_ratio, " its own")
        ),
    }
}

/// Describes the difference, the policy compared with, and the interval.
fn compared(ratio: RatioEstimate, whose: &str) -> String {
    let percent = |ratio: f64| (ratio - 1.0) * 100.0;
    let word = if ratio.mean < 1.0 { "below" } else { "above" };
    format!(
        "{:.1} % {word}{whose} ({:+.1} to {:+.1} %)",
        percent(ratio.mean).abs(),
        percent(ratio.low),
        percent(ratio.high)
    )
}

#[cfg(test)]
mod tests {
    use skep_site_sim::Estimate;

    use super::*;

    /// The verdict on policies with these samples of means and 99th percentiles.
    fn verdict(
        samples: &[(&'static str, [f64; 3], [f64; 3])],
        current: &'static str,
    ) -> PolicyVerdict {
        let sum = |values: &[f64; 3]| values.iter().sum::<f64>();
        let mut samples = samples.to_vec();
        samples.sort_by(|a, b| sum(&a.1).total_cmp(&sum(&b.1)));
        let (_, first, _) = samples[0];
        let own = samples.iter().find(|it| it.0 == current).copied().unwrap_or(samples[0]);
        let ratio = |own: [f64; 3], base: [f64; 3]| RatioEstimate::of(own.into_iter().zip(base));
        let figures = |&(policy, means, p99s): &(&'static str, [f64; 3], [f64; 3])| AdvisedPolicy {
            policy,
            mean_s: Estimate::of(means),
            p50_s: Estimate::of(means),
            p99_s: Estimate::of(p99s),
            hit_share: Estimate::of(means),
            peer_share: Estimate::of(means),
            busiest_over_mean: Estimate::of(means),
            busiest_link_share: Estimate::of(means),
            mean_ratio: ratio(means, own.1),
            p99_ratio: ratio(p99s, own.2),
            behind_first: ratio(means, first),
        };
        PolicyVerdict::of(&samples.iter().map(figures).collect::<Vec<_>>(), current)
    }

    #[test]
    fn a_policy_is_changed_only_for_what_exceeds_the_interval() {
        let turns = ("round-robin", [1.0, 1.1, 1.2], [5.0, 5.1, 5.2]);
        let better = ("lard", [0.5, 0.55, 0.61], [4.0, 4.1, 4.2]);
        let unsure = ("random", [0.5, 1.0, 1.5], [4.0, 5.0, 6.0]);
        let hardly = ("power-of-two", [0.999, 1.099, 1.199], [5.0, 5.1, 5.2]);
        let tail = ("least-bytes", [1.0, 1.1, 1.2], [2.0, 2.04, 2.08]);
        let wide = ("prequal", [0.3, 0.6, 1.5], [1.0, 3.0, 7.0]);
        for (others, chosen, words) in [
            (
                vec![better],
                "lard",
                "Choose lard: its mean response time is 49.7 % below round-robin's (",
            ),
            (vec![unsure], "round-robin", "Keep round-robin: no other policy is better by more"),
            (vec![hardly], "round-robin", "Keep round-robin"),
            (vec![tail], "least-bytes", "The means do not differ beyond their interval"),
            (vec![better, tail], "lard", "exceeds its 95 % interval"),
            // Its mean equals the shortest and its P99 is shorter, but its interval includes the current
            // policy.
            (vec![better, wide], "lard", "exceeds its 95 % interval"),
            (vec![], "round-robin", "no other policy has a shorter mean"),
        ] {
            let verdict = verdict(&[vec![turns], others].concat(), "round-robin");
            assert_eq!(verdict.policy, chosen, "{verdict:?}");
            assert_eq!(verdict.is_change, chosen != "round-robin");
            assert!(verdict.sentence.contains(words), "{}", verdict.sentence);
        }
        let verdict = verdict(&[turns, hardly, better], "lard");
        assert_eq!((verdict.policy, verdict.as_good.len()), ("lard", 0));
    }
}
