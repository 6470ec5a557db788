//! The phases of an exchange to the microsecond, by a clock that advances only while all tasks
//! wait.
#![allow(clippy::unwrap_used, reason = "tests")]

use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio::time::sleep;

use super::*;
use crate::tls;

/// Microseconds of the phases of each connection.
const CONNECTION_US: [(ProbePhase, u64); 3] =
    [(ProbePhase::Lookup, 1), (ProbePhase::Connect, 2), (ProbePhase::Tls, 4)];

/// A server that sends each part after this number of milliseconds, and then closes.
async fn send(mut stream: DuplexStream, parts: &'static [(u64, &'static str)]) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.unwrap());
    }
    for (ms, part) in parts {
        sleep(Duration::from_millis(*ms)).await;
        stream.write_all(part.as_bytes()).await.unwrap();
    }
}

/// The measurement of exchanges with servers, one after the other.
fn measured(servers: &[&'static [(u64, &'static str)]]) -> ProbeSample {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_all().start_paused(true).build().unwrap();
    runtime.block_on(async {
        let prober = Prober::new(tls::connector(None, false).unwrap(), 1_000);
        let at = ProbeUrl::parse("http://a/").unwrap();
        let mut measuring = Measuring::begin(&prober);
        let mut failure = None;
        for parts in servers {
            let (ours, theirs) = duplex(64 * 1024);
            let server = tokio::spawn(send(theirs, parts));
            for (phase, us) in CONNECTION_US {
                measuring.sample.set_phase(phase, us);
            }
            failure = measuring.exchange(ours, &at).await.err();
            server.await.unwrap();
        }
        measuring.finish(&at, failure)
    })
}

/// In the order of [`ProbePhase::ALL`].
fn assert_phases(sample: &ProbeSample, expected: [u64; ProbePhase::COUNT]) {
    assert_eq!(sample.failure, None);
    assert_eq!(sample.phases_us, expected.map(Some), "{sample:?}");
}

#[test]
fn phases_end_where_bytes_come_in() {
    let sample =
        measured(&[&[(60, "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nab"), (120, "cd")]]);
    assert_phases(&sample, [1, 0, 0, 2, 4, 60_000, 120_000]);
    assert_eq!((sample.total_us, sample.body_bytes), (180_000, 4));
}

#[test]
fn the_first_byte_is_the_first_and_not_the_end_of_the_head() {
    let sample = measured(&[&[
        (7, "H"),
        (20, "TTP/1.1 200 OK\r\nContent-Len"),
        (30, "gth: 1\r\n\r\n"),
        (40, "x"),
    ]]);
    assert_phases(&sample, [1, 0, 0, 2, 4, 7_000, 90_000]);
}

#[test]
fn redirects_add_up_each_to_the_end_of_its_head() {
    const REDIRECT: &str = "HTTP/1.1 302 Found\r\nContent-Length: 9\r\nLocation: /\r\n\r\n";
    let sample = measured(&[
        &[(10, REDIRECT)],
        &[(5, "HTTP/1.1 307 T\r\n"), (15, "Location: /\r\nContent-Length: 0\r\n\r\n")],
        &[(40, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")],
    ]);
    assert_phases(&sample, [1, 14, 30_000, 2, 4, 40_000, 0]);
}

#[test]
fn a_body_that_is_cut_short_has_no_data_phase() {
    let sample = measured(&[&[(3, "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nab")]]);
    assert_eq!(sample.failure.clone().unwrap_or_default().kind, "cut-short");
    assert_eq!((sample.phase_us(ProbePhase::FirstByte), sample.body_bytes), (Some(3_000), 2));
    assert_eq!(sample.phase_us(ProbePhase::Data), None);
}

/// Some servers send early hints: the first byte is that of the response, not of a hint.
#[test]
fn informational_responses_are_not_the_first_byte() {
    const HINT: &str = "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n";
    const EMPTY: &str = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
    let sample = measured(&[&[(1, HINT), (2, "HTTP/1.1 100 Continue\r\n\r\n"), (500, EMPTY)]]);
    assert_phases(&sample, [1, 0, 0, 2, 4, 503_000, 0]);
    // The response begins in the segment of the hint.
    let sample = measured(&[&[
        (5, "HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 20"),
        (30, "0 OK\r\nContent-Length: 1\r\n\r\n"),
        (60, "x"),
    ]]);
    assert_phases(&sample, [1, 0, 0, 2, 4, 5_000, 90_000]);
    // The same with bare line ends, and after an empty line.
    let sample = measured(&[&[(5, "HTTP/1.1 103 E\n\n\r\n"), (30, EMPTY)]]);
    assert_phases(&sample, [1, 0, 0, 2, 4, 35_000, 0]);
}
