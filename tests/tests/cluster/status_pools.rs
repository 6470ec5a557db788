//! `skep status --pools`: application servers, as seen by all nodes of the cluster.

use serde_json::Value;
use skep_tests::app::{App, response};
use skep_tests::cache::CacheCluster;
use skep_tests::{FreePort, PATIENCE, RawClient, Site, SourceAddress, poll_until};

fn cluster(app: &App) -> CacheCluster {
    let dead = FreePort::claim();
    let lines = format!(
        "pool = \"app\"\n[[pool]]\nname = \"app\"\npolicy = \"round-robin\"\n[[pool.server]]\n\
         name = \"s1\"\naddress = \"{}\"\nconnections_scope = \"node\"\n[[pool.server]]\n\
         name = \"s2\"\naddress = \"{}\"\nconnections_scope = \"node\"\n",
        app.address(),
        dead.address()
    );
    CacheCluster::start_of(1, 2, Site::new(), &lines, "")
}

fn pools(cluster: &CacheCluster, of: &str) -> Value {
    let shown = cluster.skep(of, &["status", "--pools", "--json"]);
    assert_eq!(shown.code, Some(0), "{}", shown.stderr);
    serde_json::from_str(&shown.stdout).unwrap()
}

#[test]
fn a_dispatcher_shows_the_pools_of_all_its_nodes() {
    let app = App::answering(|_| response(200, "", "ok"));
    let mut cluster = cluster(&app);
    cluster.wait_up();
    cluster.get("node-2", "/").assert_status(200);
    cluster.get("node-2", "/").assert_status(200);
    let is_complete = || {
        let nodes = pools(&cluster, "dispatcher-1");
        (0..2).all(|node| {
            let servers = &nodes[node]["pools"][0]["servers"];
            servers[0]["state"] == "up" && servers[1]["state"] == "down"
        })
    };
    // Nodes are linked, although no server is counted across the cluster and nothing is cached.
    poll_until(PATIENCE, "both nodes have answered, and found out", is_complete);
    let nodes = pools(&cluster, "dispatcher-1");
    assert_eq!((&nodes[0]["node"], &nodes[1]["node"]), (&"node-1".into(), &"node-2".into()));
    let requests = |node: usize| &nodes[node]["pools"][0]["servers"][0]["requests_total"];
    assert_eq!((requests(0), requests(1)), (&0.into(), &2.into()));
    let table = cluster.skep("dispatcher-1", &["status", "--pools"]).stdout;
    assert!(table.starts_with("pool app: round-robin, 0 waiting, 0 refused"), "{table}");
    let rows: Vec<Vec<&str>> =
        table.lines().map(|line| line.split_whitespace().take(3).collect()).collect();
    for row in [["s1", "node-1", "up"], ["s1", "node-2", "up"], ["s2", "node-2", "down"]] {
        assert!(rows.iter().any(|it| it == &row), "{row:?} is missing in\n{table}");
    }
    assert!(table.contains("s2 at node-1 down: checks failed: connection refused"), "{table}");
    // The same through a node.
    assert_eq!(pools(&cluster, "node-1")[1]["pools"][0]["servers"][0]["requests_total"], 2);
    let shown = cluster.skep("node-1", &["status", "--series", "10s", "--json"]).stdout;
    let series: Value = serde_json::from_str(&shown).unwrap();
    assert_eq!(series["nodes"], serde_json::json!(["node-1", "node-2"]), "{series}");
    assert_eq!(series["missing"], serde_json::json!([]), "{series}");
    // Unknown values are reported as missing, not as zero.
    cluster.kill("node-1");
    let is_missing = || pools(&cluster, "dispatcher-1")[0]["missing"].is_string();
    poll_until(PATIENCE, "the dead one is missing", is_missing);
    let table = cluster.skep("dispatcher-1", &["status", "--pools"]).stdout;
    assert!(table.contains("no answer of node-1: it is not linked"), "{table}");
    for what in [&["--requests"][..], &["--series", "1m"]] {
        let table = cluster.skep("node-2", &[&["status"], what].concat()).stdout;
        assert!(table.contains("no answer of node-1: it is not linked"), "{table}");
    }
    // A node reports the same, through its dispatcher.
    let asked = pools(&cluster, "node-2");
    assert_eq!(asked[1]["pools"][0]["servers"][0]["requests_total"], 2);
    assert!(asked[0]["missing"].as_str().unwrap().contains("not linked"), "{asked}");
}

#[test]
fn a_session_that_comes_by_two_nodes_is_one() {
    let app = App::answering(|_| response(200, "", "ok"));
    let lines = format!(
        "pool = \"app\"\n[[pool]]\nname = \"app\"\n[pool.sticky]\nby = \"cookie-hash\"\n\
         cookie = \"sid\"\n[[pool.server]]\nname = \"s1\"\naddress = \"{}\"\n\
         [[client_network]]\nname = \"here\"\nnetworks = [\"127.0.0.1\"]\n",
        app.address(),
    );
    let mut cluster = CacheCluster::start_of(1, 2, Site::new(), &lines, "");
    cluster.wait_up();
    let elsewhere = SourceAddress::new();
    let ask = |node: &str, id: &str, elsewhere: Option<&SourceAddress>| {
        let address = cluster.outer(node);
        let connect = || RawClient::connect(address);
        let mut client = elsewhere.map_or_else(connect, |source| source.connect(address));
        let cookie = format!("sid={id}");
        client.request("GET", "/", &[("Cookie", &cookie)]).assert_status(200);
    };
    for (node, id) in [("node-1", "a"), ("node-2", "a"), ("node-2", "b"), ("node-1", "c")] {
        ask(node, id, None);
    }
    ask("node-2", "c", Some(&elsewhere));
    ask("node-2", "d", Some(&elsewhere));
    let nodes = pools(&cluster, "dispatcher-1");
    let total = |node: usize| &nodes[node]["pools"][0]["sessions"]["total"];
    assert_eq!((total(0), total(1)), (&2.into(), &4.into()), "{nodes}");
    let all = &nodes[1]["pools"][0]["cluster_sessions"];
    assert_eq!((&all["total"], &nodes[0]["pools"][0]["cluster_sessions"]), (&4.into(), all));
    assert!(!nodes.to_string().contains("sketch"), "{nodes}");
    let table = cluster.skep("dispatcher-1", &["status", "--pools"]).stdout;
    let last = table.lines().last().expect("a line");
    assert_eq!(last, "  sessions in the last 30 min: 4 (here 3, other 2)");
    // Without the node, its counts are unknown.
    cluster.kill("node-1");
    let is_missing = || pools(&cluster, "dispatcher-1")[0]["missing"].is_string();
    poll_until(PATIENCE, "the dead one is missing", is_missing);
    let nodes = pools(&cluster, "dispatcher-1");
    assert_eq!(nodes[1]["pools"][0]["cluster_sessions"]["nodes"], serde_json::json!(["node-2"]));
}
