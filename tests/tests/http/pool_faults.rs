//! Servers of a pool that fail: the client's response, the log, the metrics, and that other clients are
//! unaffected.

use std::io::Read;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use super::pools::pool_lines;
use skep_tests::app::{App, AppConn, response};
use skep_tests::{FreePort, PATIENCE, RawClient, Site, Skep, poll_until};

const MIB: usize = 1024 * 1024;

/// A node with a pool, and its metrics port.
struct Rig {
    skep: Skep,
    metrics: FreePort,
}

impl Rig {
    /// `settings` are for the pool; health checks only connect, once at the start.
    fn new(settings: &str, servers: &[SocketAddr]) -> Self {
        let metrics = FreePort::claim();
        let servers: Vec<_> = servers.iter().map(|address| (*address, "")).collect();
        let settings = format!(
            "health.interval_ms = 3600000\nhealth.timeout_ms = 5000\nhealth.rise = 1\n{settings}"
        );
        let pool = pool_lines(&settings, &servers);
        let listen = metrics.address();
        let skep =
            Skep::node_of(&format!("pool = \"app\"\n[metrics]\nlisten = \"{listen}\"\n{pool}"));
        Self { skep, metrics }
    }

    fn metric(&self, name: &str, labels: &str) -> u64 {
        let text = RawClient::connect(self.metrics.address()).get("/metrics").text();
        let line = format!("{name}{{pool=\"app\"{labels}}} ");
        let line = text.lines().find_map(|it| it.strip_prefix(&line).map(str::to_owned));
        line.unwrap_or_else(|| panic!("{name} {labels} in {text}")).parse().unwrap()
    }

    fn failures(&self, cause: &str) -> u64 {
        let labels = format!(",server=\"s1\",cause=\"{cause}\"");
        self.metric("skep_pool_server_failures_total", &labels)
    }

    /// Sends a request to a server that fails, and checks the client's status, the cause's counter, and the
    /// log line.
    #[track_caller]
    fn assert_fails(&self, status: u16, cause: &str, told: &str) {
        self.skep.connect().get("/x").assert_status(status);
        assert_eq!(self.failures(cause), 1, "{cause}");
        let line = format!(": {told}: GET /x");
        poll_until(PATIENCE, &line, || {
            let log = self.skep.stderr_text();
            log.lines().any(|it| it.contains("pool app: server s1 (") && it.contains(&line))
        });
    }
}

/// A server that does this with each request, and ignores connections without one.
fn failing(fail: impl Fn(&mut AppConn) + Send + Sync + 'static) -> App {
    App::start(move |conn| {
        if conn.request().is_some() {
            fail(conn);
        }
    })
}

#[test]
fn a_server_that_is_down_is_503_and_named() {
    let port = FreePort::claim();
    let rig = Rig::new("", &[]);
    rig.skep.connect().get("/").assert_status(503);
    assert_eq!(rig.metric("skep_pool_refused_total", ""), 1, "a pool without servers");
    let rig = Rig::new("queue_timeout_ms = 300", &[port.address()]);
    rig.skep.connect().get("/").assert_status(503).assert_header("retry-after", "1");
    poll_until(PATIENCE, "the log names it", || {
        rig.skep.stderr_text().contains("pool app: server s1: joining -> down")
    });
    rig.skep.connect().get("/").assert_status(503);
}

#[test]
fn one_that_goes_down_is_refused_once_and_left_out() {
    // A pooled connection would survive the closing of the port.
    let first = App::answering(|_| response(200, "Connection: close\r\n", "one"));
    let second = App::answering(|_| response(200, "", "two"));
    let rig = Rig::new("policy = \"round-robin\"", &[first.address(), second.address()]);
    poll_until(PATIENCE, "both answer", || rig.skep.connect().get("/").text() == "one");
    drop(first);
    for _ in 0..6 {
        let reply = rig.skep.connect().request("POST", "/", &[]);
        // The pooled connection may still exist: a POST on it is not retried.
        assert!(matches!(reply.status, 200 | 502), "{}", reply.head_text());
    }
    for _ in 0..20 {
        assert_eq!(rig.skep.connect().get("/").assert_status(200).text(), "two");
    }
    let failed: u64 = ["refused", "broken"].iter().map(|cause| rig.failures(cause)).sum();
    assert!(failed >= 1, "it was noticed");
}

#[test]
fn a_connection_that_ends_before_a_response_is_502() {
    let rig = Rig::new("retries_max = 0", &[failing(|_| {}).address()]);
    drop(rig);
    let app = failing(|conn| conn.reset());
    let rig = Rig::new("", &[app.address()]);
    rig.assert_fails(502, "broken", "the connection ended before a response");
}

#[test]
fn a_server_that_does_not_answer_is_504() {
    let app = failing(AppConn::wait_for_end);
    let rig = Rig::new("response_timeout_ms = 200", &[app.address()]);
    rig.assert_fails(504, "late", "no response in time");
}

#[test]
fn what_is_no_response_is_502_and_splits_nothing() {
    for (bytes, told) in [
        (
            "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
            "content-length-repeated",
        ),
        (
            "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n",
            "length-and-coding",
        ),
        ("HTTP/1.1 200 OK\r\nX: a\rSet-Cookie: evil=1\r\nContent-Length: 0\r\n\r\n", "bare-cr"),
        ("HTTP/1.1 200 OK\nContent-Length: 0\n\n", "bare-lf"),
        ("HTTP/1.1 204 No\r\nContent-Length: 5\r\n\r\nhello", "body-forbidden"),
        ("HTTP/2 200 OK\r\n\r\n", "version-syntax"),
        ("SSH-2.0-OpenSSH\r\n\r\n", "status-line"),
    ] {
        let app = failing(move |conn| {
            conn.send(bytes);
            conn.wait_for_end();
        });
        let rig = Rig::new("", &[app.address()]);
        let reply = rig.skep.connect().get("/x");
        reply.assert_status(502);
        assert_eq!(reply.header("set-cookie"), None);
        assert_eq!(rig.failures("malformed"), 1, "{told}");
        let line = format!(": {told}: GET /x");
        poll_until(PATIENCE, told, || rig.skep.stderr_text().contains(&line));
    }
}

#[test]
fn a_head_without_end_is_502_and_takes_no_memory() {
    let app = failing(|conn| {
        conn.send("HTTP/1.1 200 OK\r\n");
        let line = format!("X-Filler: {}\r\n", "x".repeat(1000)).repeat(100);
        // 100 MB, unless the peer stops reading.
        for _ in 0..1000 {
            if !conn.send(&line) {
                return;
            }
        }
    });
    let rig = Rig::new("", &[app.address()]);
    let before = rig.skep.rss_bytes();
    for _ in 0..10 {
        rig.skep.connect().get("/x").assert_status(502);
    }
    let grown = rig.skep.rss_bytes().saturating_sub(before);
    assert!(grown < 16 * MIB as u64, "{grown} bytes");
    assert_eq!(rig.failures("malformed"), 10);
}

#[test]
fn a_body_that_breaks_off_never_looks_complete() {
    for (head, cut) in [
        ("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf", "length"),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n", "chunks"),
    ] {
        let app = failing(move |conn| assert!(conn.send(head)));
        let rig = Rig::new("", &[app.address()]);
        let mut client = rig.skep.connect();
        client.ask("/x");
        assert!(client.try_response().is_err(), "{cut}");
        assert_eq!(rig.failures("cut_short"), 1);
        // HTTP/1.0 clients read until the close: a reset indicates missing bytes.
        let mut old = rig.skep.connect();
        old.send("GET /x HTTP/1.0\r\n\r\n");
        let (_, ended) = old.read_to_end();
        assert!(ended.is_err() || cut == "length", "{cut}: {ended:?}");
    }
}

#[test]
fn bytes_behind_a_response_reach_nobody() {
    let app = App::start(|conn| {
        while conn.request().is_some() {
            conn.send([response(200, "", "mine"), response(200, "", "poison")].concat());
        }
    });
    let rig = Rig::new("", &[app.address()]);
    let mut client = rig.skep.connect();
    for _ in 0..5 {
        assert_eq!(client.get("/").text(), "mine");
    }
    // A length that is too small: the bytes after it are no response either.
    let lying = App::start(|conn| {
        while conn.request().is_some() {
            conn.send(
                "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 200 OK\r\n\r\npoison",
            );
        }
    });
    let rig = Rig::new("", &[lying.address()]);
    let mut client = rig.skep.connect();
    for _ in 0..5 {
        assert_eq!(client.get("/").text(), "ok");
    }
}

#[test]
fn what_may_have_been_done_is_not_done_twice() {
    let seen = Arc::<AtomicUsize>::default();
    let count = Arc::clone(&seen);
    let broken = failing(move |_| {
        count.fetch_add(1, Ordering::SeqCst);
    });
    let good = App::answering(|_| response(200, "", "good"));
    let rig = Rig::new(
        "policy = \"round-robin\"\nhealth.ejected_max_percent = 0",
        &[broken.address(), good.address()],
    );
    poll_until(PATIENCE, "both are asked", || {
        rig.skep.connect().get("/").assert_status(200);
        seen.load(Ordering::SeqCst) > 0
    });
    let before = seen.load(Ordering::SeqCst);
    // On one connection, as each worker has its own rotation.
    let mut client = rig.skep.connect();
    let mut statuses: Vec<u16> = (0..10).map(|_| client.request("POST", "/", &[]).status).collect();
    statuses.sort_unstable();
    assert_eq!(statuses, [[200; 5], [502; 5]].concat(), "each POST was sent once");
    assert_eq!(seen.load(Ordering::SeqCst) - before, 5);
    for _ in 0..4 {
        assert_eq!(rig.skep.connect().get("/").assert_status(200).text(), "good");
    }
}

#[test]
fn a_kept_connection_that_ended_is_replaced() {
    let ended = Arc::<AtomicUsize>::default();
    let count = Arc::clone(&ended);
    let app = App::start(move |conn| {
        // One response per connection, without announcing that it is the last.
        if conn.request().is_some() {
            conn.send(response(200, "", "ok"));
            conn.close();
            count.fetch_add(1, Ordering::SeqCst);
        }
    });
    let rig = Rig::new("idle_ms = 60000", &[app.address()]);
    for number in 0..20 {
        let mut client = rig.skep.connect();
        client.get("/").assert_status(200);
        // A GET may encounter the end and is retried; a POST must detect it first.
        let has_ended = || ended.load(Ordering::SeqCst) > 2 * number;
        poll_until(PATIENCE, "the connection ended", has_ended);
        client.request("POST", "/", &[]).assert_status(200);
    }
}

#[test]
fn uploads_are_streamed_in_bounded_memory() {
    const UPLOAD: usize = 256 * MIB;
    let app = App::start(|conn| {
        while let Some(head) = conn.head() {
            if head.starts_with("POST ") && conn.skip(UPLOAD).is_none() {
                return;
            }
            conn.send(response(200, "", "got it"));
        }
    });
    let rig = Rig::new("", &[app.address()]);
    rig.skep.connect().get("/warm").assert_status(200);
    let before = rig.skep.rss_bytes();
    let mut client = rig.skep.connect();
    client.send(format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {UPLOAD}\r\n\r\n"));
    let (piece, mut most) = (vec![7; MIB], 0);
    for _ in 0..UPLOAD / MIB {
        client.send(&piece);
        most = most.max(rig.skep.rss_bytes());
    }
    assert_eq!(client.response().assert_status(200).text(), "got it");
    let grown = most.saturating_sub(before);
    assert!(grown < 16 * MIB as u64, "{} KiB", grown / 1024);
}

#[test]
fn a_server_or_a_client_that_does_not_take_its_bytes_holds_no_memory() {
    const BODY: usize = 64 * MIB;
    let app = App::start(|conn| match conn.head() {
        Some(head) if head.starts_with("GET /large") => {
            conn.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {BODY}\r\n\r\n"));
            let piece = vec![7; MIB];
            for _ in 0..BODY / MIB {
                if !conn.send(&piece) {
                    return;
                }
            }
        }
        // It reads nothing of the body.
        Some(_) => std::thread::sleep(Duration::from_secs(3)),
        None => {}
    });
    let rig = Rig::new("stall_timeout_ms = 1000\nresponse_timeout_ms = 500", &[app.address()]);
    let before = rig.skep.rss_bytes();
    let mut reader = rig.skep.connect();
    reader.ask("/large").try_head().unwrap();
    let mut writer = rig.skep.connect();
    writer.send(format!("POST /up HTTP/1.1\r\nHost: a\r\nContent-Length: {BODY}\r\n\r\n"));
    let stream = writer.stream().try_clone().unwrap();
    let writing = std::thread::spawn(move || {
        use std::io::Write;
        let piece = vec![7; MIB];
        for _ in 0..BODY / MIB {
            if (&stream).write_all(&piece).is_err() {
                return;
            }
        }
    });
    let reply = writer.response();
    reply.assert_status(504);
    drop(writer);
    writing.join().unwrap();
    let grown = rig.skep.rss_bytes().saturating_sub(before);
    assert!(grown < 16 * MIB as u64, "{} KiB", grown / 1024);
    // The reader still receives every byte.
    let mut left = BODY - reader.take_buffered(BODY).len();
    let mut buffer = vec![0; MIB];
    while left > 0 {
        let read = reader.stream().read(&mut buffer).unwrap();
        assert!(read > 0 && buffer[..read].iter().all(|byte| *byte == 7));
        left -= read;
    }
}

#[test]
fn a_slow_upload_is_the_clients_fault() {
    let app = App::answering(|_| response(200, "", "ok"));
    let rig = Rig::new("response_timeout_ms = 200\nstall_timeout_ms = 200", &[app.address()]);
    let mut client = rig.skep.connect();
    client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\n");
    for byte in ["s", "l", "o", "w"] {
        std::thread::sleep(Duration::from_millis(300));
        client.send(byte);
    }
    client.response().assert_status(200);
    // A client that disconnects within its body is no failure of the server.
    let mut gone = rig.skep.connect();
    gone.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nx");
    drop(gone);
    rig.skep.connect().get("/").assert_status(200);
    for cause in ["broken", "late", "stalled", "cut_short"] {
        assert_eq!(rig.failures(cause), 0, "{cause}");
    }
}

#[test]
fn a_slow_upload_of_a_small_body_holds_no_server() {
    let app = App::answering(|received| response(200, "", &received.body));
    let pool = pool_lines("queue_timeout_ms = 60000", &[(app.address(), "connections_max = 1")]);
    let skep = Skep::node_of(&format!("pool = \"app\"\n{pool}"));
    let mut slow: Vec<RawClient> = (0..5).map(|_| skep.connect()).collect();
    for client in &mut slow {
        client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nsl");
    }
    // On the connections of both workers, after the slow clients.
    for _ in 0..8 {
        skep.connect().get("/").assert_status(200);
    }
    for mut client in slow {
        client.send("ow");
        assert_eq!(client.response().assert_status(200).text(), "slow");
    }
}

#[test]
fn a_client_that_leaves_frees_its_server() {
    let (asked, gone) = (Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default());
    let counts = (Arc::clone(&asked), Arc::clone(&gone));
    let app = failing(move |conn| {
        counts.0.fetch_add(1, Ordering::SeqCst);
        conn.wait_for_end();
        counts.1.fetch_add(1, Ordering::SeqCst);
    });
    let pool = pool_lines("", &[(app.address(), "connections_max = 1")]);
    let skep = Skep::node_of(&format!("pool = \"app\"\n{pool}"));
    let mut polling = skep.connect();
    polling.ask("/poll");
    let count = |of: &AtomicUsize| of.load(Ordering::SeqCst);
    poll_until(PATIENCE, "the server waits", || count(&asked) == 1);
    let pool = || {
        let listed = skep.command(&["pool", "list", "--json"]).stdout;
        serde_json::from_str::<serde_json::Value>(&listed).unwrap()[0].clone()
    };
    let mut waiting = skep.connect();
    waiting.ask("/queued");
    poll_until(PATIENCE, "another waits for it", || pool()["queued_requests"] == 1);
    drop(waiting);
    poll_until(PATIENCE, "its place is free", || pool()["queued_requests"] == 0);
    drop(polling);
    poll_until(PATIENCE, "the server is told", || count(&gone) == 1);
    poll_until(PATIENCE, "and free", || pool()["servers"][0]["connections"] == 0);
    assert_eq!((count(&asked), &pool()["servers"][0]["failures_total"]), (1, &0.into()));
}

/// Whatever was received of the response, and whatever the client has pipelined.
#[test]
fn a_client_that_leaves_is_seen_behind_what_it_sent_ahead() {
    let gone = Arc::<AtomicUsize>::default();
    let asked = Arc::<AtomicUsize>::default();
    let counts = (Arc::clone(&asked), Arc::clone(&gone));
    let app = failing(move |conn| {
        conn.send("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n");
        counts.0.fetch_add(1, Ordering::SeqCst);
        conn.wait_for_end();
        counts.1.fetch_add(1, Ordering::SeqCst);
    });
    let silent = failing(AppConn::wait_for_end);
    let settings = "response_timeout_ms = 600000\nstall_timeout_ms = 600000";
    let lines = pool_lines(settings, &[(app.address(), "connections_max = 1")]);
    let skep = Skep::node_of(&format!("pool = \"app\"\n{lines}"));
    for (number, ahead) in (1..).zip(["", "G", "GET /next HTTP/1.1\r\nHost: a\r\n\r\n"]) {
        let mut client = skep.connect();
        client.ask("/x");
        client.try_head().unwrap().assert_status(200);
        client.send(ahead);
        drop(client);
        poll_until(PATIENCE, "the server is told", || gone.load(Ordering::SeqCst) == number);
        assert_eq!(asked.load(Ordering::SeqCst), number, "what came ahead is not asked");
    }
    drop(skep);
    let lines = pool_lines(settings, &[(silent.address(), "connections_max = 1")]);
    let skep = Skep::node_of(&format!("pool = \"app\"\n{lines}"));
    let in_use = || {
        let listed = skep.command(&["pool", "list", "--json"]).stdout;
        let listed: serde_json::Value = serde_json::from_str(&listed).unwrap();
        let pool = &listed[0];
        [&pool["servers"][0]["connections"], &pool["queued_requests"]]
            .map(|it| it.as_u64().unwrap())
    };
    let mut first = skep.connect();
    first.ask("/x");
    poll_until(PATIENCE, "the server has a request", || in_use() == [1, 0]);
    let mut second = skep.connect();
    second.ask("/y");
    poll_until(PATIENCE, "another waits", || in_use() == [1, 1]);
    second.send("G");
    drop(second);
    poll_until(PATIENCE, "its place in the queue is free", || in_use() == [1, 0]);
    first.send("G");
    drop(first);
    poll_until(PATIENCE, "the server is free", || in_use() == [0, 0]);
}

/// Pipelined requests are read later, regardless of their size.
#[test]
fn requests_sent_ahead_while_a_server_works_are_answered() {
    const BODY: usize = 300 * 1024;
    let turns = Arc::<(AtomicUsize, AtomicUsize)>::default();
    let of_app = Arc::clone(&turns);
    let app = App::start(move |conn| {
        while let Some(request) = conn.request() {
            if request.line().starts_with("GET /slow") {
                let turn = 1 + of_app.0.fetch_add(1, Ordering::SeqCst);
                while of_app.1.load(Ordering::SeqCst) < turn {
                    std::thread::yield_now();
                }
            }
            conn.send(response(200, "", request.body.len().to_string()));
        }
    });
    let rig = Rig::new("", &[app.address()]);
    let mut client = rig.skep.connect();
    for turn in 1..=20 {
        client.ask("/slow");
        poll_until(PATIENCE, "the server works", || turns.0.load(Ordering::SeqCst) == turn);
        let bytes = if turn % 2 == 0 { BODY } else { 3 };
        client.send(format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {bytes}\r\n\r\n"));
        client.send(vec![7; bytes]);
        turns.1.store(turn, Ordering::SeqCst);
        assert_eq!(client.response().assert_status(200).text(), "0");
        assert_eq!(client.response().assert_status(200).text(), bytes.to_string());
    }
}

/// A path's parameters may contain a session ID.
#[test]
fn the_log_names_no_session() {
    let app = failing(|conn| conn.reset());
    let rig = Rig::new("retries_max = 0", &[app.address()]);
    rig.skep.connect().get("/x;jsessionid=0123ABCD.two/y").assert_status(502);
    poll_until(PATIENCE, "it is named", || rig.skep.stderr_text().contains(": GET /x"));
    assert!(!rig.skep.stderr_text().contains("0123ABCD"), "{}", rig.skep.stderr_text());
}

#[test]
fn error_pages_of_the_site_are_the_body_of_refusals() {
    let app = failing(|conn| assert!(conn.send("nonsense\r\n\r\n")));
    let site = Site::new().with("502.html", "sorry");
    let pool = pool_lines("", &[(app.address(), "")]);
    let skep = Skep::node_of(&format!(
        "root = \"{}\"\nerror_pages = {{ \"502\" = \"/502.html\" }}\n[[site.route]]\n\
         path = \"/app/*\"\npool = \"app\"\n{pool}",
        site.root().display()
    ));
    assert_eq!(skep.connect().get("/app/").assert_status(502).text(), "sorry");
}

#[test]
fn nginx_answers_as_an_application() {
    use std::process::{Command, Stdio};
    let (port, folder) = (FreePort::claim(), Site::new().with("www/a.txt", "from nginx"));
    let root = folder.root().display().to_string();
    folder.write("tmp/keep", "");
    let conf = format!(
        "daemon off; master_process off; error_log stderr; pid {root}/nginx.pid;\nevents {{}}\nhttp {{\n\
         access_log off; client_body_temp_path {root}/tmp/b; proxy_temp_path {root}/tmp/p;\n\
         fastcgi_temp_path {root}/tmp/f; uwsgi_temp_path {root}/tmp/u; scgi_temp_path {root}/tmp/s;\n\
         server {{ listen {}; root {root}/www; location /say {{ return 200 \"$request_method $host \
         $http_x_forwarded_for\"; }} }}\n}}\n",
        port.address()
    );
    folder.write("nginx.conf", conf);
    // Ends with this thread, even if the test fails.
    let started = Command::new("setpriv")
        .args(["--pdeathsig", "KILL", "nginx", "-p", &root, "-c", &format!("{root}/nginx.conf")])
        .stderr(Stdio::null())
        .spawn();
    let mut nginx = match started {
        Ok(nginx) => nginx,
        Err(error) => return skep_tests::skip(&format!("no nginx: {error}")),
    };
    let connects = || RawClient::try_connect(port.address()).is_ok();
    poll_until(PATIENCE, "nginx listens", connects);
    let rig = Rig::new("", &[port.address()]);
    let mut client = rig.skep.connect();
    let whole = client.get("/a.txt");
    assert_eq!(whole.assert_status(200).text(), "from nginx");
    let tag = whole.header("etag").unwrap().to_owned();
    client.request("GET", "/a.txt", &[("If-None-Match", &tag)]).assert_status(304);
    let part = client.request("GET", "/a.txt", &[("Range", "bytes=5-9")]);
    assert_eq!(part.assert_status(206).text(), "nginx");
    client.send("PUT /say HTTP/1.1\r\nHost: shop.example\r\nContent-Length: 2\r\n\r\nhi");
    let said = client.response();
    assert_eq!(said.text(), "PUT shop.example 127.0.0.1");
    client.request("POST", "/a.txt", &[]).assert_status(405);
    nginx.kill().unwrap();
    nginx.wait().unwrap();
}
