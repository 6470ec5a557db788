//! The counts of A/B tests as Prometheus metrics.

use std::sync::{Arc, Weak};

use skep_comparison::MeasuredTime;
use skep_proxy::{ArmStatus, Group};
use skep_telemetry::{Labels, Registry};

type ArmValue = fn(&ArmStatus) -> f64;

const METRICS: &[(&str, &str, ArmValue)] = &[
    ("skep_arm_clients", "Clients of an arm of an A/B test, in the host table.", |arm| {
        arm.clients as f64
    }),
    ("skep_arm_requests_total", "Requests of an arm that were answered or failed.", |arm| {
        arm.tally.requests() as f64
    }),
    (
        "skep_arm_failures_total",
        "Requests of an arm without a complete response, or with a status of 500 or more.",
        |arm| arm.tally.failures() as f64,
    ),
    ("skep_arm_redirected_total", "Requests of an arm that were redirected to a node.", |arm| {
        arm.tally.redirected() as f64
    }),
    ("skep_arm_strayed_total", "Requests of an arm that no node of its group could take.", |arm| {
        arm.tally.strayed() as f64
    }),
    ("skep_arm_bytes_total", "Bytes of response bodies of an arm.", |arm| arm.tally.bytes() as f64),
    ("skep_arm_first_byte_seconds_mean", "Mean time to the head of a response of an arm.", |arm| {
        mean_s(arm, MeasuredTime::FirstByte)
    }),
    ("skep_arm_total_seconds_mean", "Mean time to the end of a response of an arm.", |arm| {
        mean_s(arm, MeasuredTime::Total)
    }),
];

/// Registers the metrics of the A/B tests of `groups`, with the labels `service`, `arm` and `policy`.
pub(crate) fn register_arms(registry: &Registry, groups: &[Weak<Group>]) {
    for &(name, help, value) in METRICS {
        let groups = groups.to_vec();
        let read = move || {
            let groups = groups.iter().filter_map(Weak::upgrade);
            groups.flat_map(|group| samples(&group, value)).collect()
        };
        registry.register_samples(name, help, Box::new(read));
    }
}

fn samples(group: &Arc<Group>, value: ArmValue) -> Vec<(Labels, f64)> {
    let Ok(status) = group.comparison_status() else { return Vec::new() };
    let labels = |arm: &ArmStatus| {
        let label = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        vec![
            label("service", group.name()),
            label("arm", &arm.spec.name),
            label("policy", &arm.spec.policy),
        ]
    };
    status.arms.iter().map(|arm| (labels(arm), value(arm))).collect()
}

/// 0 before the first response.
fn mean_s(arm: &ArmStatus, of: MeasuredTime) -> f64 {
    arm.tally.estimate(of).map_or(0.0, |times| times.mean / 1e6)
}
