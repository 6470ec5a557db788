//! A thread with deadlines towards other machines is frozen, while all others of its process run.

use skep_testbed::Machine;
use skep_tests::direct::{DirectCluster, Loads, Setup};
use skep_tests::freezer::Freezer;
use skep_tests::{Finished, PATIENCE, poll_until};

/// Short requests per second of each client.
const PER_SECOND: u32 = 100;

/// The process still answers its operator, and its machine answers ARP: only heartbeats are missing.
#[test]
fn a_process_whose_event_loop_stands_still_is_replaced_and_ends() {
    let Some(freezer) = Freezer::new() else { return };
    let Some(cluster) = DirectCluster::start(Setup::of(2, 2)) else { return };
    let (active, standby) = (cluster.wait_active(), cluster.standby());
    let ask = |client: &Machine| cluster.stream(PER_SECOND).start_in(client).unwrap();
    let requests = Loads::start(cluster.bed().clients(), ask);
    requests.wait_for_more(100);
    freezer.freeze(cluster.daemon(&active).pid(), "skep-direct");
    poll_until(PATIENCE, "the standby takes over", || cluster.holders().contains(&standby));
    cluster.wait_log(&standby, &format!("no heartbeat from active dispatcher {active}"));
    let Finished { code, stderr, .. } = cluster.end(&active);
    assert!(stderr.contains("thread skep-direct has stalled for 11 s"), "{stderr}");
    assert_eq!(code, Some(1), "its supervisor is to restart it");
    cluster.run(&active);
    poll_until(PATIENCE, "it is the standby", || cluster.holders() == [standby.clone()]);
    requests.wait_for_more(100);
    let reports = requests.stop();
    assert!(reports.iter().all(|it| (it.failed, it.resets) == (0, 0)), "{reports:?}");
}

/// It continues to serve, but sends no heartbeats.
#[test]
fn a_node_whose_heartbeats_stand_still_is_removed_and_ends() {
    let Some(freezer) = Freezer::new() else { return };
    let Some(cluster) = DirectCluster::start(Setup::of(1, 2)) else { return };
    let active = cluster.wait_active();
    freezer.freeze(cluster.daemon("node-1").pid(), "skep-report");
    cluster.wait_log(&active, "no heartbeat from node node-1");
    let Finished { code, stderr, .. } = cluster.end("node-1");
    assert!(stderr.contains("thread skep-report has stalled for 11 s"), "{stderr}");
    assert_eq!(code, Some(1), "its supervisor is to restart it");
    cluster.run("node-1");
    cluster.wait_serving();
}
