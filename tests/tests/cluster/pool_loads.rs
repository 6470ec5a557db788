//! Shared counts of requests at the servers of a pool in several front ends, and the release of slots when
//! clients of dispatchers leave.

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Condvar, Mutex};

use serde_json::Value;
use skep_tests::app::{App, response};
use skep_tests::cache::CacheCluster;
use skep_tests::{PATIENCE, RawClient, Site, poll_until};

/// An application that holds requests until the gate opens.
fn holding(name: &'static str) -> (App, Arc<(Mutex<bool>, Condvar)>) {
    let gate = Arc::<(Mutex<bool>, Condvar)>::default();
    let shut = Arc::clone(&gate);
    let app = App::answering(move |_| {
        let open = shut.0.lock().unwrap();
        drop(shut.1.wait_timeout_while(open, PATIENCE, |open| !*open).unwrap());
        response(200, "", name)
    });
    (app, gate)
}

fn open(gate: &(Mutex<bool>, Condvar)) {
    *gate.0.lock().unwrap() = true;
    gate.1.notify_all();
}

/// Returns the server `s1` of the pool from a node's status.
fn first_server(cluster: &CacheCluster, node: &str) -> Value {
    let shown = cluster.skep(node, &["status", "--json"]);
    let status: Value = serde_json::from_str(&shown.stdout).unwrap();
    status["pools"][0]["servers"][0].clone()
}

#[test]
fn two_fronts_balance_on_the_sum_of_their_requests() {
    let (slow, gate) = holding("slow");
    let idle = App::answering(|_| response(200, "", "idle"));
    let lines = format!(
        "pool = \"app\"\n[[pool]]\nname = \"app\"\npolicy = \"least-outstanding\"\n[[pool.server]]\n\
         name = \"s1\"\naddress = \"{}\"\n[[pool.server]]\nname = \"s2\"\naddress = \"{}\"\n",
        slow.address(),
        idle.address()
    );
    let cluster = CacheCluster::start_of(1, 2, Site::new(), &lines, "");
    cluster.wait_up();
    for node in ["node-1", "node-2"] {
        let is_up = || first_server(&cluster, node)["slots"].as_u64() > Some(2);
        poll_until(PATIENCE, "it has slots of the slow server", is_up);
    }
    // One front end has a request at this server, and uses the other server from then on.
    let mut waiting = Vec::new();
    poll_until(PATIENCE, "one is held", || {
        let mut client = RawClient::connect(cluster.outer("node-1"));
        client.ask("/");
        waiting.push(client);
        first_server(&cluster, "node-1")["connections"] == 1
    });
    let elsewhere = "skep_pool_server_requests_elsewhere{pool=\"app\",server=\"s1\"}";
    cluster.wait_metric("node-2", elsewhere, 1);
    // The other front end has none, but avoids this server too: the request would hang.
    for _ in 0..6 {
        assert_eq!(cluster.get("node-2", "/").text(), "idle");
    }
    open(&gate);
    poll_until(PATIENCE, "it is told that none is left", || {
        cluster.metric("node-2", elsewhere) == 0
    });
}

#[test]
fn a_client_that_leaves_its_dispatcher_frees_its_place_at_the_server() {
    let (app, gate) = holding("held");
    let has_asked = Arc::<AtomicBool>::default();
    let lines = format!(
        "pool = \"app\"\n[[pool]]\nname = \"app\"\n[[pool.server]]\nname = \"s1\"\n\
         address = \"{}\"\nconnections_max = 1\n",
        app.address()
    );
    let cluster = CacheCluster::start_of(1, 2, Site::new(), &lines, "");
    cluster.wait_up();
    let of_node = |node: &str| first_server(&cluster, node)["connections"].as_u64().unwrap();
    let connections = || of_node("node-1") + of_node("node-2");
    let leaver = {
        let mut client = RawClient::connect(cluster.outer("dispatcher-1"));
        client.ask("/");
        client
    };
    poll_until(PATIENCE, "it has the only place", || connections() == 1);
    drop(leaver);
    poll_until(PATIENCE, "the place is free", || connections() == 0);
    // Another request gets the slot, and an answer.
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let reply = RawClient::connect(cluster.outer("dispatcher-1")).get("/");
            assert_eq!(reply.text(), "held");
            has_asked.store(true, SeqCst);
        });
        poll_until(PATIENCE, "it has the place", || connections() == 1);
        open(&gate);
    });
    assert!(has_asked.load(SeqCst));
}
