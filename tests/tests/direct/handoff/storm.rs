//! Moves at the maximum rate of the machines, also while messages between nodes are lost.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rustix::process::Pid;
use skep_lab::load::Requests;
use skep_testbed::Machine;
use skep_tests::direct::{DirectCluster, Loads, figure};
use skep_tests::{PATIENCE, poll_until};

use super::moving::{assert_all_served, path, start};
use super::{count, moved, usual};

/// Number of lost messages per thousand.
const LOST_PERMILLE: u32 = 30;

/// Outcomes at a donor that indicate a loss, or a busy machine.
const KEPT: [&str; 3] = ["silent", "gone", "refused_late"];

/// Resources of a process.
#[derive(Debug)]
struct Used {
    name: String,
    descriptors: usize,
    resident_bytes: u64,
}

/// Returns the resources of all nodes and their netguards.
fn used(cluster: &DirectCluster) -> Vec<Used> {
    let names = cluster.bed().nodes().iter().map(|node| node.name().to_owned());
    names
        .flat_map(|name| cluster.processes(&name, "").into_iter().map(move |pid| of(&name, pid)))
        .collect()
}

fn of(name: &str, pid: Pid) -> Used {
    let path = format!("/proc/{}", pid.as_raw_nonzero());
    let status = std::fs::read_to_string(format!("{path}/status")).unwrap();
    let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    let kib: u64 = resident.trim().trim_end_matches(" kB").parse().unwrap();
    let descriptors = std::fs::read_dir(format!("{path}/fd")).unwrap().count();
    Used { name: format!("{name} ({pid:?})"), descriptors, resident_bytes: kib * 1024 }
}

/// Asserts that the number of descriptors is as before, and that memory does not grow with the moves.
#[track_caller]
fn assert_back(cluster: &DirectCluster, before: &[Used]) {
    let mut after = Vec::new();
    poll_until(PATIENCE, "descriptors are back", || {
        after = used(cluster);
        let pairs = before.iter().zip(&after);
        pairs.into_iter().all(|(before, after)| after.descriptors <= before.descriptors + 4)
    });
    for (before, after) in before.iter().zip(&after) {
        figure(&format!(
            "{}: {} descriptors became {}, {} MiB became {}",
            before.name,
            before.descriptors,
            after.descriptors,
            before.resident_bytes >> 20,
            after.resident_bytes >> 20
        ));
        assert!(after.resident_bytes < before.resident_bytes + 24 * 1024 * 1024, "{after:?}");
    }
}

/// The nodes of a storm, and enough clients to saturate the machine.
struct Storm {
    cluster: DirectCluster,
    used_before: Vec<Used>,
}

impl Storm {
    fn new() -> Option<Self> {
        let cluster = start(usual(3))?;
        // Memory that grows with the first connections is not caused by moves.
        let warm = load(&cluster);
        warm.wait_for_more(1_000);
        assert_all_served(warm);
        let used_before = used(&cluster);
        Some(Self { cluster, used_before })
    }

    fn lose_messages(&self) {
        for node in self.cluster.bed().nodes() {
            let rules = format!(
                "add table ip storm\nadd chain ip storm in {{ type filter hook input priority 0; }}\n\
                 add rule ip storm in ip protocol 253 numgen random mod 1000 < {LOST_PERMILLE} drop"
            );
            self.cluster.tool(node.name(), "nft", &[&rules]);
        }
    }

    /// Asserts that all requests are served, most connections move, and nodes use the same resources
    /// afterwards.
    fn rage(&self, duration: Duration, kind: &str) {
        let Self { cluster, used_before } = self;
        let before = moved(cluster);
        let (loads, began) = (load(cluster), Instant::now());
        while began.elapsed() < duration {
            loads.wait_for_more(50);
        }
        let (succeeded, took) = (loads.succeeded(), began.elapsed());
        let reports = loads.stop();
        let moves = moved(cluster) - before;
        let kept = KEPT.map(|it| (it, count(cluster, "skep_handoffs_total", it)));
        let lost = [
            ("closed", count(cluster, "skep_handoffs_total", "closed")),
            ("undecided", count(cluster, "skep_handoffs_received_total", "undecided")),
        ];
        figure(&format!(
            "{moves} of {succeeded} connections moved in {took:?}, {kind}; so far kept: {kept:?}, reset: {lost:?}"
        ));
        for report in reports {
            assert_eq!((report.failed, report.resets), (0, 0), "{report:?}");
        }
        // A build with debug assertions is slow: then donors serve when receivers are late.
        assert!(moves > 0.1 * succeeded as f64, "{moves} of {succeeded}");
        assert_back(cluster, used_before);
    }
}

/// Starts requests for paths of all nodes, from all clients.
fn load(cluster: &DirectCluster) -> Loads {
    let number = AtomicUsize::new(0);
    let ask = |client: &Machine| {
        let mut requests = cluster.requests(u64::MAX);
        requests.target.path = path(number.fetch_add(1, Ordering::Relaxed) % 6);
        Requests { workers: 8, ..requests }.start_in(client).unwrap()
    };
    Loads::start((0..3).flat_map(|_| cluster.bed().clients()), ask)
}

#[test]
fn a_short_storm_with_and_without_lost_messages() {
    let Some(storm) = Storm::new() else { return };
    storm.rage(Duration::from_secs(2), "no message lost");
    storm.lose_messages();
    storm.rage(Duration::from_secs(2), "3 % of messages lost");
}

#[test]
#[ignore = "takes half a minute, and all that the machine has"]
fn a_storm_with_lost_messages() {
    let Some(storm) = Storm::new() else { return };
    storm.lose_messages();
    storm.rage(Duration::from_secs(20), "3 % of messages lost");
}

/// Memory and descriptors are checked after each third: growth with the moves shows in the last one.
#[test]
#[ignore = "takes a minute, and all that the machine has"]
fn the_highest_rate_of_moves_for_a_minute() {
    let Some(storm) = Storm::new() else { return };
    for third in 1..=3 {
        storm.rage(Duration::from_secs(20), &format!("no message lost, third {third}"));
    }
}
