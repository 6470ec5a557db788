//! Clients that stall, close or reset the connection at every byte that they send or receive.

use std::io::{ErrorKind, Read};
use std::thread;
use std::time::Duration;

use skep_tests::content::version;
use skep_tests::liar::{Act, Liar};
use skep_tests::origin::Asked;
use skep_tests::{ClientError, PATIENCE, RawClient, poll_until};
use socket2::SockRef;

use crate::judge::HANG;
use crate::nodes::{HEALTH, healthy};
use crate::victim::{BRISK, Victim};

/// Maximum number of concurrent clients, below the limit of descriptors.
const AT_ONCE: usize = 600;

/// Maximum number of concurrent clients of large replies: the kernel buffers about 10 MiB for each stalled
/// one.
const TAKING_AT_ONCE: usize = 100;

/// Size of a large reply: more than the buffers of both sides.
const LARGE_BYTES: usize = 12 * 1024 * 1024;

/// Size of one of its chunks.
const CHUNK_BYTES: usize = 64 * 1024;

/// Requests of clients, by name.
const REQUESTS: [(&str, &[u8]); 8] = [
    ("kept", b"GET /kept HTTP/1.1\r\nHost: test\r\n\r\n"),
    ("passed", b"GET /passed HTTP/1.1\r\nHost: test\r\nRange: bytes=1-2\r\n\r\n"),
    ("late", b"GET /late HTTP/1.1\r\nHost: test\r\n\r\n"),
    ("two", b"GET /kept HTTP/1.1\r\nHost: test\r\n\r\nGET /passed HTTP/1.1\r\nHost: test\r\n\r\n"),
    ("length", b"POST /post HTTP/1.1\r\nHost: test\r\nContent-Length: 20\r\n\r\nabcdefghijklmnopqrst"),
    (
        "chunks",
        b"POST /post HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: chunked\r\n\r\n\
          5;a=b\r\nabcde\r\n3\r\nfgh\r\n0\r\nX-End: 1\r\n\r\n",
    ),
    (
        "expect",
        b"POST /post HTTP/1.1\r\nHost: test\r\nExpect: 100-continue\r\nContent-Length: 10\r\n\r\nabcdefghij",
    ),
    (
        "upgrade",
        b"GET /upgrade HTTP/1.1\r\nHost: test\r\nConnection: Upgrade\r\nUpgrade: test\r\n\r\nabcdef",
    ),
];

/// Large replies, by name: with a length and chunked, each cached and passed through, and one with non-HTTP
/// bytes after its head.
const LARGE: [&str; 5] = ["kept", "passed", "kept-chunks", "chunks", "upgrade"];

/// What a client does after its last byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// Sends nothing more; reads until the end, or, in tests of large replies, not at all.
    Stall,
    /// Closes its sending side and keeps reading.
    Finish,
    /// Closes the connection.
    Close,
    /// Resets the connection.
    Reset,
}

const WAYS: [Way; 4] = [Way::Stall, Way::Finish, Way::Close, Way::Reset];

/// Starts a server for all of these requests.
fn server() -> Liar {
    let plain = version(1, LARGE_BYTES);
    let chunks = plain
        .chunks(CHUNK_BYTES)
        .flat_map(|chunk| [format!("{:x}\r\n", chunk.len()).as_bytes(), chunk, b"\r\n"].concat());
    let chunks: Vec<u8> = chunks.chain(*b"0\r\n\r\n").collect();
    Liar::start(move |asked| match asked.target.as_str() {
        HEALTH => healthy(),
        "/kept" => vec![reply(FRESH, b"kept")],
        "/late" => {
            vec![Act::Drip { bytes: b"HTTP/1.1 200 OK\r\n".to_vec(), every_ms: 5 }, Act::Hang]
        }
        "/upgrade" => vec![
            Act::send("HTTP/1.1 101 Go\r\nConnection: Upgrade\r\nUpgrade: test\r\n\r\nghi"),
            // A silent tunnel may stay open for an hour.
            Act::Drip { bytes: vec![b'x'; 50], every_ms: 5 },
            Act::Close,
        ],
        "/post" => vec![Act::Hang],
        target => match target.strip_prefix("/large/") {
            Some(kind) => large(kind, asked, &plain, &chunks),
            None => vec![reply(PASSED, b"passed")],
        },
    })
}

const FRESH: &str = "Cache-Control: max-age=3600\r\nETag: \"a\"\r\n";
const PASSED: &str = "Cache-Control: no-store\r\n";

fn reply(fields: &str, body: &[u8]) -> Act {
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n{fields}\r\n", body.len());
    Act::Send([head.as_bytes(), body].concat())
}

/// Returns the reply of a kind of [`LARGE`]. A client that requested no upgrade gets an error.
fn large(kind: &str, asked: &Asked, plain: &[u8], chunks: &[u8]) -> Vec<Act> {
    let fields = if kind.starts_with("kept") { FRESH } else { PASSED };
    if kind.contains("chunks") {
        let head = format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n{fields}\r\n");
        return vec![Act::Send([head.as_bytes(), chunks].concat()), Act::Close];
    }
    if kind.starts_with("upgrade") && asked.field("upgrade").is_some() {
        let head = "HTTP/1.1 101 Go\r\nConnection: Upgrade\r\nUpgrade: test\r\n\r\n";
        // The tunnel ends when its client closes or is disconnected.
        return vec![Act::Send([head.as_bytes(), plain].concat()), Act::Hang];
    }
    vec![reply(fields, plain), Act::Close]
}

/// Sends the first bytes of a request, then does `way`; returns what is wrong.
fn send_some(victim: &Victim, bytes: &[u8], way: Way) -> Option<String> {
    let mut client = victim.connect();
    client.set_timeout(HANG);
    client.send(bytes);
    leave(client, way).err()
}

/// A number of bytes of one of [`LARGE`], and what the client does after them.
#[derive(Clone, Copy, Debug)]
struct Part {
    kind: &'static str,
    bytes: usize,
    way: Way,
}

/// Requests a large reply in a round.
fn ask_large(victim: &Victim, kind: &str, round: usize) -> RawClient {
    let mut client = victim.connect();
    client.set_timeout(HANG);
    let upgrade = match kind {
        "upgrade" => "Connection: Upgrade\r\nUpgrade: test\r\n",
        _ => "",
    };
    client.send(format!("GET /large/{kind}/{round} HTTP/1.1\r\nHost: test\r\n{upgrade}\r\n"));
    client
}

/// Reads a part of a reply, then does `way`; returns what is wrong, or the client that stalls with its open
/// connection.
fn take_some(victim: &Victim, part: Part, round: usize) -> Result<Option<RawClient>, String> {
    let client = ask_large(victim, part.kind, round);
    if part.way == Way::Stall {
        // Otherwise the kernel buffers would hold the whole reply.
        SockRef::from(client.stream()).set_recv_buffer_size(4_096).expect("a small buffer");
    }
    let (mut buffer, mut left) = (vec![0; CHUNK_BYTES], part.bytes);
    while left > 0 {
        let most = left.min(buffer.len());
        match client.stream().read(&mut buffer[..most]) {
            Ok(0) => break,
            Ok(taken) => left -= taken,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                return Err("hangs".into());
            }
            Err(_) => break,
        }
    }
    match part.way {
        Way::Stall => Ok(Some(client)),
        way => leave(client, way).map(|()| None),
    }
}

fn leave(mut client: RawClient, way: Way) -> Result<(), String> {
    match way {
        Way::Close => return Ok(()),
        Way::Reset => {
            let linger = SockRef::from(client.stream()).set_linger(Some(Duration::ZERO));
            return linger.map_err(|error| error.to_string());
        }
        Way::Finish => client.finish_sending(),
        Way::Stall => {}
    }
    loop {
        match client.try_read_some() {
            Ok(piece) if piece.is_empty() => return Ok(()),
            Ok(_) => {}
            Err(ClientError::Timeout) => return Err("hangs".into()),
            Err(_) => return Ok(()),
        }
    }
}

/// Stalls after every `each`-th byte of all requests, in all ways.
fn stall_sending(victim: &Victim, each: usize) {
    let cases = REQUESTS.into_iter().flat_map(|(name, bytes)| {
        let ends = (0..=bytes.len()).step_by(each);
        ends.flat_map(move |end| WAYS.map(|way| (name, &bytes[..end], way)))
    });
    let cases: Vec<_> = cases.collect();
    for some in cases.chunks(AT_ONCE) {
        let wrong: Vec<_> = thread::scope(|scope| {
            let send = |&(name, bytes, way): &(&'static str, &'static [u8], Way)| {
                scope.spawn(move || {
                    let wrong = send_some(victim, bytes, way)?;
                    Some(format!("{name}, {} bytes, {way:?}: {wrong}", bytes.len()))
                })
            };
            let sending: Vec<_> = some.iter().map(send).collect();
            sending.into_iter().filter_map(|it| it.join().unwrap()).collect()
        });
        assert!(wrong.is_empty(), "{} of them:\n{}", wrong.len(), wrong.join("\n"));
    }
}

/// Every twentieth byte of a head, and parts of bodies of increasing size, in all ways; the kinds of reply
/// alternate.
fn some_parts() -> Vec<Part> {
    let ends = (0..200).step_by(20).chain(powers());
    let ends = ends.flat_map(|bytes| WAYS.map(|way| (bytes, way)));
    // Five kinds and four ways: each combination occurs.
    let kinds = LARGE.into_iter().cycle();
    ends.zip(kinds).map(|((bytes, way), kind)| Part { kind, bytes, way }).collect()
}

/// Every byte of each kind's head and of the line of its first chunk, and parts of bodies of increasing size,
/// in all ways.
fn all_parts(victim: &Victim) -> Vec<Part> {
    let of = |kind| {
        let head = ask_large(victim, kind, 0).try_head().expect("a head").head_text().len();
        let ends = (0..head + 16).chain(powers());
        ends.flat_map(move |bytes| WAYS.map(|way| Part { kind, bytes, way }))
    };
    LARGE.into_iter().flat_map(of).collect()
}

fn powers() -> impl Iterator<Item = usize> {
    (8..20).map(|power| 1 << power)
}

/// Reads all of these parts, many concurrently.
fn stall_taking(victim: &Victim, round: usize, parts: &[Part]) {
    for some in parts.chunks(TAKING_AT_ONCE) {
        let taken: Vec<_> = thread::scope(|scope| {
            let take = |part: &Part| {
                let part = *part;
                scope.spawn(move || {
                    take_some(victim, part, round).map_err(|wrong| format!("{part:?}: {wrong}"))
                })
            };
            let taking: Vec<_> = some.iter().map(take).collect();
            taking.into_iter().map(|it| it.join().unwrap()).collect()
        });
        let (stalled, wrong): (Vec<_>, Vec<_>) = taken.into_iter().partition(Result::is_ok);
        assert!(wrong.is_empty(), "{} of them:\n{wrong:?}", wrong.len());
        poll_until(PATIENCE, "clients that take nothing are cut off", || {
            victim.skep.connections() == 0
        });
        drop(stalled);
    }
}

/// Runs both kinds of stalls twice; the first round skips most positions.
fn stall(victim: &Victim) {
    stall_sending(victim, 10);
    stall_taking(victim, 0, &some_parts());
    let before = victim.rest("the first round");
    stall_sending(victim, 1);
    victim.assert_rests(&before, "clients that stall as they send");
    stall_taking(victim, 1, &some_parts());
    victim.assert_rests(&before, "clients that stall as they receive");
}

#[test]
fn clients_that_stall_or_leave_at_every_byte_leave_nothing_at_a_node() {
    stall(&Victim::node(server(), BRISK));
}

#[test]
fn clients_that_stall_or_leave_at_every_byte_leave_nothing_at_a_dispatcher() {
    stall(&Victim::dispatcher(server(), BRISK));
}

#[test]
fn clients_that_stall_or_leave_leave_nothing_at_an_application() {
    let victim = Victim::application(server(), BRISK);
    stall_sending(&victim, 20);
    let before = victim.rest("the first round");
    stall_sending(&victim, 10);
    stall_taking(&victim, 0, &some_parts());
    victim.assert_rests(&before, "clients that stall");
}

/// Stalls at every byte of replies and of requests.
fn stall_everywhere(victim: &Victim) {
    stall(victim);
    let (parts, before) = (all_parts(victim), victim.rest("two rounds"));
    stall_taking(victim, 0, &parts);
    victim.assert_rests_tightly(&before, "clients that stall at every byte that they receive");
    stall_sending(victim, 1);
    victim.assert_rests_tightly(&before, "clients that stall at every byte that they send");
}

#[test]
#[ignore = "takes minutes: at every byte of what clients are sent"]
fn clients_that_stall_everywhere_leave_nothing_at_a_node() {
    stall_everywhere(&Victim::node(server(), BRISK));
}

#[test]
#[ignore = "takes minutes: at every byte of what clients are sent"]
fn clients_that_stall_everywhere_leave_nothing_at_a_dispatcher() {
    stall_everywhere(&Victim::dispatcher(server(), BRISK));
}

#[test]
#[ignore = "takes minutes: at every byte of what clients are sent"]
fn clients_that_stall_everywhere_leave_nothing_at_an_application() {
    stall_everywhere(&Victim::application(server(), BRISK));
}
