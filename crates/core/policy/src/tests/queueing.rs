//! A small queueing simulation: waiting times under each policy.
//!
//! Eight nodes serve one request at a time each, in order of arrival. Service
//! times are skewed, as on a site with large files: one request in ten takes
//! twenty times as long. Seeded, in virtual microseconds.

use std::collections::VecDeque;

use skep_units::Rng;

use super::{request, view};
use crate::{AttemptEnd, build};

const NODES: u32 = 8;
const REQUESTS: u32 = 40_000;
const SHORT_US: f64 = 1_000.0;
const LONG_US: f64 = 20_000.0;

/// Mean and 99th percentile of the response times, in microseconds.
#[derive(Clone, Copy, Debug)]
struct Times {
    mean: f64,
    p99: f64,
}

/// Runs a policy at a load of `utilisation` times the capacity of all nodes.
fn simulate(name: &str, utilisation: f64) -> Times {
    let mut policy = build(name, 11).unwrap();
    let mut rng = Rng::new(5);
    let mut view = view(NODES);
    let mean_service = 0.9 * SHORT_US + 0.1 * LONG_US;
    let mean_gap = mean_service / f64::from(NODES) / utilisation;
    // For each node, the times when its requests end.
    let mut ends: Vec<VecDeque<f64>> = vec![VecDeque::new(); NODES as usize];
    let mut times = Vec::new();
    let mut now = 0.0;
    for n in 0..REQUESTS {
        now += -mean_gap * (1.0 - rng.unit()).ln();
        for (node, ends) in view.nodes.iter_mut().zip(&mut ends) {
            while ends.front().is_some_and(|end| *end <= now) {
                ends.pop_front();
                policy.finished(view.now, node.id, AttemptEnd::Inconclusive);
            }
            node.outstanding_requests = ends.len() as u32;
            node.connections = ends.len() as u32;
        }
        let path = format!("/{}", rng.below(5_000));
        let id = policy.pick(&request(n, path.as_bytes()), &view, &[]).node().unwrap();
        policy.started(id);
        let service = if rng.below(10) == 0 { LONG_US } else { SHORT_US };
        let queue = &mut ends[id.0 as usize];
        let end = queue.back().copied().unwrap_or(now).max(now) + service;
        queue.push_back(end);
        times.push(end - now);
    }
    times.sort_by(f64::total_cmp);
    Times {
        mean: times.iter().sum::<f64>() / f64::from(REQUESTS),
        p99: times[REQUESTS as usize * 99 / 100],
    }
}

#[test]
fn policies_that_look_at_load_beat_those_that_do_not() {
    let random = simulate("random", 0.8);
    let round_robin = simulate("round-robin", 0.8);
    let two = simulate("power-of-two", 0.8);
    let least = simulate("least-outstanding", 0.8);
    println!(
        "random {random:.0?}\nround-robin {round_robin:.0?}\ntwo {two:.0?}\nleast {least:.0?}"
    );
    assert!(two.mean < random.mean / 2.0 && two.p99 < random.p99 / 1.5);
    assert!(least.mean < random.mean / 2.0 && least.p99 < random.p99 / 1.5);
    assert!(two.mean < round_robin.mean && two.p99 < round_robin.p99);
    assert!(least.mean < two.mean, "all heartbeats two");
}

#[test]
fn all_policies_are_alike_when_there_is_next_to_no_load() {
    let mean_service = 0.9 * SHORT_US + 0.1 * LONG_US;
    for name in crate::names() {
        let times = simulate(name, 0.01);
        assert!(times.mean < mean_service * 1.05, "{name}: {times:?}");
    }
}
