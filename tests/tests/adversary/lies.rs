//! tidy: table
//!
//! Behaviour of servers that is forbidden or rare: of a node's origin, and of a dispatcher's node.

use std::sync::LazyLock;

use skep_tests::content::version;
use skep_tests::liar::Act;
use skep_tests::origin::{Answer, Asked};

use crate::judge::Expect;
use crate::victim::PATIENT;

/// The body of nearly all replies.
pub(crate) static BODY: LazyLock<Vec<u8>> = LazyLock::new(|| version(1, 2_000));
/// Another body of the same length, and a shorter one.
static OTHER: LazyLock<Vec<u8>> = LazyLock::new(|| version(2, 2_000));
static SHORTER: LazyLock<Vec<u8>> = LazyLock::new(|| version(3, 1_500));
/// A body of two segments.
static LARGE: LazyLock<Vec<u8>> = LazyLock::new(|| version(4, SEGMENT + 100_000));
static LONGER_LARGE: LazyLock<Vec<u8>> = LazyLock::new(|| version(4, SEGMENT + 100_001));
static OTHER_LARGE: LazyLock<Vec<u8>> = LazyLock::new(|| version(5, SEGMENT + 100_000));

const SEGMENT: usize = 4 * 1024 * 1024;
/// Number of bytes after which a reader of something that should be short has no limit.
const FLOOD_BYTES: usize = 64 * 1024 * 1024;

/// A head that takes longer to arrive than any timeout.
const DRIPPED_HEAD: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nX: 1234567890\r\n\r\n";
/// Pause between two bytes.
const HEAD_DRIP_MS: u64 = 300;
const _: () = assert!(DRIPPED_HEAD.len() as u64 * HEAD_DRIP_MS > PATIENT.response_ms * 3 / 2);

/// One lie. The number is how often it was told before.
pub(crate) struct Lie {
    pub(crate) name: &'static str,
    pub(crate) acts: fn(&Asked, usize) -> Vec<Act>,
    truth: Truth,
}

/// The allowed results of a lie.
enum Truth {
    Right,
    Either,
    Fails,
    OneOf(fn() -> Vec<Vec<u8>>),
}

impl Lie {
    /// Returns what clients may receive.
    pub(crate) fn expect(&self) -> Expect {
        match self.truth {
            Truth::Right => Expect::Right(BODY.clone()),
            Truth::Either => Expect::Either(BODY.clone()),
            Truth::Fails => Expect::Fails,
            Truth::OneOf(all) => Expect::OneOf(all()),
        }
    }
}

use Truth::{Either, Fails, OneOf, Right};

/// Sends `HTTP/1.1 200 OK`, these header lines, and `body`.
fn ok(fields: &str, body: &[u8]) -> Act {
    Act::Send([format!("HTTP/1.1 200 OK\r\n{fields}\r\n").as_bytes(), body].concat())
}

/// Sends a correct head with these additional lines, and the body.
fn right(fields: &str) -> Act {
    ok(&format!("Content-Length: 2000\r\n{fields}"), &BODY)
}

fn chunked(wire: &[u8]) -> Act {
    ok("Transfer-Encoding: chunked\r\n", wire)
}

fn chunks(piece_bytes: usize) -> Vec<u8> {
    let mut wire = Vec::new();
    for piece in BODY.chunks(piece_bytes) {
        wire.extend(format!("{:x}\r\n", piece.len()).into_bytes());
        wire.extend(piece);
        wire.extend(b"\r\n");
    }
    wire
}

fn whole_chunks(piece_bytes: usize) -> Vec<u8> {
    [chunks(piece_bytes), b"0\r\n\r\n".to_vec()].concat()
}

fn flood(piece: &str) -> Act {
    Act::Flood { piece: piece.repeat(1_000).into_bytes(), bytes_max: FLOOD_BYTES }
}

/// Answers as a correct server.
fn answer(asked: &Asked, bytes: &[u8], etag: &str) -> Act {
    let it = Answer::of(asked, bytes, etag, "");
    Act::Send([it.head.as_bytes(), &it.body].concat())
}

/// Whether the request is for a segment after the first.
fn is_later(asked: &Asked) -> bool {
    asked.range(LARGE.len()).is_some_and(|range| range.start >= SEGMENT)
}

/// Sends bytes 0 to 1999 as 206 with these header lines.
fn part(fields: &str) -> Vec<Act> {
    let head = format!("HTTP/1.1 206 Partial Content\r\n{fields}\r\n");
    vec![Act::Send([head.as_bytes(), &BODY].concat()), Act::Close]
}

macro_rules! lies {
    ($($name:literal, $truth:expr, |$asked:pat_param, $n:pat_param| $acts:expr;)+) => {
        &[$(Lie { name: $name, truth: $truth, acts: |$asked, $n| $acts.into() },)+]
    };
}

/// Lies about framing, heads and pace, which concern every reader of HTTP.
pub(crate) const OF_ALL: &[Lie] = lies! {
    // Lengths
    "no-lie", Right, |_, _| [right("ETag: \"a\"\r\n")];
    "short-close", Fails, |_, _| [ok("Content-Length: 2001\r\n", &BODY), Act::Close];
    "short-reset", Fails, |_, _| [ok("Content-Length: 2001\r\n", &BODY), Act::Reset];
    "short-hang", Fails, |_, _| [ok("Content-Length: 2001\r\n", &BODY), Act::Hang];
    "short-by-much", Fails, |_, _| [ok("Content-Length: 900000000\r\n", &BODY), Act::Close];
    "nothing-of-it", Fails, |_, _| [ok("Content-Length: 2000\r\n", b""), Act::Close];
    "long", Either, |_, _| [ok("Content-Length: 2000\r\n", &[&BODY[..], b"POISON"].concat())];
    "long-close", Either,
        |_, _| [ok("Content-Length: 2000\r\n", &[&BODY[..], b"POISON"].concat()), Act::Close];
    // In one write: bytes that arrive after the next request cannot be distinguished from its answer.
    "second-reply", Either, |_, _| [
        ok("Content-Length: 2000\r\n", &[&BODY[..], b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nPOISON"].concat())];
    "empty-with-bytes", OneOf(|| vec![vec![]]),
        |_, _| [ok("Content-Length: 0\r\n", b"POISON"), Act::Close];
    "length-negative", Fails, |_, _| [ok("Content-Length: -1\r\n", &BODY), Act::Close];
    "length-signed", Fails, |_, _| [ok("Content-Length: +2000\r\n", &BODY), Act::Close];
    "length-hex", Fails, |_, _| [ok("Content-Length: 0x7d0\r\n", &BODY), Act::Close];
    "length-list", Fails, |_, _| [ok("Content-Length: 2000, 2001\r\n", &BODY), Act::Close];
    "length-list-same", Either, |_, _| [ok("Content-Length: 2000, 2000\r\n", &BODY), Act::Close];
    "length-twice", Fails,
        |_, _| [ok("Content-Length: 2000\r\nContent-Length: 1999\r\n", &BODY), Act::Close];
    "length-empty", Fails, |_, _| [ok("Content-Length:\r\n", &BODY), Act::Close];
    "length-2-to-63", Fails,
        |_, _| [ok("Content-Length: 9223372036854775808\r\n", &BODY), Act::Close];
    "length-2-to-64", Fails,
        |_, _| [ok("Content-Length: 18446744073709551616\r\n", &BODY), Act::Close];
    "length-of-64-bits", Fails,
        |_, _| [ok("Content-Length: 18446744073709551615\r\n", &BODY), Act::Close];
    "length-of-40-digits", Fails,
        |_, _| [ok(&format!("Content-Length: {}\r\n", "9".repeat(40)), &BODY), Act::Close];
    "length-padded", Either,
        |_, _| [ok(&format!("Content-Length: {}2000\r\n", "0".repeat(40)), &BODY), Act::Close];
    "length-and-chunks", Fails, |_, _| [
        ok("Content-Length: 2000\r\nTransfer-Encoding: chunked\r\n", &whole_chunks(500)), Act::Close];
    "length-spaced", Fails, |_, _| [ok("Content-Length: 20 00\r\n", &BODY), Act::Close];
    "endless", Fails, |_, _| [
        ok("Content-Length: 900000000000\r\n", b""),
        Act::Flood { piece: vec![b'x'; 65_536], bytes_max: 4 << 20 }];
    // Bodies that end with the connection
    "until-close", Right, |_, _| [ok("", &BODY), Act::Close];
    "until-reset", Fails, |_, _| [ok("", &BODY), Act::Drip { bytes: vec![b'x'], every_ms: 50 }, Act::Reset];
    "until-never", Fails, |_, _| [ok("", &BODY), Act::Hang];
    "until-close-empty", OneOf(|| vec![vec![]]), |_, _| [ok("", b""), Act::Close];
    "old-until-close", Right,
        |_, _| [Act::send("HTTP/1.0 200 OK\r\n\r\n"), Act::Send(BODY.clone()), Act::Close];
    // Chunks
    "chunks", Right, |_, _| [chunked(&whole_chunks(500))];
    "chunks-of-a-byte", Right, |_, _| [chunked(&whole_chunks(1))];
    "chunks-without-end", Fails, |_, _| [chunked(&chunks(500)), Act::Close];
    "chunks-half-end", Fails, |_, _| [chunked(&[&chunks(500)[..], b"0\r\n"].concat()), Act::Close];
    "chunks-end-hangs", Fails, |_, _| [chunked(&[&chunks(500)[..], b"0\r\n"].concat()), Act::Hang];
    "chunks-end-reset", Fails, |_, _| [chunked(&[&chunks(500)[..], b"0"].concat()), Act::Reset];
    "chunk-short", Fails, |_, _| [chunked(b"64\r\nabc"), Act::Close];
    "chunk-long", Fails, |_, _| [chunked(b"2\r\nabcd\r\n0\r\n\r\n"), Act::Close];
    "chunk-without-crlf", Fails, |_, _| [chunked(b"3\r\nabc0\r\n\r\n"), Act::Close];
    "chunk-bare-lf", Fails, |_, _| [chunked(b"3\nabc\n0\n\n"), Act::Close];
    "chunk-bare-cr", Fails, |_, _| [chunked(b"3\rXabc\r\n0\r\n\r\n"), Act::Close];
    "chunk-size-huge", Fails, |_, _| [chunked(b"fffffffffffffffff\r\nabc\r\n0\r\n\r\n"), Act::Close];
    "chunk-size-64-bits", Fails, |_, _| [chunked(b"ffffffffffffffff\r\nabc\r\n0\r\n\r\n"), Act::Close];
    "chunk-size-negative", Fails, |_, _| [chunked(b"-3\r\nabc\r\n0\r\n\r\n"), Act::Close];
    "chunk-size-prefixed", Fails, |_, _| [chunked(b"0x3\r\nabc\r\n0\r\n\r\n"), Act::Close];
    "chunk-size-spaced", Fails, |_, _| [chunked(b" 3\r\nabc\r\n0\r\n\r\n"), Act::Close];
    "chunk-size-empty", Fails, |_, _| [chunked(b"\r\nabc\r\n0\r\n\r\n"), Act::Close];
    "chunk-size-endless", Fails, |_, _| [chunked(b""), flood("0")];
    "chunk-extension-endless", Fails, |_, _| [chunked(b"3;"), flood("a=b;")];
    "chunk-extensions-many", Fails, |_, _| [chunked(b""), flood("1;a=b\r\nx\r\n")];
    "trailer", Right, |_, _| [chunked(&[&chunks(500)[..], b"0\r\nX-End: 1\r\n\r\n"].concat())];
    "trailer-of-framing", Either,
        |_, _| [chunked(&[&chunks(500)[..], b"0\r\nContent-Length: 5\r\n\r\n"].concat())];
    "trailer-nul", Fails, |_, _| [chunked(&[&chunks(500)[..], b"0\r\nX: \0\r\n\r\n"].concat()), Act::Close];
    "trailer-no-field", Fails, |_, _| [chunked(&[&chunks(500)[..], b"0\r\nabc\r\n\r\n"].concat()), Act::Close];
    "trailers-endless", Fails, |_, _| [chunked(&[&chunks(500)[..], b"0\r\n"].concat()), flood("X: y\r\n")];
    "trailer-line-endless", Fails, |_, _| [chunked(&[&chunks(500)[..], b"0\r\nX:"].concat()), flood("y")];
    "coding-unknown", Fails, |_, _| [ok("Transfer-Encoding: gzip, chunked\r\n", &whole_chunks(500)), Act::Close];
    "coding-last-unknown", Fails, |_, _| [ok("Transfer-Encoding: chunked, gzip\r\n", &whole_chunks(500)), Act::Close];
    "coding-twice", Fails, |_, _| [ok("Transfer-Encoding: chunked, chunked\r\n", &whole_chunks(500)), Act::Close];
    "coding-in-two-lines", Fails, |_, _| [
        ok("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", &whole_chunks(500)), Act::Close];
    "coding-nearly", Fails, |_, _| [ok("Transfer-Encoding: xchunked\r\n", &whole_chunks(500)), Act::Close];
    "coding-in-1.0", Fails, |_, _| [
        Act::send("HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"), Act::Send(whole_chunks(500)), Act::Close];
    // Interim responses
    "interim-few", Right, |_, _| [Act::send("HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n".repeat(5)), right("")];
    "interim-flood", Fails, |_, _| [flood("HTTP/1.1 100 Continue\r\n\r\n")];
    "interim-flood-large", Fails, |_, _| [flood("HTTP/1.1 103 Early Hints\r\nX: yyyyyyyyyyyyyyyyyyyyyyy\r\n\r\n")];
    "interim-drips", Fails, |_, _| [
        Act::Drip { bytes: b"HTTP/1.1 100 Continue\r\n\r\n".repeat(100), every_ms: 5 }, Act::Hang];
    "interim-then-nothing", Fails, |_, _| [Act::send("HTTP/1.1 100 Continue\r\n\r\n"), Act::Close];
    "interim-then-silence", Fails, |_, _| [Act::send("HTTP/1.1 102 Processing\r\n\r\n"), Act::Hang];
    "interim-with-body", Fails, |_, _| [
        Act::send("HTTP/1.1 103 Early Hints\r\nContent-Length: 6\r\n\r\nPOISON"), right(""), Act::Close];
    "switch-unasked", Fails, |_, _| [
        Act::send("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\nPOISON"), Act::Hang];
    // Heads
    "head-fields-endless", Fails, |_, _| [Act::send("HTTP/1.1 200 OK\r\n"), flood("X: y\r\n")];
    "head-line-endless", Fails, |_, _| [Act::send("HTTP/1.1 200 OK\r\nX: "), flood("y")];
    "head-name-endless", Fails, |_, _| [Act::send("HTTP/1.1 200 OK\r\n"), flood("y")];
    "head-reason-endless", Fails, |_, _| [Act::send("HTTP/1.1 200 "), flood("y")];
    "head-empty-lines-endless", Fails, |_, _| [flood("\r\n")];
    "head-empty-lines", Either, |_, _| [Act::send("\r\n\r\n"), right("")];
    "head-no-colon", Fails, |_, _| [right("abc\r\n"), Act::Close];
    "head-no-name", Fails, |_, _| [right(": abc\r\n"), Act::Close];
    "head-space-in-name", Fails, |_, _| [right("X Y: abc\r\n"), Act::Close];
    "head-space-before-colon", Fails, |_, _| [right("X : abc\r\n"), Act::Close];
    "head-folded", Either, |_, _| [right("X: a\r\n b\r\n"), Act::Close];
    "head-nul", Fails, |_, _| [right("X: a\0b\r\n"), Act::Close];
    "head-bare-cr", Fails, |_, _| [right("X: a\rb\r\n"), Act::Close];
    "head-bare-lf", Either, |_, _| [right("X: a\nY: b\r\n"), Act::Close];
    "head-beyond-ascii", Either, |_, _| [
        Act::Send(["HTTP/1.1 200 OK\r\nContent-Length: 2000\r\nX: \u{e9}\r\n\r\n".as_bytes(), &BODY[..]].concat())];
    "head-many-fields", Either, |_, _| [right(&"X: y\r\n".repeat(90))];
    "head-too-many-fields", Fails, |_, _| [right(&"X: y\r\n".repeat(20_000)), Act::Close];
    "head-connection-names-framing", Either, |_, _| [right("Connection: Content-Length, close\r\n"), Act::Close];
    "head-connection-long", Either, |_, _| [right(&format!("Connection: {}\r\n", "a, ".repeat(1_000)))];
    "head-says-close-and-stays", Right, |_, _| [right("Connection: close\r\n"), Act::Hang];
    "head-says-keep-and-closes", Right, |_, _| [right("Keep-Alive: timeout=1000\r\n"), Act::Close];
    "status-of-2-digits", Fails, |_, _| [Act::send("HTTP/1.1 20 OK\r\nContent-Length: 0\r\n\r\n"), Act::Close];
    "status-of-4-digits", Fails, |_, _| [Act::send("HTTP/1.1 2000 OK\r\nContent-Length: 0\r\n\r\n"), Act::Close];
    "status-0", Fails, |_, _| [Act::send("HTTP/1.1 000 OK\r\nContent-Length: 0\r\n\r\n"), Act::Close];
    "status-600", Fails, |_, _| [Act::send("HTTP/1.1 600 OK\r\nContent-Length: 0\r\n\r\n"), Act::Close];
    "status-word", Fails, |_, _| [Act::send("HTTP/1.1 two OK\r\nContent-Length: 0\r\n\r\n"), Act::Close];
    "status-204-with-body", OneOf(|| vec![vec![]]),
        |_, _| [Act::send("HTTP/1.1 204 None\r\n\r\nPOISON"), Act::Close];
    "status-304-with-body", Fails, |_, _| [Act::send("HTTP/1.1 304 Same\r\nContent-Length: 6\r\n\r\nPOISON"), Act::Close];
    "reason-none", Either, |_, _| [Act::send("HTTP/1.1 200 \r\nContent-Length: 2000\r\n\r\n"), Act::Send(BODY.clone())];
    "reason-nul", Fails, |_, _| [Act::send("HTTP/1.1 200 O\0K\r\nContent-Length: 2000\r\n\r\n"), Act::Send(BODY.clone()), Act::Close];
    "version-2", Fails, |_, _| [Act::send("HTTP/2.0 200 OK\r\nContent-Length: 2000\r\n\r\n"), Act::Send(BODY.clone()), Act::Close];
    "version-1.2", Either, |_, _| [Act::send("HTTP/1.2 200 OK\r\nContent-Length: 2000\r\n\r\n"), Act::Send(BODY.clone()), Act::Close];
    "version-0.9", Fails, |_, _| [Act::Send(BODY.clone()), Act::Close];
    "version-icy", Fails, |_, _| [Act::send("ICY 200 OK\r\n\r\n"), Act::Send(BODY.clone()), Act::Close];
    "rubbish", Fails, |_, _| [Act::Send(vec![0xa5; 5_000]), Act::Close];
    "rubbish-endless", Fails, |_, _| [flood("\u{16}\u{3}")];
    "cookie", Right, |_, _| [right("Set-Cookie: a=b\r\n")];
    "retry-for-ever", Fails, |_, _| [
        Act::send("HTTP/1.1 503 No\r\nRetry-After: 99999999999999999999\r\nContent-Length: 0\r\n\r\n")];
    // Pace
    "silence", Fails, |_, _| [Act::Hang];
    "closes-at-once", Fails, |_, _| [Act::Close];
    "resets-at-once", Fails, |_, _| [Act::Reset];
    "half-a-head", Fails, |_, _| [Act::send("HTTP/1.1 200 OK\r\nContent-"), Act::Hang];
    "head-drips", Fails, |_, _| [
        Act::Drip { bytes: DRIPPED_HEAD.to_vec(), every_ms: HEAD_DRIP_MS }];
    "body-drips-whole", Either, |_, _| [
        ok("Content-Length: 2000\r\n", &BODY[..1_960]), Act::Drip { bytes: BODY[1_960..].to_vec(), every_ms: 10 }];
    "body-drips-endlessly", Fails, |_, _| [
        ok("Content-Length: 900000\r\nETag: \"a\"\r\n", b""), Act::Drip { bytes: vec![b'x'; 100], every_ms: 10 }, Act::Reset];
    "body-after-a-hang", Fails, |_, _| [ok("Content-Length: 2000\r\n", &BODY[..1]), Act::Hang];
};

/// Lies about versions, ranges and dates, which concern every cache.
pub(crate) const OF_ORIGINS: &[Lie] = lies! {
    // Versions
    "same-tag-other-length", OneOf(|| vec![BODY.clone(), SHORTER.clone()]),
        |asked, n| [answer(asked, if n % 2 == 0 { &BODY } else { &SHORTER }, "\"a\"")];
    "same-date-other-length", OneOf(|| vec![BODY.clone(), SHORTER.clone()]), |_, n| {
        let body = if n % 2 == 0 { &BODY } else { &SHORTER };
        let date = "Last-Modified: Thu, 01 Jan 2015 00:00:00 GMT\r\n";
        [ok(&format!("Content-Length: {}\r\n{date}", body.len()), body)] };
    "same-tag-other-length-trickled", OneOf(|| vec![BODY.clone(), SHORTER.clone()]), |_, n| match n % 2 {
        0 => vec![ok("Content-Length: 2000\r\nETag: \"a\"\r\n", &BODY[..1_900]),
            Act::Drip { bytes: BODY[1_900..].to_vec(), every_ms: 5 }],
        _ => vec![ok("Content-Length: 1500\r\nETag: \"a\"\r\n", &SHORTER)] };
    "other-tag-each-time", OneOf(|| vec![BODY.clone(), OTHER.clone()]),
        |asked, n| [answer(asked, if n % 2 == 0 { &BODY } else { &OTHER }, &format!("\"{n}\""))];
    "tag-weak", Right, |_, _| [right("ETag: W/\"a\"\r\n")];
    "tag-twice", Right, |_, _| [right("ETag: \"a\"\r\nETag: \"b\"\r\n")];
    "tag-unquoted", Right, |_, _| [right("ETag: a\r\n")];
    "tag-empty", Right, |_, _| [right("ETag: \"\"\r\n")];
    "tag-of-8000-bytes", Either, |_, _| [right(&format!("ETag: \"{}\"\r\n", "a".repeat(8_000)))];
    "tag-of-other-bytes", Either, |_, _| [
        Act::Send(["HTTP/1.1 200 OK\r\nContent-Length: 2000\r\nETag: \"\u{e9}\"\r\n\r\n".as_bytes(), &BODY[..]].concat())];
    "same-unasked", Fails, |_, _| [Act::send("HTTP/1.1 304 Same\r\nETag: \"a\"\r\n\r\n")];
    "same-under-another-tag", OneOf(|| vec![BODY.clone()]), |_, n| match n {
        0 => [right("ETag: \"a\"\r\nCache-Control: max-age=0\r\n")],
        _ => [Act::send("HTTP/1.1 304 Same\r\nETag: \"b\"\r\n\r\n")] };
    "same-with-another-length", OneOf(|| vec![BODY.clone()]), |_, n| match n {
        0 => [right("ETag: \"a\"\r\nCache-Control: max-age=0\r\n")],
        _ => [Act::send("HTTP/1.1 304 Same\r\nETag: \"a\"\r\nContent-Length: 5\r\n\r\n")] };
    "later-segment-of-another-tag", OneOf(|| vec![LARGE.clone()]), |asked, _| match is_later(asked) {
        true => [answer(asked, &OTHER_LARGE, "\"b\"")],
        false => [answer(asked, &LARGE, "\"a\"")] };
    "later-segment-without-tag", OneOf(|| vec![LARGE.clone()]), |asked, _| match is_later(asked) {
        true => [Act::send("HTTP/1.1 206 Part\r\nContent-Range: bytes 4194304-4294303/4294304\r\n\
            Content-Length: 100000\r\n\r\n"), Act::Send(LARGE[SEGMENT..].to_vec())].to_vec(),
        false => vec![answer(asked, &LARGE, "\"a\"")] };
    "later-segment-of-another-length", OneOf(|| vec![LARGE.clone()]), |asked, _| match is_later(asked) {
        true => [answer(asked, &LONGER_LARGE, "\"a\"")],
        false => [answer(asked, &LARGE, "\"a\"")] };
    "later-segment-whole", OneOf(|| vec![LARGE.clone()]), |asked, _| match is_later(asked) {
        true => [ok("Content-Length: 4294304\r\nETag: \"a\"\r\n", &LARGE)],
        false => [answer(asked, &LARGE, "\"a\"")] };
    "later-segment-404", OneOf(|| vec![LARGE.clone()]), |asked, _| match is_later(asked) {
        true => [Act::send("HTTP/1.1 404 Gone\r\nContent-Length: 0\r\n\r\n")],
        false => [answer(asked, &LARGE, "\"a\"")] };
    "later-segment-hangs", OneOf(|| vec![LARGE.clone()]), |asked, _| match is_later(asked) {
        true => [Act::Hang],
        false => [answer(asked, &LARGE, "\"a\"")] };
    // Ranges
    "part", OneOf(|| vec![BODY.clone()]),
        |_, _| part("Content-Range: bytes 0-1999/2000\r\nContent-Length: 2000\r\n");
    "part-without-range", Fails, |_, _| part("Content-Length: 2000\r\n");
    "part-of-unknown", OneOf(|| vec![BODY.clone()]),
        |_, _| part("Content-Range: bytes 0-1999/*\r\nContent-Length: 2000\r\n");
    "part-of-none", Fails, |_, _| part("Content-Range: bytes */2000\r\nContent-Length: 2000\r\n");
    "part-from-elsewhere", Fails, |_, _| part("Content-Range: bytes 1-2000/2001\r\nContent-Length: 2000\r\n");
    "part-behind-the-end", Fails, |_, _| part("Content-Range: bytes 0-1999/1000\r\nContent-Length: 2000\r\n");
    "part-of-another-length", Fails, |_, _| part("Content-Range: bytes 0-999/1000\r\nContent-Length: 2000\r\n");
    "part-longer-than-its-bytes", Fails,
        |_, _| part("Content-Range: bytes 0-2999/3000\r\nContent-Length: 2000\r\n");
    "part-backwards", Fails, |_, _| part("Content-Range: bytes 1999-0/2000\r\nContent-Length: 2000\r\n");
    "part-in-other-units", Fails, |_, _| part("Content-Range: lines 0-1999/2000\r\nContent-Length: 2000\r\n");
    "part-twice", Fails,
        |_, _| part("Content-Range: bytes 0-1999/2000\r\nContent-Range: bytes 0-1999/2001\r\nContent-Length: 2000\r\n");
    "part-of-64-bits", Fails, |_, _| part(
        "Content-Range: bytes 0-1999/18446744073709551615\r\nContent-Length: 2000\r\nETag: \"a\"\r\n");
    "part-of-an-exabyte", Fails, |_, _| part(
        "Content-Range: bytes 0-1999/1000000000000000000\r\nContent-Length: 2000\r\nETag: \"a\"\r\n");
    "part-of-a-terabyte", Fails, |_, _| part(
        "Content-Range: bytes 0-1999/1000000000000\r\nContent-Length: 2000\r\nETag: \"a\"\r\n");
    "part-in-parts", Fails, |_, _| [
        Act::send("HTTP/1.1 206 Part\r\nContent-Type: multipart/byteranges; boundary=x\r\nContent-Length: 5\r\n\r\n--x--"),
        Act::Close];
    "no-such-range", Fails, |_, _| [
        Act::send("HTTP/1.1 416 No\r\nContent-Range: bytes */0\r\nContent-Length: 0\r\n\r\n")];
    "no-such-range-of-much", Fails, |_, _| [
        Act::send("HTTP/1.1 416 No\r\nContent-Range: bytes */18446744073709551615\r\nContent-Length: 0\r\n\r\n")];
    // Dates and ages
    "date-none", Right, |_, _| [right("Date: soon\r\n")];
    "date-far", Right, |_, _| [right("Date: Fri, 31 Dec 9999 23:59:59 GMT\r\n")];
    "date-old", Right, |_, _| [right("Date: Thu, 01 Jan 1970 00:00:00 GMT\r\nExpires: Thu, 01 Jan 1970 00:00:01 GMT\r\n")];
    "date-impossible", Right, |_, _| [right("Date: Fri, 31 Feb 2022 25:61:61 GMT\r\nExpires: -1\r\n")];
    "date-twice", Right, |_, _| [right("Date: Thu, 01 Jan 2015 00:00:00 GMT\r\nDate: Thu, 01 Jan 2016 00:00:00 GMT\r\n")];
    "modified-in-the-future", Right, |_, _| [right("Last-Modified: Fri, 31 Dec 9999 23:59:59 GMT\r\n")];
    "modified-before-time", Right, |_, _| [right("Last-Modified: Thu, 01 Jan 0001 00:00:00 GMT\r\n")];
    "expires-far", Right, |_, _| [right("Expires: Fri, 31 Dec 9999 23:59:59 GMT\r\n")];
    "age-negative", Right, |_, _| [right("Age: -1\r\n")];
    "age-huge", Right, |_, _| [right("Age: 99999999999999999999999\r\n")];
    "age-twice", Right, |_, _| [right("Age: 5\r\nAge: 6\r\n")];
    "max-age-huge", Right, |_, _| [right("Cache-Control: max-age=99999999999999999999999\r\n")];
    "max-age-negative", Right, |_, _| [right("Cache-Control: max-age=-1\r\n")];
    "max-age-twice", Right, |_, _| [right("Cache-Control: max-age=1, max-age=100\r\n")];
    "max-age-quoted", Right, |_, _| [right("Cache-Control: max-age=\"1\"\r\n")];
    "control-of-8000-bytes", Right, |_, _| [right(&format!("Cache-Control: {}\r\n", "no-store=\",\", ".repeat(500)))];
    "stale-for-ever", Right, |_, _| [right("Cache-Control: max-age=0, stale-while-revalidate=99999999999999999999\r\n")];
    "varies-by-all", Right, |_, _| [right("Vary: *\r\n")];
    "tags-of-8000-bytes", Right, |_, _| [right(&format!("Cache-Tag: {}\r\n", "a,".repeat(4_000)))];
    "redirect-to-itself", Fails, |asked, _| [
        Act::Send(format!("HTTP/1.1 302 Go\r\nLocation: {}\r\nContent-Length: 0\r\n\r\n", asked.target).into_bytes())];
    "another-coding", Right, |_, _| [right("Content-Encoding: gzip\r\n")];
};
