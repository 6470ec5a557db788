//! An HTTP/1.1 origin that is slow on purpose and counts its requests.
//!
//! Its objects need no files: the path `/BYTES/ID` specifies the length, and the content is the pattern of
//! the ID. `/BYTES/ID/MS` changes to another version every MS milliseconds, and is fresh for a second. It
//! answers GET and HEAD, single ranges, `If-None-Match` and `If-Range`, with a strong ETag. Each answer is
//! delayed by the service delay; all bodies together keep to the rate, in the order in which their chunks are
//! ready, so that a late byte does not lower the rate.
//!
//! `/.lab/counts` answers what was asked for, `/.lab/set?delay_ms=..&rate_bits_s=..`
//! changes the speed (0 for no limit); with `&each=1` every client's address has the
//! rate for itself, as a node has its own disk. At SIGTERM the counts go to stdout.

use std::cell::RefCell;
use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::ops::Range;
use std::rc::Rc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use skep_lab::load::{Changing, Content, Issue, MixObject, Pattern, unix_ms};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::{Instant, sleep, sleep_until};

use super::limits::{CATCH_UP_MS, CHUNK_BYTES, FIELDS_MAX, HEAD_BYTES_MAX, OBJECT_BYTES_MAX};

/// The speed of an origin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Speed {
    /// Delay of each answer, in milliseconds.
    pub(crate) delay_ms: u64,
    /// Rate of all bodies together, in bits per second; 0: no limit.
    pub(crate) rate_bits_s: u64,
}

/// Counts of an origin's requests since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct OriginCounts {
    /// Requests for objects.
    pub(crate) requests: u64,
    /// Bytes of bodies that were sent.
    pub(crate) bytes: u64,
    /// Requests answered with 304.
    pub(crate) not_modified: u64,
    /// Number of distinct objects requested.
    pub(crate) unique: u64,
    /// The sum of their lengths.
    pub(crate) unique_bytes: u64,
    /// Requests for the most requested object.
    pub(crate) most: u64,
}

impl OriginCounts {
    /// The counts between two readings; `unique` and `most` are those since the start.
    pub(crate) fn since(self, before: Self) -> Self {
        Self {
            requests: self.requests - before.requests,
            bytes: self.bytes - before.bytes,
            not_modified: self.not_modified - before.not_modified,
            ..self
        }
    }
}

/// An object of the origin, as specified by its path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Object {
    pub(crate) id: u32,
    /// Its length, or the minimum of its lengths.
    pub(crate) bytes: u64,
    /// Time between two changes, in milliseconds; 0: it never changes.
    pub(crate) period_ms: u64,
}

impl Object {
    pub(crate) fn path(self) -> String {
        let Self { id, bytes, period_ms } = self;
        match period_ms {
            0 => format!("/{bytes}/{id}"),
            _ => format!("/{bytes}/{id}/{period_ms}"),
        }
    }

    /// The object as clients expect it.
    pub(crate) fn for_mix(self) -> MixObject {
        MixObject { path: self.path(), content: self.content() }
    }

    fn content(self) -> Content {
        let Self { id, bytes, period_ms } = self;
        match period_ms {
            // Objects must not share words: the offsets within one object are below 2^32.
            0 => Content::Always(Issue { bytes, pattern: Pattern { seed: u64::from(id) << 32 } }),
            _ => Content::Changing(Changing { id, bytes, period_ms }),
        }
    }

    /// The present version.
    pub(crate) fn issue(self) -> Issue {
        self.issue_at(unix_ms()).0
    }

    fn at(path: &str) -> Option<Self> {
        let (bytes, rest) = path.strip_prefix('/')?.split_once('/')?;
        let (id, period_ms) = rest.split_once('/').unwrap_or((rest, "0"));
        let (id, bytes) = (id.parse().ok()?, bytes.parse().ok()?);
        let object = Self { id, bytes, period_ms: period_ms.parse().ok()? };
        (object.bytes <= OBJECT_BYTES_MAX && object.path() == path).then_some(object)
    }

    /// The version at this time, its entity tag, and the seconds for which it is fresh.
    fn issue_at(self, unix_ms: u64) -> (Issue, String, u32) {
        match self.content() {
            Content::Always(issue) => {
                (issue, format!("\"{:x}-{:x}\"", self.bytes, self.id), 86_400)
            }
            Content::Changing(object) => {
                let version = object.version_at(unix_ms);
                (object.issue(version), object.etag(version), 1)
            }
        }
    }
}

/// Serves until SIGTERM or SIGINT, then prints its counts.
pub(crate) fn run(address: SocketAddr, speed: Speed) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let origin = Rc::new(RefCell::new(Origin::new(speed)));
    let local = tokio::task::LocalSet::new();
    local.block_on(&runtime, serve(address, Rc::clone(&origin)))?;
    println!("{}", serde_json::to_string(&origin.borrow().counts)?);
    Ok(())
}

/// The state that connections share.
struct Origin {
    speed: Speed,
    counts: OriginCounts,
    asked: HashMap<Object, u64>,
    /// When the last byte that was promised will have been sent.
    busy_until: Instant,
    /// The same for each client, where each has the rate for itself.
    each: Option<HashMap<IpAddr, Instant>>,
}

/// What a request asks for.
struct Wanted {
    path: String,
    is_head: bool,
    range: Option<String>,
    none_match: Option<String>,
    if_range: Option<String>,
    closes: bool,
}

async fn serve(address: SocketAddr, origin: Rc<RefCell<Origin>>) -> io::Result<()> {
    let listener = TcpListener::bind(address).await?;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    loop {
        tokio::select! {
            _ = terminate.recv() => return Ok(()),
            _ = interrupt.recv() => return Ok(()),
            accepted = listener.accept() => {
                let (stream, client) = accepted?;
                stream.set_nodelay(true)?;
                let origin = Rc::clone(&origin);
                // A client that goes away is its own affair.
                tokio::task::spawn_local(async move {
                    converse((stream, client.ip()), &origin).await.ok()
                });
            }
        }
    }
}

async fn converse(
    (mut stream, client): (TcpStream, IpAddr),
    origin: &RefCell<Origin>,
) -> io::Result<()> {
    let mut buffer = Vec::new();
    loop {
        let wanted = loop {
            match Wanted::parse(&buffer) {
                Ok(Some((wanted, len))) => {
                    buffer.drain(..len);
                    break wanted;
                }
                Ok(None) if buffer.len() < HEAD_BYTES_MAX => {}
                _ => return stream.write_all(BAD_REQUEST).await,
            }
            if stream.read_buf(&mut buffer).await? == 0 {
                return Ok(());
            }
        };
        answer((&mut stream, client), origin, &wanted).await?;
        if wanted.closes {
            return Ok(());
        }
    }
}

const BAD_REQUEST: &[u8] =
    b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";

async fn answer(
    (stream, client): (&mut TcpStream, IpAddr),
    origin: &RefCell<Origin>,
    wanted: &Wanted,
) -> io::Result<()> {
    if let Some(question) = wanted.path.strip_prefix("/.lab/") {
        let body = origin.borrow_mut().about_itself(question)?;
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len());
        return stream.write_all(head.as_bytes()).await;
    }
    let Some(object) = Object::at(&wanted.path) else {
        return stream.write_all(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n").await;
    };
    let delay = Duration::from_millis(origin.borrow().speed.delay_ms);
    if !delay.is_zero() {
        sleep(delay).await;
    }
    let (issue, etag, fresh_s) = object.issue_at(unix_ms());
    let (head, part) = respond(issue.bytes, &etag, fresh_s, wanted);
    origin.borrow_mut().asked_for(object, part.is_none());
    stream.write_all(head.as_bytes()).await?;
    let Some(part) = part.filter(|_| !wanted.is_head) else { return Ok(()) };
    send((stream, client), origin, issue.pattern, part).await
}

/// The head of the answer, and the part of the object that follows it; no part for 304 and 416.
fn respond(bytes: u64, etag: &str, fresh_s: u32, wanted: &Wanted) -> (String, Option<Range<u64>>) {
    let fields =
        format!("ETag: {etag}\r\nCache-Control: max-age={fresh_s}\r\nAccept-Ranges: bytes\r\n");
    if wanted.none_match.as_ref().is_some_and(|tags| tags.contains(etag) || tags == "*") {
        return (format!("HTTP/1.1 304 Not Modified\r\n{fields}\r\n"), None);
    }
    let is_same = wanted.if_range.as_ref().is_none_or(|tag| *tag == etag);
    let range = wanted.range.as_deref().filter(|_| is_same).and_then(|it| part(it, bytes));
    match range {
        None => {
            (format!("HTTP/1.1 200 OK\r\n{fields}Content-Length: {bytes}\r\n\r\n"), Some(0..bytes))
        }
        Some(range) if range.is_empty() => {
            let of = format!("Content-Range: bytes */{bytes}\r\nContent-Length: 0\r\n");
            (format!("HTTP/1.1 416 Range Not Satisfiable\r\n{of}\r\n"), None)
        }
        Some(range) => {
            let (first, last, len) = (range.start, range.end - 1, range.end - range.start);
            let of =
                format!("Content-Range: bytes {first}-{last}/{bytes}\r\nContent-Length: {len}");
            (format!("HTTP/1.1 206 Partial Content\r\n{fields}{of}\r\n\r\n"), Some(range))
        }
    }
}

/// The single requested range (RFC 9110, 14.1.2), empty if it is outside the object; `None` if the field is
/// not a single range of bytes: it is then ignored.
fn part(field: &str, bytes: u64) -> Option<Range<u64>> {
    let (first, last) = field.strip_prefix("bytes=")?.split_once('-')?;
    if first.is_empty() {
        let count: u64 = last.parse().ok()?;
        return Some(bytes.saturating_sub(count)..bytes);
    }
    let first: u64 = first.parse().ok()?;
    let end = if last.is_empty() { bytes } else { last.parse::<u64>().ok()?.checked_add(1)? };
    if end <= first && !last.is_empty() {
        return None;
    }
    Some(first.min(bytes)..end.min(bytes))
}

async fn send(
    (stream, client): (&mut TcpStream, IpAddr),
    origin: &RefCell<Origin>,
    pattern: Pattern,
    part: Range<u64>,
) -> io::Result<()> {
    let (mut at, mut chunk) =
        (part.start, vec![0; CHUNK_BYTES.min(part.end - part.start) as usize]);
    while at < part.end {
        let count = CHUNK_BYTES.min(part.end - at);
        let due = origin.borrow_mut().promise(client, count);
        if let Some(due) = due {
            sleep_until(due).await;
        }
        let bytes = &mut chunk[..count as usize];
        pattern.fill(at, bytes);
        stream.write_all(bytes).await?;
        at += count;
    }
    Ok(())
}

impl Origin {
    fn new(speed: Speed) -> Self {
        let (counts, asked) = (OriginCounts::default(), HashMap::new());
        Self { speed, counts, asked, busy_until: Instant::now(), each: None }
    }

    fn asked_for(&mut self, object: Object, is_not_modified: bool) {
        self.counts.requests += 1;
        self.counts.not_modified += u64::from(is_not_modified);
        let times = self.asked.entry(object).or_default();
        *times += 1;
        self.counts.most = self.counts.most.max(*times);
        if *times == 1 {
            self.counts.unique += 1;
            self.counts.unique_bytes += object.bytes;
        }
    }

    /// Takes its turn in the line; when these bytes may go, if not at once.
    fn promise(&mut self, client: IpAddr, bytes: u64) -> Option<Instant> {
        self.counts.bytes += bytes;
        let us = (bytes * 8 * 1_000_000).checked_div(self.speed.rate_bits_s)?;
        let (now, time) = (Instant::now(), Duration::from_micros(us));
        let Some(each) = &mut self.each else {
            self.busy_until = self.busy_until.max(now) + time;
            return Some(self.busy_until);
        };
        // A single stream would lose what a timer comes late for each chunk.
        let earliest = now - Duration::from_millis(CATCH_UP_MS);
        let busy_until = each.entry(client).or_insert(now);
        *busy_until = (*busy_until).max(earliest) + time;
        Some(*busy_until)
    }

    fn about_itself(&mut self, question: &str) -> io::Result<String> {
        let (what, values) = question.split_once('?').unwrap_or((question, ""));
        if what == "set" {
            let value = |name: &str| {
                let mut pairs = values.split('&').filter_map(|pair| pair.split_once('='));
                pairs.find(|(key, _)| *key == name).and_then(|(_, value)| value.parse().ok())
            };
            let Speed { delay_ms, rate_bits_s } = self.speed;
            self.speed = Speed {
                delay_ms: value("delay_ms").unwrap_or(delay_ms),
                rate_bits_s: value("rate_bits_s").unwrap_or(rate_bits_s),
            };
            self.each = (value("each") == Some(1)).then(HashMap::new);
        }
        Ok(serde_json::to_string(&self.counts)?)
    }
}

impl Wanted {
    /// The request at the beginning of `bytes` and the length of its head; `None` if it is incomplete.
    fn parse(bytes: &[u8]) -> Result<Option<(Self, usize)>, httparse::Error> {
        let mut fields = [httparse::EMPTY_HEADER; FIELDS_MAX];
        let mut request = httparse::Request::new(&mut fields);
        let httparse::Status::Complete(len) = request.parse(bytes)? else { return Ok(None) };
        let field = |name: &str| {
            let found = request.headers.iter().find(|it| it.name.eq_ignore_ascii_case(name));
            found.and_then(|it| std::str::from_utf8(it.value).ok()).map(str::to_owned)
        };
        let closes = field("connection").is_some_and(|it| it.eq_ignore_ascii_case("close"));
        let wanted = Self {
            path: request.path.unwrap_or_default().to_owned(),
            is_head: request.method == Some("HEAD"),
            range: field("range"),
            none_match: field("if-none-match"),
            if_range: field("if-range"),
            closes: closes || request.version == Some(0),
        };
        let is_known = wanted.is_head || request.method == Some("GET");
        if is_known { Ok(Some((wanted, len))) } else { Err(httparse::Error::Token) }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use std::net::Ipv4Addr;

    use super::*;

    fn object(id: u32, bytes: u64) -> Object {
        Object { id, bytes, period_ms: 0 }
    }

    #[test]
    fn a_path_is_an_object_or_nothing() {
        for period_ms in [0, 700] {
            let object = Object { id: 7, bytes: 2895, period_ms };
            assert_eq!(Object::at(&object.path()), Some(object));
        }
        for path in ["", "/", "/1", "/1/", "/01/2", "/1/2/0", "/-1/2", "/99999999999999/1"] {
            assert_eq!(Object::at(path), None, "{path}");
        }
    }

    #[test]
    fn ranges_are_those_of_the_rfc() {
        assert_eq!(part("bytes=0-9", 100), Some(0..10));
        assert_eq!(part("bytes=90-", 100), Some(90..100));
        assert_eq!(part("bytes=90-1000", 100), Some(90..100));
        assert_eq!(part("bytes=-5", 100), Some(95..100));
        assert!(part("bytes=100-", 100).unwrap().is_empty());
        for ignored in ["bytes=5-4", "bytes=a-b", "lines=1-2", "bytes=0-1,3-4"] {
            assert_eq!(part(ignored, 100), None, "{ignored}");
        }
    }

    #[test]
    fn conditions_and_ranges_make_the_head() {
        let request = |fields: &str| {
            let text = format!("GET /100/1 HTTP/1.1\r\n{fields}\r\n");
            let wanted = Wanted::parse(text.as_bytes()).unwrap().unwrap().0;
            let (issue, etag, fresh_s) = object(1, 100).issue_at(0);
            respond(issue.bytes, &etag, fresh_s, &wanted)
        };
        assert_eq!(request("").1, Some(0..100));
        let (head, part) = request("Range: bytes=10-19\r\nIf-Range: \"64-1\"\r\n");
        assert_eq!((part, head.contains("bytes 10-19/100")), (Some(10..20), true));
        assert_eq!(request("Range: bytes=10-19\r\nIf-Range: \"other\"\r\n").1, Some(0..100));
        assert_eq!(request("If-None-Match: \"64-1\"\r\n").1, None);
        assert!(request("Range: bytes=100-\r\n").0.starts_with("HTTP/1.1 416"));
    }

    #[test]
    fn a_rate_is_of_all_clients_or_of_each() {
        let clients = [1, 2].map(|it| IpAddr::V4(Ipv4Addr::new(10, 0, 0, it)));
        let mut origin = Origin::new(Speed { delay_ms: 0, rate_bits_s: 8_000 });
        let wait_s = |origin: &mut Origin, at: usize| {
            let due = origin.promise(clients[at], 10_000).unwrap();
            due.saturating_duration_since(Instant::now()).as_secs_f64().round() as u64
        };
        assert_eq!([0, 1, 0].map(|at| wait_s(&mut origin, at)), [10, 20, 30]);
        origin.each = Some(HashMap::new());
        assert_eq!([0, 1, 0].map(|at| wait_s(&mut origin, at)), [10, 10, 20]);
    }

    #[test]
    fn what_was_asked_for_is_counted() {
        let mut origin = Origin::new(Speed::default());
        for _ in 0..3 {
            origin.asked_for(object(1, 100), false);
            assert_eq!(origin.promise(Ipv4Addr::LOCALHOST.into(), 100), None);
        }
        origin.asked_for(object(2, 50), false);
        let counts = origin.counts;
        assert_eq!((counts.requests, counts.bytes), (4, 300));
        assert_eq!((counts.unique, counts.unique_bytes, counts.most), (2, 150, 3));
    }
}
