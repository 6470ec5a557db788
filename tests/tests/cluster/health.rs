//! What takes a node out of rotation: nothing that clients, files or origins do.

use std::fs::File;
use std::io::Write;
use std::time::{Duration, Instant};

use skep_tests::cache::{CacheCluster, SEGMENT};
use skep_tests::content::version;
use skep_tests::origin::{Answer, FRESH, Origin, Then};
use skep_tests::{FreePort, PATIENCE, RawClient, Site, poll_until};

const GATE: &str = "dispatcher-1";

/// Number of bad requests: enough to take three nodes out if they were blamed for each.
const ROUNDS: usize = 15;

/// More than all buffers between a node's memory and a client.
const BIG_BYTES: usize = 64 << 20;

/// Health checks that pass even on a busy machine, as they are not the subject of these tests.
const CHECKS: &str = "interval_ms = \"1s\", timeout_ms = \"1s\", fall = 10";

/// Starts three nodes that receive the requests of all services; `lines` are for their site and may be
/// followed by other tables.
fn cluster_of(site: Site, lines: &str, others: &str) -> CacheCluster {
    let health = CHECKS.replace(", ", "\n");
    let lines = format!("{lines}[service.health]\n{health}\n{others}");
    let cluster = CacheCluster::start_of(1, 3, site, &lines, "");
    cluster.wait_up();
    cluster
}

/// Asserts that no node is out, or was since it joined.
#[track_caller]
fn assert_never_out(cluster: &CacheCluster) {
    let said = cluster.daemon(GATE).stderr_text();
    let is_out = |line: &str| line.contains("-> down") && !line.contains("joining -> down");
    assert!(!said.lines().any(is_out), "{said}");
    assert!(cluster.states(GATE).iter().all(|state| state == "up"));
}

#[test]
fn a_file_that_grows_while_it_is_sent_takes_no_node_out() {
    let site = Site::new().with("small", "small").with_large("log", BIG_BYTES);
    let lines = format!("root = \"{}\"\ncontent = \"shared\"\n", site.root().display());
    let cluster = cluster_of(site, &lines, "");
    let mut log = File::options().append(true).open(cluster.site.path("log")).unwrap();
    let mut cut = 0;
    for _ in 0..ROUNDS {
        let mut client = RawClient::connect(cluster.outer(GATE));
        client.send_request("GET", "/log", &[("Connection", "close")]);
        let head = client.try_head().unwrap();
        head.assert_status(200);
        log.write_all(b"a line\n").unwrap();
        let announced: usize = head.header("content-length").unwrap().parse().unwrap();
        cut += usize::from(client.read_to_close().len() < announced);
    }
    assert!(cut > ROUNDS / 2, "{cut} replies were cut: what this test is about");
    assert_never_out(&cluster);
    RawClient::connect(cluster.outer(GATE)).get("/small").assert_status(200);
}

#[test]
fn an_object_that_its_origin_breaks_off_takes_no_node_out() {
    let bytes = version(1, 3 * SEGMENT);
    let origin = Origin::start(move |asked| match &*asked.target {
        "/small" => Answer::new(200, FRESH, "small"),
        // The origin supports no ranges and sends no validator.
        _ => Answer::new(200, "", &bytes).cut(SEGMENT + SEGMENT / 2, Then::Close),
    });
    let cluster = cluster_of(Site::new(), &origin.line(), "");
    let mut cut = 0;
    // Nodes answer with an error if other nodes report the object as unavailable.
    poll_until(PATIENCE, "many replies were cut", || {
        let mut client = RawClient::connect(cluster.outer(GATE));
        client.send_request("GET", "/bad", &[("Connection", "close")]);
        let status = client.try_head().unwrap().status;
        assert!(matches!(status, 200 | 502), "{status}");
        cut += usize::from(status == 200 && client.read_to_close().len() < 3 * SEGMENT);
        cut == ROUNDS
    });
    assert_never_out(&cluster);
    RawClient::connect(cluster.outer(GATE)).get("/small").assert_status(200);
}

#[test]
fn an_origin_that_hangs_makes_no_node_late() {
    let origin = Origin::start(|asked| match &*asked.target {
        "/small" => Answer::new(200, FRESH, "small"),
        _ => Answer { then: Then::Hang, ..Answer::default() },
    });
    let port = FreePort::claim();
    // Dispatcher and node both wait for the origin; the dispatcher has the shorter timeout.
    let hasty = format!(
        "[[service]]\nname = \"hasty\"\nlisten = \"{}\"\nresponse_timeout_ms = \"100ms\"\n\
         health = {{ {CHECKS} }}\n",
        port.address()
    );
    let cluster = cluster_of(Site::new(), &origin.line(), &hasty);
    for number in 0..ROUNDS {
        let path = format!("/hangs/{number}");
        RawClient::connect(port.address()).get(&path).assert_status(504);
    }
    assert_never_out(&cluster);
    RawClient::connect(cluster.outer(GATE)).get("/small").assert_status(200);
}

/// A check that takes as long as its interval is followed immediately by the next one.
#[test]
fn a_node_that_hangs_is_out_after_as_many_intervals_as_promised() {
    const INTERVAL_MS: u32 = 50;
    const FALL: u32 = 20;
    let site = Site::new();
    let health = format!(
        "root = \"{}\"\ncontent = \"shared\"\n[service.health]\ninterval_ms = \"{INTERVAL_MS}ms\"\n\
         timeout_ms = \"{INTERVAL_MS}ms\"\nfall = {FALL}\n",
        site.root().display()
    );
    let cluster = CacheCluster::start_of(1, 2, site, &health, "");
    cluster.wait_up();
    let node = cluster.daemon("node-2");
    node.pause();
    let start = Instant::now();
    poll_until(PATIENCE, "it is down", || {
        cluster.daemon(GATE).stderr_text().contains("up -> down (checks failed")
    });
    // 50 % tolerance for a busy machine.
    let promised = Duration::from_millis(u64::from(INTERVAL_MS * (FALL + 1)));
    assert!(start.elapsed() < promised * 3 / 2, "{:?}", start.elapsed());
    node.resume();
}
