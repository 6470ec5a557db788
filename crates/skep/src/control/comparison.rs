//! A/B tests of policies in the types of the API.

use skep_comparison::{ArmSpec, ArmTally, Difference, MeasuredTime, TimeEstimate};
use skep_console::{ArmTimes, ComparedArm, NewArm, PolicyComparison, ServiceArm, TimeDifference};
use skep_proxy::{ArmStatus, ComparisonStatus};

/// Converts a requested arm.
pub(super) fn spec(arm: &NewArm) -> ArmSpec {
    ArmSpec {
        name: arm.name.clone(),
        policy: arm.policy.clone(),
        weight: arm.weight.unwrap_or(1),
        nodes: arm.nodes.clone(),
    }
}

/// Converts an active arm.
pub(super) fn arm(arm: ArmSpec) -> ServiceArm {
    let ArmSpec { name, policy, weight, nodes } = arm;
    ServiceArm { name, policy, weight, nodes }
}

/// The displayed test of `service`.
pub(super) fn shown(service: &str, status: &ComparisonStatus) -> PolicyComparison {
    let base = status.arms.first().map(|arm| &arm.tally);
    let arm = |(at, arm): (usize, &ArmStatus)| compared(arm, base.filter(|_| at > 0));
    PolicyComparison {
        service: service.to_owned(),
        counted_ms: status.counted_ms,
        table_full: status.is_table_full,
        by_hash: status.is_by_hash,
        arms: status.arms.iter().enumerate().map(arm).collect(),
    }
}

fn compared(arm: &ArmStatus, base: Option<&ArmTally>) -> ComparedArm {
    let ArmStatus { spec, clients, tally } = arm;
    let (hits, lookups) = tally.hits();
    let difference = |of| tally.above(base?, of).map(difference);
    ComparedArm {
        name: spec.name.clone(),
        policy: spec.policy.clone(),
        weight: spec.weight,
        nodes: spec.nodes.clone(),
        clients: *clients,
        requests: tally.requests(),
        failures: tally.failures(),
        redirected: tally.redirected(),
        strayed: tally.strayed(),
        bytes: tally.bytes(),
        hits,
        lookups,
        first_byte: tally.estimate(MeasuredTime::FirstByte).map(times),
        total: tally.estimate(MeasuredTime::Total).map(times),
        first_byte_difference: difference(MeasuredTime::FirstByte),
        total_difference: difference(MeasuredTime::Total),
    }
}

fn times(of: TimeEstimate) -> ArmTimes {
    ArmTimes {
        mean_us: of.mean,
        half_width_us: of.half_width,
        deviation_us: of.deviation,
        p50_us: of.p50,
        p99_us: of.p99,
    }
}

fn difference(of: Difference) -> TimeDifference {
    TimeDifference {
        mean_us: of.mean,
        low_us: of.low,
        high_us: of.high,
        significant: of.is_significant(),
    }
}
