//! Limits of size, number and time: beyond them a clear refusal, and the server continues.

use std::time::{Duration, Instant};

use skep_tests::content::assert_same;
use skep_tests::{Crowd, PATIENCE, Response, Site, Skep, SourceAddress, content, poll_until};

const KIB: usize = 1024;
const MIB: usize = 1024 * KIB;

fn site() -> Site {
    Site::new().with("a.txt", "aaa")
}

fn assert_retry_after(response: &Response) {
    let seconds = response.header("retry-after").map(str::parse::<u32>);
    assert!(matches!(seconds, Some(Ok(1..))), "{}", response.head_text());
}

#[test]
fn a_head_over_its_limit_is_431() {
    let site = site();
    let skep = Skep::serve(site.root(), &[]);
    let fitting = format!("X: {}\r\n", "x".repeat(1000)).repeat(15);
    let large = format!("X: {}\r\n", "x".repeat(1000)).repeat(17);
    let one_large = format!("X: {}\r\n", "x".repeat(17 * KIB));
    let endless = format!("X: {}", "x".repeat(20 * KIB));
    let ask = |fields: &str| {
        let mut client = skep.connect();
        client.send(format!("GET /a.txt HTTP/1.1\r\nHost: test\r\n{fields}\r\n"));
        client.response()
    };
    ask(&fitting).assert_status(200);
    for fields in [&large, &one_large, &endless] {
        assert!(ask(fields).assert_status(431).says_close());
    }
}

#[test]
fn fields_over_their_number_are_431() {
    let site = site();
    let skep = Skep::serve(site.root(), &[]);
    // Host is one of them.
    for (count, status) in [(99, 200), (100, 431), (1000, 431)] {
        let fields: String = (0..count).map(|n| format!("X{n}: y\r\n")).collect();
        let mut client = skep.connect();
        client.send(format!("GET /a.txt HTTP/1.1\r\nHost: test\r\n{fields}\r\n"));
        client.response().assert_status(status);
    }
}

#[test]
fn a_target_over_its_limit_is_414() {
    let site = site();
    let skep = Skep::serve(site.root(), &[]);
    let at_limit = format!("/a.txt?{}", "x".repeat(8 * KIB - 7));
    skep.connect().get(&at_limit).assert_status(200);
    assert!(skep.connect().get(&format!("{at_limit}x")).assert_status(414).says_close());
    let mut client = skep.connect();
    client.send(format!("GET /{}", "x".repeat(12 * KIB)));
    client.response().assert_status(414);
    client.assert_closed();
}

#[test]
fn a_path_longer_than_any_file_system_allows_is_404() {
    let site = site();
    let skep = Skep::serve(site.root(), &[]);
    for target in [format!("/{}", "x".repeat(300)), "/x".repeat(3000)] {
        skep.connect().get(&target).assert_status(404);
    }
}

#[test]
fn a_method_longer_than_any_is_refused() {
    let site = site();
    let skep = Skep::serve(site.root(), &[]);
    let response = skep.connect().request(&"M".repeat(100), "/a.txt", &[]);
    assert!(matches!(response.status, 400 | 501), "{}", response.head_text());
}

#[test]
fn a_head_that_takes_too_long_is_408() {
    let site = site();
    let skep = Skep::node(site.root(), "[timeouts]\nhead_ms = \"2s\"");
    let mut client = skep.connect();
    client.send("GET /a.txt HTTP/1.1\r\nHost: te");
    client.response().assert_status(408);
    client.assert_closed();
}

/// The timeout starts with the first byte: further bytes do not extend it.
#[test]
fn a_head_that_drips_is_cut_off_too() {
    let site = site();
    let skep = Skep::node(site.root(), "[timeouts]\nhead_ms = \"2s\"");
    let mut client = skep.connect();
    client.send("GET /a.txt HTTP/1.1\r\nHost: test\r\nX: ");
    poll_until(PATIENCE, "the dripping client is cut off", || {
        let mut answered = false;
        client.set_timeout(Duration::from_millis(10));
        if let Ok(response) = client.try_response() {
            response.assert_status(408);
            answered = true;
        }
        answered || client.try_send("x").is_err() || client.is_closed()
    });
}

/// The timeout applies to a head, not to a sequence of reads that all end within one.
#[test]
fn a_pipelining_client_may_go_on_for_ever() {
    const HEAD_MS: u64 = 4_000;
    let site = site();
    let settings = format!("[timeouts]\nhead_ms = \"{HEAD_MS}ms\"");
    let skep = Skep::node(site.root(), &settings);
    let mut client = skep.connect();
    let request = "GET /a.txt HTTP/1.1\r\nHost: test\r\n\r\n";
    let (first, second) = request.split_at(20);
    client.send(first);
    let began = Instant::now();
    while began.elapsed() < Duration::from_millis(2 * HEAD_MS) {
        client.send(format!("{second}{first}"));
        client.response().assert_status(200);
    }
    // The head that stays unfinished has a timeout like any other.
    client.response().assert_status(408);
    client.assert_closed();
}

#[test]
fn a_client_that_says_nothing_is_closed() {
    let site = site();
    let skep = Skep::node(site.root(), "[timeouts]\nhead_ms = \"300ms\"\nidle_ms = \"300ms\"");
    skep.connect().assert_closed();
}

#[test]
fn an_idle_connection_is_closed_without_a_word() {
    let site = site();
    let skep = Skep::node(site.root(), "[timeouts]\nidle_ms = \"2s\"");
    let mut client = skep.connect();
    client.get("/a.txt").assert_status(200);
    client.assert_closed();
}

#[test]
fn a_connection_ends_after_its_lifetime_with_a_whole_reply() {
    let site = site();
    let skep = Skep::node(site.root(), "[timeouts]\nlifetime_ms = \"2s\"");
    let mut client = skep.connect();
    poll_until(PATIENCE, "the server announces the close", || {
        client.get("/a.txt").assert_status(200).says_close()
    });
    client.assert_closed();
}

#[test]
fn a_connection_ends_after_its_number_of_requests() {
    let site = site();
    let skep = Skep::node(site.root(), "[limits]\nrequests_per_connection_max = 3");
    let mut client = skep.connect();
    let closes = [0; 3].map(|_| client.get("/a.txt").assert_status(200).says_close());
    assert_eq!(closes, [false, false, true]);
    client.assert_closed();
}

#[test]
fn a_client_that_stops_reading_is_cut_off() {
    let site = site().with_large("large", 64 * MIB);
    let settings = "[timeouts]\nwrite_stall_ms = \"300ms\"\nsend_average_ms = \"300ms\"";
    let skep = Skep::node(site.root(), settings);
    let mut client = skep.connect();
    client.ask("/large");
    client.try_head().unwrap().assert_status(200);
    poll_until(PATIENCE, "the server closes the connection", || skep.connections() == 0);
    // The sent bytes are correct; the rest is missing, detectably.
    let received = client.read_to_close();
    assert!(received.len() < 64 * MIB);
    assert_same(&received, &content::version(1, received.len()));
}

#[test]
fn a_slow_reader_gets_all_of_it() {
    const SIZE: usize = 24 * MIB;
    let site = site().with_large("large", SIZE);
    let skep = Skep::node(site.root(), "[timeouts]\nwrite_stall_ms = \"5s\"");
    let mut client = skep.connect();
    client.ask("/large");
    client.try_head().unwrap();
    let mut received = Vec::new();
    while received.len() < SIZE {
        // The pauses are the client's, not a wait for a condition.
        std::thread::sleep(Duration::from_millis(1));
        let piece = client.try_read_some().unwrap();
        assert!(!piece.is_empty(), "closed after {} bytes", received.len());
        received.extend(piece);
    }
    assert_same(&received, &content::version(1, SIZE));
}

#[test]
fn a_body_that_never_comes_holds_nothing() {
    let site = site();
    let skep = Skep::serve(site.root(), &[]);
    let mut client = skep.connect();
    client.send("POST /a.txt HTTP/1.1\r\nHost: test\r\nContent-Length: 1000\r\n\r\nx");
    client.response().assert_status(405);
    client.assert_closed();
    poll_until(PATIENCE, "the server closes its end", || skep.connections() == 0);
}

#[test]
fn connections_over_their_number_get_503_and_room_comes_back() {
    const MAX: usize = 8;
    let site = site();
    let skep = Skep::node(site.root(), &format!("[limits]\nconnections_max = {MAX}"));
    let mut held = Vec::new();
    poll_until(PATIENCE, "all places are ours", || {
        let mut client = skep.connect();
        client.ask("/a.txt");
        if client.try_response().is_ok_and(|response| response.status == 200) {
            held.push(client);
        }
        held.len() == MAX
    });
    let mut refused = skep.connect();
    let response = refused.response();
    assert!(response.assert_status(503).says_close());
    assert_retry_after(&response);
    refused.assert_closed();
    for client in &mut held {
        client.get("/a.txt").assert_status(200);
    }
    drop(held);
    poll_until(PATIENCE, "there is room again", || {
        let mut client = skep.connect();
        client.ask("/a.txt");
        client.try_response().is_ok_and(|response| response.status == 200)
    });
}

#[test]
fn connections_of_one_address_over_their_number_get_429() {
    const MAX: usize = 4;
    let site = site();
    let skep = Skep::node(site.root(), &format!("[limits]\nconnections_per_address_max = {MAX}"));
    let greedy = SourceAddress::new();
    let connect = |source: &SourceAddress| source.connect(skep.address());
    let mut held: Vec<_> = (0..MAX).map(|_| connect(&greedy)).collect();
    for client in &mut held {
        client.get("/a.txt").assert_status(200);
    }
    let mut refused = connect(&greedy);
    let response = refused.response();
    assert!(response.assert_status(429).says_close());
    assert_retry_after(&response);
    refused.assert_closed();
    connect(&SourceAddress::new()).get("/a.txt").assert_status(200);
    held.pop();
    poll_until(PATIENCE, "the address has room again", || {
        let mut client = connect(&greedy);
        client.ask("/a.txt");
        client.try_response().is_ok_and(|response| response.status == 200)
    });
}

#[test]
fn requests_over_their_number_get_503_and_small_ones_still_pass() {
    let site = site().with_large("large", 64 * MIB);
    let settings = "[limits]\nrequests_in_flight_max = 2\n\
         [cache]\nsize_bytes_max = \"4MiB\"\n[machine]\nthreads = 1";
    let skep = Skep::node(site.root(), settings);
    skep.connect().get("/a.txt").assert_status(200);
    let mut held: Vec<_> = (0..2).map(|_| skep.connect()).collect();
    for client in &mut held {
        client.ask("/large");
        client.try_head().unwrap().assert_status(200);
    }
    let response = skep.connect().get("/large");
    response.assert_status(503);
    assert_retry_after(&response);
    drop(held);
    poll_until(PATIENCE, "there is room again", || {
        let mut client = skep.connect();
        client.ask("/large");
        client.try_head().is_ok_and(|head| head.status == 200)
    });
}

#[test]
fn ten_thousand_idle_connections_cost_8_kib_each_at_most() {
    const CLIENTS: usize = 10_000;
    let Some(_crowd) = Crowd::of(CLIENTS as u64) else { return };
    let site = site();
    // Also for the first request, until all are connected.
    let settings = "[limits]\nconnections_per_address_max = 20000\n\
                    [timeouts]\nidle_ms = \"10m\"\nhead_ms = \"10m\"";
    let skep = Skep::node(site.root(), settings);
    for _ in 0..100 {
        skep.connect().get("/a.txt").assert_status(200);
    }
    let before = skep.rss_bytes();
    let source = SourceAddress::new();
    let mut idle: Vec<_> = (0..CLIENTS).map(|_| source.connect(skep.address())).collect();
    for client in &mut idle {
        client.get("/a.txt").assert_status(200);
    }
    let each = skep.rss_bytes().saturating_sub(before) / CLIENTS as u64;
    eprintln!("resident memory of an idle connection: {each} bytes");
    assert!(each <= 8 * KIB as u64, "{each} bytes");
    for client in idle.iter_mut().step_by(100) {
        client.get("/a.txt").assert_status(200);
    }
}
