//! Targets that are down, or answer what is no answer: each is a sample, and the run goes on.

use std::future;
use std::net::SocketAddr;

use skep_probe::{ProbePhase, ProbePlan};
use socket2::{Domain, Socket, Type};
use tempfile::TempDir;

use super::server::Server;
use super::{measure, measure_within, plan, run, run_until, word};

/// Timeout of targets that never answer, in milliseconds: each costs it.
const SHORT_MS: u64 = 100;

/// The same for a target that answers in part: far more than that takes.
const LONG_MS: u64 = 2_000;

/// A port that refuses, as long as its socket is there: bound, and nobody listens.
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
        let (word, said) = sample.failure.clone().unwrap_or_default();
        assert_eq!(word, expected, "{path}: {sample:?}");
        assert!(said.contains(text), "{path}: {said}");
        assert_eq!((sample.status, sample.body_bytes), (status, bytes), "{path}");
    }
}

#[test]
fn a_target_that_is_not_there_is_a_sample() {
    let (url, _socket) = refused();
    let sample = measure(&url);
    assert_eq!((word(&sample), sample.status), ("refused", None));
    assert!(ProbePhase::ALL.iter().all(|phase| sample.phase_us(*phase).is_none()), "{sample:?}");
    // A name with an empty label is one that no resolver is asked about.
    assert_eq!(word(&measure("http://a..invalid/")), "dns");
}

#[test]
fn a_target_that_never_ends_takes_its_timeout_and_says_in_which_phase() {
    let server = Server::new();
    let silent = measure_within(&server.url("/silent"), SHORT_MS);
    assert_eq!(word(&silent), "timeout", "{silent:?}");
    assert!(silent.total_us >= SHORT_MS * 1000, "{silent:?}");
    let half = measure_within(&server.url("/half"), LONG_MS);
    let (word, said) = half.failure.clone().unwrap();
    assert_eq!(
        (word.as_str(), said.starts_with("no end of the response")),
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
    let words: Vec<_> = samples.iter().map(|it| (it.turn, word(it))).collect();
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
