//! The load clients against correct servers, and against faulty ones.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use crate::common::{poll_until, root_or_skip};
use rustix::time::{ClockId, clock_gettime};
use skep_lab::load::{Downloads, Pattern, Report, Requests, Target};
use skep_testbed::{Bed, Machine, Topology};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const PATTERN: Pattern = Pattern { seed: 42 };
/// The socket option with which a close sends an RST.
const NO_LINGER: Option<Duration> = Some(Duration::ZERO);

fn bed() -> Bed {
    Bed::new(&Topology { dispatchers: 0, nodes: 2, ..Topology::default() }).unwrap()
}

fn pattern(len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    PATTERN.fill(0, &mut bytes);
    bytes
}

fn head(len: usize) -> Vec<u8> {
    format!("HTTP/1.1 200 OK\r\nContent-Length: {len}\r\nX-Skep-Node: n\r\n\r\n").into_bytes()
}

/// A server in a machine: `serve` is called with each connection, on a separate thread.
fn server(machine: &Machine, serve: impl Fn(usize, TcpStream) + Send + Sync + 'static) -> Target {
    let listener = machine.run(|| TcpListener::bind((machine.ipv4(), 0)).unwrap()).unwrap();
    let address = listener.local_addr().unwrap();
    let serve = Arc::new(serve);
    thread::spawn(move || {
        for (number, stream) in listener.incoming().enumerate() {
            let (serve, stream) = (Arc::clone(&serve), stream.unwrap());
            thread::spawn(move || serve(number, stream));
        }
    });
    Target::new(address, "/file")
}

/// Reads one request's head; `None` at the end of the connection.
fn read_request(reader: &mut impl BufRead) -> Option<String> {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if reader.read_line(&mut head).ok()? == 0 {
            return None;
        }
    }
    Some(head)
}

/// Answers requests until one announces that it is the last.
fn serve_well(stream: TcpStream, body: &[u8]) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut writer = stream;
    while let Some(request) = read_request(&mut reader) {
        assert!(request.starts_with("GET /file HTTP/1.1\r\nHost: "), "{request}");
        if writer.write_all(&[&head(body.len()), body].concat()).is_err()
            || request.contains("Connection: close")
        {
            return;
        }
    }
}

/// Checks that hold for every report.
#[track_caller]
fn check(report: &Report) {
    let Report { refused, resets, timeouts, truncated, wrong_bytes, wrong_status, other, .. } =
        *report;
    let causes = refused + resets + timeouts + truncated + wrong_bytes + wrong_status + other;
    assert_eq!(report.failed, causes, "{report:?}");
    assert_eq!(report.requests, report.succeeded + report.failed + report.stopped, "{report:?}");
    let text = serde_json::to_string(report).unwrap();
    assert_eq!(&serde_json::from_str::<Report>(&text).unwrap(), report);
}

#[test]
fn requests_on_new_and_on_kept_connections_all_succeed() {
    if !root_or_skip() {
        return;
    }
    let bed = bed();
    let body = pattern(1000);
    let target = server(&bed.nodes()[0], move |_, stream| serve_well(stream, &body));
    for (per_connection, connections) in [(1, 200..=200), (10, 20..=27), (u64::MAX, 1..=8)] {
        let plan = Requests {
            workers: 8,
            per_connection,
            pattern: Some(PATTERN),
            ..Requests::new(target.clone(), 200)
        };
        let report = plan.start_in(&bed.clients()[0]).unwrap().finish().unwrap();
        check(&report);
        assert_eq!((report.succeeded, report.failed), (200, 0), "{report:?}");
        assert_eq!((report.bytes, report.reopened), (200_000, 0), "{report:?}");
        assert!(connections.contains(&report.connections), "{report:?}");
        assert_eq!(report.by_node["n"], 200);
        assert!(report.time_us.p50 <= report.time_us.p99);
        assert!(report.time_us.p99 <= report.time_us.max);
    }
}

#[test]
fn each_way_to_fail_has_its_counter() {
    if !root_or_skip() {
        return;
    }
    let bed = bed();
    let (client, node) = (&bed.clients()[0], &bed.nodes()[0]);
    let body = pattern(1000);
    let answer = |bytes: Vec<u8>| {
        move |_: usize, mut stream: TcpStream| {
            read_request(&mut BufReader::new(&stream));
            let _ = stream.write_all(&bytes);
        }
    };
    let reset = |_: usize, stream: TcpStream| {
        read_request(&mut BufReader::new(&stream));
        socket_reset(&stream);
    };
    let stall = |_: usize, stream: TcpStream| {
        // Holds the connection until the client gives up.
        let mut reader = BufReader::new(stream);
        while read_request(&mut reader).is_some() {}
    };
    let mut wrong = body.clone();
    wrong[600] ^= 1;
    let longer = [head(999), body.clone()].concat();
    let nobody = Target::new((node.ipv4(), 9).into(), "/file");
    type Counter = fn(&Report) -> u64;
    let cases: Vec<(&str, Target, Counter)> = vec![
        ("refused", nobody, |it| it.refused),
        ("reset", server(node, reset), |it| it.resets),
        ("stall", server(node, stall), |it| it.timeouts),
        ("short", server(node, answer([head(1001), body.clone()].concat())), |it| it.truncated),
        ("empty", server(node, answer(Vec::new())), |it| it.truncated),
        ("wrong", server(node, answer([head(1000), wrong].concat())), |it| it.wrong_bytes),
        ("longer", server(node, answer(longer)), |it| it.other),
        ("rubbish", server(node, answer(b"hello\r\n\r\n".to_vec())), |it| it.other),
        (
            "status",
            server(node, answer(b"HTTP/1.1 503 Busy\r\ncontent-length: 0\r\n\r\n".to_vec())),
            |it| it.wrong_status,
        ),
    ];
    for (name, target, counter) in cases {
        let patience_ms = if name == "stall" { 300 } else { 30_000 };
        let requests = Requests {
            workers: 2,
            timeout_ms: patience_ms,
            pattern: Some(PATTERN),
            ..Requests::new(target.clone(), 6)
        };
        let downloads = Downloads {
            rate_bytes_s: 0,
            silence_ms: patience_ms,
            pattern: Some(PATTERN),
            ..Downloads::new(target, 6)
        };
        for report in [
            requests.start_in(client).unwrap().finish().unwrap(),
            client.run(|| downloads.run()).unwrap().unwrap(),
        ] {
            check(&report);
            assert_eq!((report.failed, counter(&report)), (6, 6), "{name}: {report:?}");
            assert_eq!(report.examples.len(), 6, "{name}: {report:?}");
            assert!(name != "stall" || report.longest_wait_ms >= 299, "{report:?}");
        }
    }
}

/// Closes with an RST.
fn socket_reset(stream: &TcpStream) {
    rustix::net::sockopt::set_socket_linger(stream, NO_LINGER).unwrap();
}

#[test]
fn kept_connections_that_were_closed_are_reopened_and_counted() {
    if !root_or_skip() {
        return;
    }
    let bed = bed();
    let body = pattern(100);
    // Closes after three responses without announcing it.
    let target = server(&bed.nodes()[0], move |_, stream| {
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        for _ in 0..3 {
            read_request(&mut reader);
            (&stream).write_all(&[&head(100)[..], &body].concat()).unwrap();
        }
    });
    let plan = Requests { workers: 1, per_connection: u64::MAX, ..Requests::new(target, 30) };
    let report = plan.start_in(&bed.clients()[0]).unwrap().finish().unwrap();
    check(&report);
    assert_eq!((report.succeeded, report.connections, report.reopened), (30, 10, 9), "{report:?}");
}

#[test]
fn a_gap_is_as_long_as_the_service_was_away() {
    if !root_or_skip() {
        return;
    }
    let bed = bed();
    let (client, node) = (&bed.clients()[0], &bed.nodes()[0]);
    let target = server(node, |_, stream| serve_well(stream, b""));
    let plan = Requests {
        workers: 1000,
        per_second: Some(200),
        timeout_ms: 10_000,
        ..Requests::new(target, 100_000)
    };
    let running = plan.start_in(client).unwrap();
    poll_until("requests succeed", || running.progress().succeeded >= 20);
    node.down().unwrap();
    let before = running.progress();
    poll_until("others are begun", || running.progress().begun >= before.begun + 100);
    node.up().unwrap();
    let now = running.progress().succeeded;
    poll_until("requests succeed again", || running.progress().succeeded >= now + 20);
    let report = running.stop().unwrap();
    check(&report);
    eprintln!("away for 100 requests at 200/s: a gap of {} ms", report.longest_gap_ms);
    assert_eq!(report.failed, 0, "{report:?}");
    // At most 200 requests per second start: 100 of them take at least 495 ms.
    assert!(report.longest_gap_ms >= 400, "{report:?}");
    assert!(report.elapsed_ms >= report.longest_gap_ms);
}

/// Serves the pattern to any number of connections, on two threads.
fn serve_many(address: SocketAddr, len: usize, open: Arc<AtomicUsize>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.bind(address).unwrap();
        let listener = socket.listen(4096).unwrap();
        let body = Arc::new([head(len), pattern(len)].concat());
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let (body, open) = (Arc::clone(&body), Arc::clone(&open));
            tokio::spawn(async move {
                open.fetch_add(1, Ordering::Relaxed);
                assert!(stream.read(&mut [0; 4096]).await.unwrap() > 0);
                let _ = stream.write_all(&body).await;
                open.fetch_sub(1, Ordering::Relaxed);
            });
        }
    });
}

#[test]
fn two_thousand_downloads_at_once_flow_through_a_pulled_cable() {
    if !root_or_skip() {
        return;
    }
    const COUNT: usize = 2000;
    let bed = bed();
    let (client, node) = (&bed.clients()[0], &bed.nodes()[0]);
    let address = SocketAddr::from((node.ipv4(), 80));
    let open = Arc::new(AtomicUsize::new(0));
    // More than is read during the test: all must last.
    node.spawn({
        let open = Arc::clone(&open);
        move || serve_many(address, 16 << 20, open)
    })
    .unwrap();
    let plan = Downloads {
        rate_bytes_s: 8 * 1024,
        pattern: Some(PATTERN),
        silence_ms: 30_000,
        deadline_ms: 120_000,
        ..Downloads::new(Target::new(address, "/file"), COUNT)
    };
    poll_until("the server listens", || {
        client.run(|| TcpStream::connect(address)).unwrap().is_ok()
    });
    let running = plan.start_in(client).unwrap();
    poll_until("all flow", || running.progress().flowing == COUNT as u64);
    node.down().unwrap();
    node.up().unwrap();
    let cpu = || {
        let time = clock_gettime(ClockId::ProcessCPUTime);
        time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
    };
    let (before, begin) = (cpu(), std::time::Instant::now());
    for _ in 0..3 {
        running.mark();
        poll_until("all flow again", || running.progress().flowing == COUNT as u64);
    }
    let (used, took) = (cpu() - before, begin.elapsed().as_secs_f64());
    eprintln!(
        "2,000 downloads at 8 KiB/s: {:.0} % of a core with their server",
        used / took * 100.0
    );
    assert_eq!(running.progress().failed, 0);
    let report = running.stop().unwrap();
    check(&report);
    assert_eq!((report.stopped, report.failed), (COUNT as u64, 0), "{report:?}");
    assert_eq!(report.connections, COUNT as u64);
}

#[test]
fn downloads_come_to_their_end_with_every_byte() {
    if !root_or_skip() {
        return;
    }
    let bed = bed();
    let body = pattern(300_000);
    let target = server(&bed.nodes()[1], move |_, stream| serve_well(stream, &body));
    let plan = Downloads {
        rate_bytes_s: 1_000_000,
        pattern: Some(PATTERN),
        sources: vec![bed.clients()[0].ipv4().into()],
        ..Downloads::new(target.clone(), 20)
    };
    let report = plan.clone().start_in(&bed.clients()[0]).unwrap().finish().unwrap();
    check(&report);
    assert_eq!((report.succeeded, report.bytes), (20, 6_000_000), "{report:?}");
    assert!(report.elapsed_ms >= 200, "held to its rate: {report:?}");

    let late = Downloads { rate_bytes_s: 10_000, deadline_ms: 300, ..plan.clone() };
    let report = late.start_in(&bed.clients()[0]).unwrap().finish().unwrap();
    check(&report);
    assert_eq!((report.failed, report.timeouts), (20, 20), "{report:?}");

    for count in [0, 100_000] {
        assert!(Downloads { count, ..plan.clone() }.start_in(&bed.clients()[0]).is_err());
    }
}
