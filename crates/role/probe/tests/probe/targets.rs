//! Targets that are down, or send invalid responses: each is a sample, and the run continues.

use std::future;
use std::io::{Read, Write};
use std::net::SocketAddr;

use skep_probe::{ProbeFailure, ProbePhase, ProbePlan, ProbeSample};
use socket2::{Domain, Socket, Type};
use tempfile::TempDir;

use super::server::{Server, response};
use super::{PATIENCE_MS, kind, measure, measure_within, plan, run, run_until};

/// Timeout for targets that never respond, in milliseconds: each takes that long.
const SHORT_MS: u64 = 100;

/// The same for a target that responds in part: far more than that takes.
const LONG_MS: u64 = 2_000;

/// A port that refuses connections while its socket exists: bound, but not listening.
fn refused() -> (String, Socket) {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
    let address = socket.local_addr().unwrap().as_socket().unwrap();
    (format!("http://{address}/"), socket)
}

#[test]
fn what_is_wrong_with_a_target_is_said_in_words() {
    let server = Server::new();
    for (path, expected, text, status, bytes) in [
        ("/status/404", "status", "404", Some(404), 3),
        ("/status/503", "status", "503", Some(503), 3),
        ("/status/302", "status", "302", Some(302), 3),
        ("/short", "cut-short", "after 10 bytes", Some(200), 10),
        ("/short-chunk", "cut-short", "after 4 bytes", Some(200), 4),
        ("/garbage", "http", "HTTP: ", None, 0),
        ("/endless-head", "http", "HTTP: ", None, 0),
        ("/closed", "closed", "without a response", None, 0),
        ("/reset", "reset", "reset", None, 0),
        ("/to/ftp://127.0.0.1/", "redirect", "the scheme \"ftp\"", Some(302), 0),
        ("/to/http://127.0.0.1:99999/", "redirect", "port", Some(302), 0),
    ] {
        let sample = measure(&server.url(path));
        let ProbeFailure { kind, text: said } = sample.failure.clone().unwrap_or_default();
        assert_eq!(kind, expected, "{path}: {sample:?}");
        assert!(said.contains(text), "{path}: {said}");
        assert_eq!((sample.status, sample.body_bytes), (status, bytes), "{path}");
    }
}

#[test]
fn a_target_that_is_not_there_is_a_sample() {
    let (url, _socket) = refused();
    let sample = measure(&url);
    assert_eq!((kind(&sample), sample.status), ("refused", None));
    let ended = ProbePhase::ALL.map(|phase| sample.phase_us(phase).is_some());
    assert_eq!(ended, [true, false, false, false, false, false, false], "{sample:?}");
    // A resolver is never queried for a name with an empty label.
    assert_eq!(kind(&measure("http://a..invalid/")), "dns");
}

#[test]
fn a_target_that_never_ends_takes_its_timeout_and_says_in_which_phase() {
    let server = Server::new();
    let silent = measure_within(&server.url("/silent"), SHORT_MS);
    assert_eq!(kind(&silent), "timeout", "{silent:?}");
    assert!(silent.total_us >= SHORT_MS * 1000, "{silent:?}");
    let half = measure_within(&server.url("/half"), LONG_MS);
    let ProbeFailure { kind, text: said } = half.failure.clone().unwrap();
    assert_eq!(
        (kind.as_str(), said.starts_with("no end of the response")),
        ("timeout", true),
        "{said}"
    );
    assert_eq!((half.status, half.body_bytes), (Some(200), 4));
    assert!(half.phase_us(ProbePhase::FirstByte).is_some(), "{half:?}");
    assert_eq!(half.phase_us(ProbePhase::Data), None);
}

#[test]
fn a_turn_goes_on_after_a_target_that_is_down() {
    let (server, folder) = (Server::new(), TempDir::new().unwrap());
    let (url, _socket) = refused();
    let urls = [url, server.url("/reset"), server.url("/size/5")];
    let samples = run(&ProbePlan { turns_max: Some(2), ..plan(folder.path(), &urls) });
    let words: Vec<_> = samples.iter().map(|it| (it.turn, kind(it))).collect();
    let turn = |turn| [(turn, "refused"), (turn, "reset"), (turn, "none")];
    assert_eq!(words, [turn(0), turn(1)].concat());
}

#[test]
fn a_schedule_that_falls_behind_skips_turns_and_counts_them() {
    let (server, folder) = (Server::new(), TempDir::new().unwrap());
    let plan = ProbePlan {
        timeout_ms: 350,
        turns_max: Some(2),
        ..plan(folder.path(), &[server.url("/silent")])
    };
    let (summary, samples) = run_until(&plan, future::pending(), |_| {}).unwrap();
    assert_eq!(samples.len(), 2);
    assert!(summary.turns_skipped >= 6, "three of each turn of 350 ms: {summary:?}");
    let begun_ms = samples[1].since_begin_ms;
    assert!(begun_ms >= 400, "turns begin at multiples of the interval: {begun_ms}");
}

/// Early hints, and the response later: up to the bound, and beyond it.
#[test]
fn informational_responses_are_passed_over_up_to_a_bound() {
    let server = Server::answering(|stream, path| {
        let hints = "HTTP/1.1 103 Early Hints\r\n\r\n".repeat(path[1..].parse().unwrap());
        let _ = stream.write_all(hints.as_bytes());
        let _ = stream.write_all(&response("200 OK", "", 7));
    });
    let sample = measure(&server.url("/32"));
    assert_eq!((kind(&sample), sample.body_bytes), ("none", 7), "{sample:?}");
    let sample = measure(&server.url("/33"));
    let ProbeFailure { kind, text } = sample.failure.clone().unwrap();
    assert_eq!(kind, "http", "{sample:?}");
    assert!(text.contains("more than 32 informational responses"), "{text}");
}

#[test]
fn a_flood_of_informational_responses_ends_at_once() {
    let server = Server::answering(|stream, _| {
        let hints = b"HTTP/1.1 100 Continue\r\n\r\n".repeat(1_000);
        while stream.write_all(&hints).is_ok() {}
    });
    let sample = measure_within(&server.url("/"), PATIENCE_MS);
    assert_eq!(kind(&sample), "http", "{sample:?}");
    assert!(sample.total_us < PATIENCE_MS * 1000, "{sample:?}");
}

#[test]
fn phases_that_have_ended_are_kept_whatever_fails_after_them() {
    let ended = |sample: &ProbeSample| ProbePhase::ALL.map(|it| sample.phase_us(it).is_some());
    let server = Server::new();
    for path in ["/closed", "/garbage"] {
        let sample = measure(&server.url(path));
        assert_eq!(ended(&sample), [true, false, false, true, true, false, false], "{sample:?}");
    }
    let silent = measure_within(&server.url("/silent"), SHORT_MS);
    assert_eq!(ended(&silent), [true, false, false, true, true, false, false], "{silent:?}");
    // A handshake that never ends.
    let mute = Server::accepting(|mut stream| {
        let _ = stream.read_to_end(&mut Vec::new());
    });
    let mute = measure_within(&format!("https://{}/", mute.address()), SHORT_MS);
    assert_eq!(kind(&mute), "timeout", "{mute:?}");
    assert_eq!(ended(&mute), [true, false, false, true, false, false, false], "{mute:?}");
    // The connection of a redirect is not that of the response.
    let (url, _socket) = refused();
    let led = measure(&server.url(&format!("/to/{url}")));
    assert_eq!((kind(&led), led.redirects), ("refused", 1), "{led:?}");
    assert_eq!(ended(&led), [true, true, true, false, false, false, false], "{led:?}");
}

#[test]
fn heads_with_too_many_fields_are_said_to_be_too_large() {
    let server = Server::answering(|stream, path| {
        let fields = "X-Field: 1\r\n".repeat(path[1..].parse().unwrap());
        let _ = stream.write_all(&response("200 OK", &fields, 7));
    });
    // Together with `Content-Length` there are a hundred.
    assert_eq!(kind(&measure(&server.url("/99"))), "none");
    let sample = measure(&server.url("/100"));
    let ProbeFailure { kind, text } = sample.failure.clone().unwrap();
    assert_eq!(kind, "http", "{sample:?}");
    assert!(text.contains("more than 65536 bytes or 100 fields"), "{text}");
}

#[test]
fn locations_that_are_no_urls_are_escaped() {
    let server = Server::answering(|stream, path| {
        let whole = match path {
            "/" => response("302 Found", "Location: /a b\u{e9}?c d\r\n", 0),
            "/a%20b%C3%A9?c%20d" => response("200 OK", "", 7),
            _ => response("404 Not Found", "", 0),
        };
        let _ = stream.write_all(&whole);
    });
    let sample = measure(&server.url("/"));
    assert_eq!((kind(&sample), sample.redirects), ("none", 1), "{sample:?}");
}

/// Text sent by servers is printed on terminals and read by others.
#[test]
fn texts_of_servers_are_harmless() {
    let server = Server::answering(|stream, path| {
        let whole = match path {
            "/node" => response("200 OK", "X-Skep-Node: a\u{202e}b\r\n", 7),
            _ => response("302 Found", "Location: \u{202e}x:\r\n", 0),
        };
        let _ = stream.write_all(&whole);
    });
    assert_eq!(measure(&server.url("/node")).node.as_deref(), Some("ab"));
    let text = measure(&server.url("/")).failure.unwrap().text;
    assert!(text.is_ascii() && !text.contains('\u{1b}'), "{text}");
}
