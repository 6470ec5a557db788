//! The shared cache in front of pools: responses of unknown length are streamed to the client that requested
//! them, and stored at their end for all that wait.
//!
//! Servers withhold the end of a response until a test has observed its condition.

use std::collections::BTreeSet;
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread;

use skep_testclient::{BodyReader, Framing};
use skep_tests::app::{App, AppConn};
use skep_tests::content::{self, assert_same, version_of};
use skep_tests::{FreePort, PATIENCE, RawClient, Response, Site, Skep, poll_until};

use super::pool_cache::node;
use super::pools::{Gate, pool_lines};
use super::slow::value;

const KIB: usize = 1024;
const MIB: usize = 1024 * KIB;

/// Number of bytes of each body that are withheld.
const END_BYTES: usize = 10;

/// What the server does after the first part of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Then {
    Ends,
    BreaksOff,
}

fn send_chunk(conn: &mut AppConn, bytes: &[u8]) -> bool {
    let head = format!("{:x}\r\n", bytes.len());
    conn.send([head.as_bytes(), bytes, b"\r\n"].concat())
}

/// A server of `/BYTES`, in chunks: the version of the body is the number of the request. After the gate it
/// does what `then` returns; each request is reported.
fn server(
    gate: &Gate,
    fields: &'static str,
    then: impl Fn(u32) -> Then + Send + Sync + 'static,
) -> (App, Receiver<u32>) {
    let (tell, told) = sync_channel(256);
    let (gate, count) = (gate.clone(), std::sync::atomic::AtomicU32::new(0));
    let app = App::start(move |conn| {
        while let Some(request) = conn.request() {
            let number = count.fetch_add(1, std::sync::atomic::Ordering::SeqCst) + 1;
            let digits: String =
                request.line().chars().skip_while(|it| !it.is_ascii_digit()).collect();
            let bytes =
                digits.split(|it: char| !it.is_ascii_digit()).next().unwrap().parse().unwrap();
            let body = content::version(number, bytes);
            conn.send(format!(
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nCache-Control: max-age=60\r\n\
                 Content-Type: text/plain\r\n{fields}\r\n"
            ));
            let (begin, end) = body.split_at(bytes - END_BYTES);
            let mut pieces = begin.chunks(100_000);
            let is_sent = pieces.all(|piece| send_chunk(conn, piece));
            let _ = tell.send(number);
            gate.pass();
            if then(number) == Then::BreaksOff || !is_sent {
                return;
            }
            send_chunk(conn, end);
            conn.send("0\r\n\r\n");
        }
    });
    (app, told)
}

/// A client that reads a chunked response while it is streamed.
struct Reading {
    client: RawClient,
    head: Response,
    reader: BodyReader,
    body: Vec<u8>,
}

impl Reading {
    /// Reads its head.
    fn of(mut client: RawClient) -> Self {
        let head = client.try_head().unwrap();
        assert_eq!(head.header("transfer-encoding"), Some("chunked"), "{}", head.head_text());
        Self { client, head, reader: BodyReader::new(Framing::Chunked), body: Vec::new() }
    }

    /// Sends a request for `target`, and reads the head.
    fn begin(skep: &Skep, target: &str) -> Self {
        let mut client = skep.connect();
        client.ask(target);
        Self::of(client)
    }

    fn read_some(&mut self) {
        let read = self.client.try_read_some().unwrap();
        assert_eq!(self.reader.read(&read, &mut self.body).unwrap(), read.len());
    }

    /// Reads at least `bytes` bytes of the body.
    fn read(&mut self, bytes: usize) {
        while self.body.len() < bytes {
            assert!(!self.reader.is_done(), "{} bytes", self.body.len());
            self.read_some();
        }
    }

    fn read_to_end(&mut self) {
        while !self.reader.is_done() {
            self.read_some();
        }
    }

    /// Reads the rest; returns the version and the length.
    fn whole(mut self) -> (u32, usize) {
        self.read_to_end();
        (version_of(&self.body).unwrap(), self.body.len())
    }

    /// Reads until the connection ends, which must be before the body ends.
    fn cut(mut self) {
        loop {
            match self.client.try_read_some() {
                Ok(read) if !read.is_empty() => {
                    self.reader.read(&read, &mut self.body).unwrap();
                }
                _ => break,
            }
        }
        assert!(!self.reader.is_done(), "it is cut short");
    }
}

fn next(told: &Receiver<u32>) -> u32 {
    told.recv_timeout(PATIENCE).expect("the application got a request")
}

fn assert_none(told: &Receiver<u32>) {
    assert!(told.try_recv().is_err(), "the application was asked once more");
}

fn assert_hit(reply: &Response, version: u32, bytes: usize) {
    assert!(reply.cache_status().starts_with("skep; hit"), "{}", reply.head_text());
    assert_eq!(reply.header("content-length"), Some(&*bytes.to_string()));
    assert_same(&reply.body, &content::version(version, bytes));
}

fn open(gate: &Gate, times: usize) {
    (0..times).for_each(|_| gate.open());
}

/// A node with a cached pool of `app`, and its metrics port.
fn measured(app: &App, lines: &str, pool: &str) -> (Skep, FreePort) {
    let metrics = FreePort::claim();
    let pool = pool_lines(pool, &[(app.address(), "")]);
    let skep = Skep::node_of(&format!(
        "pool = \"app\"\n[site.cache]\nenabled = true\n{pool}{lines}\n[metrics]\nlisten = \"{}\"\n",
        metrics.address()
    ));
    (skep, metrics)
}

#[test]
fn the_client_that_asked_gets_it_as_it_comes_and_all_who_wait_get_it_at_its_end() {
    let gate = Gate::default();
    let (app, told) = server(&gate, "X-App: 1\r\nETag: \"v\"\r\n", |_| Then::Ends);
    let (skep, metrics) = measured(&app, "[machine]\nthreads = 1", "");
    let mut leader = Reading::begin(&skep, "/1000");
    leader.read(990);
    assert_eq!(next(&told), 1);
    let status = leader.head.cache_status();
    assert!(status.starts_with("skep; fwd=uri-miss; ttl="), "{status}");
    assert!(status.ends_with("; stored"), "{status}");
    leader
        .head
        .assert_header("age", "0")
        .assert_header("x-app", "1")
        .assert_header("etag", "\"v\"");
    let mut others: Vec<_> = (0..8).map(|_| skep.connect()).collect();
    for client in &mut others {
        client.ask("/1000");
    }
    let in_flight = || value(&metrics, "skep_requests_in_flight");
    poll_until(PATIENCE, "all have asked", || in_flight() == 9.0);
    gate.open();
    assert_eq!(leader.whole(), (1, 1000));
    for mut client in others {
        let reply = client.response();
        assert!(reply.cache_status().ends_with("; collapsed"), "{}", reply.head_text());
        assert_same(&reply.body, &content::version(1, 1000));
    }
    assert_hit(&skep.connect().get("/1000"), 1, 1000);
    assert_eq!(value(&metrics, "skep_cache_requests_total{result=\"fill\"}"), 1.0);
    assert_none(&told);
}

#[test]
fn bodies_of_up_to_a_segment_are_stored_and_longer_ones_pass_whole() {
    let gate = Gate::default();
    let (app, told) = server(&gate, "", |_| Then::Ends);
    let skep = node(&app, "");
    for (number, bytes) in [(1, 300 * KIB), (2, MIB), (3, 39 * MIB / 10), (4, 4 * MIB)] {
        gate.open();
        let target = format!("/{bytes}");
        assert_eq!(Reading::begin(&skep, &target).whole(), (number, bytes));
        assert_eq!(next(&told), number);
        assert_hit(&skep.connect().get(&target), number, bytes);
        assert_none(&told);
    }
    for (number, bytes) in [(5, 4 * MIB + 1), (6, 5 * MIB)] {
        open(&gate, 2);
        let target = format!("/{bytes}");
        // That it is too long is known only when most of it was sent.
        let first = Reading::begin(&skep, &target);
        assert!(first.head.cache_status().ends_with("; stored"));
        assert_eq!(first.whole(), (2 * number - 5, bytes));
        let second = Reading::begin(&skep, &target);
        assert_eq!(second.head.cache_status(), "skep; fwd=uri-miss; detail=too-long");
        assert_eq!(second.whole(), (2 * number - 4, bytes));
        (0..2).for_each(|_| _ = next(&told));
    }
}

#[test]
fn a_part_a_condition_and_a_client_of_http_1_0_get_what_is_stored() {
    let gate = Gate::default();
    let (app, told) = server(&gate, "ETag: \"v\"\r\n", |_| Then::Ends);
    let skep = node(&app, "");
    let whole = content::version(1, 300 * KIB);
    open(&gate, 3);
    let mut client = skep.connect();
    let part = client.request("GET", "/307200?a", &[("Range", "bytes=5-9")]);
    assert_eq!((part.status, &*part.body), (206, &whole[5..10]));
    client.request("GET", "/307200?b", &[("If-None-Match", "\"v\"")]).assert_status(304);
    let mut old = skep.connect();
    let old = old.send("GET /307200?c HTTP/1.0\r\nHost: test\r\n\r\n").response();
    old.assert_header("content-length", "307200");
    assert!(old.cache_status().ends_with("; stored"), "{}", old.head_text());
    assert_eq!((1..=3).map(|_| next(&told)).max(), Some(3));
    for target in ["/307200?a", "/307200?b", "/307200?c"] {
        assert!(client.get(target).cache_status().starts_with("skep; hit"));
    }
    assert_none(&told);
    // If it turns out to be too long, the client's own request is forwarded.
    open(&gate, 2);
    let target = format!("/{}", 5 * MIB);
    let other = client.request("GET", &target, &[("If-None-Match", "\"w\"")]);
    assert_eq!(other.cache_status(), "skep; fwd=miss; detail=too-long");
    assert_eq!(version_of(&other.body), Ok(5));
}

#[test]
fn what_breaks_off_is_cut_and_the_next_one_who_waits_asks() {
    let gate = Gate::default();
    let first_breaks = |number| if number == 1 { Then::BreaksOff } else { Then::Ends };
    let (app, told) = server(&gate, "", first_breaks);
    let (skep, metrics) = measured(&app, "[machine]\nthreads = 1", "");
    let mut leader = Reading::begin(&skep, "/100000");
    leader.read(90_000);
    next(&told);
    let mut others: Vec<_> = (0..4).map(|_| skep.connect()).collect();
    for client in &mut others {
        client.ask("/100000");
    }
    let in_flight = || value(&metrics, "skep_requests_in_flight");
    poll_until(PATIENCE, "all have asked", || in_flight() == 5.0);
    open(&gate, 2);
    leader.cut();
    for mut client in others {
        let reply = client.response();
        assert_same(&reply.assert_status(200).body, &content::version(2, 100_000));
    }
    next(&told);
    assert_hit(&skep.connect().get("/100000"), 2, 100_000);
    assert_none(&told);
}

#[test]
fn a_copy_goes_on_when_its_client_leaves() {
    let gate = Gate::default();
    let (app, told) = server(&gate, "", |_| Then::Ends);
    let (skep, metrics) = measured(&app, "", "");
    // It has received some bytes, and leaves without the rest.
    let mut leaver = Reading::begin(&skep, "/3000000");
    leaver.read(1000);
    drop(leaver);
    next(&told);
    gate.open();
    let reply = skep.connect().get("/3000000");
    assert_same(&reply.body, &content::version(1, 3_000_000));
    assert_hit(&skep.connect().get("/3000000"), 1, 3_000_000);
    assert_none(&told);
    // If it is too long, the request is aborted: its slot at the server is free, whatever the server does.
    let mut leaver = Reading::begin(&skep, "/9000000");
    leaver.read(1000);
    drop(leaver);
    let outstanding = "skep_pool_server_outstanding_requests{pool=\"app\",server=\"s1\"}";
    poll_until(PATIENCE, "nobody wants it", || value(&metrics, outstanding) == 0.0);
    poll_until(PATIENCE, "its memory is free", || {
        value(&metrics, "skep_cache_pinned_bytes") == 0.0
    });
    gate.open();
}

/// A client that does not read, with a body that exceeds socket buffers and the memory of one body.
fn slow_leader(skep: &Skep) -> RawClient {
    let mut leader = skep.connect();
    leader.ask("/4000000");
    leader
}

/// Clients that request the same body.
fn who_wait(skep: &Skep, metrics: &FreePort) -> Vec<RawClient> {
    let mut others: Vec<_> = (0..3).map(|_| skep.connect()).collect();
    for client in &mut others {
        client.ask("/4000000");
    }
    let in_flight = || value(metrics, "skep_requests_in_flight");
    poll_until(PATIENCE, "all have asked", || in_flight() == 4.0);
    others
}

#[test]
fn a_slow_client_holds_up_nobody_where_there_is_a_spool() {
    let gate = Gate::default();
    let (app, told) = server(&gate, "", |_| Then::Ends);
    let folder = Site::new();
    let spool = format!("[spool]\nfolder = \"{}\"\n", folder.path("spool").display());
    let (skep, metrics) = measured(&app, &spool, "");
    let leader = slow_leader(&skep);
    // The server has written everything but the end, and the leader has read nothing.
    assert_eq!(next(&told), 1);
    let others = who_wait(&skep, &metrics);
    gate.open();
    for mut client in others {
        let reply = client.response();
        assert!(reply.cache_status().ends_with("; collapsed"), "{}", reply.head_text());
        assert_same(&reply.body, &content::version(1, 4_000_000));
    }
    assert_eq!(Reading::of(leader).whole(), (1, 4_000_000));
    assert_none(&told);
}

#[test]
fn of_who_waits_behind_a_slow_client_one_asks_for_all_where_there_is_no_room() {
    let gate = Gate::default();
    let (app, _told) = server(&gate, "", |_| Then::Ends);
    let (skep, metrics) = measured(&app, "", "");
    let leader = slow_leader(&skep);
    let begun =
        || value(&metrics, "skep_pool_server_outstanding_requests{pool=\"app\",server=\"s1\"}");
    poll_until(PATIENCE, "it leads", || begun() == 1.0);
    let others = who_wait(&skep, &metrics);
    open(&gate, 4);
    // All concurrently: none of them may be slow.
    let versions: BTreeSet<_> = thread::scope(|scope| {
        let read = |mut client: RawClient| {
            scope.spawn(move || {
                let body = client.response().body;
                (version_of(&body).unwrap(), body.len())
            })
        };
        let reading: Vec<_> = others.into_iter().map(read).collect();
        reading.into_iter().map(|it| it.join().unwrap()).collect()
    });
    assert_eq!(versions, [(2, 4_000_000)].into());
    // The slow one still receives everything.
    assert_eq!(Reading::of(leader).whole(), (1, 4_000_000));
    let reply = skep.connect().get("/4000000");
    assert!(reply.cache_status().starts_with("skep; hit"), "{}", reply.head_text());
}

#[test]
fn copies_have_their_share_of_the_memory_and_what_finds_none_passes() {
    const BYTES: usize = 39 * MIB / 10;
    const ROOM: u32 = 4;
    let gate = Gate::default();
    let (app, told) = server(&gate, "", |_| Then::Ends);
    let (skep, metrics) = measured(&app, "", "");
    let targets: Vec<_> = (1..=ROOM + 4).map(|number| format!("/{BYTES}?{number}")).collect();
    let pinned = || value(&metrics, "skep_cache_pinned_bytes");
    let mut readings = Vec::new();
    for (target, number) in targets.iter().zip(1..) {
        let mut reading = Reading::begin(&skep, target);
        reading.read(BYTES - END_BYTES);
        assert_eq!(next(&told), number);
        assert!(pinned() <= (16 * MIB) as f64);
        readings.push(reading);
    }
    assert!(pinned() > (15 * MIB) as f64);
    open(&gate, targets.len());
    for (reading, number) in readings.into_iter().zip(1..) {
        assert_eq!(reading.whole(), (number, BYTES));
    }
    for (target, number) in targets.iter().zip(1..=ROOM) {
        assert_hit(&skep.connect().get(target), number, BYTES);
    }
    assert_none(&told);
    for target in &targets[ROOM as usize..] {
        gate.open();
        let reply = Reading::begin(&skep, target);
        assert!(!reply.head.cache_status().contains("hit"), "{}", reply.head.head_text());
        reply.whole();
        next(&told);
    }
    poll_until(PATIENCE, "all is given back", || pinned() == 0.0);
}

#[test]
fn what_streams_is_compressed_on_its_way_and_stored_as_it_is() {
    let gate = Gate::default();
    let (app, told) = server(&gate, "", |_| Then::Ends);
    let skep = node(&app, "[site.compress]\nenabled = true\nprivate = true");
    let accept = [("Accept-Encoding", "gzip")];
    let mut client = skep.connect();
    client.send_request("GET", "/300000", &accept);
    let mut leader = Reading::of(client);
    leader.head.assert_header("content-encoding", "gzip");
    assert!(leader.head.cache_status().ends_with("; stored"));
    leader.read(100);
    next(&told);
    gate.open();
    leader.read_to_end();
    assert!(leader.body.len() < 100_000 && leader.body.starts_with(&[0x1f, 0x8b]));
    assert_hit(&skep.connect().get("/300000"), 1, 300_000);
    assert_none(&told);
}
