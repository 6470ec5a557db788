//! Balance, disruption and stickiness of the Maglev policies.

use std::collections::HashMap;
use std::net::IpAddr;

use skep_units::NodeId;

use super::{pick, request, tally, view, weighted};
use crate::limits::MAGLEV_ENTRIES;
use crate::maglev::table_of;
use crate::{ClusterView, Policy, RequestKey, build};

fn made(name: &str) -> Box<dyn Policy> {
    build(name, 7).unwrap()
}

/// The number of entries of each node.
fn entries(view: &ClusterView) -> Vec<usize> {
    let mut counts = vec![0; view.nodes.len()];
    for position in table_of(&view.nodes) {
        counts[usize::from(position)] += 1;
    }
    counts
}

/// The owner's id of every entry.
fn owners(view: &ClusterView) -> Vec<NodeId> {
    table_of(&view.nodes).into_iter().map(|position| view.nodes[usize::from(position)].id).collect()
}

#[test]
fn the_table_is_balanced() {
    for count in [1, 2, 3, 8, 100] {
        let counts = entries(&view(count));
        assert_eq!(counts.iter().sum::<usize>(), MAGLEV_ENTRIES);
        // Nodes with equal weights take turns: none is more than one entry ahead.
        assert!(counts.iter().max().unwrap() - counts.iter().min().unwrap() <= 1);
    }
}

#[test]
fn the_busiest_of_eight_nodes_is_within_five_percent_of_the_mean() {
    for name in ["maglev-address", "maglev-url"] {
        let busiest = tally(&mut *made(name), &view(8), 200_000).into_iter().max().unwrap();
        assert!(f64::from(busiest) <= 25_000.0 * 1.05, "{name}: {busiest}");
    }
}

#[test]
fn entries_follow_weights() {
    for weights in [[3, 1].as_slice(), &[1, 2, 3, 10], &[65_535, 65_535, 32_768]] {
        let sum: u32 = weights.iter().sum();
        for (count, weight) in entries(&weighted(weights)).into_iter().zip(weights) {
            let due = MAGLEV_ENTRIES as f64 * f64::from(*weight) / f64::from(sum);
            assert!((count as f64 - due).abs() <= due * 0.01, "{weights:?}: {count} of {due}");
        }
    }
}

#[test]
fn a_node_with_a_vanishing_weight_still_serves_when_alone() {
    let mut view = weighted(&[u32::MAX, 1]);
    view.nodes[0].eligible = false;
    assert_eq!(pick(&mut *made("maglev-url"), &view, 0, &[]), Some(NodeId(1)));
}

#[test]
fn removing_one_of_eight_moves_few_entries_of_the_others() {
    let before = owners(&view(8));
    let mut smaller = view(8);
    smaller.nodes.remove(3);
    let after = owners(&smaller);
    let kept_owner = before.iter().filter(|id| **id != NodeId(3)).count();
    let moved = before.iter().zip(&after).filter(|(a, b)| **a != NodeId(3) && a != b).count();
    println!("moved without need: {moved} of {kept_owner}");
    assert!(moved * 100 <= kept_owner * 5, "{moved} of {kept_owner}");
}

#[test]
fn a_dead_node_moves_no_key_of_another_and_spreads_its_own() {
    for name in ["maglev-address", "maglev-url"] {
        let (mut policy, alive, mut dead) = (made(name), view(8), view(8));
        dead.nodes[3].eligible = false;
        let mut successors: HashMap<NodeId, u32> = HashMap::new();
        for n in 0..40_000 {
            let before = pick(&mut *policy, &alive, n, &[]).unwrap();
            let after = pick(&mut *policy, &dead, n, &[]).unwrap();
            if before == NodeId(3) {
                *successors.entry(after).or_default() += 1;
            } else {
                assert_eq!(before, after);
            }
        }
        assert_eq!(successors.len(), 7);
        let (most, sum) = (successors.values().max().unwrap(), successors.values().sum::<u32>());
        assert!(most * 7 <= sum * 5 / 4, "the heaviest heir takes {most} of {sum}");
    }
}

#[test]
fn each_key_moves_to_a_warming_node_once_and_stays() {
    let (mut policy, mut view) = (made("maglev-url"), view(4));
    for n in 0..2_000 {
        let mut moves = 0;
        view.nodes[0].slow_start_permille = 1;
        let mut last = pick(&mut *policy, &view, n, &[]);
        for permille in (50..=1_000).step_by(50) {
            view.nodes[0].slow_start_permille = permille;
            let next = pick(&mut *policy, &view, n, &[]);
            if next != last {
                assert_eq!(next, Some(NodeId(0)));
                moves += 1;
            }
            last = next;
        }
        assert!(moves <= 1);
    }
}

#[test]
fn machines_that_number_and_order_nodes_differently_agree_on_names() {
    let here = weighted(&[1, 2, 3, 4, 5]);
    let mut there = here.clone();
    there.nodes.reverse();
    for node in &mut there.nodes {
        node.id = NodeId(100 + node.id.0);
    }
    let (mut a, mut b) = (build("maglev-address", 1).unwrap(), build("maglev-address", 2).unwrap());
    for n in 0..1_000 {
        let (here, there) = (pick(&mut *a, &here, n, &[]), pick(&mut *b, &there, n, &[]));
        assert_eq!(here.unwrap().0 + 100, there.unwrap().0);
    }
}

#[test]
fn the_table_is_kept_until_the_version_changes() {
    let (mut policy, mut view) = (made("maglev-url"), view(4));
    let before: Vec<_> = (0..100).map(|n| pick(&mut *policy, &view, n, &[])).collect();
    for node in &mut view.nodes {
        node.weight += node.id.0 * 10;
    }
    let same: Vec<_> = (0..100).map(|n| pick(&mut *policy, &view, n, &[])).collect();
    assert_eq!(before, same);
    view.version += 1;
    let after: Vec<_> = (0..100).map(|n| pick(&mut *policy, &view, n, &[])).collect();
    assert_ne!(before, after);
}

#[test]
fn address_sticks_by_client_and_url_by_host_path_and_query() {
    let view = view(64);
    let base = request(1, b"/a");
    let differs = |name: &str, other: RequestKey<'_>| {
        let mut policy = made(name);
        policy.pick(&base, &view, &[]) != policy.pick(&other, &view, &[])
    };
    let mapped: IpAddr = "::ffff:10.0.0.1".parse().unwrap();
    assert!(!differs("maglev-address", RequestKey { path: b"/b", host: b"x", ..base }));
    assert!(
        !differs("maglev-address", RequestKey { client: mapped, ..base }),
        "the same IPv4 client"
    );
    assert!(differs("maglev-address", request(2, b"/a")));
    assert!(!differs("maglev-url", request(2, b"/a")));
    assert!(differs("maglev-url", RequestKey { path: b"/b", ..base }));
    assert!(differs("maglev-url", RequestKey { host: b"x", ..base }));
    assert!(differs("maglev-url", RequestKey { query: Some(b"q"), ..base }));
}

#[test]
fn with_bounded_loads_urls_stay_until_their_node_has_too_much_to_do() {
    let (mut plain, mut bounded) = (made("maglev-url"), made("bounded-maglev-url"));
    let mut view = view(8);
    let (one, other) = (request(1, b"/a"), request(1, b"/b"));
    let owner = plain.pick(&one, &view, &[]).node().unwrap();
    // Little load: nothing moves.
    for _ in 0..4 {
        assert_eq!(bounded.pick(&one, &view, &[]).node(), Some(owner));
        view.nodes[owner.0 as usize].outstanding_requests += 1;
    }
    let second = bounded.pick(&one, &view, &[]).node().unwrap();
    assert_ne!(second, owner);
    // The load of other nodes raises the bound.
    view.nodes.iter_mut().for_each(|node| node.outstanding_requests += 100);
    assert_eq!(bounded.pick(&one, &view, &[]).node(), Some(owner));
    assert_eq!(bounded.pick(&other, &view, &[]), plain.pick(&other, &view, &[]));
    // All requests are for the same key: no node has more than 1.25 times its share.
    let mut view = super::view(8);
    for _ in 0..8_000 {
        let node = bounded.pick(&one, &view, &[]).node().unwrap();
        view.nodes[node.0 as usize].outstanding_requests += 1;
    }
    let loads: Vec<u32> = view.nodes.iter().map(|node| node.outstanding_requests).collect();
    assert!(loads.iter().all(|&load| load <= 1_251), "{loads:?}");
    // In proportion to weights.
    let (mut bounded, mut view) = (made("bounded-maglev-url"), weighted(&[1, 3]));
    for _ in 0..4_000 {
        let node = bounded.pick(&one, &view, &[]).node().unwrap();
        view.nodes[node.0 as usize].outstanding_requests += 1;
    }
    let [light, heavy] = [0, 1].map(|at: usize| view.nodes[at].outstanding_requests);
    assert!(light <= 1_251 && heavy <= 3_751, "{light} {heavy}");
}
