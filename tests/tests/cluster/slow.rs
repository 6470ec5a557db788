//! Slow clients of a proxying dispatcher do not affect the node. Steady ones receive every byte over both
//! hops; clients that read nothing are disconnected by the dispatcher, which logs it, before the node does
//! so.

use std::net::SocketAddr;
use std::thread;

use skep_testbed::{Bed, Topology};
use skep_tests::cache::CacheCluster;
use skep_tests::content::{self, assert_same};
use skep_tests::direct::root_or_skip;
use skep_tests::{PATIENCE, RawClient, Site, Steady, poll_until};

const MIB: usize = 1024 * 1024;
const SIZE: usize = 16 * MIB;

/// Limits of dispatchers and nodes: a client is disconnected that reads nothing for two seconds, or less than
/// 85 KiB/s averaged over six seconds.
const STRICT: &str = "[timeouts]\nwrite_stall_ms = \"2s\"\nsend_min_bytes_per_s = \"85KiB\"\n\
                      send_average_ms = \"6s\"\n";

const STALLED: &str = "skep_connections_closed_total{reason=\"write_stall\"}";
const SLOW: &str = "skep_connections_closed_total{reason=\"send_slow\"}";
const FAILED: &str = "skep_upstream_failures_total";

fn site() -> Site {
    Site::new().with_large("large", SIZE)
}

/// Reads all of `/large`.
fn read(address: SocketAddr, rate_bytes_s: u64) -> Vec<u8> {
    Steady::get(address, "/large", rate_bytes_s).0.read(SIZE)
}

/// Runs this number of concurrent readers, each of which must receive the whole file.
fn read_all(address: SocketAddr, readers: usize, rate_bytes_s: u64) {
    let whole = content::version(1, SIZE);
    thread::scope(|scope| {
        let readers: Vec<_> =
            (0..readers).map(|_| scope.spawn(|| read(address, rate_bytes_s))).collect();
        readers.into_iter().for_each(|reader| assert_same(&reader.join().unwrap(), &whole));
    });
}

#[test]
fn steady_readers_get_every_byte_through_a_dispatcher() {
    let cluster = CacheCluster::start(1, 1, site(), STRICT);
    cluster.wait_up();
    read_all(cluster.outer("dispatcher-1"), 6, 2 * MIB as u64 / 3);
}

/// `cargo test -p skep-tests --test cluster -- --ignored slow::with_default`; 35 minutes at 4 KiB/s.
#[test]
#[ignore = "takes 35 minutes"]
fn with_default_settings_steady_readers_get_every_byte() {
    if !root_or_skip() {
        return;
    }
    const BYTES: usize = 8 * MIB;
    let topology = Topology { clients: 1, dispatchers: 1, nodes: 1, ..Topology::default() };
    let (bed, site) = (Bed::new(&topology).unwrap(), Site::new().with_large("large", BYTES));
    let lines = format!("root = \"{}\"\ncontent = \"shared\"\n", site.root().display());
    let cluster = CacheCluster::start_on(bed, site, &lines, "");
    let client = cluster.machine("client-1");
    let whole = content::version(1, BYTES);
    let read =
        |address, rate| client.run(|| Steady::get(address, "/large", rate).0.read(BYTES)).unwrap();
    thread::scope(|scope| {
        for address in ["node-1", "dispatcher-1"].map(|server| cluster.outer(server)) {
            for rate_kib_s in [32, 4] {
                let (read, whole) = (&read, &whole);
                scope.spawn(move || assert_same(&read(address, rate_kib_s * 1024), whole));
            }
        }
    });
}

#[test]
fn who_takes_nothing_is_cut_off_by_the_dispatcher_and_not_by_the_node() {
    let cluster = CacheCluster::start(1, 1, site(), STRICT);
    cluster.wait_up();
    let dispatcher = cluster.outer("dispatcher-1");
    let mut idle: Vec<_> = (0..4).map(|_| Steady::get(dispatcher, "/large", 1).0).collect();
    poll_until(PATIENCE, "the dispatcher cuts them off", || {
        cluster.metric("dispatcher-1", STALLED) == 4
    });
    assert_eq!([STALLED, SLOW].map(|it| cluster.metric("node-1", it)), [0, 0]);
    assert_eq!(cluster.metric("dispatcher-1", FAILED), 0, "the node is not to blame");
    for client in &mut idle {
        assert!(client.read_to_close().len() < SIZE);
    }
    // The node still receives requests.
    let (_, head) = Steady::get(dispatcher, "/large", MIB as u64);
    head.assert_status(200);
}

/// The node answers before it has the body, which never arrives: the reply must not disarm the timeout of
/// what is read after it.
#[test]
fn a_body_that_never_comes_holds_nothing_at_a_dispatcher() {
    let cluster = CacheCluster::start(1, 1, site(), "");
    cluster.wait_up();
    let mut client = RawClient::connect(cluster.outer("dispatcher-1"));
    client.send("POST /large HTTP/1.1\r\nHost: test\r\nContent-Length: 1000\r\n\r\nx");
    client.response().assert_status(405);
    client.assert_closed();
}

/// With segments of 1,460 bytes, where windows open in smaller steps than on the loopback. Times are a tenth
/// of the defaults: a reader of 42 KiB/s corresponds to one of 4 KiB/s.
#[test]
fn steady_readers_get_every_byte_over_links_with_an_mtu_of_1500() {
    /// Bytes read by the slow reader during the time of the fast ones, which exceeds the averaging window.
    const SLOW: usize = 16 * 42 * 1024;
    const DECADE: &str = "[timeouts]\nwrite_stall_ms = \"2s\"\nsend_min_bytes_per_s = \"10KiB\"\n\
                          send_average_ms = \"12s\"\n";
    if !root_or_skip() {
        return;
    }
    let topology = Topology { clients: 1, dispatchers: 1, nodes: 1, ..Topology::default() };
    let (bed, site) = (Bed::new(&topology).unwrap(), site());
    let lines = format!("root = \"{}\"\ncontent = \"shared\"\n", site.root().display());
    let cluster = CacheCluster::start_on(bed, site, &lines, DECADE);
    let client = cluster.machine("client-1");
    let read_slowly = |address| {
        let read = Steady::get(address, "/large", 42 * 1024).0.read(SLOW);
        assert_same(&read, &content::version(1, SLOW));
    };
    let [node, dispatcher] = ["node-1", "dispatcher-1"].map(|server| cluster.outer(server));
    // Threads belong to the network of the machine that starts them.
    let read = || {
        thread::scope(|scope| {
            for address in [node, dispatcher] {
                scope.spawn(move || read_all(address, 3, MIB as u64));
                scope.spawn(move || read_slowly(address));
            }
        });
    };
    client.run(read).unwrap();
}
