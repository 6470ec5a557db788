//! Slow clients of a pool: while they send a body, or stop reading a response, they occupy no slot of a
//! server.
//!
//! No test depends on timing: slow clients stall until the test has observed its condition.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use skep_tests::app::{App, AppConn, AppRequest, response};
use skep_tests::content::{self, assert_same};
use skep_tests::{
    Crowd, FreePort, PATIENCE, RawClient, Site, Skep, Steady, poll_until, promtool, skip,
};

use crate::pools::{Gate, pool_lines};
use crate::slow::value;

const KIB: usize = 1024;
const MIB: usize = 1024 * KIB;

/// A node with a pool of one server with five workers, and its metrics port; with a spool by default.
struct Rig {
    skep: Skep,
    metrics: FreePort,
    _folder: Site,
}

impl Rig {
    fn new(app: &App, pool: &str, spool: &str) -> Self {
        let folder = Site::new();
        let spool = format!("folder = \"{}\"\n{spool}", folder.path("spool").display());
        Self::with_spool(app, pool, &spool, folder)
    }

    /// Starts one without a spool.
    fn in_memory(app: &App, pool: &str, spool: &str) -> Self {
        Self::with_spool(app, pool, spool, Site::new())
    }

    fn with_spool(app: &App, pool: &str, spool: &str, folder: Site) -> Self {
        let metrics = FreePort::claim();
        let pool = format!("queue_timeout_ms = \"1m\"\n{pool}");
        let pool = pool_lines(&pool, &[(app.address(), "connections_max = 5")]);
        let skep = Skep::node_of(&format!(
            "pool = \"app\"\n{pool}[spool]\n{spool}\n[limits]\nconnections_per_address_max = 4000\n[timeouts]\nwrite_stall_ms = \"1h\"\n\
             send_min_bytes_per_s = 0\nbody_min_bytes_per_s = 0\nidle_ms = \"1h\"\n\
             [metrics]\nlisten = \"{}\"",
            metrics.address()
        ));
        Self { skep, metrics, _folder: folder }
    }

    /// Returns the number of outstanding requests at the server, by the node's count.
    fn in_work(&self) -> f64 {
        value(&self.metrics, "skep_pool_server_outstanding_requests{pool=\"app\",server=\"s1\"}")
    }

    /// Returns its metrics page.
    fn page(&self) -> String {
        RawClient::connect(self.metrics.address()).get("/metrics").text()
    }

    fn memory(&self) -> f64 {
        value(&self.metrics, "skep_spool_memory_bytes")
    }

    fn files(&self) -> f64 {
        value(&self.metrics, "skep_spool_file_bytes")
    }

    fn short(&self, reason: &str) -> f64 {
        value(&self.metrics, &format!("skep_spool_short_total{{reason=\"{reason}\"}}"))
    }

    /// Sends requests from this number of successive clients, on a new connection each, so that both workers
    /// receive some.
    fn answers_others(&self, clients: usize) {
        for _ in 0..clients {
            assert_eq!(self.skep.connect().get("/quick").assert_status(200).text(), "quick");
        }
    }

    fn until_all_given_back(&self) {
        poll_until(PATIENCE, "no body waits any more", || self.memory() + self.files() == 0.0);
        assert_eq!(self.in_work(), 0.0);
    }
}

/// A server that counts the requests for paths other than `/quick`; it answers with a checksum of the body,
/// or, to GET, with `bytes` bytes.
fn counting(bytes: usize) -> (App, Arc<AtomicUsize>) {
    let begun = Arc::<AtomicUsize>::default();
    let count = Arc::clone(&begun);
    let body = content::version(1, bytes);
    let app = App::start(move |conn: &mut AppConn| {
        while let Some(head) = conn.head() {
            let is_quick = head.starts_with("GET /quick");
            count.fetch_add(usize::from(!is_quick), Ordering::SeqCst);
            let request = conn.body_of(head).expect("nobody breaks off here");
            let answer = match request.line() {
                _ if is_quick => response(200, "", "quick"),
                line if line.starts_with("GET") => response(200, "", &body),
                _ => response(200, "", sum(&request)),
            };
            if !conn.send(answer) {
                return;
            }
        }
    });
    (app, begun)
}

/// Returns a checksum of a request's body.
fn sum(request: &AppRequest) -> String {
    sum_of(&request.body)
}

fn sum_of(body: &[u8]) -> String {
    let sum = body
        .iter()
        .fold(7_u64, |sum, byte| sum.wrapping_mul(0x100_0000_01b3).wrapping_add(u64::from(*byte)));
    format!("{} {sum:x}", body.len())
}

/// How a client delimits its body.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Framed {
    Length,
    Chunks,
}

/// Returns the head of an upload, and its encoded body.
fn upload(body: &[u8], framed: Framed) -> (String, Vec<u8>) {
    let head = "POST /upload HTTP/1.1\r\nHost: a\r\n";
    match framed {
        Framed::Length => (format!("{head}Content-Length: {}\r\n\r\n", body.len()), body.to_vec()),
        Framed::Chunks => {
            let pieces = body.chunks(7_001).flat_map(|piece| {
                [format!("{:x}\r\n", piece.len()).as_bytes(), piece, b"\r\n"].concat()
            });
            let sent = pieces.chain(*b"0\r\n\r\n").collect();
            (format!("{head}Transfer-Encoding: chunked\r\n\r\n"), sent)
        }
    }
}

#[test]
fn a_hundred_slow_uploaders_hold_no_server() {
    const BODY: usize = 600 * KIB;
    let (app, begun) = counting(0);
    let rig = Rig::new(&app, "", "memory_bytes_max = \"16MiB\"");
    rig.answers_others(1);
    let bodies: Vec<_> = (0..100).map(|number| content::version(number, BODY)).collect();
    let mut slow: Vec<_> = bodies
        .iter()
        .enumerate()
        .map(|(number, body)| {
            let framed = if number % 2 == 0 { Framed::Length } else { Framed::Chunks };
            let (head, sent) = upload(body, framed);
            // All except the last bytes, or nearly nothing.
            let stops = [sent.len() - 3, 300 * KIB, 9][number % 3];
            let mut client = rig.skep.connect();
            client.send(head).send(&sent[..stops]);
            (client, sent[stops..].to_vec())
        })
        .collect();
    rig.answers_others(200);
    let spooled = || value(&rig.metrics, "skep_spool_written_bytes_total");
    poll_until(PATIENCE, "most of it is in the spool", || spooled() > (20 * MIB) as f64);
    assert!(rig.memory() <= (16 * MIB) as f64);
    rig.answers_others(50);
    assert_eq!(begun.load(Ordering::SeqCst), 0, "of the slow ones the server knows nothing");
    for ((client, rest), body) in slow.iter_mut().zip(&bodies) {
        client.send(rest);
        assert_eq!(client.response().assert_status(200).text(), sum_of(body));
    }
    rig.until_all_given_back();
}

#[test]
fn a_hundred_slow_readers_hold_no_server() {
    // More than socket buffers hold.
    const BODY: usize = 2 * MIB;
    let (app, begun) = counting(BODY);
    let rig = Rig::new(&app, "", "memory_bytes_max = \"16MiB\"");
    rig.answers_others(1);
    let mut slow: Vec<_> = (0..100)
        .map(|_| {
            let mut client = rig.skep.connect();
            client.ask("/large");
            client
        })
        .collect();
    rig.answers_others(200);
    poll_until(PATIENCE, "the server has answered all", || {
        begun.load(Ordering::SeqCst) == 100 && rig.in_work() == 0.0
    });
    assert!(rig.memory() <= (16 * MIB) as f64);
    assert!(rig.files() > (50 * MIB) as f64);
    promtool::assert_clean(&rig.page());
    rig.answers_others(50);
    let whole = content::version(1, BODY);
    for client in &mut slow[10..] {
        assert_same(&client.response().assert_status(200).body, &whole);
    }
    // Slow readers that disconnect.
    slow.clear();
    rig.until_all_given_back();
}

/// Beyond the limits slow clients occupy a slot of the server, as without buffering.
#[test]
fn without_a_spool_memory_is_the_bound() {
    const BODY: usize = 2 * MIB;
    let (app, begun) = counting(BODY);
    let rig = Rig::in_memory(&app, "", "memory_bytes_max = \"2MiB\"");
    rig.answers_others(1);
    let mut readers: Vec<_> = (0..2).map(|_| rig.skep.connect()).collect();
    for client in &mut readers {
        client.ask("/large");
    }
    poll_until(PATIENCE, "both have a place", || rig.in_work() == 2.0);
    let body = content::version(3, BODY);
    let (head, sent) = upload(&body, Framed::Length);
    let mut uploader = rig.skep.connect();
    uploader.send(head).send(&sent[..BODY - 1]);
    poll_until(PATIENCE, "it has as well", || begun.load(Ordering::SeqCst) == 3);
    poll_until(PATIENCE, "they count", || rig.short("body") == 3.0);
    assert!(rig.memory() <= (2 * MIB) as f64);
    rig.answers_others(20);
    uploader.send(&sent[BODY - 1..]);
    assert_eq!(uploader.response().assert_status(200).text(), sum_of(&body));
    for client in &mut readers {
        assert_same(&client.response().body, &content::version(1, BODY));
    }
    rig.until_all_given_back();
}

/// Each has 100 MiB to send, of which some are sent.
#[test]
fn a_thousand_uploaders_stay_within_the_memory() {
    const CLIENTS: usize = 1_000;
    let Some(_crowd) = Crowd::of(CLIENTS as u64) else { return };
    let (app, begun) = counting(0);
    let rig = Rig::new(&app, "", "memory_bytes_max = \"32MiB\"");
    rig.answers_others(1);
    let fds = rig.skep.open_fds();
    let before = rig.skep.memory_bytes();
    let some = content::version(1, 100 * KIB);
    let head = format!("PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n", 100 * MIB);
    let slow: Vec<_> = (0..CLIENTS)
        .map(|_| {
            let mut client = rig.skep.connect();
            client.send(&head).send(&some);
            assert!(rig.memory() <= (32 * MIB) as f64);
            client
        })
        .collect();
    rig.answers_others(20);
    let grown = rig.skep.memory_bytes().saturating_sub(before);
    assert!(grown < 96 * MIB as u64, "{} MiB", grown / MIB as u64);
    assert_eq!(begun.load(Ordering::SeqCst), 0);
    drop(slow);
    rig.until_all_given_back();
    poll_until(PATIENCE, "all descriptors are closed", || rig.skep.open_fds() <= fds + 2);
}

/// A disk of 1 MiB: the rest is streamed, and no byte is lost.
#[test]
fn a_full_disk_is_counted_and_costs_no_byte() {
    const BODY: usize = 6 * MIB;
    let folder = Site::new();
    let spool = folder.path("spool");
    std::fs::create_dir(&spool).unwrap();
    let mount = ["-t", "tmpfs", "-o", "size=1m,mode=777", "skep-test"];
    let mounted = std::process::Command::new("mount").args(mount).arg(&spool).status();
    if !mounted.is_ok_and(|status| status.success()) {
        return skip("mounting a small file system needs root");
    }
    let unmount = Unmount(spool.clone());
    let (app, _) = counting(BODY);
    let lines = format!("folder = \"{}\"", spool.display());
    let rig = Rig::with_spool(&app, "", &lines, folder);
    rig.answers_others(1);
    let body = content::version(2, BODY);
    for framed in [Framed::Length, Framed::Chunks] {
        let (head, sent) = upload(&body, framed);
        let reply = rig.skep.connect().send(head).send(&sent).response();
        assert_eq!(reply.assert_status(200).text(), sum_of(&body));
    }
    assert_eq!(rig.short("disk"), 2.0);
    assert!(rig.skep.stderr_text().contains("No space left on device"));
    let mut reader = rig.skep.connect();
    reader.ask("/large");
    poll_until(PATIENCE, "the disk is full again", || rig.short("disk") == 3.0);
    rig.answers_others(10);
    assert_same(&reader.response().body, &content::version(1, BODY));
    rig.until_all_given_back();
    drop(rig);
    drop(unmount);
}

struct Unmount(std::path::PathBuf);

impl Drop for Unmount {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

/// If a client or a server disconnects in the middle, nothing is left behind.
#[test]
fn who_breaks_off_leaves_nothing_behind() {
    const BODY: usize = 3 * MIB;
    let gate = Gate::default();
    let held = gate.clone();
    let app = App::start(move |conn: &mut AppConn| {
        while let Some(head) = conn.head() {
            if head.starts_with("POST") {
                // In the middle of a body that is in the spool.
                conn.skip(MIB);
                return;
            }
            if head.starts_with("GET /half") {
                conn.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {BODY}\r\n\r\n"));
                conn.send(vec![7; BODY / 2]);
                held.pass();
                return;
            }
            conn.send(response(200, "", "quick"));
        }
    });
    let rig = Rig::new(&app, "retries_max = 0", "");
    rig.answers_others(1);
    let (head, sent) = upload(&content::version(1, BODY), Framed::Length);
    // The client, before its body is complete.
    for stops in [10, 100 * KIB, 2 * MIB] {
        let mut client = rig.skep.connect();
        client.send(&head).send(&sent[..stops]);
        poll_until(PATIENCE, "some of it waits", || rig.memory() + rig.files() > 0.0);
        drop(client);
        rig.until_all_given_back();
    }
    // The server, within a body that is complete.
    rig.skep.connect().send(&head).send(&sent).response().assert_status(502);
    rig.until_all_given_back();
    // The client, then the server, within a response of which half was read ahead.
    for leaves in [true, false] {
        let mut client = rig.skep.connect();
        client.ask("/half");
        poll_until(PATIENCE, "it is read ahead", || rig.files() > 0.0);
        assert_eq!(rig.in_work(), 1.0);
        if leaves {
            drop(client);
        } else {
            // Also for the server connection whose client has left.
            gate.open();
            gate.open();
            let (got, _) = client.read_to_end();
            assert!(got.len() < BODY, "it is no whole response");
        }
        rig.until_all_given_back();
    }
    rig.answers_others(5);
}

#[test]
fn an_application_that_answers_while_it_reads_gets_bodies_as_they_come() {
    const CASES: [(&str, &str, &str); 4] = [
        ("request_buffering = false", "", ""),
        ("", "forward.request_buffering = false", ""),
        ("", "", "Incremental: ?1\r\n"),
        ("", "", "Content-Type: application/grpc+proto\r\n"),
    ];
    let app = App::start(|conn: &mut AppConn| {
        let Some(head) = conn.head() else { return };
        if !head.starts_with("POST") {
            conn.send(response(200, "", "quick"));
            return;
        }
        conn.until(b"first\r\n");
        conn.send("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello");
        conn.until(b"0\r\n\r\n");
        conn.send("again");
    });
    for (pool, site, fields) in CASES {
        let pool = pool_lines(pool, &[(app.address(), "")]);
        let skep = Skep::node_of(&format!("pool = \"app\"\n{site}\n{pool}"));
        let mut client = skep.connect();
        client.send(format!(
            "POST / HTTP/1.1\r\nHost: a\r\n{fields}Transfer-Encoding: chunked\r\n\r\n5\r\nfirst\r\n"
        ));
        client.try_head().unwrap().assert_status(200);
        client.send("0\r\n\r\n");
        let got = Steady::fast(client).read(10);
        assert_eq!(got, b"helloagain", "{pool} {site} {fields}");
    }
}

/// 100 Continue is sent as soon as the body can be received, and not if there is no server.
#[test]
fn a_client_that_expects_100_sends_its_body_before_a_server_is_kept_busy() {
    let (app, begun) = counting(0);
    let rig = Rig::new(&app, "", "");
    rig.answers_others(1);
    let body = content::version(1, MIB);
    let (head, sent) = upload(&body, Framed::Length);
    let head = head.replace("Host: a\r\n", "Host: a\r\nExpect: 100-continue\r\n");
    let mut client = rig.skep.connect();
    client.send(&head);
    client.try_head().unwrap().assert_status(100);
    assert_eq!(begun.load(Ordering::SeqCst), 0);
    assert_eq!(client.send(sent).response().assert_status(200).text(), sum_of(&body));
    drop(app);
    poll_until(PATIENCE, "nobody is there", || {
        rig.skep.connect().get("/quick").status == 503
            && rig.skep.connect().send(&head).response().status == 503
    });
}

#[test]
fn an_application_says_whether_its_response_is_read_ahead() {
    const BODY: usize = 2 * MIB;
    let app = App::answering(|request| {
        let line = request.line();
        let field = match line.split(['/', ' ']).nth(2) {
            Some("quick") => return response(200, "", "quick"),
            Some("no") => "X-Accel-Buffering: no\r\n",
            Some("yes") => "X-Accel-Buffering: yes\r\n",
            Some("events") => "Content-Type: text/event-stream\r\n",
            _ => "",
        };
        response(200, field, vec![7; BODY])
    });
    for (pool, site, path, is_ahead) in [
        ("", "", "/plain", true),
        ("", "", "/no", false),
        ("", "", "/events", false),
        ("response_buffering = false", "", "/plain", false),
        ("response_buffering = false", "", "/yes", true),
        ("", "forward.response_buffering = false", "/yes", false),
    ] {
        let folder = Site::new();
        let metrics = FreePort::claim();
        let lines = pool_lines(pool, &[(app.address(), "")]);
        let skep = Skep::node_of(&format!(
            "pool = \"app\"\n{site}\n{lines}[spool]\nfolder = \"{}\"\n[metrics]\nlisten = \"{}\"",
            folder.path("spool").display(),
            metrics.address()
        ));
        let rig = Rig { skep, metrics, _folder: folder };
        rig.answers_others(1);
        let mut client = rig.skep.connect();
        client.ask(path);
        let head = client.try_head().unwrap();
        assert_eq!(head.header("x-accel-buffering"), None, "it is for the node");
        if is_ahead {
            poll_until(PATIENCE, "the server is free", || rig.in_work() == 0.0);
        } else {
            rig.answers_others(20);
            assert_eq!((rig.in_work(), rig.memory(), rig.files()), (1.0, 0.0, 0.0), "{path}");
        }
        assert_eq!(Steady::fast(client).read(BODY).len(), BODY);
        rig.until_all_given_back();
    }
}

/// As many concurrent readers and writers as there are slots, with bodies of all sizes, in both framings.
#[test]
fn bodies_pass_whole_whatever_their_size() {
    const SIZES: [usize; 9] = [0, 1, 16_384, 16_385, 65_536, 262_143, 262_145, 700_000, 3_000_000];
    let app = App::answering(|request| {
        let body = &request.body;
        let chunked = format!(
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{}",
            if body.is_empty() { String::new() } else { format!("{:x}\r\n", body.len()) }
        );
        match request.line().contains("chunked") {
            false => response(200, "", body),
            true if body.is_empty() => [chunked.as_bytes(), b"0\r\n\r\n"].concat(),
            true => [chunked.as_bytes(), body, b"\r\n0\r\n\r\n"].concat(),
        }
    });
    let rig = Rig::new(&app, "buffer_bytes_max = \"64KiB\"", "memory_bytes_max = \"1MiB\"");
    thread::scope(|scope| {
        for number in 0..6 {
            let skep = &rig.skep;
            scope.spawn(move || {
                let mut client = skep.connect();
                for size in SIZES {
                    let body = content::version(number, size);
                    for framed in [Framed::Length, Framed::Chunks] {
                        let (head, sent) = upload(&body, framed);
                        let target = if number % 2 == 0 { "/chunked" } else { "/length" };
                        client.send(head.replace("/upload", target));
                        send_in_pieces(&mut client, &sent);
                        assert_same(&client.response().assert_status(200).body, &body);
                    }
                }
            });
        }
    });
    rig.until_all_given_back();
}

fn send_in_pieces(client: &mut RawClient, bytes: &[u8]) {
    bytes.chunks(50_000).for_each(|piece| {
        client.send(piece);
    });
}
