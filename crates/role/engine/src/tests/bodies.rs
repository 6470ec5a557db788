//! Bodies whose bytes would parse as requests (CVE-2025-4366): read, half read and unread, of all
//! framings; their bytes never reach the handler as a request.

use std::time::{Duration, Instant};

use skep_telemetry::Counter;

use super::client::{get, head, post, post_chunked};
use super::rig::Rig;
use crate::EngineSettings;
use crate::limits::DRAIN_BYTES_MAX;

/// A body that is a request.
pub(super) const SMUGGLED: &[u8] = b"GET /quick:9 HTTP/1.1\r\nHost: smuggled\r\n\r\n";

/// Lines of a request with `Expect`, and with [`SMUGGLED`] as its body.
const EXPECT: &str = "Expect: 100-continue\r\nContent-Length: 41\r\n";
const _: () = assert!(SMUGGLED.len() == 41);

/// A request for a target, with a body.
type Framing = fn(&str, &[u8]) -> Vec<u8>;

/// What handlers do with a body, and whether they read all of it.
const HANDLERS: [(&str, bool); 7] = [
    ("/quick:1", false),
    ("/reply:1", false),
    ("/read:1/reply:1", false),
    ("/reply:1/read:1", false),
    ("/head:1/flush/read:1/body:1", false),
    ("/read/reply:1", true),
    ("/head:1/flush/read/body:1", true),
];

#[test]
fn a_body_never_becomes_a_request_however_much_of_it_was_read() {
    let body = SMUGGLED.repeat(3);
    let framings: [Framing; 3] = [
        post,
        |target, body| post_chunked(target, &[body]),
        |target, body| post_chunked(target, &body.chunks(7).collect::<Vec<_>>()),
    ];
    for framing in framings {
        for (target, is_read) in HANDLERS {
            let rig = Rig::new();
            let mut client = rig.client();
            let request = framing(target, &body);
            let (begin, end) = request.split_at(request.len() - 20);
            client.send(begin);
            rig.until_received(begin.len() as u64);
            let busy = if is_read { "Answering" } else { "Draining" };
            rig.until_state(&client, busy);
            client.send([end, &get("/quick:2")].concat());
            assert_eq!(client.reply().unwrap().field("Script"), Some(target));
            assert_eq!(client.reply().unwrap().field("Script"), Some("/quick:2"));
            rig.until_state(&client, "Resting");
            assert_eq!(rig.targets(), [target, "/quick:2"]);
            let read = &rig.seen()[0].body;
            assert!(body.starts_with(read) && (!is_read || read.len() == body.len()));
        }
    }
}

#[test]
fn what_came_in_one_piece_is_drained_too() {
    for (target, is_read) in HANDLERS {
        let rig = Rig::new();
        let mut client = rig.client();
        client.send([post(target, SMUGGLED), get("/quick:2")].concat());
        assert_eq!(client.reply().unwrap().field("Script"), Some(target));
        assert_eq!(client.reply().unwrap().field("Script"), Some("/quick:2"));
        rig.until_state(&client, "Resting");
        // A handler that reads any of a body that was received at once has read all of it.
        let is_read = is_read || target.contains("read");
        assert_eq!(rig.states(&client).contains(&"Draining".to_owned()), !is_read, "{target}");
        assert_eq!(rig.targets(), [target, "/quick:2"]);
    }
}

#[test]
fn a_body_too_long_to_be_thrown_away_ends_the_connection() {
    let body = SMUGGLED.repeat((DRAIN_BYTES_MAX + 64 * 1024) / SMUGGLED.len() + 1);
    for request in [post("/reply:1", &body), post_chunked("/reply:1", &[&body])] {
        let rig = Rig::new();
        let mut client = rig.client();
        client.send(request);
        assert_eq!(client.reply().unwrap().body, b"a");
        client.assert_closed();
        assert_eq!(rig.targets(), ["/reply:1"]);
        let states = rig.states(&client);
        assert_eq!(states[2..], ["Answering", "Draining", "Closing(ClosedClient)"]);
    }
}

#[test]
fn a_client_that_asks_whether_to_send_its_body_is_told_and_then_no_more() {
    let rig = Rig::new();
    let mut told = rig.client();
    told.send(head("POST", "/read/reply:1", EXPECT));
    assert_eq!(told.head().unwrap(), "HTTP/1.1 100 Continue\r\n\r\n");
    told.send([SMUGGLED, SMUGGLED].concat());
    assert!(told.reply().unwrap().says_close());
    told.assert_closed();
    assert_eq!(rig.seen()[0].body, SMUGGLED);

    // Without 100 a client may or may not send its body: the following bytes are ambiguous.
    let mut not_told = rig.client();
    not_told.send(head("POST", "/reply:2", EXPECT));
    let reply = not_told.head().unwrap();
    assert!(reply.starts_with("HTTP/1.1 200 ") && reply.contains("Connection: close"));
    not_told.send(SMUGGLED);
    assert_eq!(not_told.rest(), (b"ab".to_vec(), true));
    assert_eq!(rig.states(&not_told)[2..], ["Answering", "Closing(ClosedClient)"]);
    assert_eq!(rig.targets(), ["/read/reply:1", "/reply:2"]);
}

#[test]
fn nobody_is_told_to_go_on_in_the_middle_of_an_answer() {
    let rig = Rig::new();
    let mut client = rig.client();
    client.send(head("POST", "/head:2/flush/read/body:2", EXPECT));
    assert!(client.head().unwrap().starts_with("HTTP/1.1 200 "));
    rig.until_step("read");
    client.send(SMUGGLED);
    assert_eq!(client.rest(), (b"ab".to_vec(), true));
    assert_eq!(rig.seen()[0].body, SMUGGLED);
}

#[test]
fn what_stands_behind_an_upgrade_is_the_tunnels() {
    let rig = Rig::new();
    let mut client = rig.client();
    let upgrade = head("GET", "/tunnel", "Connection: upgrade\r\nUpgrade: script\r\n");
    client.send([&upgrade, SMUGGLED].concat());
    assert_eq!(client.reply().unwrap().status, 101);
    client.send(SMUGGLED);
    client.finish_sending();
    client.assert_closed();
    let seen = rig.seen();
    assert_eq!((seen.len(), &seen[0].behind), (1, &SMUGGLED.repeat(2)));
    assert_eq!(rig.states(&client)[2..], ["Answering", "Closing(ClosedClient)"]);
}

#[test]
fn who_gives_a_body_away_unread_or_goes_on_behind_what_was_given_away_is_stopped() {
    let mut rig = Rig::new();
    rig.panics_expected = 2;
    let mut unread = rig.client();
    unread.send(post("/take/reply:1", SMUGGLED));
    assert!(unread.rest().0.is_empty());
    let mut reused = rig.client();
    reused.send([&get("/take/reply:1"), SMUGGLED].concat());
    assert_eq!(reused.reply().unwrap().body, b"a");
    assert!(reused.rest().0.is_empty());
    assert_eq!(rig.targets(), ["/take/reply:1"; 2]);
}

#[test]
fn a_body_over_its_limit_is_refused_before_it_is_read_or_where_it_is_found() {
    let mut settings = EngineSettings::default();
    settings.body.body_bytes_max = 40;
    let chunked = |target| post_chunked(target, &[&SMUGGLED[..30], &SMUGGLED[30..], SMUGGLED]);
    let cases = [
        (post("/read/reply:1", SMUGGLED), 413, "Answering", 0),
        (chunked("/read/reply:1"), 413, "Answering", 1),
        (chunked("/reply:1"), 200, "Draining", 1),
    ];
    for (request, status, before, seen) in cases {
        let rig = Rig::with(settings.clone());
        let mut client = rig.client();
        client.send([&request[..], SMUGGLED].concat());
        assert_eq!(client.reply().unwrap().status, status);
        client.assert_closed();
        let states = rig.states(&client);
        assert_eq!(states[states.len() - 2], before);
        assert!(states.last().unwrap().starts_with("Closing"));
        assert_eq!(rig.seen().len(), seen);
        assert_eq!(rig.get(Counter::Reject413), u64::from(status == 413));
    }
}

#[test]
fn nothing_is_parsed_behind_a_body_that_breaks_the_rules() {
    let broken = head("POST", "/T", "Transfer-Encoding: chunked\r\n");
    for (target, status) in [("/read/reply:1", 400), ("/reply:1", 200), ("/read:3/reply:1", 400)] {
        let rig = Rig::new();
        let mut client = rig.client();
        let broken = String::from_utf8(broken.clone()).unwrap().replace("/T", target);
        client.send([broken.as_bytes(), b"3\r\nabc\r\nxyz\r\n0\r\n\r\n", SMUGGLED].concat());
        assert_eq!(client.reply().unwrap().status, status);
        client.assert_closed();
        assert_eq!(rig.targets(), [target]);
    }
}

#[test]
fn a_body_that_ends_with_its_connection_is_400_if_it_is_read() {
    for (target, status) in [("/read/reply:1", 400), ("/reply:1", 200)] {
        let rig = Rig::new();
        let mut client = rig.client();
        client.send(&post(target, SMUGGLED)[..80]);
        client.finish_sending();
        assert_eq!(client.reply().unwrap().status, status);
        client.assert_closed();
        assert_eq!(rig.targets(), [target]);
    }
}

/// The end of a flush once cleared the deadline of an upload.
#[test]
fn who_stops_sending_while_it_is_answered_is_cut_off() {
    let settings = EngineSettings { body_grace_ms: 300, ..EngineSettings::default() };
    let rig = Rig::with(settings);
    let mut client = rig.client();
    client.send(head("POST", "/read:1/head:1/flush/read/body:1", "Content-Length: 41\r\n"));
    rig.until_step("read");
    client.send(&SMUGGLED[..10]);
    assert!(client.head().unwrap().starts_with("HTTP/1.1 200 "));
    assert_eq!(client.rest().0, b"");
    assert_eq!(rig.get(Counter::ClosedBodySlow), 1);
}

#[test]
fn earlier_speed_earns_no_time_beyond_the_average() {
    let settings = EngineSettings {
        body_grace_ms: 100,
        body_average_ms: 400,
        body_min_bytes_per_s: 1_000,
        ..EngineSettings::default()
    };
    let rig = Rig::with(settings);
    let mut client = rig.client();
    // An amount that would allow hours of silence.
    let count = 10_000_000;
    client.send(head("POST", "/read/reply:1", &format!("Content-Length: {}\r\n", count + 1)));
    let piece = vec![b'x'; 1_000_000];
    for _ in 0..count / piece.len() {
        client.send(&piece);
    }
    let stopped = Instant::now();
    assert_eq!(client.reply().unwrap().status, 408);
    assert!(stopped.elapsed() < Duration::from_secs(30), "{:?}", stopped.elapsed());
    // Counted before the end of the stream.
    client.rest();
    assert_eq!(rig.get(Counter::ClosedBodySlow), 1);
}
