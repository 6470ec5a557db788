//! Sites partitioned over nodes, while nodes and links are lost: no node reports a file as absent that may
//! exist.

use std::fs;

use skep_testbed::{Bed, Topology};
use skep_tests::cache::{CacheCluster, OWN_NAME};
use skep_tests::direct::root_or_skip;
use skep_tests::sought::SILENT;
use skep_tests::{PATIENCE, Response, Site, poll_until};

const NODES: [&str; 3] = ["node-1", "node-2", "node-3"];

/// Metric of the number of nodes linked with a coordinator.
const LINKED: &str = "skep_coordinator_nodes";

/// Starts one dispatcher and three nodes, each with the subfolder of `site` that has its name. All nodes rely
/// on the coordinator.
fn start(site: Site) -> Option<CacheCluster> {
    if !root_or_skip() {
        return None;
    }
    NODES.iter().for_each(|node| fs::create_dir_all(site.path(node)).unwrap());
    let bed = Bed::new(&Topology { dispatchers: 1, nodes: 3, ..Topology::default() }).unwrap();
    let root = site.path(OWN_NAME);
    let lines = format!("root = \"{}\"\ncontent = \"partition\"\n", root.display());
    let cluster = CacheCluster::start_on(bed, site, &lines, "");
    for node in NODES {
        let silent = || cluster.metric(node, SILENT);
        let mut number = 0;
        poll_until(PATIENCE, &format!("{node} relies on the coordinator"), || {
            let before = silent();
            number += 1;
            cluster.get(node, &format!("/none-{number}")).status == 404 && silent() == before
        });
    }
    Some(cluster)
}

/// A site of `FILES` files, all on node-3.
fn site() -> Site {
    (0..FILES).fold(Site::new(), |site, number| site.with(&format!("node-3/f{number}"), "here"))
}

const FILES: usize = 4_000;

/// Requests one file after the other at node-1, each of them once.
struct Reader<'a> {
    cluster: &'a CacheCluster,
    next: usize,
}

impl Reader<'_> {
    fn read(&mut self) -> Response {
        let response = self.cluster.get("node-1", &format!("/f{}", self.next));
        self.next += 1;
        assert!(self.next < FILES, "there are enough files");
        response
    }

    /// Asserts that the next file is found.
    #[track_caller]
    fn assert_read(&mut self) {
        let response = self.read();
        assert_eq!(response.status, 200, "f{} of {FILES}", self.next - 1);
        assert_eq!(response.body, b"here");
    }
}

#[track_caller]
fn assert_unavailable(response: &Response) {
    assert_eq!(response.status, 503);
    assert!(response.header("retry-after").is_some());
    assert_eq!(response.header("cache-status"), Some("skep; fwd=miss; detail=node-away"));
}

#[test]
fn files_are_there_while_their_node_has_no_link_with_the_coordinator() {
    let Some(cluster) = start(site()) else { return };
    let mut reader = Reader { cluster: &cluster, next: 0 };
    let linked = || cluster.metric("dispatcher-1", LINKED);
    for _ in 0..2 {
        cluster
            .bed()
            .partition(cluster.machine("dispatcher-1"), cluster.machine("node-3"))
            .unwrap();
        while linked() == 3 {
            reader.assert_read();
        }
        (0..50).for_each(|_| reader.assert_read());
        assert_eq!(cluster.get("node-1", "/none").status, 404, "and of what is not there");
        cluster.bed().heal_all().unwrap();
        while linked() < 3 {
            reader.assert_read();
        }
        (0..50).for_each(|_| reader.assert_read());
    }
}

#[test]
fn files_of_a_node_that_is_cut_off_are_unavailable_and_come_back_with_it() {
    let Some(cluster) = start(site()) else { return };
    let mut reader = Reader { cluster: &cluster, next: 0 };
    reader.assert_read();
    for other in ["dispatcher-1", "node-1", "node-2"] {
        cluster.bed().partition(cluster.machine(other), cluster.machine("node-3")).unwrap();
    }
    poll_until(PATIENCE, "the loss of node-3 is noticed", || {
        assert_unavailable(&reader.read());
        cluster.metric("dispatcher-1", LINKED) == 2
    });
    assert_unavailable(&reader.read());
    assert_eq!(cluster.get("node-1", "/none").status, 404, "not all is lost");
    cluster.bed().heal_all().unwrap();
    poll_until(PATIENCE, "node-3 is back", || match reader.read() {
        response if response.status == 200 => true,
        response => {
            assert_unavailable(&response);
            false
        }
    });
    reader.assert_read();
}

#[test]
fn files_of_a_node_that_has_died_are_unavailable_and_come_back_with_it() {
    let Some(mut cluster) = start(site()) else { return };
    cluster.kill("node-3");
    let mut reader = Reader { cluster: &cluster, next: 0 };
    (0..5).for_each(|_| assert_unavailable(&reader.read()));
    let next = reader.next;
    cluster.run("node-3");
    let mut reader = Reader { cluster: &cluster, next };
    poll_until(PATIENCE, "node-3 is back", || match reader.read() {
        response if response.status == 200 => true,
        response => {
            assert_unavailable(&response);
            false
        }
    });
    (0..100).for_each(|_| reader.assert_read());
}
