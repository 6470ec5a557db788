//! Memory of the nodes of a cluster: all have access to the same objects, and none exceeds its own limit.

use skep_tests::Site;
use skep_tests::cache::CacheCluster;
use skep_tests::flood::{TinyOrigin, get_all};

const MIB: u64 = 1024 * 1024;
const CACHE_MIB: u64 = 8;

/// Memory of a node besides its cache, without large replies (`docs/operate/memory.md`).
const FIXED_MIB: u64 = 64;

#[test]
fn objects_that_are_hardly_more_than_their_names_stay_within_the_cache_of_each_node() {
    let origin = TinyOrigin::new();
    let size = format!("size_bytes_max = \"{CACHE_MIB}MiB\"");
    let cluster = CacheCluster::start_of(1, 2, Site::new(), &origin.line(), &size);
    cluster.wait_up();
    let nodes = ["node-1", "node-2"];
    let mut most = 0;
    for turn in 0..4 {
        let outer = cluster.outer(nodes[turn as usize % 2]);
        get_all(outer, 8, turn * 300..(turn + 2) * 300, |number| format!("/{number}"));
        let query = |number| format!("/q?{number}&{}", "x".repeat(7_900));
        get_all(outer, 8, turn * 300..(turn + 2) * 300, query);
        let taken = nodes.map(|node| cluster.daemon(node).memory_bytes());
        most = taken.into_iter().fold(most, u64::max);
    }
    assert!(most <= (CACHE_MIB + FIXED_MIB) * MIB, "{} MiB", most / MIB);
}
