//! Random requests and handlers, compared with a simple model of the expected replies.
//!
//! `PROPTEST_RNG_SEED=n` replays the seed that a failure printed, `PROPTEST_CASES=n` runs more
//! cases.

use std::fmt;
use std::time::{SystemTime, UNIX_EPOCH};

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use proptest::test_runner::{RngSeed, TestRunner};
use skep_telemetry::Counter;

use super::bodies::SMUGGLED;
use super::client::{Client, Reply};
use super::rig::{Rig, wait_until};
use super::script::{Seen, reply_body};
use crate::EngineSettings;

/// The next message of a client.
#[derive(Clone, Debug)]
enum Message {
    Ask(Ask),
    /// Bytes that no continuation makes a request.
    Garbage(&'static [u8]),
}

#[derive(Clone, Debug)]
struct Ask {
    deed: Deed,
    body: Body,
    version: Version,
    expects_continue: bool,
}

/// The actions of the handler.
#[derive(Clone, Debug)]
struct Deed {
    target: String,
    reads: Reads,
    says: Says,
    /// Whether it makes the reply the last one.
    closes: bool,
}

#[derive(Clone, Copy, Debug)]
enum Reads {
    AtLeast(usize),
    All,
}

#[derive(Clone, Copy, Debug)]
enum Says {
    /// A complete reply with a body of this length.
    Whole(usize),
    /// None before it fails.
    Nothing,
    /// The head of a reply, then it fails.
    Half,
}

#[derive(Clone)]
enum Body {
    None,
    Length(Vec<u8>),
    Chunked(Vec<Vec<u8>>),
}

/// Printed as text, for whoever looks for the bug.
impl fmt::Debug for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("None"),
            Self::Length(payload) => write!(f, "Length({})", payload.escape_ascii()),
            Self::Chunked(pieces) => {
                let pieces = pieces.iter().map(|piece| piece.escape_ascii().to_string());
                write!(f, "Chunked{:?}", pieces.collect::<Vec<_>>())
            }
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    Http11,
    Http11Close,
    Http10,
    Http10KeepAlive,
}

impl Body {
    fn payload(&self) -> Vec<u8> {
        match self {
            Self::None => Vec::new(),
            Self::Length(payload) => payload.clone(),
            Self::Chunked(pieces) => pieces.concat(),
        }
    }

    /// An empty payload by length means no body at all.
    fn is_there(&self) -> bool {
        matches!(self, Self::Chunked(_)) || !self.payload().is_empty()
    }
}

impl Ask {
    fn bytes(&self) -> Vec<u8> {
        let (version, connection) = match self.version {
            Version::Http11 => ("1.1", ""),
            Version::Http11Close => ("1.1", "Connection: close\r\n"),
            Version::Http10 => ("1.0", ""),
            Version::Http10KeepAlive => ("1.0", "Connection: keep-alive\r\n"),
        };
        let mut bytes = format!("POST {} HTTP/{version}\r\nHost: h\r\n", self.deed.target);
        bytes += connection;
        if self.expects_continue {
            bytes += "Expect: 100-continue\r\n";
        }
        let mut bytes = bytes.into_bytes();
        match &self.body {
            Body::None => bytes.extend(b"\r\n"),
            Body::Length(payload) => {
                bytes.extend(format!("Content-Length: {}\r\n\r\n", payload.len()).bytes());
                bytes.extend(payload);
            }
            Body::Chunked(pieces) => {
                bytes.extend(b"Transfer-Encoding: chunked\r\n\r\n");
                for piece in pieces {
                    bytes.extend(format!("{:X};ext=\"\\\"\"\r\n", piece.len()).bytes());
                    bytes.extend(piece);
                    bytes.extend(b"\r\n");
                }
                bytes.extend(b"0\r\nTrailer: dropped\r\n\r\n");
            }
        }
        bytes
    }

    /// Whether the client may omit its body after a response.
    fn may_keep_body(&self) -> bool {
        let is_http11 = matches!(self.version, Version::Http11 | Version::Http11Close);
        self.expects_continue && is_http11 && self.body.is_there()
    }

    /// Whether the connection continues after it, if it is request `number` (from 1) of at most
    /// `requests_max`.
    fn goes_on(&self, number: u64, requests_max: u64) -> bool {
        matches!(self.version, Version::Http11 | Version::Http10KeepAlive)
            && matches!(self.deed.says, Says::Whole(_))
            && !self.deed.closes
            && !self.may_keep_body()
            && (requests_max == 0 || number < requests_max)
    }

    fn assert_seen(&self, seen: &Seen) {
        let (payload, read) = (self.body.payload(), &seen.body);
        assert_eq!(seen.target, self.deed.target);
        match self.deed.reads {
            Reads::All => assert_eq!(*read, payload),
            Reads::AtLeast(bytes) => {
                assert!(payload.starts_with(read) && read.len() >= bytes.min(payload.len()));
                assert!(bytes > 0 || read.is_empty(), "nobody asked for it");
            }
        }
    }

    /// Asserts that `reply` is the expected one, as the last one or not.
    fn assert_answered(&self, reply: &Reply, goes_on: bool) {
        assert_eq!(reply.says_close(), !goes_on, "{self:?}: {reply:?}");
        match self.deed.says {
            Says::Whole(bytes) => {
                let is_mine = reply.field("Script") == Some(&self.deed.target);
                assert!(reply.status == 200 && is_mine, "{self:?}: {reply:?}");
                assert_eq!(reply.body, reply_body(bytes));
            }
            Says::Nothing => assert_eq!(reply.status, 502),
            Says::Half => unreachable!("it is not whole"),
        }
        let says_keep_alive = reply.field("Connection") == Some("keep-alive");
        assert_eq!(says_keep_alive, goes_on && self.version == Version::Http10KeepAlive);
    }
}

fn deed() -> impl Strategy<Value = Deed> {
    let deed = |target: String, reads, says| Deed { target, reads, says, closes: false };
    let (none, some) = (Reads::AtLeast(0), 1..50_usize);
    let n = 0..9_usize;
    prop_oneof![
        3 => n.clone().prop_map(move |n| deed(format!("/quick:{n}"), none, Says::Whole(n))),
        1 => Just(deed("/quick:3000".to_owned(), none, Says::Whole(3000))),
        3 => n.clone().prop_map(move |n| deed(format!("/reply:{n}"), none, Says::Whole(n))),
        3 => n.clone().prop_map(move |n| {
            deed(format!("/read/reply:{n}"), Reads::All, Says::Whole(n))
        }),
        3 => some.clone().prop_map(move |k| {
            deed(format!("/read:{k}/reply:2"), Reads::AtLeast(k), Says::Whole(2))
        }),
        1 => some.clone().prop_map(move |k| {
            deed(format!("/reply:1/read:{k}"), Reads::AtLeast(k), Says::Whole(1))
        }),
        1 => n.clone().prop_map(move |n| {
            let target = format!("/head:{n}/flush/read/body:{n}");
            deed(target, Reads::All, Says::Whole(n))
        }),
        1 => n.clone().prop_map(move |n| {
            Deed { closes: true, ..deed(format!("/until-close:{n}"), none, Says::Whole(n)) }
        }),
        1 => n.prop_map(move |n| {
            Deed { closes: true, ..deed(format!("/close/reply:{n}"), none, Says::Whole(n)) }
        }),
        1 => Just(deed("/fail".to_owned(), none, Says::Nothing)),
        1 => some.prop_map(move |k| {
            deed(format!("/head:4/read:{k}/fail"), Reads::AtLeast(k), Says::Nothing)
        }),
        1 => Just(deed("/head:5/flush/fail".to_owned(), none, Says::Half)),
    ]
}

/// Payload that looks like messages and their framing.
fn payload() -> impl Strategy<Value = Vec<u8>> {
    let words: &[&[u8]] = &[
        SMUGGLED,
        b"POST /quick:9 HTTP/1.1\r\nHost: smuggled\r\nContent-Length: 5\r\n\r\n",
        b"GET /quick:9 HTTP/1.1\r\n",
        b"0\r\n\r\n",
        b"5\r\nhello\r\n",
        b"\r\n",
        b"\0",
        b"abcdefghijklmnop",
    ];
    vec(select(words), 0..6).prop_map(|words| words.concat())
}

fn body() -> impl Strategy<Value = Body> {
    let piece = payload().prop_filter("it would be the last", |piece| !piece.is_empty());
    prop_oneof![
        2 => Just(Body::None),
        3 => payload().prop_map(Body::Length),
        2 => vec(piece, 0..4).prop_map(Body::Chunked),
    ]
}

fn ask() -> impl Strategy<Value = Ask> {
    let version = prop_oneof![
        12 => Just(Version::Http11),
        1 => Just(Version::Http11Close),
        1 => Just(Version::Http10),
        2 => Just(Version::Http10KeepAlive),
    ];
    let parts = (deed(), body(), version, prop::bool::weighted(0.15));
    parts.prop_map(|(deed, mut body, version, expects_continue)| {
        if matches!(version, Version::Http10 | Version::Http10KeepAlive) {
            // It cannot have chunks.
            body = Body::Length(body.payload());
        }
        Ask { deed, body, version, expects_continue }
    })
}

fn message() -> impl Strategy<Value = Message> {
    let garbage: &[&[u8]] = &[
        b"\0",
        b"GET / HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: x, chunked\r\n\r\n",
    ];
    prop_oneof![20 => ask().prop_map(Message::Ask), 1 => select(garbage).prop_map(Message::Garbage)]
}

/// Sends `bytes` in pieces, each after the previous one was received, unless the server closes.
fn send(rig: &Rig, client: &mut Client, bytes: &[u8], cuts: &[Index]) {
    let before = rig.get(Counter::ReceivedBytes);
    let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len())).collect();
    cuts.extend([0, bytes.len()]);
    cuts.sort_unstable();
    for piece in cuts.windows(2) {
        client.send(&bytes[piece[0]..piece[1]]);
        let has_all = || rig.get(Counter::ReceivedBytes) == before + piece[1] as u64;
        let closes = || rig.states(client).last().is_some_and(|it| it.starts_with("Closing"));
        wait_until(|| has_all() || closes(), || format!("{:?}", rig.states(client)));
    }
}

fn run(rig: &Rig, requests_max: u64, messages: &[Message], cuts: &[Index]) {
    rig.shared.forget();
    let mut client = rig.client();
    let bytes = messages.iter().flat_map(|message| match message {
        Message::Ask(ask) => ask.bytes(),
        Message::Garbage(bytes) => bytes.to_vec(),
    });
    send(rig, &mut client, &bytes.collect::<Vec<_>>(), cuts);
    let mut asked: Vec<&Ask> = Vec::new();
    let mut is_open = true;
    for message in messages {
        let Message::Ask(ask) = message else {
            let reply = client.reply().expect("a refusal");
            assert!(matches!(reply.status, 400 | 501) && reply.says_close());
            is_open = false;
            break;
        };
        asked.push(ask);
        is_open = ask.goes_on(asked.len() as u64, requests_max);
        if matches!(ask.deed.says, Says::Half) {
            assert!(client.head().is_none_or(|head| head.contains(&ask.deed.target)));
            break;
        }
        ask.assert_answered(&client.reply().expect("a whole reply"), is_open);
        if !is_open {
            break;
        }
    }
    if is_open {
        rig.until_state(&client, "Resting");
        client.finish_sending();
    }
    assert!(client.rest().0.is_empty(), "nothing is answered that was not asked");
    let seen = rig.seen();
    assert_eq!(seen.len(), asked.len(), "{seen:?}");
    asked.iter().zip(&seen).for_each(|(ask, seen)| ask.assert_seen(seen));
    drop(client);
    rig.assert_at_rest();
}

fn check(rig: &Rig, requests_max: u64) {
    let mut config = ProptestConfig::default();
    config.cases = config.cases.max(1_000);
    config.failure_persistence = None;
    config.max_shrink_time = 60_000;
    if config.rng_seed == RngSeed::Random {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        config.rng_seed = RngSeed::Fixed(since.as_nanos() as u64);
    }
    let seed = config.rng_seed;
    let conversation = (vec(message(), 1..7), vec(any::<Index>(), 0..6));
    let checked = TestRunner::new(config).run(&conversation, |(messages, cuts)| {
        run(rig, requests_max, &messages, &cuts);
        Ok(())
    });
    if let Err(error) = checked {
        panic!("PROPTEST_RNG_SEED={seed}: {error}");
    }
}

#[test]
fn every_request_is_answered_once_in_order_and_with_its_own_body() {
    check(&Rig::new(), 0);
}

#[test]
fn so_it_is_if_nothing_is_answered_quickly() {
    check(&Rig::slow(), 0);
}

#[test]
fn so_it_is_if_turns_and_connections_are_short() {
    let settings = EngineSettings {
        requests_per_connection_max: 3,
        connection_bytes_max: 1,
        ..EngineSettings::default()
    };
    check(&Rig::with(settings), 3);
}
