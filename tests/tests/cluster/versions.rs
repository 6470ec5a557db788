//! Inconsistent bytes: one entity tag for different lengths, copies with another length than their name
//! implies, partially written files. No node serves a mixture of them, passes them on, or waits for missing
//! bytes for ever.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use skep_tests::cache::{CacheCluster, OWN_NAME, SEGMENT};
use skep_tests::content::{assert_same, version};
use skep_tests::fake::{FakeNode, Greeting, Said};
use skep_tests::origin::{Answer, Origin};
use skep_tests::rewrite::{rewrite, version_if_named};
use skep_tests::sought::{PEER, REFUSED};
use skep_tests::{End, PATIENCE, RawClient, Site, poll_until};
use skep_wire::cache::PeerReply;

const NODES: [&str; 3] = ["node-1", "node-2", "node-3"];

/// Stored, and revalidated each time.
const STALE: &str = "Cache-Control: max-age=0\r\n";

#[test]
fn nodes_that_know_different_lengths_under_one_tag_do_not_meet() {
    // By path: the successive contents of the origin.
    let versions = [("/a", [100, 150, 90]), ("/b", [20_000, 30_000, 10_000])];
    let several = ("/c", [SEGMENT + 9_000, SEGMENT + 8_000, SEGMENT]);
    let versions: HashMap<_, _> = versions.into_iter().chain([several]).collect();
    let number = Arc::new(AtomicUsize::new(0));
    let (its, known) = (Arc::clone(&number), versions.clone());
    let origin = Origin::start(move |asked| {
        let number = its.load(Ordering::SeqCst);
        let bytes = version(number as u32, known[asked.target.as_str()][number]);
        Answer::of(&asked.without("if-none-match"), &bytes, "\"v\"", STALE)
    });
    let cluster = CacheCluster::start_of(1, 3, Site::new(), &origin.line(), "");
    // Each node first receives a different length; then all receive the last one.
    for (turn, node) in NODES.into_iter().enumerate() {
        number.store(turn, Ordering::SeqCst);
        for (path, lengths) in &versions {
            assert_same(&cluster.get(node, path).body, &version(turn as u32, lengths[turn]));
        }
    }
    for node in NODES {
        for (path, lengths) in &versions {
            let whole = version(2, lengths[2]);
            let mut client = RawClient::connect(cluster.outer(node));
            let part = client.request("GET", path, &[("Range", "bytes=0-29")]);
            assert_same(&part.body, &whole[..30]);
            assert_same(&client.get(path).body, &whole);
        }
    }
    assert!(cluster.sum(PEER) > 0, "bytes of the same version came from memory");
    assert_eq!(cluster.sum(REFUSED), 0, "nobody was asked for what it has something else of");
}

#[test]
fn what_was_caught_half_written_is_passed_on_to_no_node() {
    const LEN: usize = 700_000;
    const VERSIONS: u32 = 16;
    // On a disk that all nodes share, and on one of node-1 only.
    for (content, folder) in [("shared", "node-1"), ("partition", OWN_NAME)] {
        let site = Site::new().with_large("node-1/f", LEN);
        for node in ["node-2", "node-3"] {
            std::fs::create_dir(site.path(node)).unwrap();
        }
        let root = site.path(folder);
        let lines = format!("root = \"{}\"\ncontent = \"{content}\"\n", root.display());
        let cluster = CacheCluster::start_of(1, 3, Site::new(), &lines, "");
        let end = End::default();
        let get = |node: &str| {
            let mut client = RawClient::connect(cluster.outer(node));
            client.ask("/f");
            client.try_response().ok().filter(|reply| reply.status == 200)
        };
        thread::scope(|scope| {
            let _ends = end.with_this();
            for node in NODES {
                let (get, end) = (&get, &end);
                scope.spawn(move || {
                    while !end.has_come() {
                        get(node).as_ref().map(version_if_named);
                    }
                });
            }
            for number in 2..=VERSIONS {
                rewrite(&site.path("node-1/f"), &version(number, LEN));
                if number % 4 == 0 {
                    poll_until(PATIENCE, "a node has it to stay", || {
                        get("node-1").as_ref().and_then(version_if_named) == Some(number)
                    });
                }
            }
        });
        for node in NODES {
            poll_until(PATIENCE, "all have the last version", || {
                get(node).is_some_and(|reply| reply.body == version(VERSIONS, LEN))
            });
            assert_same(&get(node).unwrap().body, &version(VERSIONS, LEN));
        }
    }
}

#[test]
fn a_copy_of_another_length_than_its_name_says_is_not_served() {
    const LEN: usize = 50_000;
    let body = version(1, LEN);
    // A node that has not seen the file cannot know what a name stands for.
    let passed_on = [("half", LEN / 2), ("double", 2 * LEN), ("byte", LEN - 1), ("tiny", 10)];
    let site = passed_on.iter().fold(Site::new(), |site, (name, _)| site.with(name, &body));
    let cluster = CacheCluster::start(1, 1, site, "");
    let said = |(name, bytes): &(&str, usize)| {
        (cluster.segment_name(name, 0), Said::whole(&version(9, *bytes), 0))
    };
    let scripts: HashMap<_, _> = passed_on.iter().map(said).collect();
    let coordinator = ("dispatcher-1", cluster.inner("dispatcher-1"));
    let fake = FakeNode::join("node-9", coordinator, Greeting::Right, move |name, _| {
        scripts.get(&name).cloned()
    });
    cluster.wait_linked(2);
    for (name, bytes) in passed_on {
        let segment = cluster.segment_name(name, 0);
        let taken = fake.offer(cluster.inner("node-1"), segment, bytes as u32).unwrap();
        assert_eq!(taken, PeerReply::Taken, "{name}");
        let mut client = RawClient::connect(cluster.outer("node-1"));
        let part = client.request("GET", &format!("/{name}"), &[("Range", "bytes=0-29")]);
        assert_same(&part.body, &body[..30]);
        for _ in 0..2 {
            assert_same(&client.get(&format!("/{name}")).body, &body);
        }
    }
}
