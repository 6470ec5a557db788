//! The phases of a response time on sockets; the tests beside `measure.rs` check them to the
//! microsecond.

use std::io::Write;
use std::thread;
use std::time::Duration;

use skep_probe::{ProbePhase, ProbeSample};

use super::server::{DATA_MS, FIRST_BYTE_MS, Server, read_path, response};
use super::{kind, measure};

/// Delay of a redirect, in milliseconds.
const REDIRECT_MS: u64 = 20;

fn phase_us(sample: &ProbeSample, phase: ProbePhase) -> u64 {
    sample.phase_us(phase).unwrap()
}

/// Asserts that the phases add up to the total.
#[track_caller]
fn assert_whole(sample: &ProbeSample) {
    assert_eq!(kind(sample), "none", "{sample:?}");
    let sum: u64 = ProbePhase::ALL.iter().map(|phase| phase_us(sample, *phase)).sum();
    assert_eq!(sum, sample.total_us, "{sample:?}");
}

#[test]
fn the_phases_of_a_response_are_its_total() {
    let server = Server::new();
    for path in ["/size/0", "/size/1", "/size/1000000", "/chunked", "/unframed"] {
        let sample = measure(&server.url(path));
        assert_whole(&sample);
        assert_eq!((sample.status, sample.redirects), (Some(200), 0), "{path}");
        for absent in [ProbePhase::Redirect, ProbePhase::RedirectConnect, ProbePhase::Tls] {
            assert_eq!(sample.phase_us(absent), Some(0), "{path}: {absent:?}");
        }
    }
    let bytes = |path| measure(&server.url(path)).body_bytes;
    assert_eq!([bytes("/size/0"), bytes("/size/1000000")], [0, 1_000_000]);
    assert_eq!([bytes("/chunked"), bytes("/unframed")], [5, 13]);
    assert_eq!(server.connections(), 9, "a connection for each measurement");
}

#[test]
fn each_phase_has_the_time_that_the_server_took_for_it() {
    let node = Server::new();
    let target = node.url("/slow");
    let dispatcher = Server::accepting(move |mut stream| {
        read_path(&mut stream);
        thread::sleep(Duration::from_millis(REDIRECT_MS));
        let _ = stream.write_all(&response("302 Found", &format!("Location: {target}\r\n"), 0));
    });
    let sample = measure(&dispatcher.url("/"));
    assert_whole(&sample);
    assert_eq!((sample.redirects, sample.body_bytes), (1, 4));
    assert_eq!(sample.node, Some(node.address().to_string()));
    // The data phase is not checked: a probe that is late for the first byte measures less of it.
    for (phase, ms) in [(ProbePhase::Redirect, REDIRECT_MS), (ProbePhase::FirstByte, FIRST_BYTE_MS)]
    {
        assert!(phase_us(&sample, phase) >= ms * 1000, "{phase:?} of {sample:?}");
    }
    assert!(sample.total_us >= (REDIRECT_MS + FIRST_BYTE_MS + DATA_MS) * 1000, "{sample:?}");
    assert!(phase_us(&sample, ProbePhase::RedirectConnect) > 0, "{sample:?}");
    assert!(phase_us(&sample, ProbePhase::Connect) > 0, "{sample:?}");
}

#[test]
fn the_node_is_who_it_says_it_is_or_where_the_redirect_led() {
    let server = Server::new();
    assert_eq!(measure(&server.url("/size/1")).node.as_deref(), Some("node-7"));
    assert_eq!(measure(&server.url("/chunked")).node, None);
    let led = measure(&server.url("/to//chunked"));
    assert_eq!((led.node, led.redirects), (Some(server.address().to_string()), 1));
    assert_eq!(measure(&server.url("/to//size/1")).node.as_deref(), Some("node-7"));
}

#[test]
fn redirects_add_up_to_ten_and_no_further() {
    let server = Server::new();
    let sample = measure(&server.url("/hops/10"));
    assert_whole(&sample);
    assert_eq!(sample.redirects, 10);
    let sample = measure(&server.url("/hops/11"));
    assert_eq!((kind(&sample), sample.redirects), ("redirects", 10));
    assert_eq!(sample.phase_us(ProbePhase::FirstByte), None, "{sample:?}");
}
