//! Clients that stall, close or break off at every byte of what they send and of what
//! they are sent.

use std::thread;
use std::time::Duration;

use skep_tests::content::version;
use skep_tests::liar::{Act, Liar};
use skep_tests::{ClientError, PATIENCE, RawClient, poll_until};
use socket2::SockRef;

use crate::judge::HANG;
use crate::nodes::{HEALTH, healthy};
use crate::victim::{BRISK, Victim};

/// Clients at once: fewer than there may be descriptors.
const AT_ONCE: usize = 600;

/// What a large reply holds: more than the buffers of both sides.
const LARGE_BYTES: usize = 12 * 1024 * 1024;

/// What clients send, by name.
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

/// How a client goes on behind its last byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// It says no more and takes what comes.
    Stall,
    /// It closes its sending side and takes what comes.
    Finish,
    /// It closes.
    Close,
    /// It breaks off.
    Reset,
}

const WAYS: [Way; 4] = [Way::Stall, Way::Finish, Way::Close, Way::Reset];

/// A server for all of these requests.
fn server() -> Liar {
    let large = version(1, LARGE_BYTES);
    Liar::start(move |asked| {
        let fields = "Cache-Control: max-age=3600\r\nETag: \"a\"\r\n";
        let reply = |fields: &str, body: &[u8]| {
            let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n{fields}\r\n", body.len());
            Act::Send([head.as_bytes(), body].concat())
        };
        match asked.target.as_str() {
            HEALTH => healthy(),
            "/kept" => vec![reply(fields, b"kept")],
            "/late" => {
                vec![Act::Drip { bytes: b"HTTP/1.1 200 OK\r\n".to_vec(), every_ms: 5 }, Act::Hang]
            }
            "/upgrade" => vec![
                Act::send("HTTP/1.1 101 Go\r\nConnection: Upgrade\r\nUpgrade: test\r\n\r\nghi"),
                // Who says nothing may keep a tunnel for an hour.
                Act::Drip { bytes: vec![b'x'; 50], every_ms: 5 },
                Act::Close,
            ],
            "/post" => vec![Act::Hang],
            target if target.starts_with("/large") => vec![reply("", &large), Act::Close],
            _ => vec![reply("Cache-Control: no-store\r\n", b"passed")],
        }
    })
}

/// Sends the first bytes of a request, then goes on that way: what is wrong.
fn send_some(victim: &Victim, bytes: &[u8], way: Way) -> Option<String> {
    let mut client = victim.connect();
    client.set_timeout(HANG);
    client.send(bytes);
    leave(client, way).err()
}

/// Asks for a large body, takes so many bytes of the reply and goes on that way: what
/// is wrong, or who stalls and still has its connection.
fn take_some(
    victim: &Victim,
    target: &str,
    bytes: usize,
    way: Way,
) -> Result<Option<RawClient>, String> {
    let mut client = victim.connect();
    client.set_timeout(HANG);
    if way == Way::Stall {
        // Otherwise the kernels take all of it.
        SockRef::from(client.stream()).set_recv_buffer_size(4_096).expect("a small buffer");
    }
    client.send(format!("GET {target} HTTP/1.1\r\nHost: test\r\n\r\n"));
    let mut taken = 0;
    while taken < bytes {
        match client.try_read_some() {
            Ok(piece) if piece.is_empty() => break,
            Ok(piece) => taken += piece.len(),
            Err(ClientError::Timeout) => return Err("hangs".into()),
            Err(_) => break,
        }
    }
    match way {
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

/// Every `each`-th byte of all requests, in all ways.
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

/// Every twentieth byte of a reply's head, and ever larger parts of its body, in all ways.
fn stall_taking(victim: &Victim, round: usize) {
    let ends = (0..200).step_by(20).chain((8..20).map(|power| 1 << power));
    let cases: Vec<_> = ends.flat_map(|end| WAYS.map(|way| (end, way))).collect();
    let taken: Vec<_> = thread::scope(|scope| {
        let taking: Vec<_> = cases
            .iter()
            .enumerate()
            .map(|(number, (end, way))| {
                scope.spawn(move || {
                    let target = format!("/large/{round}/{}", number % 3);
                    let taken = take_some(victim, &target, *end, *way);
                    taken.map_err(|wrong| format!("{end} bytes, {way:?}: {wrong}"))
                })
            })
            .collect();
        taking.into_iter().map(|it| it.join().unwrap()).collect()
    });
    let (stalled, wrong): (Vec<_>, Vec<_>) = taken.into_iter().partition(Result::is_ok);
    assert!(wrong.is_empty(), "{} of them:\n{wrong:?}", wrong.len());
    poll_until(PATIENCE, "clients that take nothing are cut off", || {
        victim.skep.connections() == 0
    });
    drop(stalled);
}

/// At all bytes, twice; the first round leaves out most of what is sent.
fn stall(victim: &Victim) {
    stall_sending(victim, 10);
    stall_taking(victim, 0);
    let before = victim.rest("the first round");
    stall_sending(victim, 1);
    victim.assert_rests(&before, "clients that stall as they send");
    stall_taking(victim, 1);
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
    victim.assert_rests(&before, "clients that stall as they send");
}
