//! Changes by operators under load: clients must not notice any of them.

use std::collections::BTreeSet;

use skep_lab::load::Requests;
use skep_testbed::Machine;
use skep_tests::direct::{DirectCluster, Loads, Setup, figure, sent_again};
use skep_tests::{Crowd, Finished, PATIENCE, holds_within, poll_until};

/// Number of repetitions of each change.
const ROUNDS: u64 = 20;

/// Minimum total number of requests.
const REQUESTS: u64 = 100_000;

/// Concurrent requests per client.
const WORKERS: usize = 8;

/// Requests per second of each client: enough to reach [`REQUESTS`] during the changes, while leaving
/// processor time for them.
const PER_SECOND: u32 = 1_500;

/// Long downloads of each client, which changes must not end.
const DOWNLOADS: usize = 100;

/// Policies between which a service may be switched.
const POLICIES: [&str; 5] = [
    "power-of-two",
    "maglev-connection",
    "weighted-least-connections",
    "maglev-address",
    "round-robin",
];

/// Two addresses represent many clients: a fast machine opens more flows per second from each than the
/// default limit of a source.
const RATES: &str = "new_flows_per_s_max = 10_000_000\nnew_flows_per_client_per_s_max = 10_000_000";

fn change(cluster: &DirectCluster, active: &str, round: u64, kind: &str) {
    let spare = cluster.node_address("node-4").to_string();
    let at = |arguments: &[&str]| drop(cluster.control(active, arguments));
    let node = format!("node-{}", 1 + round % 3);
    match kind {
        "add" => at(&["node", "add", "node-4", &spare]),
        "remove" => {
            at(&["node", "remove", "node-4", "--timeout", "1s"]);
            poll_until(PATIENCE, "node-4 is removed", || {
                !cluster.control(active, &["node", "list"]).contains("node-4")
            });
        }
        // On an overloaded machine a table may take longer than a command waits: the command then reports
        // that repeating it continues to wait.
        "drain" => poll_until(PATIENCE, &format!("{node} is drained"), || {
            let Finished { code, stderr, .. } =
                cluster.try_control(active, &["node", "drain", &node]);
            assert!(code == Some(0) || stderr.contains("looks again"), "{stderr}");
            code == Some(0)
        }),
        "resume" => at(&["node", "resume", &node]),
        "weight" => at(&["node", "weight", &node, &(1 + 50 * (round % 4)).to_string()]),
        "policy" => at(&["policy", "set", "web", POLICIES[round as usize % POLICIES.len()]]),
        "reload" => {
            // A network without hosts here: all flows are checked again.
            let denied = format!("{RATES}\ndeny = [\"203.0.113.{round}/32\"]");
            cluster.reconfigure(|setup| setup.direct = denied);
            at(&["reload"]);
        }
        _ => unreachable!("{kind}"),
    }
}

/// Possible causes of a reset connection: connections without a known owner that machines refused, by their
/// last counts, and the kernels' counters of resets.
fn resets(cluster: &DirectCluster) -> String {
    let of_kernel = || {
        let read = |name| std::fs::read_to_string(format!("/proc/thread-self/net/{name}")).unwrap();
        let tables = ["snmp", "netstat"].map(read);
        tables.iter().flat_map(|table| reset_counts(table)).collect::<Vec<_>>().join(" ")
    };
    let count = |machine: &Machine| {
        let name = machine.name();
        let [on, last] = ["node_hand_on", "node_last"].map(|it| cluster.packets(name, it));
        let kernel = machine.run(of_kernel).unwrap();
        format!("{name} handed on {on}, refused {last}, {kernel}")
    };
    let bed = cluster.bed();
    let machines = bed.nodes().iter().chain(bed.dispatchers());
    machines.map(count).collect::<Vec<_>>().join("\n")
}

/// Returns the nonzero counters of a kernel table that concern resets.
fn reset_counts(table: &str) -> Vec<String> {
    let lines: Vec<&str> = table.lines().collect();
    let pairs = lines.chunks_exact(2).flat_map(|pair| pair[0].split(' ').zip(pair[1].split(' ')));
    let is_reset = |name: &str| ["Rst", "Reset", "Abort"].iter().any(|word| name.contains(word));
    let told = pairs.filter(|(name, count)| is_reset(name) && *count != "0");
    told.map(|(name, count)| format!("{name}={count}")).collect()
}

#[test]
fn no_change_is_seen_by_clients() {
    const KINDS: [&str; 7] = ["add", "drain", "weight", "policy", "reload", "resume", "remove"];
    let Some(_crowd) = Crowd::of(2000) else { return };
    let mut setup = Setup::of(2, 4);
    setup.nodes.pop();
    setup.alone = true;
    setup.direct = RATES.to_owned();
    let Some(cluster) = DirectCluster::start(setup) else { return };
    // It already runs, and has the dispatchers in its config: the operator adds it by a command.
    cluster.run("node-4");
    let active = cluster.wait_active();
    let clients = cluster.bed().clients();
    let downloads = Loads::start(clients, |client: &Machine| {
        cluster.downloads(DOWNLOADS).start_in(client).unwrap()
    });
    let all_downloads = (DOWNLOADS * clients.len()) as u64;
    downloads.wait_flowing(all_downloads);
    let requests = Loads::start(clients, |client: &Machine| {
        let every = cluster.requests(u64::MAX);
        let load = Requests { workers: WORKERS, per_second: Some(PER_SECOND), ..every };
        load.start_in(client).unwrap()
    });

    let changes = ROUNDS * KINDS.len() as u64;
    for (round, kind) in (0..ROUNDS).flat_map(|round| KINDS.map(|kind| (round, kind))) {
        change(&cluster, &active, round, kind);
        let goal = requests.succeeded() + REQUESTS / changes + 1;
        let failed = || requests.failed() + downloads.failed();
        let is_done = holds_within(PATIENCE, || requests.succeeded() >= goal || failed() > 0);
        if failed() > 0 || !is_done {
            let nodes = cluster.control(&active, &["node", "list"]);
            eprintln!("{nodes}{}", cluster.control(&active, &["status"]));
            let reports = (requests.stop(), downloads.stop());
            let resets = resets(&cluster);
            panic!("after {kind} in round {round}: {reports:#?}\n{resets}");
        }
    }
    downloads.wait_flowing(all_downloads);

    let reports = requests.stop();
    let sum = |count: fn(&skep_lab::load::Report) -> u64| reports.iter().map(count).sum::<u64>();
    let (done, failed, resets) = (sum(|it| it.succeeded), sum(|it| it.failed), sum(|it| it.resets));
    assert_eq!((failed, resets), (0, 0), "{reports:?}");
    assert!(done >= REQUESTS, "{done} requests");
    let seen: BTreeSet<&String> = reports.iter().flat_map(|it| it.by_node.keys()).collect();
    assert_eq!(seen.len(), 4, "all four had their time: {seen:?}");
    for report in downloads.stop() {
        assert_eq!(report.failed, 0, "{report:?}");
    }
    let again: u64 = clients.iter().map(sent_again).sum();
    let wait_ms = reports.iter().map(|report| report.longest_wait_ms).max().unwrap();
    figure(&format!(
        "{changes} changes of {} kinds: {done} requests, {failed} failed, {resets} RST, longest \
         {wait_ms} ms, {again} segments sent again by clients; {all_downloads} downloads, none lost",
        KINDS.len()
    ));
}
