//! Tests of lost nodes, of the coordinator's messages, and that optimisations do not change outcomes.

use super::Setup;
use crate::{
    OfferedLoad, OutcomeWindow, RunOutcome, SimulatedCluster, SimulatedLoss, SimulatedNode,
    SiteKind,
};

const LOSS: SimulatedLoss = SimulatedLoss { at_share: 0.5, every: 10, window_ms: 100 };

/// Small files at a twentieth of the usual rates on `nodes` nodes, whose memories hold all of them together.
fn small_files(nodes: usize, requests: u64) -> Setup {
    let site = SiteKind::WorldCup.workload(0.02, 0.8, 1);
    let memory_bytes = 2 * site.bytes() / nodes as u64;
    let mut cluster =
        SimulatedCluster::weighted(&vec![1; nodes], SimulatedNode::usual(memory_bytes), 0.02);
    cluster.has_cluster_cache = true;
    let load = OfferedLoad::Open { link_share: 0.5 };
    Setup { site, cluster, load, requests, seed: 1 }
}

fn check(outcome: &RunOutcome, requests: u64, what: &str) {
    let (totals, loss) = (outcome.totals, outcome.loss.as_ref().unwrap());
    assert_eq!(totals.requests + loss.cut_requests, requests, "{what}: every request ends");
    assert_eq!(totals.sent_bytes - loss.cut_bytes, totals.asked_bytes, "{what}");
    let seen: u64 = loss.windows.all.iter().map(|window| window.requests).sum();
    assert_eq!(seen, totals.requests, "{what}: each is in a window");
}

#[test]
fn every_request_ends_under_every_policy_where_nodes_are_lost() {
    let mut cut = 0;
    for (has_cluster_cache, clients) in [(true, None), (true, Some(60)), (false, None)] {
        for policy in skep_policy::names() {
            let mut setup = Setup::data_intensive(0.1);
            setup.cluster =
                SimulatedCluster::weighted(&[1; 10], SimulatedNode::usual(60_000_000), 0.1);
            setup.cluster.has_cluster_cache = has_cluster_cache;
            setup.cluster.loss = Some(SimulatedLoss { every: 5, ..LOSS });
            setup.load = clients.map_or(setup.load, |clients| OfferedLoad::Closed { clients });
            let outcome = setup.under(policy);
            check(&outcome, 3_000, policy);
            let loss = outcome.loss.as_ref().unwrap();
            assert_eq!(loss.nodes, 2);
            cut += loss.cut_requests;
        }
    }
    assert!(cut > 100, "{cut}");
}

#[test]
fn after_a_loss_what_was_only_there_is_fetched_again_and_then_it_settles() {
    let mut setup = small_files(10, 30_000);
    setup.cluster.loss = Some(LOSS);
    let outcome = setup.under("maglev-url");
    check(&outcome, 30_000, "maglev-url");
    let loss = outcome.loss.unwrap();
    assert!(loss.sole_bytes > 0 && loss.late_requests > 0, "{}", loss.late_requests);
    let ratio = |from_s: f64, until_s: f64| {
        let at = |seconds: f64| (seconds * 1e3 / loss.windows.window_ms as f64) as usize;
        let windows = &loss.windows.all[at(from_s)..at(until_s)];
        windows.iter().map(OutcomeWindow::source_ratio).sum::<f64>() / windows.len() as f64
    };
    let (before, after) =
        (ratio(loss.at_s - 1.0, loss.at_s), ratio(loss.at_s + 0.2, loss.at_s + 1.2));
    assert!(after > before + 0.01, "{before} {after}");
    let settled =
        loss.windows.settled_s(loss.at_s, loss.last_arrival_s, OutcomeWindow::source_ratio);
    assert!(settled.is_some_and(|settled| settled > 0.0), "{settled:?}");
}

#[test]
fn a_hundred_nodes_share_the_work_as_ten_do() {
    let busiest = |nodes| {
        let mut setup = Setup::of_sizes(&[100_000; 50], nodes);
        setup.load = OfferedLoad::Open { link_share: 0.5 };
        setup.requests = 200 * nodes as u64;
        setup.under("power-of-two").busiest_over_mean
    };
    let (ten, hundred) = (busiest(10), busiest(100));
    assert!(ten < 1.3 && hundred < 1.5, "{ten} {hundred}");
}

#[test]
fn the_coordinator_is_told_what_memories_hold_and_asked_for_each_fetch() {
    let mut setup = small_files(10, 20_000);
    let traffic = setup.under("random").coordinator;
    assert_eq!(traffic.requests, 10_000);
    assert!(traffic.look_ups > traffic.fills_ended && traffic.added > 0, "{traffic:?}");
    assert!(traffic.deltas < traffic.added + traffic.removed, "batched: {traffic:?}");
    setup.cluster.has_cluster_cache = false;
    let alone = setup.under("random").coordinator;
    assert_eq!((alone.messages(), alone.holdings_most), (0, 0));
}

#[test]
fn policies_that_do_not_go_by_bytes_choose_the_same_without_them() {
    for policy in skep_policy::names() {
        let mut setup = Setup::data_intensive(0.2);
        setup.requests = 1_000;
        let usual = setup.under(policy);
        crate::chooser::always_counts_bytes(true);
        let all = setup.under(policy);
        crate::chooser::always_counts_bytes(false);
        assert_eq!(usual, all, "{policy}");
    }
}
