//! Origins that fail behind a cluster: clients of all nodes receive bytes of one version or none, nobody
//! waits for ever, and once the origin works again all replies are correct.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use skep_tests::cache::{CacheCluster, SEGMENT, wait_count};
use skep_tests::content::{assert_same, version};
use skep_tests::origin::{Answer, Asked, FRESH, Origin, Then};
use skep_tests::sought::{FAILED, ORIGIN, OWNER, PEER};
use skep_tests::{ClientError, Crowd, PATIENCE, RawClient, Site, SourceAddress, poll_until};

const NODES: [&str; 3] = ["node-1", "node-2", "node-3"];

/// One full segment and a partial one.
const LEN: usize = SEGMENT + SEGMENT / 2 + 5_000;

/// Timeouts of origins: short, but longer than a busy machine delays their answers, so that other faults do
/// not count as timeouts.
const SOON: &str = "[site.fetch]\nstall_timeout_ms = \"2s\"\nresponse_timeout_ms = \"2s\"\n";

/// A timeout longer than a busy machine delays a test's origin.
const STALL: &str = "[site.fetch]\nstall_timeout_ms = \"2s\"\n";

/// Both versions that an object may have, with their tags.
struct Versions {
    bytes: [Vec<u8>; 2],
}

const TAGS: [&str; 2] = ["\"v1\"", "\"v2\""];

impl Versions {
    fn new() -> Self {
        Self { bytes: [version(1, LEN), version(2, LEN + 10_000)] }
    }

    fn answer(&self, number: usize, asked: &Asked) -> Answer {
        Answer::of(asked, &self.bytes[number], TAGS[number], FRESH)
    }
}

/// What a client has received of an object: a status, and the body with its tag.
struct Seen {
    status: u16,
    tag: String,
    body: Vec<u8>,
}

impl Seen {
    fn at(cluster: &CacheCluster, node: &str, path: &str) -> Self {
        let mut client = RawClient::connect(cluster.outer(node));
        client.send_request("GET", path, &[("Connection", "close")]);
        let (status, tag) = match client.try_head() {
            Ok(head) => (head.status, head.header("etag").unwrap_or_default().to_owned()),
            Err(ClientError::Closed(_) | ClientError::Failed(_)) => (0, String::new()),
            Err(error) => panic!("{path}: {error}"),
        };
        Self { status, tag, body: client.read_to_close() }
    }

    /// Whether it is a complete object; a part must belong to one version.
    fn is_whole(&self, versions: &Versions, what: &str) -> bool {
        if self.status != 200 {
            // Closed before a head, or an error status.
            assert!(matches!(self.status, 0 | 302 | 500..600), "{what}: {}", self.status);
            return false;
        }
        let number = TAGS.iter().position(|tag| *tag == self.tag);
        let whole = &versions.bytes[number.unwrap_or_else(|| panic!("{what}: {}", self.tag))];
        assert!(self.body.len() <= whole.len(), "{what}: {} bytes", self.body.len());
        assert_same(&self.body, &whole[..self.body.len()]);
        self.body.len() == whole.len()
    }
}

/// What an origin does with the n-th request for an object, when it fails.
type Fault = fn(&Versions, usize, &Asked) -> Answer;

/// Correct for the first segment; `fault` applies to later ones.
fn later(versions: &Versions, asked: &Asked, fault: impl Fn(Answer) -> Answer) -> Answer {
    let answer = versions.answer(0, asked);
    let starts_late = asked.range(LEN).is_some_and(|range| range.start >= SEGMENT);
    if starts_late { fault(answer) } else { answer }
}

/// Replaces a line in the head of an answer with a body.
fn with_line(mut answer: Answer, from: &str, to: &str) -> Answer {
    assert!(answer.head.contains(from), "{}", answer.head);
    answer.head = answer.head.replace(from, to);
    answer
}

const FAULTS: &[(&str, Fault)] = &[
    ("/500", |_, _, _| Answer::new(500, "", "oh")),
    ("/500-later", |it, _, asked| later(it, asked, |_| Answer::new(500, "", "oh"))),
    ("/503-each-second-time", |it, n, asked| match n % 2 {
        0 => Answer::new(503, "", "not now"),
        _ => it.answer(0, asked),
    }),
    ("/stall", |_, _, _| Answer { then: Then::Hang, ..Answer::default() }),
    ("/stall-later", |it, _, asked| later(it, asked, |it| it.cut(SEGMENT / 4, Then::Hang))),
    ("/close", |_, _, _| Answer { then: Then::Close, ..Answer::default() }),
    ("/close-early", |it, _, asked| it.answer(0, asked).cut(1 << 20, Then::Close)),
    ("/close-at-once", |it, _, asked| it.answer(0, asked).cut(0, Then::Close)),
    ("/change", |it, n, asked| it.answer(n.min(1), asked)),
    ("/change-each-time", |it, n, asked| it.answer(n % 2, asked)),
    ("/same-tag-other-length", |it, _, asked| {
        let total = |number: usize| format!("/{}\r\n", it.bytes[number].len());
        later(it, asked, |answer| with_line(answer, &total(0), &total(1)))
    }),
    ("/long", |it, _, asked| {
        let mut answer = it.answer(0, asked);
        answer.body.extend([b'x'; 1_000]);
        Answer { then: Then::Close, ..answer }
    }),
    ("/short", |it, _, asked| later(it, asked, |it| it.cut(100_000, Then::Close))),
    ("/no-ranges", |it, _, _| {
        Answer::new(200, &format!("ETag: {}\r\n{FRESH}", TAGS[0]), &it.bytes[0])
    }),
    ("/no-ranges-later", |it, _, asked| {
        let fields = format!("ETag: {}\r\n{FRESH}", TAGS[0]);
        later(it, asked, |_| Answer::new(200, &fields, &it.bytes[0]))
    }),
    ("/another-range", |it, _, asked| {
        later(it, asked, |it| with_line(it, "Content-Range: bytes 4", "Content-Range: bytes 3"))
    }),
    ("/no-such-range", |it, _, asked| {
        later(it, asked, |_| Answer::new(416, "Content-Range: bytes */77\r\n", ""))
    }),
    ("/loop", |_, _, _| Answer::new(302, "Location: /loop\r\n", "")),
    ("/loop-later", |it, _, asked| {
        later(it, asked, |_| Answer::new(302, "Location: /loop-later\r\n", ""))
    }),
    ("/rubbish", |_, _, _| Answer {
        body: vec![0xa5; 5_000],
        then: Then::Close,
        ..Answer::default()
    }),
    ("/rubbish-later", |it, _, asked| {
        later(it, asked, |answer| Answer { head: "HTTP/1.1 206 Hm\r\n\n\r\r\n".into(), ..answer })
    }),
    ("/unasked-304", |_, _, _| Answer {
        head: "HTTP/1.1 304 Same\r\n\r\n".into(),
        ..Answer::default()
    }),
];

#[test]
fn whatever_an_origin_does_clients_of_all_nodes_get_one_version_or_none() {
    let versions = Arc::new(Versions::new());
    let is_well = Arc::new(AtomicBool::new(false));
    let counts: Vec<AtomicUsize> = FAULTS.iter().map(|_| AtomicUsize::new(0)).collect();
    let (its, well) = (Arc::clone(&versions), Arc::clone(&is_well));
    let origin = Origin::start(move |asked| {
        let place = FAULTS.iter().position(|(path, _)| *path == asked.target).unwrap();
        let count = counts[place].fetch_add(1, Ordering::SeqCst);
        match well.load(Ordering::SeqCst) {
            true => its.answer(1, asked),
            false => FAULTS[place].1(&its, count, asked),
        }
    });
    let lines = origin.line() + SOON;
    let cluster = CacheCluster::start_of(1, 3, Site::new(), &lines, "size_bytes_max = \"512MiB\"");
    thread::scope(|scope| {
        for (path, _) in FAULTS {
            for node in NODES {
                let (cluster, versions) = (&cluster, &versions);
                scope.spawn(move || Seen::at(cluster, node, path).is_whole(versions, path));
            }
        }
    });
    for kind in ["status", "late", "stalled", "broken", "short", "long", "range", "malformed"] {
        let metric = format!("skep_origin_failures_total{{kind=\"{kind}\"}}");
        poll_until(PATIENCE, &format!("{kind} is counted"), || cluster.sum(&metric) > 0);
    }
    poll_until(PATIENCE, "segments that were not got are counted", || cluster.sum(FAILED) > 0);
    let loops = origin.asked().into_iter().filter(|asked| asked.target == "/loop").count();
    assert!(loops <= 2 * NODES.len(), "{loops} asks: redirects are for clients to follow");
    is_well.store(true, Ordering::SeqCst);
    thread::scope(|scope| {
        for (path, _) in FAULTS {
            for node in NODES {
                let (cluster, versions) = (&cluster, &versions);
                scope.spawn(move || {
                    // Objects stored in the first version are still fresh.
                    poll_until(PATIENCE, &format!("{path} is well at {node}"), || {
                        Seen::at(cluster, node, path).is_whole(versions, path)
                    });
                });
            }
        }
    });
}

#[test]
fn an_origin_that_breaks_off_is_asked_for_the_rest_and_clients_notice_nothing() {
    let versions = Versions::new();
    // Only the case of a hanging origin depends on a timeout: each byte is requested once.
    for (then, fetch) in [(Then::Close, ""), (Then::Hang, STALL)] {
        let bytes = versions.bytes[0].clone();
        // The first answer for each segment is truncated.
        let origin = Origin::start(move |asked| {
            let answer = Answer::of(asked, &bytes, TAGS[0], FRESH);
            let is_first = asked.range(LEN).is_some_and(|range| range.start % SEGMENT == 0);
            if is_first { answer.cut(SEGMENT / 4 + 77, then) } else { answer }
        });
        let cluster = CacheCluster::start_of(1, 3, Site::new(), &(origin.line() + fetch), "");
        thread::scope(|scope| {
            for node in NODES {
                let (cluster, versions) = (&cluster, &versions);
                scope.spawn(move || assert_same(&cluster.get(node, "/a").body, &versions.bytes[0]));
            }
        });
        let range = |start: usize, end: usize| format!("bytes={start}-{}", end.min(LEN) - 1);
        let firsts = [0, SEGMENT].map(|start| range(start, start + SEGMENT));
        let rests = [0, SEGMENT].map(|start| range(start + SEGMENT / 4, start + SEGMENT));
        let (starts, others): (Vec<_>, Vec<_>) =
            origin.ranges().into_iter().partition(|range| firsts.contains(range));
        for (ranges, wanted) in [(starts, firsts), (others, rests)] {
            let all = wanted.iter().all(|it| ranges.contains(it));
            assert!(all, "each byte, {then:?}: {ranges:?} for {wanted:?}");
            cluster.assert_asked(ranges.len() as u64, wanted.len() as u64);
        }
    }
}

#[test]
fn ten_thousand_clients_of_one_cold_object_at_four_nodes_are_one_request() {
    const CLIENTS: usize = 10_000;
    let Some(_crowd) = Crowd::of(CLIENTS as u64) else { return };
    let bytes = version(1, 50_000);
    let origin = Origin::of(bytes.clone(), "\"v1\"", FRESH);
    let limits = "[limits]\nconnections_per_address_max = 10000\n";
    let cluster = CacheCluster::start_of(1, 4, Site::new(), &origin.line(), limits);
    origin.close();
    let source = SourceAddress::new();
    let mut clients: Vec<RawClient> = (0..CLIENTS)
        .map(|number| source.connect(cluster.outer(&format!("node-{}", 1 + number % 4))))
        .collect();
    for client in &mut clients {
        client.ask("/a");
    }
    poll_until(PATIENCE, "a request", || !origin.asked().is_empty());
    origin.open();
    for client in &mut clients {
        assert_same(&client.response().body, &bytes);
    }
    let got = || [ORIGIN, OWNER, PEER].iter().map(|it| cluster.sum(it)).sum();
    wait_count("nodes that have got it", 4, got);
    cluster.assert_asked(cluster.sum(ORIGIN), 1);
    cluster.assert_asked(origin.asked().len() as u64, 1);
}
