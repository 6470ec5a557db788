//! One stream of requests, split at every byte: checks the state after each prefix, and that the
//! handler always receives the same requests.

use std::ops::Range;

use super::bodies::SMUGGLED;
use super::client::{Client, get, post, post_chunked};
use super::rig::Rig;

/// A request in the stream.
struct Stretch {
    target: &'static str,
    head: Range<usize>,
    /// The end of its bytes, including those of chunks.
    end: usize,
    /// Bytes of the body for which the handler waits.
    awaited: usize,
}

/// Requests back to back, whose bodies would parse as requests.
fn stream() -> (Vec<u8>, Vec<Stretch>) {
    let requests = [
        ("/quick:3", 0, get("/quick:3")),
        ("/read/reply:5", usize::MAX, post("/read/reply:5", SMUGGLED)),
        ("/reply:2", 0, post_chunked("/reply:2", &[&SMUGGLED[..9], &SMUGGLED[9..]])),
        ("/reply:1", 0, get("/reply:1")),
        ("/read:4/reply:1", 4, post("/read:4/reply:1", SMUGGLED)),
        ("/read/reply:0", usize::MAX, post_chunked("/read/reply:0", &[SMUGGLED, b"0\r\n\r\n"])),
        ("/quick:0", 0, get("/quick:0")),
    ];
    let (mut bytes, mut stretches) = (Vec::new(), Vec::new());
    for (target, awaited, request) in requests {
        let start = bytes.len();
        let head_len = request.windows(4).position(|end| end == b"\r\n\r\n").unwrap() + 4;
        bytes.extend(request);
        let head = start..start + head_len;
        stretches.push(Stretch { target, head, end: bytes.len(), awaited });
    }
    (bytes, stretches)
}

/// The expected state once the first `at` bytes were received.
fn state_at(stretches: &[Stretch], at: usize) -> String {
    if at == 0 {
        return "New".to_owned();
    }
    let Some(number) = stretches.iter().position(|stretch| at < stretch.end) else {
        return "Resting".to_owned();
    };
    let Stretch { head, awaited, .. } = &stretches[number];
    match at {
        _ if at == head.start => "Resting".to_owned(),
        _ if at < head.end => format!("HalfHead({number}: {})", at - head.start),
        _ if at - head.end < *awaited => "Answering".to_owned(),
        _ => "Draining".to_owned(),
    }
}

fn assert_answered(rig: &Rig, client: &mut Client, stretches: &[Stretch]) {
    for stretch in stretches {
        let reply = client.reply().expect("a whole reply");
        assert_eq!((reply.status, reply.field("Script")), (200, Some(stretch.target)));
    }
    rig.until_state(client, "Resting");
    let seen = rig.seen();
    assert_eq!(rig.targets(), stretches.iter().map(|it| it.target).collect::<Vec<_>>());
    assert_eq!(seen[1].body, SMUGGLED);
    assert!(SMUGGLED.starts_with(&seen[4].body) && seen[4].body.len() >= 4);
    assert_eq!(seen[5].body, [SMUGGLED, b"0\r\n\r\n"].concat());
    assert!([0, 2, 3, 6].iter().all(|other| seen[*other].body.is_empty()));
    rig.shared.forget();
}

#[test]
fn wherever_a_stream_is_cut_its_requests_are_the_same_and_the_state_is_known() {
    let (bytes, stretches) = stream();
    let rig = Rig::new();
    let mut received = 0;
    for cut in 0..=bytes.len() {
        let mut client = rig.client();
        let (first, second) = bytes.split_at(cut);
        assert!(client.send(first));
        rig.until_received(received + cut as u64);
        rig.until_state(&client, &state_at(&stretches, cut));
        assert!(client.send(second));
        assert_answered(&rig, &mut client, &stretches);
        received += bytes.len() as u64;
    }
}

#[test]
fn a_stream_that_comes_byte_by_byte_has_a_state_at_each() {
    let (bytes, stretches) = stream();
    for rig in [Rig::new(), Rig::slow()] {
        let mut client = rig.client();
        for at in 0..bytes.len() {
            rig.until_state(&client, &state_at(&stretches, at));
            assert!(client.send(&bytes[at..=at]));
            rig.until_received(at as u64 + 1);
        }
        assert_answered(&rig, &mut client, &stretches);
    }
}
