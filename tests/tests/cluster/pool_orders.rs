//! `skep pool drain`, `weight`, `add` and `remove` apply to all nodes of the cluster, whichever process
//! receives the command.

use serde_json::Value;
use skep_tests::app::{App, response};
use skep_tests::cache::CacheCluster;
use skep_tests::{PATIENCE, Site, poll_until};

const NODES: [&str; 3] = ["node-1", "node-2", "node-3"];

fn named(name: &'static str) -> App {
    App::answering(move |_| response(200, "", name))
}

fn json(cluster: &CacheCluster, of: &str, arguments: &[&str]) -> Value {
    let shown = cluster.skep(of, &[arguments, &["--json"]].concat());
    assert_eq!(shown.code, Some(0), "{}", shown.stderr);
    serde_json::from_str(&shown.stdout).unwrap()
}

/// Returns a field of a server from the status of each node.
fn seen(cluster: &CacheCluster, server: &str, what: &str) -> Vec<Value> {
    let nodes = json(cluster, "dispatcher-1", &["status", "--pools"]);
    let of_node = |node: &Value| {
        let servers = node["pools"][0]["servers"].as_array().cloned().unwrap_or_default();
        servers.iter().find(|it| it["name"] == server).map_or(Value::Null, |it| it[what].clone())
    };
    nodes.as_array().unwrap().iter().map(of_node).collect()
}

fn done(cluster: &CacheCluster, of: &str, arguments: &[&str]) -> String {
    let finished = cluster.skep(of, &[&["pool"], arguments].concat());
    assert_eq!(finished.code, Some(0), "{arguments:?}: {}", finished.stderr);
    finished.stdout
}

fn cluster(one: &App, two: &App) -> CacheCluster {
    let lines = format!(
        "pool = \"app\"\n[[pool]]\nname = \"app\"\npolicy = \"round-robin\"\n[[pool.server]]\n\
         name = \"s1\"\naddress = \"{}\"\n[[pool.server]]\nname = \"s2\"\naddress = \"{}\"\n",
        one.address(),
        two.address()
    );
    let cluster = CacheCluster::start_of(2, 3, Site::new(), &lines, "");
    cluster.wait_up();
    cluster
}

#[test]
fn orders_about_servers_reach_all_nodes_and_outlive_them() {
    let (one, two, three) = (named("one"), named("two"), named("three"));
    let mut cluster = cluster(&one, &two);
    let all = |server: &str, what: &str, value: Value| {
        let are = || seen(&cluster, server, what) == [value.clone(), value.clone(), value.clone()];
        poll_until(PATIENCE, &format!("{server}: {what} is {value} at all nodes"), are);
    };
    for server in ["s1", "s2"] {
        all(server, "state", "up".into());
    }
    // Through a node, and through each of the dispatchers.
    let told = done(&cluster, "node-1", &["drain", "app", "s2"]);
    assert!(told.starts_with("s2: drain"), "{told}");
    assert!(told.ends_with(", pool app, at node-1, node-2, node-3\n"), "{told}");
    all("s2", "state", "drained".into());
    done(&cluster, "dispatcher-2", &["weight", "app", "s1", "7"]);
    all("s1", "weight", 7.into());
    let address = three.address().to_string();
    let added = json(&cluster, "dispatcher-1", &["pool", "add", "app", "s3", &address]);
    assert_eq!((&added["complete"], &added["nodes"][2]["done"]), (&true.into(), &true.into()));
    all("s3", "state", "up".into());
    // An order that no node can apply is refused, and not stored.
    let refused = cluster.skep("node-2", &["pool", "drain", "app", "s33"]);
    assert_eq!(refused.code, Some(1), "{}", refused.stdout);
    assert!(refused.stderr.contains("did you mean \"s3\"?"), "{}", refused.stderr);
    // Sums over all nodes.
    for _ in 0..4 {
        cluster.get("node-2", "/").assert_status(200);
    }
    cluster.get("node-3", "/").assert_status(200);
    let sums = json(&cluster, "node-1", &["pool", "list"]);
    let requests = |at: usize| sums[0]["servers"][at]["requests_total"].as_u64().unwrap();
    assert_eq!(requests(0) + requests(1) + requests(2), 5, "{sums}");
    assert_eq!((&sums[0]["nodes"], requests(1)), (&NODES.as_slice().into(), 0));
    away_and_back(&mut cluster);
}

/// `s1` is removed while a node is down; `s2` is drained, and `s3` was added.
fn away_and_back(cluster: &mut CacheCluster) {
    // A node that was down when the order was issued receives it later, as does a new node.
    cluster.kill("node-3");
    let is_away = || json(cluster, "dispatcher-2", &["pool", "list"])[0]["missing"].is_array();
    poll_until(PATIENCE, "it is missed", is_away);
    let told = done(cluster, "dispatcher-2", &["remove", "app", "s1", "--wait"]);
    assert!(told.contains("node-3 was not asked: it is not linked"), "{told}");
    assert!(told.ends_with("s1: removed\n"), "{told}");
    let table = done(cluster, "node-1", &["list"]);
    assert!(table.contains("no answer of node-3: it is not linked"), "{table}");
    cluster.run("node-3");
    let follow = |cluster: &CacheCluster| {
        let are = || {
            let states = |server| seen(cluster, server, "state");
            states("s1") == [Value::Null, Value::Null, Value::Null]
                && states("s2") == ["drained", "drained", "drained"]
                && states("s3") == ["up", "up", "up"]
        };
        poll_until(PATIENCE, "all nodes do as was ordered", are);
    };
    follow(cluster);
    // Dispatchers receive the orders from nodes, and pass them on.
    for dispatcher in ["dispatcher-1", "dispatcher-2"] {
        cluster.kill(dispatcher);
    }
    cluster.run("dispatcher-1");
    cluster.wait_linked(3);
    cluster.kill("node-1");
    cluster.run("node-1");
    follow(cluster);
    // Without any dispatcher a node applies the order alone, and passes it on later.
    cluster.kill("dispatcher-1");
    let told = || cluster.skep("node-2", &["pool", "resume", "app", "s2"]).stdout;
    let is_alone =
        || told().contains("node-1 was not asked: this node is linked with no dispatcher");
    poll_until(PATIENCE, "it knows that it is alone", is_alone);
    cluster.run("dispatcher-1");
    let are_up = || seen(cluster, "s2", "state") == ["up", "up", "up"];
    poll_until(PATIENCE, "the others have heard", are_up);
}
