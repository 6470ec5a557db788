//! `skep status --pools`: the servers of applications, as all nodes of the cluster see them.

use serde_json::Value;
use skep_tests::app::{App, response};
use skep_tests::cache::CacheCluster;
use skep_tests::{FreePort, PATIENCE, Site, poll_until};

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
    // Linked, though no server is counted in the cluster and nothing is cached.
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
    // What is not known is said, and not shown as none.
    cluster.kill("node-1");
    let is_missing = || pools(&cluster, "dispatcher-1")[0]["missing"].is_string();
    poll_until(PATIENCE, "the dead one is missing", is_missing);
    let table = cluster.skep("dispatcher-1", &["status", "--pools"]).stdout;
    assert!(table.contains("no answer of node-1: it is not linked"), "{table}");
    // A node speaks for itself.
    let own = pools(&cluster, "node-2");
    assert_eq!(own[1]["pools"][0]["servers"][0]["requests_total"], 2);
    assert!(own[0]["missing"].is_string(), "{own}");
}
