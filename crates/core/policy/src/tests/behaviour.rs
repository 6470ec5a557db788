//! The guarantees of each policy. Seeds are fixed, so every bound is exact for this run; the
//! comments explain where the bounds come from.

use skep_units::NodeId;

use super::{pick, tally, view, weighted};
use crate::{ClusterView, Policy, REPLY_BYTES, build};

fn made(name: &str) -> Box<dyn Policy> {
    build(name, 7).unwrap()
}

/// Asserts that counts are within `tolerance` (a fraction) of `shares`.
fn assert_shares(counts: &[u32], shares: &[f64], tolerance: f64) {
    let total: f64 = counts.iter().copied().map(f64::from).sum();
    let sum: f64 = shares.iter().sum();
    for (count, share) in counts.iter().zip(shares) {
        let expected = total * share / sum;
        let off = (f64::from(*count) - expected).abs();
        assert!(off <= expected * tolerance, "{counts:?} is not {shares:?}");
    }
}

/// Sends requests one after the other; each stays outstanding.
fn fill(policy: &mut dyn Policy, view: &mut ClusterView, requests: u32) -> Vec<u32> {
    for n in 0..requests {
        let id = pick(policy, view, n, &[]).unwrap();
        let node = view.nodes.iter_mut().find(|node| node.id == id).unwrap();
        node.connections += 1;
        node.outstanding_requests += 1;
    }
    view.nodes.iter().map(|node| node.connections).collect()
}

#[test]
fn random_gives_equal_shares() {
    // Four standard deviations of a binomial are 3.7 % here.
    assert_shares(&tally(&mut *made("random"), &view(8), 80_000), &[1.0; 8], 0.04);
}

#[test]
fn the_same_seed_gives_the_same_picks_and_another_seed_others() {
    let picks = |seed| {
        let mut policy = build("random", seed).unwrap();
        (0..64).map(|n| pick(&mut *policy, &view(8), n, &[])).collect::<Vec<_>>()
    };
    assert_eq!(picks(1), picks(1));
    assert_ne!(picks(1), picks(2));
}

#[test]
fn round_robin_gives_exact_turns() {
    let mut policy = made("round-robin");
    let first: Vec<_> = (0..5).map(|n| pick(&mut *policy, &view(5), n, &[])).collect();
    for round in 0..3 {
        let again: Vec<_> = (0..5).map(|n| pick(&mut *policy, &view(5), n, &[])).collect();
        assert_eq!(again, first, "round {round}");
    }
    assert_eq!(tally(&mut *policy, &view(5), 500), [100; 5]);
}

#[test]
fn round_robin_spreads_the_turns_of_a_dead_node() {
    let mut view = view(5);
    view.nodes[2].eligible = false;
    assert_eq!(tally(&mut *made("round-robin"), &view, 400), [100, 100, 0, 100, 100]);
}

#[test]
fn round_robin_of_different_seeds_does_not_walk_in_step() {
    let firsts: std::collections::HashSet<_> = (0..64)
        .map(|seed| pick(&mut *build("round-robin", seed).unwrap(), &view(8), 0, &[]))
        .collect();
    assert_eq!(firsts.len(), 8);
}

#[test]
fn weighted_round_robin_is_exact_in_every_cycle() {
    let view = weighted(&[3, 1]);
    assert_eq!(tally(&mut *made("weighted-round-robin"), &view, 4_000), [3_000, 1_000]);
}

#[test]
fn weighted_round_robin_is_smooth() {
    // Weights 5, 1, 1: nginx's sequence, from wherever the seed starts it.
    let view = weighted(&[5, 1, 1]);
    for seed in 0..8 {
        let mut policy = build("weighted-round-robin", seed).unwrap();
        let picks: String = (0..14)
            .map(|n| ["a", "b", "c"][pick(&mut *policy, &view, n, &[]).unwrap().0 as usize])
            .collect();
        assert!("aabacaaaabacaaaabacaa".contains(&picks), "{picks}");
    }
}

#[test]
fn weighted_round_robin_never_lags_a_share_by_more_than_one_turn() {
    let weights = [7, 4, 2, 1];
    let view = weighted(&weights);
    let mut policy = made("weighted-round-robin");
    let mut counts = [0f64; 4];
    for n in 0..1_400 {
        counts[pick(&mut *policy, &view, n, &[]).unwrap().0 as usize] += 1.0;
        for (count, weight) in counts.iter().zip(weights) {
            let due = f64::from(n + 1) * f64::from(weight) / 14.0;
            assert!((count - due).abs() < 2.0, "{counts:?} after {n}");
        }
    }
}

#[test]
fn weighted_round_robin_starts_afresh_when_weights_change() {
    let mut policy = made("weighted-round-robin");
    tally(&mut *policy, &weighted(&[3, 1]), 3);
    let mut changed = weighted(&[1, 1, 2]);
    changed.version = 2;
    assert_eq!(tally(&mut *policy, &changed, 400), [100, 100, 200]);
}

#[test]
fn least_policies_level_their_load() {
    for name in
        ["least-connections", "least-outstanding", "weighted-least-connections", "least-bytes"]
    {
        let mut view = view(5);
        view.nodes[1].connections = 10;
        view.nodes[1].outstanding_requests = 10;
        assert_eq!(fill(&mut *made(name), &mut view, 90), [20; 5], "{name}");
    }
}

#[test]
fn each_least_policy_looks_at_its_own_load() {
    let mut view = view(2);
    view.nodes[0].connections = 5;
    view.nodes[1].outstanding_requests = 5;
    assert_eq!(tally(&mut *made("least-connections"), &view, 10), [0, 10]);
    assert_eq!(tally(&mut *made("weighted-least-connections"), &view, 10), [0, 10]);
    assert_eq!(tally(&mut *made("least-outstanding"), &view, 10), [10, 0]);
    assert_eq!(tally(&mut *made("power-of-two"), &view, 10), [10, 0]);
    view.nodes[0].outstanding_bytes = 6 * REPLY_BYTES;
    assert_eq!(tally(&mut *made("least-bytes"), &view, 10), [0, 10]);
    assert_eq!(tally(&mut *made("least-outstanding"), &view, 10), [10, 0]);
}

#[test]
fn least_policies_draw_ties_in_an_idle_cluster() {
    for name in ["least-connections", "least-outstanding", "least-bytes", "power-of-two"] {
        assert_shares(&tally(&mut *made(name), &view(4), 40_000), &[1.0; 4], 0.04);
    }
    let counts = tally(&mut *made("weighted-least-connections"), &weighted(&[3, 1]), 40_000);
    assert_shares(&counts, &[3.0, 1.0], 0.04);
}

#[test]
fn weighted_least_connections_levels_connections_per_weight() {
    let mut policy = made("weighted-least-connections");
    assert_eq!(fill(&mut *policy, &mut weighted(&[3, 1]), 400), [300, 100]);
}

#[test]
fn power_of_two_stays_near_level_where_random_does_not() {
    // Balls into bins: the fullest of 16 exceeds the mean of 1000 by about
    // log2 log2 16 = 2 with two choices, by sqrt(2 * 1000 * ln 16) = 74 at random.
    let excess =
        |name| fill(&mut *made(name), &mut view(16), 16_000).into_iter().max().unwrap() - 1_000;
    assert!(excess("power-of-two") <= 4);
    assert!(excess("random") >= 20);
}

#[test]
fn power_of_two_of_two_nodes_always_finds_the_idler() {
    let mut view = view(2);
    view.nodes[0].outstanding_requests = 1;
    assert_eq!(tally(&mut *made("power-of-two"), &view, 100), [0, 100]);
}

#[test]
fn a_warming_node_gets_its_share_of_draws_and_turns() {
    // Node 0 at 25 %: 1 part against 4 of each other node.
    let mut view = view(4);
    view.nodes[0].slow_start_permille = 250;
    for name in ["random", "round-robin", "weighted-round-robin", "maglev-address", "maglev-url"] {
        let counts = tally(&mut *made(name), &view, 39_000);
        let share = f64::from(counts[0]) / 39_000.0;
        assert!((0.05..=0.09).contains(&share), "{name}: {share} of 1/13 = 0.077");
        assert_shares(&counts[1..], &[1.0; 3], 0.15);
    }
}

#[test]
fn a_warming_node_is_held_at_its_share_of_the_load() {
    for name in
        ["least-connections", "least-outstanding", "weighted-least-connections", "least-bytes"]
    {
        let mut view = view(4);
        view.nodes[0].slow_start_permille = 250;
        let counts = fill(&mut *made(name), &mut view, 1_300);
        assert!(counts[0].abs_diff(100) <= 1, "{name}: {counts:?}");
        assert_shares(&counts[1..], &[1.0; 3], 0.01);
    }
}

#[test]
fn a_warming_node_does_not_win_against_an_idle_warm_one() {
    let mut view = view(3);
    view.nodes[0].slow_start_permille = 100;
    for name in ["least-connections", "least-outstanding", "power-of-two", "lard", "prequal"] {
        assert_eq!(tally(&mut *made(name), &view, 1_000)[0], 0, "{name}");
    }
}

#[test]
fn a_cluster_that_just_started_is_not_slowed() {
    let mut view = view(4);
    for node in &mut view.nodes {
        node.slow_start_permille = 1;
    }
    assert_eq!(tally(&mut *made("round-robin"), &view, 400), [100; 4]);
    assert_eq!(fill(&mut *made("least-outstanding"), &mut view, 400), [100; 4]);
}

#[test]
fn an_excluded_node_is_passed_over_and_all_excluded_is_none() {
    let view = view(2);
    for name in crate::names() {
        let mut policy = made(name);
        for n in 0..50 {
            assert_eq!(pick(&mut *policy, &view, n, &[NodeId(0)]), Some(NodeId(1)), "{name}");
        }
        assert_eq!(pick(&mut *policy, &view, 0, &[NodeId(0), NodeId(1)]), None, "{name}");
    }
}

#[test]
fn an_empty_view_gives_none() {
    for name in crate::names() {
        assert_eq!(pick(&mut *made(name), &view(0), 0, &[]), None, "{name}");
    }
}
