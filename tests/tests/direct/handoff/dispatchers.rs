//! Dispatchers learn the short path of moved connections, and may die: moves continue, and moved connections
//! stay open.

use skep_testbed::Machine;
use skep_tests::direct::{DirectCluster, LONG, Loads, Setup, figure};
use skep_tests::{PATIENCE, poll_until};

use super::moving::{
    CLIENT, answerer, ask_all, assert_all_served, load, moved_from, path_like, start, wait_learned,
};
use super::{by_url, moved};

const NODE_MOVED: &str = "skep_direct_packets_total{verdict=\"node_moved\"}";

/// Number of connections of each test.
const COUNT: usize = 8;

/// Number of long downloads.
const DOWNLOADS: usize = 40;

/// Sends a request on each connection, all of which must be open; returns the number of packets that the
/// donor forwarded meanwhile.
#[track_caller]
fn packets_by_donor(cluster: &DirectCluster, all: &mut [super::moving::Elsewhere]) -> f64 {
    let before = cluster.metric("node-1", NODE_MOVED);
    for _ in 0..5 {
        assert_eq!(ask_all(all), [""; 0]);
    }
    // Counters are read periodically: after this time they include the last requests.
    let mut last = -1.0;
    poll_until(PATIENCE, "the donor counts no more", || {
        std::thread::sleep(std::time::Duration::from_millis(1_100));
        let now = cluster.metric("node-1", NODE_MOVED);
        std::mem::replace(&mut last, now) == now
    });
    last - before
}

#[test]
fn the_dispatcher_learns_the_short_way() {
    let Some(cluster) = start(by_url(2)) else { return };
    let mut all = moved_from(&cluster, ("node-1", "node-2"), COUNT);
    wait_learned(&cluster);
    // Counts of earlier packets.
    packets_by_donor(&cluster, &mut []);
    let packets = packets_by_donor(&cluster, &mut all);
    figure(&format!("{packets} packets by the donor once the dispatcher knows"));
    assert!(packets <= 2.0, "{packets}");
}

/// As if its flow table were lost or full.
#[test]
fn a_dispatcher_that_has_forgotten_costs_a_hop_and_no_connection() {
    let direct = "flows_max = 1024\n".into();
    let Some(cluster) = start(Setup { direct, ..by_url(2) }) else { return };
    let mut all = moved_from(&cluster, ("node-1", "node-2"), COUNT);
    wait_learned(&cluster);
    let report = cluster.requests(4_000).start_in(cluster.machine("client-2")).unwrap();
    let report = report.finish().unwrap();
    assert_eq!((report.failed, report.resets), (0, 0), "{report:?}");
    let packets = packets_by_donor(&cluster, &mut all);
    figure(&format!("{packets} packets by the donor once the dispatcher has forgotten"));
}

#[test]
fn moves_go_on_and_moved_connections_live_when_the_dispatcher_dies() {
    let setup = Setup { lines: super::PATIENT.into(), ..by_url(3) };
    let setup = Setup { dispatchers: vec![1, 2], topology: Setup::of(2, 3).topology, ..setup };
    let Some(cluster) = start(setup) else { return };
    let active = cluster.wait_active();
    let download = |client: &Machine| cluster.downloads(DOWNLOADS).start_in(client).unwrap();
    let downloads = Loads::start([cluster.machine(CLIENT)], download);
    downloads.wait_flowing(DOWNLOADS as u64);
    let moves = moved(&cluster);
    figure(&format!("{moves} moves before, of {DOWNLOADS} downloads among others"));
    let mut all = moved_from(&cluster, ("node-1", "node-2"), COUNT);
    let requests = load(&cluster, 100);
    requests.wait_for_more(50);
    // Only the process: its XDP program continues.
    cluster.kill(&active);
    requests.wait_for_more(100);
    assert_eq!(ask_all(&mut all), [""; 0]);
    downloads.wait_flowing(DOWNLOADS as u64);
    cluster.run(&active);
    let active = cluster.wait_active();
    requests.wait_for_more(100);
    let mut later = moved_from(&cluster, ("node-1", "node-2"), COUNT);
    wait_learned(&cluster);
    // Now the machine too.
    let standby = cluster.standby();
    cluster.wait_log(&standby, &format!("heartbeat from dispatcher {active}"));
    cluster.machine(&active).kill().unwrap();
    poll_until(PATIENCE, "a takeover", || cluster.holders() == [standby.clone()]);
    requests.wait_for_more(200);
    assert_eq!(ask_all(&mut all), [""; 0]);
    assert_eq!(ask_all(&mut later), [""; 0]);
    downloads.wait_flowing(DOWNLOADS as u64);
    assert_eq!(downloads.failed(), 0);
    let before = moved(&cluster);
    assert_all_served(requests);
    for report in downloads.stop() {
        assert_eq!((report.failed, report.resets), (0, 0), "{report:?}");
    }
    moved_from(&cluster, ("node-1", "node-2"), COUNT);
    assert!(moved(&cluster) - before >= COUNT as f64);
    assert_eq!(answerer(&cluster, &path_like(&cluster, LONG.0, "node-3")), "node-3");
}
