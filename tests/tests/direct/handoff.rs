//! Handoff: connections move to the nodes that should answer their requests.

mod arms;
mod bodies;
mod connections;
mod dead;
mod dispatchers;
mod messages;
mod moving;
mod options;
mod refusals;
mod steps;
mod storm;
mod to_self;

use std::collections::BTreeMap;
use std::collections::BTreeSet;

use skep_testclient::{HOST, RawClient, request_bytes};
use skep_tests::direct::{DirectCluster, SHORT, Setup, figure};
use skep_tests::{PATIENCE, poll_until, promtool};

/// The maximum timeout of donors: on a busy machine receivers are late.
const PATIENT: &str = "handoff.ready_timeout_ms = 300\n";

/// A cluster whose nodes choose by URL, with a long timeout.
fn by_url(nodes: usize) -> Setup {
    Setup { lines: PATIENT.to_owned(), ..usual(nodes) }
}

/// Like [`by_url`], with the default timeout.
fn usual(nodes: usize) -> Setup {
    let (dispatch, policy) = ("handoff".to_owned(), "maglev-url".to_owned());
    Setup { dispatch, policy, ..Setup::of(1, nodes) }
}

/// Returns the number of connections that nodes handed off, or received, with this outcome.
fn count(cluster: &DirectCluster, metric: &str, outcome: &str) -> f64 {
    let nodes = cluster.bed().nodes().iter();
    let sample = format!("{metric}{{outcome=\"{outcome}\"}}");
    nodes.map(|node| cluster.metric(node.name(), &sample)).sum()
}

fn moved(cluster: &DirectCluster) -> f64 {
    count(cluster, "skep_handoffs_total", "moved")
}

/// Like [`moved`], after donors were informed of all connections that receivers serve; requires that no node
/// was restarted.
#[track_caller]
fn moved_at_rest(cluster: &DirectCluster) -> f64 {
    let mut moves = 0.0;
    poll_until(PATIENCE, "donors hear that their connections are served", || {
        moves = moved(cluster);
        count(cluster, "skep_handoffs_received_total", "served") == moves
    });
    moves
}

/// Returns the number of connections that donors kept, for any reason.
fn kept(cluster: &DirectCluster) -> f64 {
    let nodes = cluster.bed().nodes().iter();
    let all: f64 =
        nodes.map(|node| moving::family(cluster, node.name(), "skep_handoffs_total")).sum();
    all - moved(cluster)
}

#[test]
fn each_url_is_answered_by_one_node_whoever_accepts_the_connection() {
    let Some(cluster) = moving::start(by_url(3)) else { return };
    let (before, kept_before) = (moved(&cluster), kept(&cluster));
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    for _ in 0..60 {
        *seen.entry(cluster.ask("client-1", cluster.vip(), SHORT.0).unwrap()).or_default() += 1;
    }
    let moves = moved_at_rest(&cluster) - before;
    figure(&format!("{moves} of 60 connections have moved"));
    assert!((15.0..60.0).contains(&moves), "{moves} of 60 connections have moved");
    // If a receiver on a busy machine answered late, the donor served.
    let others = 60 - seen.values().max().unwrap();
    assert!(others as f64 <= kept(&cluster) - kept_before, "{seen:?}");
    for process in ["dispatcher-1", "node-1"] {
        promtool::assert_clean(&cluster.metrics(process));
    }
}

#[test]
fn no_request_fails_and_every_byte_is_right() {
    let Some(cluster) = moving::start(by_url(3)) else { return };
    let before = moved(&cluster);
    let load = cluster.requests(3_000).start_in(cluster.machine("client-1")).unwrap();
    let report = load.finish().unwrap();
    assert_eq!((report.failed, report.resets), (0, 0), "{report:?}");
    let moves = moved(&cluster) - before;
    figure(&format!("{moves} of {} connections have moved", report.succeeded));
    assert!(moves > 500.0, "{moves}");
}

#[test]
fn the_coordinator_decides_for_all_nodes() {
    let lines = format!("{PATIENT}handoff.decide = \"coordinator\"\n");
    let Some(cluster) = DirectCluster::start(Setup { lines, ..by_url(3) }) else { return };
    let before = moved(&cluster);
    let mut seen: BTreeMap<String, u32> = BTreeMap::new();
    for _ in 0..30 {
        let node = cluster.ask("client-1", cluster.vip(), SHORT.0).unwrap();
        *seen.entry(node).or_default() += 1;
    }
    // A decision or a move that comes late, on a busy machine, leaves the request to the node that read it.
    let others = 30 - seen.values().max().unwrap();
    let queries = |outcome| count(&cluster, "skep_handoff_queries_total", outcome);
    let stayed = queries("unanswered") + count(&cluster, "skep_handoffs_total", "silent");
    assert!(queries("answered") > 0.0 && f64::from(others) <= stayed, "{seen:?}, {stayed} stayed");
    assert!(moved(&cluster) > before);
}

/// The deciding node sees only its own responses; nodes report the sizes of their objects to it.
#[test]
fn each_size_is_answered_by_one_node_whoever_accepts_the_connection() {
    let lines = format!("{PATIENT}machine.threads = 1\n");
    let setup = Setup { policy: "equiload".to_owned(), lines, ..by_url(2) };
    let Some(cluster) = DirectCluster::start(setup) else { return };
    // Requests for both sizes have the same number of bytes in total.
    let sizes = [("page", 10_000, 2), ("image", 20_000, 1)];
    for (name, bytes, _) in sizes {
        for number in 0..4 {
            std::fs::write(cluster.path(&format!("site/{name}-{number}")), vec![b'x'; bytes])
                .unwrap();
        }
    }
    let ask = |(name, _, often): (&str, usize, usize)| -> BTreeSet<String> {
        let paths = (0..4 * often).map(|number| format!("/{name}-{}", number % 4));
        paths.map(|path| cluster.ask("client-1", cluster.vip(), &path).unwrap()).collect()
    };
    poll_until(PATIENCE, "pages and images have a node each", || {
        let [pages, images] = sizes.map(ask);
        pages.len() == 1 && images.len() == 1 && pages != images
    });
}

#[test]
fn idle_connections_leave_a_node_that_is_drained() {
    let Some(cluster) = moving::start(by_url(3)) else { return };
    let (vip, node) = (cluster.vip(), moving::receiver_of(&cluster, SHORT.0));
    let connect = || RawClient::try_connect(vip);
    let machine = cluster.machine("client-1");
    let mut clients: Vec<RawClient> =
        (0..60).map(|_| machine.run(connect).unwrap().unwrap()).collect();
    let request = request_bytes("GET", SHORT.0, &[HOST]);
    let mut ask = |client: &mut RawClient| {
        client.send(&request);
        let response = client.try_response().unwrap();
        assert_eq!(response.status, 200);
        response.header("x-skep-node").unwrap().to_owned()
    };
    // On a busy machine some stay where they were accepted.
    clients.retain_mut(|client| ask(client) == node);
    assert!(clients.len() >= 45, "{} of 60 are with {node}", clients.len());
    assert!(cluster.metric(&node, "skep_connections_open") >= clients.len() as f64);
    cluster.control("dispatcher-1", &["node", "drain", &node]);
    poll_until(PATIENCE, "no client has a connection to the node", || {
        cluster.metric(&node, "skep_connections_open") < 5.0
    });
    let at: BTreeSet<String> = clients.iter_mut().map(&mut ask).collect();
    assert!(!at.contains(&node), "{at:?}");
}
