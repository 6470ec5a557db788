//! Nodes that die, freeze or are terminated: every request ends within a bound, served or with an error, and
//! connections of live nodes do not end.

use std::time::{Duration, Instant};

use rustix::process::{Signal, kill_process};
use skep_tests::direct::{DirectCluster, Setup, figure};
use skep_tests::{ClientError, PATIENCE, poll_until};

use super::moving::{
    Elsewhere, answerer, ask_all, assert_all_served, assert_no_hang, load, moved_from, path_of,
    start, wait_learned,
};
use super::{by_url, count, moved, usual};

/// Number of connections of each test.
const COUNT: usize = 6;

/// Requests per second.
const PER_SECOND: u32 = 200;

/// Maximum latency of a request in milliseconds: a node is known to be dead after one second, and a client
/// retransmits lost packets after one and two seconds.
const LONGEST_MS: u64 = 6_000;

/// How long a node is frozen.
const PAUSE: Duration = Duration::from_secs(2);

/// Time from the fault to the RST: one second, plus the delays of a busy machine.
const RST_MS: u128 = 2_500;

/// Returns connections in which node-2 takes no part.
fn bystanders(cluster: &DirectCluster) -> Vec<Elsewhere> {
    let all = moved_from(cluster, ("node-1", "node-3"), COUNT);
    wait_learned(cluster);
    all
}

#[test]
fn a_nodes_process_dies_and_comes_back_while_connections_move() {
    let Some(cluster) = start(by_url(3)) else { return };
    let mut others = bystanders(&cluster);
    let requests = load(&cluster, PER_SECOND);
    requests.wait_for_more(100);
    for _ in 0..3 {
        cluster.kill("node-2");
        requests.wait_for_more(200);
        assert_eq!(ask_all(&mut others), [""; 0]);
        cluster.run("node-2");
        requests.wait_for_more(200);
    }
    assert_eq!(ask_all(&mut others), [""; 0]);
    let (failed, wait_ms) = assert_no_hang(&requests.stop(), LONGEST_MS);
    figure(&format!("process killed three times: {failed} failed, longest {wait_ms} ms"));
    let requests = load(&cluster, PER_SECOND);
    requests.wait_for_more(100);
    assert_all_served(requests);
}

#[test]
fn a_nodes_machine_dies_while_connections_move() {
    let Some(cluster) = start(by_url(3)) else { return };
    let mut others = bystanders(&cluster);
    let requests = load(&cluster, PER_SECOND);
    requests.wait_for_more(100);
    cluster.machine("node-2").kill().unwrap();
    requests.wait_for_more(400);
    assert_eq!(ask_all(&mut others), [""; 0]);
    let reports = requests.stop();
    // Nobody retransmits what the dead machine had acknowledged: such a client waits until its own timeout.
    let waiting: u64 = reports.iter().map(|report| report.timeouts).sum();
    let failed: u64 = reports.iter().map(|report| report.failed).sum();
    figure(&format!("machine killed: {failed} failed, {waiting} of them by their own timeout"));
    assert!(waiting <= 3, "{reports:?}");
}

#[test]
fn netguard_dies_its_process_ends_and_both_come_back() {
    let Some(cluster) = start(by_url(3)) else { return };
    let mut others = bystanders(&cluster);
    let requests = load(&cluster, PER_SECOND);
    requests.wait_for_more(100);
    for _ in 0..2 {
        let [guard] = cluster.processes("node-2", "netguard")[..] else { panic!("one netguard") };
        kill_process(guard, Signal::KILL).unwrap();
        let finished = cluster.end("node-2");
        assert!(finished.stderr.contains("connection to netguard lost"), "{}", finished.stderr);
        requests.wait_for_more(200);
        cluster.run("node-2");
        requests.wait_for_more(200);
    }
    assert_eq!(ask_all(&mut others), [""; 0]);
    let (failed, wait_ms) = assert_no_hang(&requests.stop(), LONGEST_MS);
    figure(&format!("netguard killed twice: {failed} failed, longest {wait_ms} ms"));
    let before = moved(&cluster);
    moved_from(&cluster, ("node-2", "node-3"), 2);
    moved_from(&cluster, ("node-1", "node-2"), 2);
    assert!(moved(&cluster) - before >= 4.0);
}

#[test]
fn a_node_stands_still_for_a_while() {
    let Some(cluster) = start(by_url(3)) else { return };
    let mut others = bystanders(&cluster);
    let requests = load(&cluster, PER_SECOND);
    requests.wait_for_more(100);
    cluster.daemon("node-2").pause();
    // The pause is the fault itself, not a wait for a condition.
    std::thread::sleep(PAUSE);
    assert_eq!(ask_all(&mut others), [""; 0]);
    cluster.daemon("node-2").resume();
    requests.wait_for_more(400);
    let (failed, wait_ms) = assert_no_hang(&requests.stop(), PAUSE.as_millis() as u64 + LONGEST_MS);
    figure(&format!("paused for 2 s: {failed} failed, longest {wait_ms} ms"));
    poll_until(PATIENCE, "it serves again", || {
        (0..20).any(|number| answerer(&cluster, &super::moving::path(number)) == "node-2")
    });
    let requests = load(&cluster, PER_SECOND);
    requests.wait_for_more(200);
    assert_all_served(requests);
}

/// The receiver is frozen, and the donor serves after 50 ms; when the receiver resumes, it abandons all
/// offers.
#[test]
fn a_receiver_that_stands_still_costs_the_client_50_ms() {
    let direct = "node_heartbeats_missed_max = 100\n".into();
    let Some(cluster) = start(Setup { direct, ..usual(2) }) else { return };
    let path = path_of(&cluster, "node-2");
    let connect = |_| Elsewhere::connect(&cluster, cluster.vip(), "node-2");
    let mut all: Vec<_> = (0..COUNT).map(connect).collect();
    let silent = || cluster.metric("node-1", "skep_handoffs_total{outcome=\"silent\"}");
    let before = silent();
    cluster.daemon("node-2").pause();
    for it in &mut all {
        let began = Instant::now();
        it.client.ask(&path);
        assert_eq!(it.assert_short(), "node-1");
        assert!(began.elapsed() < Duration::from_millis(1_000), "{:?}", began.elapsed());
    }
    // Counted at the end of the mover's turn, at whose beginning the connection was returned.
    poll_until(PATIENCE, "each is counted", || silent() - before >= COUNT as f64);
    assert_eq!(silent() - before, COUNT as f64);
    cluster.daemon("node-2").resume();
    poll_until(PATIENCE, "the receiver gives all up", || {
        let ends = ["aborted", "refused_late", "undecided"];
        let ends = ends.map(|it| count(&cluster, "skep_handoffs_received_total", it));
        ends.iter().sum::<f64>() >= COUNT as f64
    });
    assert_eq!(count(&cluster, "skep_handoffs_received_total", "undecided"), 0.0);
    // Still served by the donor: no RST was received.
    assert_eq!(ask_all(&mut all), [""; 0]);
}

/// The donor is killed or stopped while its connections are at other nodes: the cost of each.
#[test]
fn moved_connections_outlive_the_node_that_accepted_them() {
    let Some(cluster) = start(by_url(3)) else { return };
    for fault in ["drained", "stopped", "killed", "dead"] {
        let mut all = moved_from(&cluster, ("node-1", "node-2"), COUNT);
        wait_learned(&cluster);
        match fault {
            "drained" => drop(cluster.control("dispatcher-1", &["node", "drain", "node-1"])),
            "stopped" => drop(cluster.terminate("node-1")),
            "killed" => cluster.kill("node-1"),
            _ => cluster.machine("node-1").kill().unwrap(),
        }
        assert_eq!(ask_all(&mut all), [""; 0], "just {fault}");
        let left = ["node-2", "node-3"].map(str::to_owned).into();
        poll_until(PATIENCE, "no new connections for it", || {
            cluster.answering("client-1", cluster.vip(), 12).is_ok_and(|seen| seen == left)
        });
        assert_eq!(ask_all(&mut all), [""; 0], "{fault} for a while");
        match fault {
            "drained" => drop(cluster.control("dispatcher-1", &["node", "resume", "node-1"])),
            "dead" => return,
            _ => cluster.run("node-1"),
        }
        cluster.wait_serving();
        assert_eq!(ask_all(&mut all), [""; 0], "{fault}, and back");
    }
}

/// Before the dispatcher has learned of the move, its packets pass through the donor's XDP program, which
/// stays loaded as long as the machine is up.
#[test]
fn a_donors_program_redirects_without_its_process() {
    let Some(cluster) = start(by_url(3)) else { return };
    cluster.daemon("dispatcher-1").pause();
    let mut all = moved_from(&cluster, ("node-1", "node-2"), COUNT);
    cluster.kill("node-1");
    assert_eq!(ask_all(&mut all), [""; 0]);
    cluster.run("node-1");
    assert_eq!(ask_all(&mut all), [""; 0]);
    // A dispatcher that detects the node's death without having learned of the moves resets its clients.
    cluster.daemon("dispatcher-1").resume();
    cluster.wait_serving();
}

/// Connections on a node that dies end by RST, at once or with the next request.
#[test]
fn connections_of_a_dead_receiver_end_by_rst() {
    let Some(cluster) = start(by_url(3)) else { return };
    for fault in ["killed", "dead"] {
        let mut all = moved_from(&cluster, ("node-1", "node-2"), COUNT);
        wait_learned(&cluster);
        let began = Instant::now();
        match fault {
            "killed" => cluster.kill("node-2"),
            _ => cluster.machine("node-2").kill().unwrap(),
        }
        let ended = ask_all(&mut all);
        figure(&format!("receiver {fault}: {ended:?} after {:?}", began.elapsed()));
        assert_eq!(ended.len(), COUNT, "{ended:?}");
        assert!(ended.iter().all(|it| !it.contains("timeout")), "{ended:?}");
        assert!(began.elapsed().as_millis() < RST_MS, "{:?}", began.elapsed());
        if fault == "killed" {
            cluster.run("node-2");
            cluster.wait_serving();
        }
    }
}

/// The donor's netguard resets frozen connections; the receiver is frozen too and has sent nothing.
#[test]
fn a_donors_process_dies_with_connections_that_are_frozen() {
    let Some(cluster) = start(by_url(2)) else { return };
    let path = path_of(&cluster, "node-2");
    for _ in 0..3 {
        let connect = |_| Elsewhere::connect(&cluster, cluster.vip(), "node-2");
        let mut all: Vec<_> = (0..COUNT).map(connect).collect();
        cluster.daemon("node-2").pause();
        for it in &mut all {
            it.client.ask(&path);
        }
        let began = Instant::now();
        cluster.daemon("node-1").signal(Signal::KILL);
        for it in &mut all {
            it.client.set_timeout(Duration::from_secs(5));
            match it.client.try_response() {
                Ok(response) => drop(response.assert_status(200)),
                Err(error) => assert_ne!(error, ClientError::Timeout),
            }
        }
        figure(&format!("the donor killed: all ended after {:?}", began.elapsed()));
        assert!(began.elapsed().as_millis() < RST_MS, "{:?}", began.elapsed());
        cluster.daemon("node-2").resume();
        cluster.run("node-1");
        cluster.wait_serving();
    }
    moved_from(&cluster, ("node-1", "node-2"), 2);
}

/// Only the donor knew the owners: the connections end as soon as the dispatcher detects that it is dead.
#[test]
fn connections_that_no_dispatcher_has_learned_of_end_with_the_donors_machine() {
    let Some(cluster) = start(by_url(3)) else { return };
    cluster.kill("dispatcher-1");
    let mut all = moved_from(&cluster, ("node-1", "node-2"), COUNT);
    assert_eq!(ask_all(&mut all), [""; 0]);
    cluster.machine("node-1").kill().unwrap();
    cluster.run("dispatcher-1");
    let ended = ask_all(&mut all);
    figure(&format!("never learned, and the donor's machine killed: {ended:?}"));
    assert!(ended.iter().all(|it| !it.contains("timeout")), "{ended:?}");
}
