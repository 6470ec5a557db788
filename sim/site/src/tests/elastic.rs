//! Tests of elasticity in complete runs.

use skep_cluster::elasticity::{ElasticitySettings, LoadTargets};

use crate::{
    ElasticMix, ElasticOutcome, OfferedLoad, RunOutcome, SimulatedCluster, SimulatedElasticity,
    SimulatedNode, SimulatedRamp, SiteRun,
};

const RAMP: SimulatedRamp =
    SimulatedRamp { clients: 12, batch_clients: 3, batch_interval_ms: 5_000, client_ms: 20_000 };

fn elasticity(nodes_max: usize) -> SimulatedElasticity {
    SimulatedElasticity {
        settings: ElasticitySettings {
            nodes_min: 1,
            nodes_max,
            targets: LoadTargets { requests: 4, bytes: 0 },
            tolerance_permille: 100,
            interval_ms: 500,
            scale_out_window_ms: 0,
            scale_in_window_ms: 3_000,
            step_out_nodes_max: 4,
            step_in_nodes_max: 1,
            start_timeout_ms: 5_000,
            attempts_max: 3,
            retry_pause_ms: 1_000,
            failed_hold_ms: 60_000,
            drain_timeout_ms: 60_000,
            stop_timeout_ms: 5_000,
        },
        on_first: 1,
        start_ms: 500,
        slow_start_ms: 500,
    }
}

fn run(is_elastic: bool, memory_bytes: u64) -> RunOutcome {
    let site = ElasticMix::CacheFriendly.workload(1.0);
    let mut cluster = SimulatedCluster::weighted(&[1; 3], SimulatedNode::usual(memory_bytes), 0.2);
    cluster.has_cluster_cache = true;
    cluster.client_bytes_per_s = Some(5_000_000);
    cluster.elasticity = is_elastic.then(|| elasticity(3));
    let load = OfferedLoad::Ramp(RAMP);
    let run = SiteRun {
        site: &site,
        cluster: &cluster,
        load,
        requests: u64::MAX,
        warm_up_share: 0.0,
        seed: 1,
    };
    #[expect(clippy::unwrap_used, reason = "a policy that there is")]
    run.under("least-outstanding").unwrap()
}

#[test]
fn nodes_follow_a_ramp_up_and_down_and_every_request_ends() {
    let (outcome, always) = (run(true, 100_000_000), run(false, 100_000_000));
    let totals = outcome.totals;
    assert_eq!(totals.sent_bytes, totals.asked_bytes);
    let moved = totals.link_bytes as f64 / (totals.sent_bytes + totals.peer_bytes) as f64;
    assert!((moved - 1.0).abs() < 1e-6, "{moved}");
    let elastic: ElasticOutcome = outcome.elastic.unwrap_or_default();
    let nodes: Vec<usize> = elastic.counts.iter().map(|count| count.nodes).collect();
    assert_eq!(nodes, [1, 2, 3, 2, 1], "up once and down once");
    assert!(elastic.node_s < 0.9 * 3.0 * elastic.run_s, "{elastic:?}");
    let ratio = totals.requests as f64 / always.totals.requests as f64;
    assert!(ratio > 0.95, "{ratio}");
}

#[test]
fn what_only_a_node_has_is_handed_over_before_it_stops() {
    // Everything fetched is still in some memory at the end, so nothing is fetched twice.
    let outcome = run(true, 100_000_000);
    let elastic = outcome.elastic.unwrap_or_default();
    assert!(elastic.stops == 2 && elastic.handed_over_bytes > 0, "{elastic:?}");
    assert_eq!(elastic.lost_bytes, 0);
    // If the others have no room, it is lost.
    let elastic = run(true, 10_000_000).elastic.unwrap_or_default();
    assert!(elastic.lost_bytes > 0, "{elastic:?}");
}

#[test]
fn a_seed_gives_the_same_outcome_again() {
    assert_eq!(run(true, 100_000_000).totals, run(true, 100_000_000).totals);
}
