//! The retry budget: tests by name, and against a count over the last ten seconds.

use proptest::prelude::*;
use skep_units::Now;

use crate::{RetryBudget, RetryBudgetSettings};

fn budget(ratio_permille: u32, floor_per_s: u32) -> RetryBudget {
    RetryBudget::new(RetryBudgetSettings { ratio_permille, floor_per_s })
}

/// Retries granted at `now`, one after the other.
fn granted(budget: &mut RetryBudget, now: Now) -> u32 {
    (0..100_000).take_while(|_| budget.try_retry(now)).count() as u32
}

#[test]
fn a_quiet_service_may_retry_up_to_the_floor() {
    let mut budget = budget(200, 3);
    assert_eq!(granted(&mut budget, Now(0)), 30);
    assert_eq!(granted(&mut budget, Now(9_999)), 0);
    assert_eq!(granted(&mut budget, Now(10_000)), 30);
}

#[test]
fn a_fifth_of_the_requests_may_be_retried() {
    let mut budget = budget(200, 0);
    assert_eq!(granted(&mut budget, Now(0)), 0);
    for n in 0..1_000 {
        budget.on_request(Now(n));
    }
    assert_eq!(granted(&mut budget, Now(1_000)), 200);
    budget.on_request(Now(1_001));
    assert_eq!(granted(&mut budget, Now(1_001)), 0);
}

#[test]
fn rights_expire() {
    let mut budget = budget(200, 0);
    for _ in 0..1_000 {
        budget.on_request(Now(500));
    }
    assert_eq!(granted(&mut budget.clone(), Now(9_999)), 200);
    assert_eq!(granted(&mut budget, Now(10_500)), 0);
}

#[test]
fn time_that_jumps_far_or_back_is_harmless() {
    let mut budget = budget(200, 1);
    budget.on_request(Now(50_000));
    budget.on_request(Now(0));
    assert_eq!(granted(&mut budget, Now(u64::MAX)), 10);
}

proptest! {
    #[test]
    fn retries_stay_within_the_ratio_and_the_floor_of_the_last_ten_seconds(
        ratio in 0..500u32,
        floor in 0..5u32,
        steps in proptest::collection::vec((0..800u64, 0..20u32, 0..20u32), 1..100),
    ) {
        let mut budget = budget(ratio, floor);
        let (mut requests, mut retries) = (Vec::new(), Vec::new());
        let mut now = 0;
        for (gap_ms, arrivals, wishes) in steps {
            now += gap_ms;
            for _ in 0..arrivals {
                budget.on_request(Now(now));
                requests.push(now);
            }
            for _ in 0..wishes {
                // Whole slots count: those of the last ten full seconds.
                let oldest = (now / 1_000).saturating_sub(9) * 1_000;
                let recent = |times: &[u64]| times.iter().filter(|time| **time >= oldest).count() as u64;
                let rights = recent(&requests) * u64::from(ratio) + u64::from(floor) * 10_000;
                let may = (recent(&retries) + 1) * 1_000 <= rights;
                prop_assert_eq!(budget.try_retry(Now(now)), may);
                if may {
                    retries.push(now);
                }
            }
        }
    }
}
