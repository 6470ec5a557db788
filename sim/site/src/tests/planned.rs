//! Runs of given requests, and what memories take beside segments.

use super::*;
use crate::{MemoryCosts, PlannedRequest};

const OBJECT_BYTES: u64 = 10_000;

/// Two rounds over a hundred objects on one node, each request long after the one before.
fn run(memory_bytes: u64, memory_costs: MemoryCosts) -> RunOutcome {
    let paths: Vec<String> = (0..100).map(|number| format!("/{number}")).collect();
    let request =
        |at: u64| PlannedRequest { at_ns: at * 1_000_000_000, client: 1, object: at as u32 % 100 };
    let requests: Vec<PlannedRequest> = (0..200).map(request).collect();
    let site = SiteWorkload::planned(paths.iter().map(|it| (it.as_str(), OBJECT_BYTES)), &requests);
    let mut cluster = SimulatedCluster::weighted(&[1], SimulatedNode::usual(memory_bytes), 1.0);
    cluster.memory_costs = memory_costs;
    let run = SiteRun {
        site: &site,
        cluster: &cluster,
        load: OfferedLoad::Logged,
        requests: 200,
        warm_up_share: 0.5,
        seed: 1,
    };
    run.under("round-robin").unwrap()
}

#[test]
fn each_given_request_is_served_and_the_second_of_an_object_from_memory() {
    let outcome = run(100 * OBJECT_BYTES, MemoryCosts::default());
    assert_eq!(outcome.totals.asked_bytes, 200 * OBJECT_BYTES);
    assert_eq!(outcome.warm_up_totals.fetched_bytes, 100 * OBJECT_BYTES);
    assert_eq!(outcome.totals.fetched_bytes, 100 * OBJECT_BYTES);
    assert_eq!((outcome.hits, outcome.all.count()), (100, 100));
}

#[test]
fn what_memories_take_beside_segments_is_not_there_for_them() {
    let costs =
        MemoryCosts { segment_bytes: 500, allocator_part: 8, head_bytes: 1_000, heads_part: 4 };
    let bytes = 10_000 + 1_250 + 500 + 1_000;
    assert_eq!(run(100 * bytes, costs).hits, 100);
    assert!(run(100 * bytes - 1, costs).hits < 100);
}
