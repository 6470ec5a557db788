//! The cluster cache in direct dispatch: the active dispatcher coordinates, and its successor soon has the
//! directory of the nodes.

use skep_tests::cache::wait_count;
use skep_tests::content::{assert_same, version};
use skep_tests::direct::{DirectCluster, Setup};
use skep_tests::sought::{DOUBTS, ORIGIN, OWNER, PEER, SILENT};
use skep_tests::{PATIENCE, RawClient, poll_until, skip};

const FILES: u32 = 20;
const LEN: usize = 100_000;
const NODES: [&str; 3] = ["node-1", "node-2", "node-3"];

/// Outcomes that are counted: read from others, read from disk, and the fallbacks without a coordinator.
const METRICS: [&str; 4] = [PEER, ORIGIN, OWNER, SILENT];

/// Requests all files from a node; returns the cache's outcome for each.
fn get_all(cluster: &DirectCluster, node: &str) -> Vec<String> {
    let get = |number: u32| {
        let address = cluster.node_address(node);
        let get = move || RawClient::connect(address).get(&format!("/f{number}"));
        let response = cluster.machine("client-1").run(get).unwrap();
        assert_same(&response.assert_status(200).body, &version(number, LEN));
        response.cache_status().to_owned()
    };
    (0..FILES).map(get).collect()
}

/// Waits until a dispatcher coordinates all nodes and its directory has this number of copies.
fn wait_coordinates(cluster: &DirectCluster, dispatcher: &str, copies: u32) {
    poll_until(PATIENCE, &format!("{dispatcher} knows {copies} copies"), || {
        let cache = cluster.coordinator(dispatcher);
        let is_linked = cache["nodes"].as_array().is_some_and(|it| it.len() == NODES.len());
        is_linked && cache["is_active"] == true && cache["copies"] == copies
    });
}

#[test]
fn nodes_share_their_memories_under_the_active_dispatcher_and_under_the_next_one() {
    let site = "content = \"shared\"\n[cache]\ncoordinator_timeout_ms = \"5s\"\n";
    let setup = Setup { site: site.into(), ..Setup::of(2, 3) };
    let Some(cluster) = DirectCluster::prepare(setup) else { return };
    for number in 0..FILES {
        let path = cluster.path("site").join(format!("f{number}"));
        std::fs::write(path, version(number, LEN)).unwrap();
    }
    cluster.run_all();
    cluster.wait_serving();
    let sum = |metric: &str| NODES.map(|node| cluster.metric(node, metric) as u64).iter().sum();
    let (active, standby) = (cluster.wait_active(), cluster.standby());
    // All nodes have one file, each from any available source.
    let served = NODES.len() as u32;
    wait_coordinates(&cluster, &active, served);
    let doubts = || DOUBTS.map(sum).iter().sum::<u64>();
    let (before, doubts_before): ([u64; 4], u64) = (METRICS.map(sum), doubts());
    let read = get_all(&cluster, "node-1");
    assert!(read.iter().all(|it| it == "skep; fwd=uri-miss; stored"), "{read:?}");
    wait_coordinates(&cluster, &active, served + FILES);
    let mut got = get_all(&cluster, "node-2");
    wait_coordinates(&cluster, &active, served + 2 * FILES);
    assert_eq!(cluster.coordinator(&standby)["is_active"], false);

    cluster.machine(&active).kill().unwrap();
    poll_until(PATIENCE, "the standby takes over", || cluster.holders() == [standby.as_str()]);
    wait_coordinates(&cluster, &standby, served + 2 * FILES);
    got.extend(get_all(&cluster, "node-3"));
    let files = u64::from(FILES);
    let since = |(now, before)| now - before;
    let counts = || METRICS.map(sum).into_iter().zip(before).map(since).collect::<Vec<u64>>();
    wait_count("files that each node has got", 3 * files, || counts()[..3].iter().sum());
    let in_vain = doubts() - doubts_before;
    if in_vain > 0 {
        // A node that a busy machine keeps from answering is skipped by others.
        skip(&format!("{in_vain} attempts to get files from other nodes were in vain"));
        assert!(counts()[1] <= files + in_vain, "{METRICS:?}: {:?}", counts());
        return;
    }
    assert!(got.iter().all(|it| it == "skep; hit; detail=peer"), "{got:?}");
    assert_eq!(counts(), [2 * files, files, 0, 0], "{METRICS:?}");
}
