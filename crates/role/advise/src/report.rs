//! An advice in the form for programs.

use serde_json::{Value, json};
use skep_site_sim::{Estimate, RatioEstimate};

use crate::advice::PolicyAdvice;
use crate::figures::AdvisedPolicy;

impl PolicyAdvice {
    /// The advice as JSON. Pairs are a mean and half of its 95 % interval; triples a ratio and the bounds of
    /// its interval.
    pub fn to_json(&self) -> Value {
        json!({
            "recommended": self.verdict.policy,
            "is_change": self.verdict.is_change,
            "sentence": self.verdict.sentence,
            "as_good": self.verdict.as_good,
            "current": self.current,
            "is_overloaded": self.is_overloaded(),
            "repetitions": self.repetitions,
            "is_cut": self.is_cut,
            "speed": self.speed,
            "log_requests": self.log_requests,
            "window": {
                "requests": self.site.requests,
                "bytes": self.site.bytes,
                "objects_bytes": self.site.objects_bytes,
                "length_s": self.site.length_s,
            },
            "policies": self.policies.iter().map(policy).collect::<Vec<_>>(),
        })
    }
}

fn policy(it: &AdvisedPolicy) -> Value {
    json!({
        "policy": it.policy,
        "mean_s": pair(it.mean_s),
        "p50_s": pair(it.p50_s),
        "p99_s": pair(it.p99_s),
        "hit_share": pair(it.hit_share),
        "peer_share": pair(it.peer_share),
        "busiest_over_mean": pair(it.busiest_over_mean),
        "busiest_link_share": pair(it.busiest_link_share),
        "mean_ratio": triple(it.mean_ratio),
        "p99_ratio": triple(it.p99_ratio),
    })
}

fn pair(it: Estimate) -> [f64; 2] {
    [it.mean, it.half_width]
}

fn triple(it: RatioEstimate) -> [f64; 3] {
    [it.mean, it.low, it.high]
}
