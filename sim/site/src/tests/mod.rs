//! Complete runs: what must hold under every policy, and what follows from known formulas.

#![allow(clippy::unwrap_used, reason = "tests")]

mod elastic;
mod logged;
mod loss;
mod planned;

use skep_units::{MIB, Rng};

use crate::limits::{DISK_BYTES_PER_S, DISK_LATENCY_US, LINK_BYTES_PER_S, REQUEST_US};
use crate::{
    FetchSource, OfferedLoad, Popularity, RunOutcome, SimulatedCluster, SimulatedNode, SiteKind,
    SiteRun, SiteWorkload,
};

/// A run on a site under a load; tests modify it.
struct Setup {
    site: SiteWorkload,
    cluster: SimulatedCluster,
    load: OfferedLoad,
    requests: u64,
    seed: u64,
}

impl Setup {
    /// A tenth of the data-intensive site on four nodes, each with a memory of this share of its bytes.
    fn data_intensive(memory_share: f64) -> Self {
        let site = SiteKind::DataIntensive.workload(0.1, 0.8, 1);
        let memory_bytes = (site.bytes() as f64 * memory_share) as u64;
        Self {
            site,
            cluster: SimulatedCluster::weighted(&[1; 4], SimulatedNode::usual(memory_bytes), 0.1),
            load: OfferedLoad::Open { link_share: 0.5 },
            requests: 3_000,
            seed: 1,
        }
    }

    /// Equally popular objects of these sizes on `nodes` nodes, each with room for all.
    fn of_sizes(sizes: &[u64], nodes: usize) -> Self {
        let popularity = Popularity::zipf(sizes.len(), 0.0, &mut Rng::new(1));
        let site = SiteWorkload::new(sizes, popularity);
        let memory_bytes = 2 * site.bytes();
        let cluster =
            SimulatedCluster::weighted(&vec![1; nodes], SimulatedNode::usual(memory_bytes), 1.0);
        let load = OfferedLoad::Closed { clients: 1 };
        Self { site, cluster, load, requests: 1, seed: 1 }
    }

    fn under(&self, policy: &str) -> RunOutcome {
        let run = SiteRun {
            site: &self.site,
            cluster: &self.cluster,
            load: self.load,
            requests: self.requests,
            warm_up_share: if self.requests > 100 { 0.5 } else { 0.0 },
            seed: self.seed,
        };
        run.under(policy).unwrap()
    }
}

#[test]
fn every_request_ends_with_its_bytes_under_every_policy_and_kind_of_cluster() {
    for (has_cluster_cache, choosers, clients) in
        [(false, 1, None), (true, 1, None), (true, 3, Some(20)), (false, 3, Some(20))]
    {
        for policy in skep_policy::names() {
            let mut setup = Setup::data_intensive(0.1);
            setup.cluster.has_cluster_cache = has_cluster_cache;
            setup.cluster.passes_on = has_cluster_cache && choosers > 1;
            setup.cluster.chunk_bytes = if choosers > 1 { 256 * 1024 } else { 0 };
            setup.cluster.workers = choosers;
            setup.load = clients.map_or(setup.load, |clients| OfferedLoad::Closed { clients });
            let outcome = setup.under(policy);
            let totals = outcome.totals;
            assert_eq!(totals.requests, 3_000, "{policy}");
            assert_eq!(totals.sent_bytes, totals.asked_bytes, "{policy}");
            let moved = totals.link_bytes as f64 / (totals.sent_bytes + totals.peer_bytes) as f64;
            assert!((moved - 1.0).abs() < 1e-7, "{policy}: {moved}");
            assert_eq!(outcome.all.count(), 1_500, "{policy}: the warm-up is left out");
            let classes: u64 = outcome.classes.iter().map(|class| class.count()).sum();
            assert_eq!(classes, 1_500, "{policy}");
            assert!(has_cluster_cache || totals.peer_bytes == 0, "{policy}");
            assert!(outcome.bytes.peer <= totals.peer_bytes, "{policy}");
            assert!(outcome.bytes.total() < totals.asked_bytes, "{policy}");
            assert!(outcome.bytes.fetched <= totals.fetched_bytes, "{policy}");
        }
    }
}

#[test]
fn a_seed_gives_the_same_outcome_again_and_another_one_does_not() {
    let mut setup = Setup::data_intensive(0.1);
    setup.cluster.has_cluster_cache = true;
    setup.cluster.workers = 2;
    for policy in ["power-of-two", "lard-r", "prequal"] {
        setup.seed = 1;
        let first = setup.under(policy);
        assert_eq!(first, setup.under(policy), "{policy}");
        setup.seed = 2;
        assert_ne!(first, setup.under(policy), "{policy}");
    }
}

#[test]
fn policies_are_asked_the_same_by_the_same_seed() {
    let mut setup = Setup::data_intensive(0.1);
    setup.cluster.has_cluster_cache = true;
    let asked = |policy| setup.under(policy).totals.asked_bytes;
    assert_eq!(asked("random"), asked("lard"));
}

#[test]
fn memories_with_room_for_all_have_all_after_the_warm_up() {
    for (memory_share, is_all) in [(1.1, true), (0.2, false)] {
        let outcome = Setup::data_intensive(memory_share).under("maglev-url");
        let hits = outcome.bytes.share(outcome.bytes.memory);
        assert_eq!(hits > 0.999, is_all, "{hits} with {memory_share}");
    }
}

#[test]
fn lard_finds_more_in_memory_than_round_robin_where_that_is_short() {
    let setup = Setup::data_intensive(0.2);
    let hits = |policy| {
        let outcome = setup.under(policy);
        outcome.bytes.share(outcome.bytes.memory)
    };
    let (lard, turns) = (hits("lard"), hits("round-robin"));
    assert!(lard > turns + 0.1, "{lard:.3} against {turns:.3}");
}

#[test]
fn a_lone_response_takes_as_long_as_its_parts() {
    let bytes = 3_000_000;
    let seconds = |bytes: u64, rate: u64| bytes as f64 / rate as f64;
    let (request, latency) = (REQUEST_US as f64 / 1e6, DISK_LATENCY_US as f64 / 1e6);
    let mut setup = Setup::of_sizes(&[bytes], 1);
    for (disk_bytes_per_s, slowest) in
        [(50_000_000, 50_000_000), (2 * LINK_BYTES_PER_S, LINK_BYTES_PER_S)]
    {
        setup.cluster.nodes[0].disk_bytes_per_s = disk_bytes_per_s;
        let cold = setup.under("random").all.mean_s();
        assert!((cold - request - latency - seconds(bytes, slowest)).abs() < 1e-6, "{cold}");
    }
    setup.requests = 2;
    let both = 2.0 * setup.under("random").all.mean_s();
    let warm = both - setup_cold(&setup);
    assert!((warm - request - seconds(bytes, LINK_BYTES_PER_S)).abs() < 1e-6, "{warm}");
}

fn setup_cold(setup: &Setup) -> f64 {
    let cold =
        Setup { requests: 1, site: setup.site.clone(), cluster: setup.cluster.clone(), ..*setup };
    cold.under("random").all.mean_s()
}

#[test]
fn a_large_response_from_disk_is_as_fast_as_the_disk() {
    let bytes = 400_000_000;
    let mut setup = Setup::of_sizes(&[bytes], 1);
    setup.cluster.nodes[0].disk_bytes_per_s = DISK_BYTES_PER_S / 2;
    let seen = setup.under("random").all.mean_s();
    let expected = bytes as f64 / (DISK_BYTES_PER_S / 2) as f64;
    // Fetching ahead hides all latencies but the first.
    assert!(seen > expected && seen < expected * 1.01, "{seen} {expected}");
}

#[test]
fn misses_at_the_same_time_are_fetched_once() {
    let bytes = 21 * 4 * MIB + 5;
    for (nodes, has_cluster_cache, copies) in [(1, false, 1), (4, false, 4), (4, true, 1)] {
        let mut setup = Setup::of_sizes(&[bytes], nodes);
        setup.load = OfferedLoad::Closed { clients: 12 };
        setup.requests = 12;
        setup.cluster.has_cluster_cache = has_cluster_cache;
        let totals = setup.under("round-robin").totals;
        let all = (totals.fetched_bytes, totals.fetches, totals.peer_bytes);
        let from_peers = if has_cluster_cache { 3 * bytes } else { 0 };
        assert_eq!(all, (copies * bytes, copies * 22, from_peers), "{nodes} nodes");
        assert!(totals.joined > 0);
    }
}

#[test]
fn all_nodes_share_an_origin_and_each_has_a_disk() {
    let mut setup = Setup::of_sizes(&[30_000_000, 30_000_001, 30_000_002, 30_000_003], 4);
    (setup.load, setup.requests) = (OfferedLoad::Closed { clients: 4 }, 4);
    let disks = setup.under("round-robin").all.mean_s();
    setup.cluster.source = FetchSource::SharedOrigin { bytes_per_s: DISK_BYTES_PER_S };
    let origin = setup.under("round-robin").all.mean_s();
    assert!(origin > 3.5 * disks, "{origin} {disks}");
}

#[test]
fn a_response_from_memory_takes_what_the_formula_of_shared_links_says() {
    for load in [0.5, 0.8] {
        let mut setup = Setup::of_sizes(&[20_000, 200_000, 2_000_000], 1);
        setup.cluster.nodes[0].request_ns = 0;
        setup.load = OfferedLoad::Open { link_share: load };
        setup.requests = 300_000;
        let outcome = setup.under("random");
        for (class, bytes) in [(4, 20_000.0), (5, 200_000.0), (6, 2_000_000.0)] {
            let expected = bytes / LINK_BYTES_PER_S as f64 / (1.0 - load);
            let seen = outcome.classes[class].mean_s();
            assert!((seen / expected - 1.0).abs() < 0.04, "{seen} {expected} at {load}");
        }
        assert!((outcome.link_use - load).abs() < 0.02, "{}", outcome.link_use);
    }
}

#[test]
fn weights_even_out_nodes_of_uneven_speed() {
    let mut setup = Setup::of_sizes(&[100_000; 50], 1);
    setup.cluster =
        SimulatedCluster::weighted(&[3, 1, 3, 1], SimulatedNode::usual(100_000_000), 1.0);
    setup.load = OfferedLoad::Open { link_share: 0.6 };
    setup.requests = 20_000;
    let weighted = setup.under("weighted-round-robin").busiest_over_mean;
    let turns = setup.under("round-robin").busiest_over_mean;
    assert!(weighted < 1.05 && turns > 1.3, "{weighted} {turns}");
}

#[test]
fn reports_tell_dispatchers_what_the_others_do() {
    let mut setup = Setup::data_intensive(1.1);
    setup.load = OfferedLoad::Open { link_share: 0.7 };
    let mean = |choosers, policy| {
        let mut setup = Setup { site: setup.site.clone(), cluster: setup.cluster.clone(), ..setup };
        setup.cluster.workers = choosers;
        setup.under(policy).all.mean_s()
    };
    let (one, eight, blind) = (mean(1, "least-bytes"), mean(8, "least-bytes"), mean(8, "random"));
    assert!((eight / one - 1.0).abs() < 0.1 && one < 0.7 * blind, "{one} {eight} {blind}");
}
