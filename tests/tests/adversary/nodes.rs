//! Servers behind Skep that leave at every byte of a correct reply.

use std::thread;

use skep_tests::liar::{Act, Liar};

use crate::judge::{self, Ask, Expect};
use crate::victim::{LEAVING, Victim};

/// The path of a dispatcher's health checks of nodes.
pub(crate) const HEALTH: &str = "/.well-known/skep/health";

/// The reply of a healthy node.
pub(crate) fn healthy() -> Vec<Act> {
    vec![Act::send("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")]
}

/// Replies by name, each with its body.
const REPLIES: [(&str, &[u8], &[u8]); 3] = [
    (
        "length",
        b"HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 30\r\nETag: \"a\"\r\n\r\n\
          abcdefghijklmnopqrstuvwxyz0123",
        b"abcdefghijklmnopqrstuvwxyz0123",
    ),
    (
        "chunks",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n\
          a;x=y\r\nabcdefghij\r\n14\r\nklmnopqrstuvwxyz0123\r\n0\r\nX-End: 1\r\n\r\n",
        b"abcdefghijklmnopqrstuvwxyz0123",
    ),
    ("close", b"HTTP/1.1 200 OK\r\n\r\nabcdefghijklmnopqrstuvwxyz0123", b""),
];

/// Maximum number of concurrent clients.
const AT_ONCE: usize = 100;

/// How a server leaves.
const WAYS: [(&str, Act); 3] = [("close", Act::Close), ("reset", Act::Reset), ("hang", Act::Hang)];

/// Path `/REPLY/WAY/BYTES/...`: sends `BYTES` bytes of a reply, then does `WAY`.
fn script(target: &str) -> Option<Vec<Act>> {
    let mut parts = target.split('/').skip(1);
    let (reply, way) = (parts.next()?, parts.next()?);
    let bytes: usize = parts.next()?.parse().ok()?;
    let (_, wire, _) = REPLIES.iter().find(|(name, ..)| *name == reply)?;
    let (_, act) = WAYS.iter().find(|(name, _)| *name == way)?;
    Some(vec![Act::send(&wire[..bytes]), act.clone()])
}

fn leaver() -> Liar {
    Liar::start(|asked| match asked.target.as_str() {
        HEALTH => healthy(),
        target => script(target).unwrap_or_else(|| vec![Act::Close]),
    })
}

/// Returns what clients may receive after this number of bytes.
fn expect(reply: &str, wire: &[u8], body: &[u8], way: &str, bytes: usize) -> Expect {
    match (reply, way) {
        // Only the close marks the end: all bytes that were received are the body.
        ("close", "close") => {
            let head = wire.windows(4).position(|end| end == b"\r\n\r\n").unwrap() + 4;
            wire.get(head..bytes).map_or(Expect::Fails, |body| Expect::Either(body.to_vec()))
        }
        // Its connection is pooled, and the next request on it may time out.
        (_, "hang") if bytes == wire.len() && reply != "close" => Expect::Either(body.to_vec()),
        _ if bytes == wire.len() && reply != "close" => Expect::Right(body.to_vec()),
        _ => Expect::Fails,
    }
}

fn leave_at_every_byte(victim: &Victim) {
    let round = |number: usize| {
        let mut wrong = Vec::new();
        for (reply, wire, body) in REPLIES {
            for (way, _) in WAYS {
                wrong.extend(leave(victim, number, (reply, wire, body), way));
            }
        }
        assert!(wrong.is_empty(), "{} of them:\n{}", wrong.len(), wrong.join("\n---\n"));
    };
    round(0);
    let before = victim.rest("the first round");
    round(1);
    victim.assert_rests(&before, "the second round");
}

/// Leaves one reply in one way at all bytes at once; returns what is wrong.
fn leave(
    victim: &Victim,
    round: usize,
    (reply, wire, body): (&str, &[u8], &[u8]),
    way: &str,
) -> Vec<String> {
    let cases = (0..=wire.len()).flat_map(|bytes| [Ask::Get, Ask::Old].map(|ask| (bytes, ask)));
    let cases: Vec<_> = cases.collect();
    let mut wrong = Vec::new();
    for some in cases.chunks(AT_ONCE) {
        thread::scope(|scope| {
            let ask = |&(bytes, ask): &(usize, Ask)| {
                let expect = expect(reply, wire, body, way, bytes);
                let target = format!("/{reply}/{way}/{bytes}/{ask:?}/{round}");
                scope.spawn(move || {
                    let wrong = judge::ask(victim, &target, ask, &expect).err()?;
                    Some(format!("{target}: {wrong}"))
                })
            };
            let asking: Vec<_> = some.iter().map(ask).collect();
            wrong.extend(asking.into_iter().filter_map(|asking| asking.join().unwrap()));
        });
    }
    wrong
}

#[test]
fn an_origin_leaves_at_every_byte_and_nothing_stays_at_its_node() {
    leave_at_every_byte(&Victim::node(leaver(), LEAVING));
}

#[test]
fn a_node_leaves_at_every_byte_and_nothing_stays_at_its_dispatcher() {
    leave_at_every_byte(&Victim::dispatcher(leaver(), LEAVING));
}

#[test]
fn an_application_leaves_at_every_byte_and_nothing_stays_at_its_node() {
    leave_at_every_byte(&Victim::application(leaver(), LEAVING));
}
