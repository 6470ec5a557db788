//! `peak-ewma` and `prequal`: fast nodes receive more requests.

use skep_units::NodeId;

use super::{pick, tally, view};
use crate::{AttemptEnd, build};

const BOTH: [&str; 2] = ["peak-ewma", "prequal"];

#[test]
fn the_faster_of_idle_nodes_is_chosen() {
    for name in BOTH {
        let mut policy = build(name, 5).unwrap();
        let mut view = view(2);
        // Each node is asked once before its latency is known.
        let first = pick(&mut *policy, &view, 0, &[]).unwrap();
        policy.started(first);
        view.nodes[first.0 as usize].outstanding_requests = 1;
        let second = pick(&mut *policy, &view, 1, &[]).unwrap();
        assert_ne!(first, second, "{name}");
        view.nodes[second.0 as usize].outstanding_requests = 1;
        policy.finished(view.now, first, AttemptEnd::Answered { latency_us: 9_000 });
        policy.finished(view.now, second, AttemptEnd::Answered { latency_us: 1_000 });
        view.nodes.iter_mut().for_each(|node| node.outstanding_requests = 0);
        assert_eq!(tally(&mut *policy, &view, 100)[second.0 as usize], 100, "{name}");
    }
}

#[test]
fn peak_ewma_weighs_the_queue_with_the_latency() {
    let mut policy = build("peak-ewma", 5).unwrap();
    let mut view = view(2);
    pick(&mut *policy, &view, 0, &[]);
    policy.finished(view.now, NodeId(0), AttemptEnd::Answered { latency_us: 4_000 });
    policy.finished(view.now, NodeId(1), AttemptEnd::Answered { latency_us: 1_000 });
    // Four requests of 1 ms each against 4 ms.
    view.nodes[1].outstanding_requests = 2;
    assert_eq!(tally(&mut *policy, &view, 50), [0, 50]);
    view.nodes[1].outstanding_requests = 4;
    assert_eq!(tally(&mut *policy, &view, 50), [50, 0]);
}

#[test]
fn prequal_leaves_out_the_busiest_however_fast_they_are() {
    let mut policy = build("prequal", 5).unwrap();
    let mut view = view(5);
    pick(&mut *policy, &view, 0, &[]);
    for (node, us) in [(0, 100), (1, 2_000), (2, 1_000), (3, 3_000), (4, 4_000)] {
        policy.finished(view.now, NodeId(node), AttemptEnd::Answered { latency_us: us });
    }
    assert_eq!(tally(&mut *policy, &view, 50), [50, 0, 0, 0, 0], "all are equally busy");
    view.nodes[0].outstanding_requests = 8;
    (1..5).for_each(|at| view.nodes[at].outstanding_requests = 2);
    assert_eq!(tally(&mut *policy, &view, 50), [0, 0, 50, 0, 0]);
}

#[test]
fn without_latencies_the_fewest_requests_win() {
    for name in BOTH {
        let mut policy = build(name, 5).unwrap();
        let mut view = view(2);
        view.nodes[0].outstanding_requests = 3;
        view.nodes[1].outstanding_requests = 2;
        assert_eq!(tally(&mut *policy, &view, 50), [0, 50], "{name}");
    }
}

#[test]
fn a_node_that_others_keep_busy_is_tried_as_well() {
    for name in BOTH {
        let mut policy = build(name, 5).unwrap();
        let mut view = view(2);
        pick(&mut *policy, &view, 0, &[]);
        policy.finished(view.now, NodeId(0), AttemptEnd::Answered { latency_us: 1_000 });
        // Other workers have requests there, which this instance does not know.
        view.nodes[1].outstanding_requests = 1;
        view.nodes[0].outstanding_requests = 3;
        assert_eq!(pick(&mut *policy, &view, 1, &[]), Some(NodeId(1)), "{name}");
    }
}
