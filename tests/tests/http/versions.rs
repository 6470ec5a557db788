//! Origins that use one entity tag for bytes of different lengths (constant build tags, origins that
//! disagree, malice): each reply is complete and from one answer, and nobody waits for bytes that will never
//! arrive.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};
use std::thread;
use std::time::Duration;

use rustix::process::Signal;
use skep_tests::cache::SEGMENT;
use skep_tests::content::{assert_same, version};
use skep_tests::origin::{Answer, Asked, FRESH, Origin};
use skep_tests::{PATIENCE, RawClient, Skep, poll_until};

/// The entity tag of all answers.
const TAG: &str = "\"v\"";

/// Revalidated each time.
const STALE: &str = "Cache-Control: max-age=0\r\n";

/// Lengths before and after: in one copied piece, in shared pieces of the heap, in a memory file of many
/// pieces, in a separate one, and in several segments; longer and shorter.
const LENGTHS: &[(usize, usize)] = &[
    (100, 150),
    (150, 100),
    (5_000, 7_000),
    (9_000, 14_000),
    (14_000, 9_000),
    (1_500_000, 3_000_000),
    (SEGMENT - 5, SEGMENT),
    (SEGMENT, SEGMENT + 5),
    (SEGMENT + 5, SEGMENT),
    (SEGMENT + 1_000, SEGMENT + 500_000),
    (SEGMENT + 500_000, SEGMENT + 1_000),
];

/// Parses the lengths in a target: `/100-150`.
fn lengths(target: &str) -> (usize, usize) {
    let (one, other) = target.trim_start_matches('/').split_once('-').unwrap();
    (one.parse().unwrap(), other.parse().unwrap())
}

fn target((one, other): (usize, usize)) -> String {
    format!("/{one}-{other}")
}

/// Returns version 1 or 2 of the object of a target.
fn bytes(number: usize, target: &str) -> &'static [u8] {
    static BYTES: LazyLock<[Vec<u8>; 2]> =
        LazyLock::new(|| [1, 2].map(|number| version(number, SEGMENT + 500_000)));
    let (one, other) = lengths(target);
    let len = if number == 1 { one } else { other };
    &BYTES[number - 1][..len]
}

/// An answer that supports ranges but no conditional requests.
fn answer(number: usize, asked: &Asked, fields: &str) -> Answer {
    let asked = asked.without("if-none-match");
    Answer::of(&asked, bytes(number, &asked.target), TAG, fields)
}

/// An origin with version 1, which its fields mark as fresh or stale, and the number of the version that it
/// serves from then on.
fn origin(fields: &'static str) -> (Origin, Arc<AtomicUsize>) {
    let number = Arc::new(AtomicUsize::new(1));
    let its = Arc::clone(&number);
    let origin = Origin::start(move |asked| answer(its.load(Ordering::SeqCst), asked, fields));
    (origin, number)
}

/// Asserts that a target has version 2, however it is requested.
#[track_caller]
fn assert_second(client: &mut RawClient, target: &str) {
    let whole = bytes(2, target);
    assert_same(&client.get(target).body, whole);
    let part = client.request("GET", target, &[("Range", "bytes=0-29")]);
    part.assert_status(206);
    assert_same(&part.body, &whole[..30]);
    let last = format!("bytes={}-", whole.len() - 30);
    let part = client.request("GET", target, &[("Range", &last)]);
    assert_same(&part.body, &whole[whole.len() - 30..]);
    for _ in 0..2 {
        assert_same(&client.get(target).body, whole);
    }
}

/// Asserts that nothing is held, and that stopping takes no time.
#[track_caller]
fn assert_at_rest(mut skep: Skep) {
    poll_until(PATIENCE, "no connection is left", || skep.connections() == 0);
    skep.signal(Signal::TERM);
    assert!(skep.wait_exit(PATIENCE).success());
}

#[test]
fn another_length_under_the_same_tag_is_another_version() {
    let (origin, number) = origin(STALE);
    let skep = origin.node("");
    let mut client = skep.connect();
    let targets: Vec<_> = LENGTHS.iter().map(|&lengths| target(lengths)).collect();
    for target in &targets {
        assert_same(&client.get(target).body, bytes(1, target));
    }
    number.store(2, Ordering::SeqCst);
    for target in &targets {
        assert_second(&mut client, target);
    }
    drop(client);
    assert_at_rest(skep);
}

#[test]
fn so_it_is_after_a_reload_that_forgets_heads_and_keeps_segments() {
    let (origin, number) = origin(FRESH);
    let skep = origin.node("");
    let targets: Vec<_> = LENGTHS.iter().map(|&lengths| target(lengths)).collect();
    let mut client = skep.connect();
    for target in &targets {
        assert_same(&client.get(target).body, bytes(1, target));
    }
    number.store(2, Ordering::SeqCst);
    skep.reconfigure_of(&(origin.line() + "headers = { X-New = \"1\" }"));
    skep.signal(Signal::HUP);
    poll_until(PATIENCE, "the new config is in force", || {
        client.request("OPTIONS", "/", &[]).header("x-new").is_some()
    });
    for (turn, target) in targets.iter().enumerate() {
        // A worker remembers the whole object even from a range request.
        if turn % 2 == 0 {
            let part = client.request("GET", target, &[("Range", "bytes=0-29")]);
            assert_same(&part.body, &bytes(2, target)[..30]);
        }
        assert_second(&mut client, target);
    }
    drop(client);
    assert_at_rest(skep);
}

#[test]
fn who_still_reads_the_first_length_gets_it_and_the_others_the_second() {
    let number = Arc::new(AtomicUsize::new(1));
    let its = Arc::clone(&number);
    let origin = Origin::start(move |asked| match its.load(Ordering::SeqCst) {
        // It halts: the segment stays half filled under its name.
        1 => {
            let answer = answer(1, asked, STALE);
            let half = answer.body.len() / 2;
            answer.halt(half)
        }
        _ => answer(2, asked, STALE),
    });
    let skep = origin.node("[site.fetch]\nstall_timeout_ms = \"60s\"\n");
    for lengths in [(600_000, 900_000), (900_000, 600_000), (3_000_000, 2_000_000)] {
        let target = target(lengths);
        number.store(1, Ordering::SeqCst);
        origin.halt_again();
        let mut first = skep.connect();
        first.ask(&target);
        first.try_head().unwrap();
        number.store(2, Ordering::SeqCst);
        // It reads continuously, as a client that does not is disconnected.
        first.set_timeout(4 * PATIENCE);
        let whole = bytes(1, &target);
        let reading = thread::spawn(move || read(&mut first, whole.len()));
        let mut second = skep.connect();
        assert_second(&mut second, &target);
        // The second request did not wait for the first, nor is the first one disturbed.
        origin.go_on();
        assert_same(&reading.join().unwrap(), whole);
    }
    assert_at_rest(skep);
}

#[test]
fn origins_that_disagree_on_a_length_never_make_a_reply_of_both() {
    // In alternation, as behind a load balancer.
    let origin = Origin::counting(|count, asked| answer(1 + count % 2, asked, STALE));
    let skep = origin.node("");
    let targets: Vec<_> = LENGTHS.iter().map(|&lengths| target(lengths)).collect();
    let mut seen = [0; 3];
    for round in 0..6 {
        for target in &targets {
            let mut client = skep.connect();
            client.set_timeout(Duration::from_secs(30));
            let field = ("Range", "bytes=0-29");
            let fields = if round % 2 == 0 { [field].to_vec() } else { Vec::new() };
            client.send_request("GET", target, &fields);
            // If the second segment is from the other origin, the reply is truncated.
            let Ok(reply) = client.try_response() else { continue };
            let number = if reply.body.starts_with(b"v0001") { 1 } else { 2 };
            let whole = bytes(number, target);
            let wanted = if fields.is_empty() { whole } else { &whole[..30] };
            assert_same(&reply.body, wanted);
            seen[number] += 1;
        }
    }
    assert!(seen[1] > 0 && seen[2] > 0, "both answered: {seen:?}");
    assert_at_rest(skep);
}

/// Returns this number of bytes of a body whose head was received, or all that there are.
fn read(client: &mut RawClient, bytes: usize) -> Vec<u8> {
    let mut body = Vec::new();
    while body.len() < bytes {
        match client.try_read_some() {
            Ok(read) if !read.is_empty() => body.extend(read),
            _ => break,
        }
    }
    body
}
