//! A/B tests of policies that nodes apply.

use std::collections::BTreeSet;

use serde_json::Value;
use skep_tests::direct::{DirectCluster, SHORT};
use skep_tests::{PATIENCE, poll_until};

use super::{by_url, moving};

const GROUPS: [&str; 2] = ["node-1", "node-2"];
const CLIENTS: [&str; 2] = ["client-1", "client-2"];

fn compared(cluster: &DirectCluster) -> Value {
    let shown = cluster.control("dispatcher-1", &["policy", "compare", "web", "--json"]);
    serde_json::from_str(&shown).unwrap()
}

fn sum(shown: &Value, what: &str) -> u64 {
    shown["arms"].as_array().unwrap().iter().map(|arm| arm[what].as_u64().unwrap()).sum()
}

#[test]
fn clients_keep_their_arm_whichever_node_accepts_them_and_nodes_count() {
    let Some(cluster) = moving::start(by_url(2)) else { return };
    let ask = |client: &str| cluster.ask(client, cluster.vip(), SHORT.0).unwrap();
    let arms = ["--arm=a=round-robin:node-1", "--arm=b=least-outstanding:node-2"];
    let start = [&["policy", "compare", "web", "start"], &arms[..]].concat();
    cluster.control("dispatcher-1", &start);
    // Each client uses one of the two nodes; both may have the same arm, depending on their hashes.
    let group = |client: &str| (0..10).map(|_| ask(client)).collect::<BTreeSet<_>>();
    let mut groups = CLIENTS.map(group);
    poll_until(PATIENCE, "each client is with one node", || {
        groups = CLIENTS.map(group);
        groups.iter().all(|nodes| nodes.len() == 1)
    });
    let before = compared(&cluster);
    assert_eq!((&before["by_hash"], sum(&before, "clients")), (&Value::Bool(true), 0));
    for client in CLIENTS {
        (0..20).for_each(|_| drop(ask(client)));
    }
    poll_until(PATIENCE, "nodes tell what they have counted", || {
        let shown = compared(&cluster);
        let strayed = sum(&shown, "strayed") - sum(&before, "strayed");
        sum(&shown, "requests") - sum(&before, "requests") + strayed >= 40
    });
    let shown = compared(&cluster);
    assert_eq!(sum(&shown, "failures"), 0, "{shown}");
    for (arm, node) in shown["arms"].as_array().unwrap().iter().zip(GROUPS) {
        let clients = groups.iter().filter(|nodes| nodes.contains(node)).count();
        assert_eq!(arm["requests"].as_u64().unwrap() >= 20, clients > 0, "{shown}");
        assert_eq!(arm["total"].is_null(), clients == 0, "{shown}");
        // If a receiver was not ready in time, as on a busy machine, the donor has answered.
        assert!(arm["hits"].as_u64().unwrap() <= arm["lookups"].as_u64().unwrap(), "{shown}");
    }
    let text = cluster.control("dispatcher-1", &["policy", "compare", "web"]);
    assert!(text.contains("by the hash of their addresses"), "{text}");
    cluster.control("dispatcher-1", &["policy", "compare", "web", "stop"]);
    poll_until(PATIENCE, "the service's policy is in force again", || {
        let mut node = BTreeSet::new();
        CLIENTS.iter().for_each(|client| node.extend((0..5).map(|_| ask(client))));
        node.len() == 1
    });
}
