//! Elasticity: the number of nodes follows the load, and no request fails.

use std::net::SocketAddr;

use skep_tests::cache::CacheCluster;
use skep_tests::{PATIENCE, RawClient, Site, Skep, poll_until, promtool};

const GATE: &str = "dispatcher-1";

/// More than all buffers between a node's memory and a client.
const BIG_BYTES: usize = 64 << 20;

/// A target of one request per node, and the shortest windows.
const ELASTIC: &str = "[service.health]\ninterval_ms = \"1s\"\ntimeout_ms = \"1s\"\nfall = 10\n\
    [service.elastic]\nenabled = true\ntarget_requests = 1\ninterval_ms = 100\n\
    scale_out_window_ms = 0\nscale_in_window_ms = 300\nstep_in_nodes_max = 3\n";

fn cluster(elastic: &str) -> CacheCluster {
    let site = Site::new().with("small", "small").with_large("big", BIG_BYTES);
    let lines = format!("root = \"{}\"\ncontent = \"shared\"\n{elastic}", site.root().display());
    CacheCluster::start_of(1, 4, site, &lines, "")
}

/// Returns the number of nodes in a state of elasticity, from the metrics.
fn nodes(cluster: &CacheCluster, state: &str) -> usize {
    let metric = format!("skep_elastic_nodes{{service=\"web\",state=\"{state}\"}} ");
    let metrics = cluster.metrics(GATE);
    let line = metrics.lines().find_map(|line| line.strip_prefix(&metric));
    line.map_or(0, |value| value.parse::<f64>().unwrap() as usize)
}

#[track_caller]
fn wait(cluster: &CacheCluster, state: &str, count: usize) {
    poll_until(PATIENCE, &format!("{count} nodes are {state}"), || nodes(cluster, state) == count);
}

/// A client that has requested a large file and does not read it.
fn waiting(address: SocketAddr) -> RawClient {
    let mut client = RawClient::connect(address);
    client.send_request("GET", "/big", &[("Connection", "close")]);
    client
}

#[test]
fn nodes_come_with_the_load_and_go_with_it_and_no_request_fails() {
    let cluster = cluster(ELASTIC);
    wait(&cluster, "active", 1);
    wait(&cluster, "off", 3);
    let address = cluster.outer(GATE);
    let mut clients: Vec<RawClient> = (0..4).map(|_| waiting(address)).collect();
    wait(&cluster, "active", 4);
    promtool::assert_clean(&cluster.metrics(GATE));
    for _ in 0..20 {
        RawClient::connect(address).get("/small").assert_status(200);
    }
    // Requests on draining nodes complete as well.
    for mut client in clients.drain(..) {
        client.try_head().unwrap().assert_status(200);
        assert_eq!(client.read_to_close().len(), BIG_BYTES);
    }
    wait(&cluster, "off", 3);
    RawClient::connect(address).get("/small").assert_status(200);
    let said = cluster.skep(GATE, &["node", "list"]).stdout;
    assert!(said.contains("elasticity: off"), "{said}");
    assert!(cluster.states(GATE).iter().filter(|state| *state == "drained").count() == 3);
}

#[test]
fn what_an_operator_drains_and_resumes_stands() {
    let cluster = cluster(ELASTIC);
    wait(&cluster, "off", 3);
    // The serving node: another one replaces it.
    let drained = cluster.skep(GATE, &["node", "drain", "node-1"]);
    assert_eq!(drained.code, Some(0), "{}", drained.stderr);
    poll_until(PATIENCE, "another node serves", || {
        cluster.states(GATE).iter().filter(|state| *state == "up").count() == 1
    });
    RawClient::connect(cluster.outer(GATE)).get("/small").assert_status(200);
    cluster.wait_state(GATE, "node-1", "drained");
    // After a manual resume, the nodes that elasticity drained serve, and are drained again.
    let resumed = cluster.skep(GATE, &["node", "resume", "node-1"]);
    assert_eq!(resumed.code, Some(0), "{}", resumed.stderr);
    wait(&cluster, "off", 3);
}

#[test]
fn a_node_that_is_off_is_the_operators_once_it_is_drained() {
    let cluster = cluster(ELASTIC);
    wait(&cluster, "off", 3);
    let drained = cluster.skep(GATE, &["node", "drain", "node-2"]);
    assert_eq!(drained.code, Some(0), "{}", drained.stderr);
    let address = cluster.outer(GATE);
    let _clients: Vec<RawClient> = (0..4).map(|_| waiting(address)).collect();
    poll_until(PATIENCE, "all others serve", || {
        cluster.states(GATE).iter().filter(|state| *state == "up").count() == 3
    });
    assert_eq!(cluster.states(GATE)[1], "drained", "the operator's");
}

#[test]
fn another_node_serves_at_once_when_the_only_one_is_gone() {
    // No decision is made before the end of the test.
    let slow = ELASTIC.replace("interval_ms = 100\n", "interval_ms = 600000\n");
    let slow = slow.replace("scale_in_window_ms = 300\n", "scale_in_window_ms = 0\n");
    let mut cluster = cluster(ELASTIC);
    wait(&cluster, "off", 3);
    cluster.reconfigure(GATE, |config| config.replace(ELASTIC, &slow));
    assert_eq!(cluster.skep(GATE, &["reload"]).code, Some(0));
    cluster.kill("node-1");
    poll_until(PATIENCE, "another node serves", || {
        cluster.states(GATE)[1..].iter().any(|state| state == "up")
    });
    RawClient::connect(cluster.outer(GATE)).get("/small").assert_status(200);
}

#[test]
fn a_reload_without_its_section_resumes_all_nodes() {
    let cluster = cluster(ELASTIC);
    wait(&cluster, "off", 3);
    cluster.reconfigure(GATE, |config| {
        let (before, behind) = config.split_once("[service.elastic]").unwrap();
        let behind = behind.split_once("step_in_nodes_max = 3\n").unwrap().1;
        format!("{before}{behind}")
    });
    let reloaded = cluster.skep(GATE, &["reload"]);
    assert_eq!(reloaded.code, Some(0), "{}", reloaded.stderr);
    poll_until(PATIENCE, "all serve", || cluster.states(GATE).iter().all(|state| state == "up"));
    RawClient::connect(cluster.outer(GATE)).get("/small").assert_status(200);
}

#[test]
fn a_node_that_is_dead_when_it_is_wanted_is_marked_and_another_one_serves() {
    let fast = "start_timeout_ms = 300\nattempts_max = 1\n";
    let mut cluster = cluster(&format!("{ELASTIC}{fast}"));
    wait(&cluster, "off", 3);
    cluster.kill("node-2");
    let address = cluster.outer(GATE);
    let _clients: Vec<RawClient> = (0..2).map(|_| waiting(address)).collect();
    poll_until(PATIENCE, "two nodes serve", || {
        cluster.states(GATE).iter().filter(|state| *state == "up").count() >= 2
            && said(cluster.daemon(GATE)).contains("node node-2")
    });
    RawClient::connect(address).get("/small").assert_status(200);
}

fn said(gate: &Skep) -> String {
    let text = gate.stderr_text();
    text.lines()
        .filter(|line| line.contains("elasticity"))
        .map(|line| format!("{line}\n"))
        .collect()
}

#[test]
fn settings_that_cannot_be_are_refused_by_name() {
    let site = Site::new().with("small", "small");
    for (wrong, expected) in [
        ("enabled = true\n", "target_requests or target_bytes_max"),
        ("enabled = true\ntarget_requests = 1\nnodes_min = 3\nnodes_max = 2\n", "nodes_max (2)"),
        ("tolerance_percent = 60\n", "tolerance_percent"),
    ] {
        let text = format!(
            "[[dispatcher]]\nname = \"gate\"\n[[node]]\nname = \"comb\"\naddress = \"127.0.0.1:8081\"\n\
             [[service]]\nname = \"web\"\nlisten = [\"127.0.0.1:8080\"]\n[service.elastic]\n{wrong}\
             [[site]]\nroot = \"{}\"\n",
            site.root().display()
        );
        let file = site.path("skep.toml");
        std::fs::write(&file, text).unwrap();
        let checked = skep_tests::run_to_end(&["config", "check", file.to_str().unwrap()]);
        assert_ne!(checked.code, Some(0), "{wrong}");
        let said = checked.stdout + &checked.stderr;
        assert!(said.contains(expected), "{said}");
    }
}
