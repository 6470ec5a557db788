//! The states of one node: each rule by name, then random sequences against a simple
//! model of the rules.

use proptest::prelude::*;
use skep_units::Now;

use super::SETTINGS;
use crate::{DownReason, Failure, HealthSettings, HealthState, NodeHealth};

const OK: Result<(), Failure> = Ok(());
const TIMED_OUT: Result<(), Failure> = Err(Failure::TimedOut);
const REFUSED: Result<(), Failure> = Err(Failure::Refused);

fn joining() -> NodeHealth {
    NodeHealth::new(SETTINGS, Now(0))
}

fn up() -> NodeHealth {
    let mut node = joining();
    node.on_check(Now(0), OK).unwrap();
    node
}

fn down() -> NodeHealth {
    let mut node = up();
    node.on_request(Now(0), REFUSED, true).unwrap();
    node
}

#[test]
fn a_new_node_joins_with_its_first_good_check() {
    let mut node = joining();
    assert_eq!((node.state(), node.eligible()), (HealthState::Joining, false));
    let transition = node.on_check(Now(5), OK).unwrap();
    assert_eq!(
        (transition.at, transition.from, transition.to),
        (Now(5), HealthState::Joining, HealthState::Up)
    );
    assert!(node.eligible());
}

#[test]
fn a_new_node_that_never_answers_goes_down_after_fall_checks() {
    let mut node = joining();
    assert!(node.on_check(Now(0), REFUSED).is_none() && node.on_check(Now(1), REFUSED).is_none());
    let transition = node.on_check(Now(2), REFUSED).unwrap();
    let reason = DownReason::Checks(Failure::Refused);
    assert_eq!(transition.to, HealthState::Down { since: Now(2), reason });
}

#[test]
fn fall_failed_checks_in_a_row_take_a_node_out() {
    let mut node = up();
    for _ in 0..5 {
        node.on_check(Now(1), TIMED_OUT);
        node.on_check(Now(1), TIMED_OUT);
        assert!(node.on_check(Now(1), OK).is_none(), "a good one in between starts the row again");
    }
    node.on_check(Now(1), TIMED_OUT);
    node.on_check(Now(1), TIMED_OUT);
    assert!(node.eligible());
    let transition = node.on_check(Now(9), Err(Failure::Status(503))).unwrap();
    assert_eq!(transition.to_string(), "up -> down (checks failed: status 503)");
    assert!(!node.eligible());
}

#[test]
fn checks_that_fail_in_another_way_from_then_on_are_the_reason() {
    let mut node = up();
    (0..3).for_each(|at| _ = node.on_check(Now(at), Err(Failure::Refused)));
    let reason = |node: &NodeHealth| node.state().to_string();
    assert_eq!(reason(&node), "down (checks failed: connection refused)");
    for failure in [Failure::Secret, Failure::Secret, Failure::Refused, Failure::Secret] {
        assert_eq!(node.on_check(Now(9), Err(failure)), None, "not three in a row");
    }
    assert_eq!(node.on_check(Now(9), OK), None);
    assert_eq!(node.on_check(Now(9), Err(Failure::Secret)), None);
    assert_eq!(node.on_check(Now(9), Err(Failure::Secret)), None);
    let changed = node.on_check(Now(9), Err(Failure::Secret)).unwrap();
    let reason = "down (checks failed: the secret is wrong or missing)";
    assert_eq!(changed.to_string(), format!("down -> {reason}"));
    // A node ejected for failed requests keeps that reason, since it counts towards the share of
    // ejected nodes.
    let mut node = up();
    node.on_request(Now(1), Err(Failure::Refused), true).unwrap();
    assert!((0..9).all(|at| node.on_check(Now(at), TIMED_OUT).is_none()));
}

#[test]
fn rise_good_checks_in_a_row_bring_a_node_back() {
    let mut node = down();
    for _ in 0..5 {
        assert!(node.on_check(Now(1), OK).is_none());
        assert!(node.on_check(Now(1), TIMED_OUT).is_none());
    }
    assert!(node.on_check(Now(1), OK).is_none());
    assert_eq!(node.on_check(Now(1), OK).unwrap().to, HealthState::Up);
}

#[test]
fn one_refused_request_takes_a_node_out() {
    let mut node = up();
    let transition = node.on_request(Now(7), REFUSED, true).unwrap();
    assert_eq!(transition.to, HealthState::Down { since: Now(7), reason: DownReason::Refused });
    assert_eq!(transition.to_string(), "up -> down (connection refused)");
}

#[test]
fn passive_failures_in_a_row_take_a_node_out() {
    let mut node = up();
    for _ in 0..3 {
        for _ in 0..3 {
            assert!(node.on_request(Now(1), TIMED_OUT, true).is_none());
        }
        node.on_request(Now(1), OK, true);
    }
    for _ in 0..3 {
        node.on_request(Now(1), TIMED_OUT, true);
    }
    let transition = node.on_request(Now(2), Err(Failure::Reset), true).unwrap();
    let reason = DownReason::Requests(Failure::Reset);
    assert_eq!(transition.to, HealthState::Down { since: Now(2), reason });
}

#[test]
fn a_node_that_cant_be_spared_is_out_when_it_can() {
    for failure in [TIMED_OUT, REFUSED] {
        let mut node = up();
        for _ in 0..9 {
            assert!(node.on_request(Now(1), failure, false).is_none());
        }
        assert!(node.eligible());
        assert!(node.on_request(Now(2), failure, true).is_some(), "{failure:?}");
        let mut forgiven = up();
        for _ in 0..9 {
            forgiven.on_request(Now(1), failure, false);
        }
        forgiven.on_request(Now(2), OK, false);
        assert!(forgiven.on_request(Now(3), TIMED_OUT, true).is_none(), "the row ended");
    }
}

#[test]
fn a_node_that_falls_silent_is_out_at_once() {
    let mut node = up();
    assert_eq!(node.on_silence(Now(3)).unwrap().to_string(), "up -> down (no heartbeats)");
    assert!(node.on_silence(Now(4)).is_none() && joining().on_silence(Now(0)).is_none());
}

#[test]
fn requests_do_not_bring_a_node_back_nor_keep_it_down() {
    let mut node = down();
    node.on_check(Now(1), OK);
    for _ in 0..20 {
        assert!(node.on_request(Now(1), OK, true).is_none());
        assert!(node.on_request(Now(1), REFUSED, true).is_none());
    }
    assert_eq!(node.on_check(Now(1), OK).unwrap().to, HealthState::Up);
}

#[test]
fn a_node_that_came_up_grows_to_its_share_in_a_straight_line() {
    let mut node = down();
    assert_eq!(node.slow_start_permille(Now(0)), 1_000, "says nothing of a node that is down");
    node.on_check(Now(90), OK);
    node.on_check(Now(100), OK);
    let shares = [100, 101, 1_100, 5_100, 10_090, 10_100, 1_000_000]
        .map(|ms| node.slow_start_permille(Now(ms)));
    assert_eq!(shares, [1, 1, 100, 500, 999, 1_000, 1_000]);
    let mut at_once = NodeHealth::new(HealthSettings { slow_start_ms: 0, ..SETTINGS }, Now(0));
    at_once.on_check(Now(0), OK);
    assert_eq!(at_once.slow_start_permille(Now(0)), 1_000);
}

#[test]
fn a_drained_node_comes_back_by_resume_only_and_warms_up() {
    let mut node = up();
    assert_eq!(node.drain(Now(1)).unwrap().to, HealthState::Draining);
    assert!(node.drain(Now(1)).is_none() && !node.eligible());
    assert_eq!(node.on_idle(Now(2)).unwrap().to, HealthState::Drained);
    assert!(node.on_check(Now(3), OK).is_none() && !node.eligible());
    assert_eq!(node.resume(Now(20_000)).unwrap().to, HealthState::Up);
    assert_eq!(node.slow_start_permille(Now(20_000)), 1);
}

#[test]
fn a_drain_that_is_taken_back_in_time_costs_nothing() {
    let mut node = up();
    node.drain(Now(20_000));
    assert_eq!(node.resume(Now(20_001)).unwrap().to, HealthState::Up);
    assert_eq!(node.slow_start_permille(Now(20_001)), 1_000);
    assert!(node.resume(Now(20_002)).is_none());
}

#[test]
fn a_node_that_died_while_drained_is_down_when_it_is_resumed() {
    let mut node = up();
    node.drain(Now(1));
    node.on_idle(Now(1));
    for ms in 2..5 {
        assert!(node.on_check(Now(ms), REFUSED).is_none(), "no news for the log");
    }
    let reason = DownReason::Checks(Failure::Refused);
    assert_eq!(node.resume(Now(9)).unwrap().to, HealthState::Down { since: Now(4), reason });
}

#[test]
fn an_idle_node_that_nobody_drains_stays_up() {
    assert!(up().on_idle(Now(1)).is_none());
}

#[test]
fn the_first_check_is_due_at_once_and_the_next_soon_while_joining() {
    let mut node = NodeHealth::new(SETTINGS, Now(77));
    assert_eq!(node.next_check_at(5), Now(77));
    node.begin_check(Now(100));
    node.on_check(Now(150), REFUSED);
    assert!((300..=350).contains(&node.next_check_at(5).0));
    node.begin_check(Now(400));
    node.on_check(Now(450), OK);
    assert!((1_200..=1_400).contains(&node.next_check_at(5).0));
}

#[test]
fn a_node_that_hangs_is_out_after_fall_intervals_and_a_timeout() {
    for seed in 0..1_000 {
        let mut node = up();
        node.begin_check(Now(0));
        node.on_check(Now(0), OK);
        // The node hangs from here on; each check takes the full timeout.
        let (timeout_ms, mut ended) = (SETTINGS.interval_ms, Now(0));
        while node.eligible() {
            let began = node.next_check_at(seed).max(ended);
            node.begin_check(began);
            ended = began.plus_ms(timeout_ms);
            node.on_check(ended, TIMED_OUT);
        }
        let longest_ms = u64::from(SETTINGS.fall) * SETTINGS.interval_ms + timeout_ms;
        assert!((3_000..=longest_ms).contains(&ended.0), "{ended:?}");
    }
}

#[test]
fn checks_of_many_dispatchers_spread_over_the_jitter() {
    let mut node = up();
    node.begin_check(Now(0));
    let due: std::collections::BTreeSet<u64> =
        (0..200).map(|seed| node.next_check_at(seed).0).collect();
    assert!(*due.first().unwrap() >= 800 && *due.last().unwrap() <= 1_000);
    assert!(due.len() > 100);
    assert_eq!(node.next_check_at(3), node.next_check_at(3));
}

#[test]
fn reloaded_settings_start_rows_again_and_keep_the_state() {
    let mut node = up();
    node.on_check(Now(1), TIMED_OUT);
    node.on_check(Now(1), TIMED_OUT);
    node.set_settings(HealthSettings { fall: 2, ..SETTINGS });
    assert!(node.eligible());
    assert!(node.on_check(Now(1), TIMED_OUT).is_none());
    assert!(node.on_check(Now(1), TIMED_OUT).is_some());
}

/// One input of a random sequence.
#[derive(Clone, Copy, Debug)]
enum Input {
    Check(Result<(), Failure>),
    Request(Result<(), Failure>),
    Drain,
    Idle,
    Resume,
}

fn input() -> impl Strategy<Value = Input> {
    let result = || prop_oneof![3 => Just(OK), 2 => Just(TIMED_OUT), 1 => Just(REFUSED)];
    prop_oneof![
        6 => result().prop_map(Input::Check),
        6 => result().prop_map(Input::Request),
        1 => Just(Input::Drain),
        1 => Just(Input::Idle),
        1 => Just(Input::Resume),
    ]
}

/// Length of the run of results at the end of `history` that satisfy `wanted`.
fn row<T: Copy>(history: &[T], wanted: impl Fn(T) -> bool) -> u32 {
    history.iter().rev().take_while(|result| wanted(**result)).count() as u32
}

/// The state of a node, derived from the histories since its last change.
#[derive(Default)]
struct Reading {
    up: bool,
    met: bool,
    out: bool,
    checks: Vec<bool>,
    requests: Vec<bool>,
}

impl Reading {
    fn apply(&mut self, input: Input) {
        match input {
            Input::Check(result) => self.checks.push(result.is_ok()),
            Input::Request(result) if self.up => self.requests.push(result.is_ok()),
            Input::Request(_) => {}
            Input::Drain => self.out = true,
            Input::Resume => self.out = false,
            Input::Idle => {}
        }
        let falls = row(&self.checks, |ok| !ok) >= SETTINGS.fall;
        let fails = row(&self.requests, |ok| !ok) >= SETTINGS.passive_failures_max;
        let refused = matches!(input, Input::Request(REFUSED));
        let rises = row(&self.checks, |ok| ok) >= if self.met { SETTINGS.rise } else { 1 };
        let changes = if self.up { falls || fails || refused } else { rises };
        if changes {
            self.up = !self.up;
            self.checks.clear();
            self.requests.clear();
        }
        // After its first change of state, or its first run of failures, a node is no longer new.
        self.met |= changes || falls;
    }
}

proptest! {
    #[test]
    fn a_random_life_follows_the_rules(inputs in proptest::collection::vec(input(), 1..200)) {
        let mut node = joining();
        let mut reading = Reading::default();
        for (ms, input) in (0..).zip(inputs) {
            let now = Now(ms);
            let before = node.state();
            let transition = match input {
                Input::Check(result) => node.on_check(now, result),
                Input::Request(result) => node.on_request(now, result, true),
                Input::Drain => node.drain(now),
                Input::Idle => node.on_idle(now),
                Input::Resume => node.resume(now),
            };
            reading.apply(input);
            prop_assert_eq!(node.eligible(), reading.up && !reading.out);
            let out = matches!(node.state(), HealthState::Draining | HealthState::Drained);
            prop_assert_eq!(out, reading.out);
            prop_assert_eq!(transition.is_some(), before != node.state());
            prop_assert!(transition.is_none_or(|t| t.from == before && t.to == node.state()));
            prop_assert!((1..=1_000).contains(&node.slow_start_permille(now)));
            prop_assert!(node.next_check_at(ms) >= Now(0));
        }
    }
}
