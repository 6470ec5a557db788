//! Nodes that cannot reach each other although both are linked with the coordinator: the requesting node uses
//! the other holder or the origin.

use std::thread;
use std::time::Instant;

use skep_testbed::{Bed, Topology};
use skep_tests::cache::{CacheCluster, wait_count};
use skep_tests::content::{assert_same, version};
use skep_tests::direct::{figure, root_or_skip};
use skep_tests::sought::{LOST, ORIGIN, PEER};
use skep_tests::{PATIENCE, Site, poll_until};

/// Two full chunks and a partial one.
const LEN: usize = 600_000;

/// Starts a dispatcher and three nodes that share `files` files `f0`, `f1`, ...
fn start(files: usize) -> Option<CacheCluster> {
    if !root_or_skip() {
        return None;
    }
    let bed = Bed::new(&Topology { dispatchers: 1, nodes: 3, ..Topology::default() }).unwrap();
    let site = (0..files).fold(Site::new(), |site, number| {
        site.with(&format!("f{number}"), version(number as u32, LEN))
    });
    let lines = format!("root = \"{}\"\ncontent = \"shared\"\n", site.root().display());
    Some(CacheCluster::start_on(bed, site, &lines, ""))
}

fn get_all(cluster: &CacheCluster, node: &str, files: usize) {
    thread::scope(|scope| {
        for number in 0..files {
            scope.spawn(move || {
                let response = cluster.get(node, &format!("/f{number}"));
                assert_eq!(response.status, 200, "f{number}");
                assert_same(&response.body, &version(number as u32, LEN));
            });
        }
    });
}

fn cut(cluster: &CacheCluster, one: &str, other: &str) {
    cluster.bed().partition(cluster.machine(one), cluster.machine(other)).unwrap();
}

/// Waits until the coordinator has recorded that a node holds this number of files.
fn wait_held(cluster: &CacheCluster, node: &str, files: usize) {
    poll_until(PATIENCE, &format!("{files} files are held by {node}"), || {
        let nodes = cluster.coordinator("dispatcher-1")["nodes"].clone();
        let held = |it: &serde_json::Value| it["held_bytes"] == (files * LEN) as u64;
        nodes.as_array().unwrap().iter().any(|it| it["name"] == node && held(it))
    });
}

#[test]
fn a_holder_that_is_cut_off_is_passed_over_for_the_other() {
    const FILES: usize = 32;
    let Some(cluster) = start(FILES) else { return };
    for node in ["node-1", "node-3"] {
        get_all(&cluster, node, FILES);
        wait_held(&cluster, node, FILES);
    }
    let before = cluster.metric("node-2", PEER);
    cut(&cluster, "node-1", "node-2");
    let start = Instant::now();
    get_all(&cluster, "node-2", FILES);
    let elapsed_ms = start.elapsed().as_millis();
    // Which holder is listed first is random.
    let lost = cluster.metric("node-2", LOST);
    assert!(lost > 0 && lost < FILES as u64, "{lost} of {FILES}");
    let got = || cluster.metric("node-2", PEER) + cluster.metric("node-2", ORIGIN);
    wait_count("files from anywhere", before + FILES as u64, got);
    // Files are read again only if the other holder was not scheduled in time either.
    let read = cluster.metric("node-2", ORIGIN);
    assert!(2 * read <= lost, "{read} read, {lost} lost");
    figure(&format!(
        "a cut between a node and one of two holders: {FILES} files in {elapsed_ms} ms"
    ));
}

#[test]
fn who_is_cut_off_from_the_only_holder_reads_the_origin_and_the_cut_heals() {
    const FILES: usize = 8;
    let Some(cluster) = start(2 * FILES) else { return };
    get_all(&cluster, "node-1", FILES);
    wait_held(&cluster, "node-1", FILES);
    // Including a connection between them that is in use when the link is cut.
    assert_same(&cluster.get("node-2", "/f0").body, &version(0, LEN));
    let count = || [ORIGIN, LOST].map(|metric| cluster.metric("node-2", metric));
    let [read_before, lost_before] = count();
    cut(&cluster, "node-1", "node-2");
    let start = Instant::now();
    get_all(&cluster, "node-2", FILES);
    let elapsed_ms = start.elapsed().as_millis();
    cluster.wait_metric("node-2", ORIGIN, read_before + FILES as u64 - 1);
    cluster.wait_metric("node-2", LOST, lost_before + FILES as u64 - 1);
    let [read_cut, lost_cut] = count();
    cluster.bed().heal_all().unwrap();
    // New files; a node that has read them reports it at once.
    get_all(&cluster, "node-1", 2 * FILES);
    wait_held(&cluster, "node-1", 2 * FILES);
    get_all(&cluster, "node-2", 2 * FILES);
    // They are fetched from node-1, except when that was not scheduled in time.
    let [read, lost] = count();
    assert!(read - read_cut <= lost - lost_cut, "{read} read, {lost} lost");
    figure(&format!("a cut between a node and the only holder: {FILES} files in {elapsed_ms} ms"));
}

#[test]
fn a_node_that_is_cut_off_from_all_others_serves_alone_and_comes_back() {
    const FILES: usize = 6;
    let Some(cluster) = start(2 * FILES) else { return };
    get_all(&cluster, "node-1", FILES);
    for other in ["dispatcher-1", "node-1", "node-2"] {
        cut(&cluster, "node-3", other);
    }
    let start = Instant::now();
    get_all(&cluster, "node-3", FILES);
    let elapsed_ms = start.elapsed().as_millis();
    cluster.wait_linked(2);
    get_all(&cluster, "node-2", FILES);
    cluster.bed().heal_all().unwrap();
    cluster.wait_linked(3);
    wait_held(&cluster, "node-3", FILES);
    get_all(&cluster, "node-1", 2 * FILES);
    wait_held(&cluster, "node-1", 2 * FILES);
    let count = || [ORIGIN, LOST].map(|metric| cluster.metric("node-3", metric));
    let [read_before, lost_before] = count();
    get_all(&cluster, "node-3", 2 * FILES);
    // It can reach the others again.
    let [read, lost] = count();
    assert!(read - read_before <= lost - lost_before, "{read} read, {lost} lost");
    figure(&format!("a node cut off from all others: {FILES} files in {elapsed_ms} ms"));
}
