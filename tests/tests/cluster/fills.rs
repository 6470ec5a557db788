//! Fills of segments: readers do not pace them, later readers join them, and sequential readers find the next
//! segments read ahead.

use skep_tests::cache::{CacheCluster, SEGMENT};
use skep_tests::content::{assert_same, version};
use skep_tests::origin::{Answer, FRESH, HEAD_RANGE, Origin};
use skep_tests::{PATIENCE, RawClient, Site, poll_until};

const FILL: &str = "skep_cache_requests_total{result=\"fill\"}";
const FILL_JOINED: &str = "skep_cache_requests_total{result=\"fill_joined\"}";
const TO_SEND: &str = "skep_bytes_outstanding";

fn begin(cluster: &CacheCluster, node: &str, path: &str) -> RawClient {
    let mut client = RawClient::connect(cluster.outer(node));
    client.ask(path);
    client
}

/// An origin that sends the first half of each answer, and the rest after `go_on`.
fn halting(body: &[u8]) -> Origin {
    let body = body.to_vec();
    Origin::start(move |asked| Answer::of(asked, &body, "\"v1\"", FRESH).halt(SEGMENT / 2))
}

#[test]
fn a_reader_that_stands_still_holds_up_no_other_reader_of_what_it_began() {
    /// More than socket buffers hold.
    const SEGMENTS: usize = 6;
    let body = version(1, SEGMENTS * SEGMENT);
    let origin = halting(&body);
    let cluster = CacheCluster::start_of(1, 2, Site::new(), &origin.line(), "");
    // It starts the first fills and those of the read-ahead.
    let mut stuck = begin(&cluster, "node-1", "/film");
    stuck.try_head().unwrap().assert_status(200);
    poll_until(PATIENCE, "segments are read ahead", || origin.asked().len() == 3);
    let mut others = ["node-1", "node-2"].map(|node| begin(&cluster, node, "/film"));
    origin.go_on();
    for other in &mut others {
        assert_same(&other.response().body, &body);
    }
    cluster.assert_asked(origin.asked().len() as u64, SEGMENTS as u64);
    assert!(cluster.metric("node-1", TO_SEND) > 0, "it stood still all the time");
    let mut read = Vec::new();
    while read.len() < body.len() {
        read.extend(stuck.try_read_some().unwrap());
    }
    assert_same(&read, &body);
}

/// Halted fills use up their memory. The head of another object comes from the other node and says that the origin
/// sends ranges, so that it can be passed through.
#[test]
fn without_room_for_a_fill_an_object_whose_head_another_node_has_is_passed_through() {
    /// More than there is memory for.
    const FILLS: usize = 24;
    let (large, small) = (version(1, SEGMENT), version(2, SEGMENT / 8));
    let bytes = small.clone();
    let origin = Origin::start(move |asked| match asked.target.starts_with("/held/") {
        true => Answer::of(asked, &large, "\"v1\"", FRESH).halt(SEGMENT / 2),
        false => Answer::of(asked, &bytes, "\"v1\"", FRESH),
    });
    let cache = "size_bytes_max = \"4MiB\"";
    let cluster = CacheCluster::start_of(1, 2, Site::new(), &origin.line(), cache);
    assert_same(&begin(&cluster, "node-1", "/a").response().body, &small);
    let held = (0..FILLS).map(|number| begin(&cluster, "node-2", &format!("/held/{number}")));
    let _held: Vec<_> = held.collect();
    poll_until(PATIENCE, "the origin is asked for all", || origin.asked().len() > FILLS);
    let response = begin(&cluster, "node-2", "/a").response();
    response.assert_status(200).assert_header("cache-status", "skep; fwd=bypass");
    assert_same(&response.body, &small);
    origin.go_on();
}

#[test]
fn who_comes_while_a_segment_is_filled_joins() {
    let body = version(1, SEGMENT);
    let origin = halting(&body);
    let cluster = CacheCluster::start_of(1, 2, Site::new(), &origin.line(), "");
    let mut clients = ["uri-miss; stored", "uri-miss; collapsed"].map(|word| {
        let mut client = begin(&cluster, "node-1", "/a");
        let head = client.try_head().unwrap();
        head.assert_status(200).assert_header("cache-status", &format!("skep; fwd={word}"));
        client
    });
    assert_eq!([FILL, FILL_JOINED].map(|metric| cluster.metric("node-1", metric)), [1, 1]);
    origin.go_on();
    for client in &mut clients {
        let mut read = Vec::new();
        while read.len() < body.len() {
            read.extend(client.try_read_some().unwrap());
        }
        assert_same(&read, &body);
    }
    assert_eq!(origin.ranges(), [HEAD_RANGE]);
}

#[test]
fn what_a_reader_of_one_part_after_the_other_wants_next_is_there_before_it_asks() {
    const SEGMENTS: usize = 9;
    let body = version(1, SEGMENTS * SEGMENT);
    let bytes = body.clone();
    let origin = Origin::start(move |asked| Answer::of(asked, &bytes, "\"v1\"", FRESH));
    let cluster = CacheCluster::start_of(1, 2, Site::new(), &origin.line(), "");
    let read = |path: &str, segment: usize| {
        let at = segment * SEGMENT;
        let range = format!("bytes={at}-{}", at + 999);
        let mut client = RawClient::connect(cluster.outer("node-1"));
        let part = client.request("GET", path, &[("Range", &range)]);
        assert_same(&part.assert_status(206).body, &body[at..at + 1_000]);
    };
    let asked = |path: &str| {
        let mut segments: Vec<usize> = Vec::new();
        let of_path = origin.asked().into_iter().filter(|asked| asked.target == path);
        segments.extend(of_path.map(|asked| asked.range(body.len()).unwrap().start / SEGMENT));
        segments.sort_unstable();
        segments
    };
    // Random access has no predictable next segment.
    [0, 5, 2, 7, 4].iter().for_each(|&segment| read("/leaps", segment));
    (0..5).for_each(|segment| read("/plays", segment));
    let next: Vec<usize> = (0..7).collect();
    poll_until(PATIENCE, "both segments behind the last one are got", || {
        asked("/plays").len() >= next.len()
    });
    assert_eq!(asked("/plays"), next);
    assert_eq!(asked("/leaps"), [0, 2, 4, 5, 7]);
}
