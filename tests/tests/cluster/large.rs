//! A file that is larger than a node's memory and smaller than the cluster's: clients read arbitrary parts of
//! it, and the origin sends it once. (`skep-lab large` uses the full size, and measures speeds.)

use skep_lab::load::{PartReaders, Pattern, Target};
use skep_tests::cache::{CacheCluster, SEGMENT};
use skep_tests::direct::figure;
use skep_tests::origin::Origin;
use skep_tests::sought::{ORIGIN_BYTES, REMOTE_FILLS};
use skep_tests::{PATIENCE, Site, poll_until};

const NODES: [&str; 3] = ["node-1", "node-2", "node-3"];
const PATTERN: Pattern = Pattern { seed: 7 };

/// A node's memory; that of three nodes is sufficient for the file.
const CACHE: &str = "size_bytes_max = \"64MiB\"";
const LEN: u64 = 112 << 20;

/// Number of concurrent readers: in proportion to the nodes' memory, the same as a hundred for ten nodes of
/// 256 MiB.
const READERS: usize = 8;

/// Number of parts read, and the size of each: five times the file in total.
const PARTS: u64 = 600;
const PART_BYTES: u64 = 1_000_000;

/// Maximum origin traffic relative to the file's length, in percent: without cooperation it is 200 or 300.
/// The bound is 105 on a machine that is not overloaded, where messages between nodes arrive in time, as
/// `skep-lab large` measures.
const PERCENT_MAX: u64 = 120;

#[test]
fn one_who_reads_all_of_it_leaves_it_in_the_nodes_memories() {
    let mut bytes = vec![0; LEN as usize];
    PATTERN.fill(0, &mut bytes);
    let origin = Origin::of(bytes.clone(), "\"v1\"", "Cache-Control: max-age=3600\r\n");
    let remote = CacheCluster::start_of(1, 3, Site::new(), &origin.line(), CACHE);
    let folder = CacheCluster::start(1, 3, Site::new().with("film", &bytes), CACHE);
    for (what, cluster) in [("an origin", remote), ("a shared folder", folder)] {
        for (nth, node) in NODES.iter().enumerate() {
            let whole = cluster.get(node, "/film");
            assert_eq!(PATTERN.first_wrong(0, &whole.body), None, "{what}, {nth}");
            assert_eq!(whole.body.len() as u64, LEN, "{what}, {nth}");
        }
        let [read, remote_fills] = [ORIGIN_BYTES, REMOTE_FILLS].map(|metric| cluster.sum(metric));
        figure(&format!(
            "a file of two nodes' memories at three nodes, read in order at each: {} % of it \
             came from {what}, {remote_fills} segments by remote fills; {} attempts in vain",
            read * 100 / LEN,
            cluster.doubts()
        ));
        assert!(remote_fills > 0, "{what}: one node's memory has room for half of it");
        assert_no_more(&cluster, read, what);
    }
}

#[test]
fn what_a_node_evicts_last_is_passed_on_without_a_further_fill() {
    let names: Vec<_> = (0..12).map(|number| format!("part-{number}")).collect();
    let site = names.iter().fold(Site::new(), |site, name| site.with(name, vec![7; SEGMENT]));
    let cluster = CacheCluster::start(1, 3, site, "size_bytes_max = \"32MiB\"");
    let taken = || cluster.metric("node-1", "skep_cluster_cache_offers_total{outcome=\"taken\"}");
    let mut reads = names.iter().cycle();
    // It offers nothing before it was informed that others have room.
    poll_until(PATIENCE, "evicted segments are passed on", || {
        reads.by_ref().take(names.len()).for_each(|name| {
            cluster.get("node-1", &format!("/{name}")).assert_status(200);
        });
        taken() > 0
    });
    let pinned = || cluster.metric("node-1", "skep_cache_pinned_bytes");
    poll_until(PATIENCE, "nothing waits to be passed on", || pinned() == 0);
}

#[test]
fn readers_at_random_offsets_cost_the_origin_the_file_once() {
    let mut bytes = vec![0; LEN as usize];
    PATTERN.fill(0, &mut bytes);
    let origin = Origin::of(bytes, "\"v1\"", "Cache-Control: max-age=3600\r\n");
    let cluster = CacheCluster::start_of(1, 3, Site::new(), &origin.line(), CACHE);
    let percent = || cluster.sum("skep_origin_bytes_total") * 100 / LEN;
    let parts = PartReaders {
        targets: NODES.map(|node| Target::new(cluster.outer(node), "/film")).into(),
        object_bytes: LEN,
        part_bytes: PART_BYTES,
        readers: READERS,
        count: PARTS,
        rate_bytes_s: 0,
        seed: 11,
        pattern: Some(PATTERN),
        timeout_ms: 60_000,
    };
    let report = parts.run().unwrap();
    assert_eq!((report.succeeded, report.failed), (PARTS, 0), "{:?}", report.examples);
    let by_readers = percent();
    // A sequential reader of the whole file receives it from all memories.
    let whole = cluster.get("node-2", "/film");
    assert_eq!(PATTERN.first_wrong(0, &whole.body), None);
    assert_eq!(whole.body.len() as u64, LEN);
    let in_all = percent();
    figure(&format!(
        "{READERS} readers at random offsets of a file of two nodes' memories at three nodes: \
         origin traffic {by_readers} % of the file, {in_all} % after all of it was read once more; \
         {} attempts in vain",
        cluster.doubts()
    ));
    assert_no_more(&cluster, cluster.sum("skep_origin_bytes_total"), "an origin");
}

/// Asserts that the file was read once, plus what nodes of a busy machine could not get from each other.
#[track_caller]
fn assert_no_more(cluster: &CacheCluster, read: u64, what: &str) {
    let doubts = cluster.doubts();
    let most = LEN * PERCENT_MAX / 100 + doubts * SEGMENT as u64;
    assert!(read <= most, "{what}: {read} of {LEN} bytes, {doubts} attempts in vain");
}
