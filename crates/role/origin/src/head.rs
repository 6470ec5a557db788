//! The head of an origin's response: the object's metadata, and the range of bytes that follow.

use std::borrow::Cow;
use std::ops::Range;

use skep_http::encode::{write_field, write_status_line};
use skep_http::forward::write_kept_fields;
use skep_http::limits::RESPONSE_HEAD;
use skep_http::{
    FieldSlots, HttpDate, Known, Method, ResponseFraming, ResponseHead, Validators, parse_response,
};
use skep_httpcache::{
    CachePolicy, ExchangeTimes, FieldLine, RequestMeta, ResponseMeta, Validated, tags, updated,
    validated,
};

use crate::error::Fault;
use crate::request::{Ask, Condition};

/// The head of a response, parsed and checked against the request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head {
    /// The fields that a cache uses: status, validators, dates, directives.
    pub meta: ResponseMeta,
    /// Length of the whole object in bytes, if the response states it: also for a 206 and a 416.
    pub total_bytes: Option<u64>,
    /// Offset of the body in the object: 0 unless the status is 206.
    pub start: u64,
    /// Offset of the end of the body, if known in advance.
    pub end: Option<u64>,
    /// Whether the server sends ranges of the object: it has sent one, or says so.
    pub has_ranges: bool,
    /// Field lines `Name: value\r
    /// ` for clients, without hop-by-hop fields and without the framing, range, date and age of this
    /// response. A Content-Range in it is one without meaning, for replies with the whole object.
    pub fields: Vec<u8>,
}

/// The result of a conditional request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Revalidated {
    /// 304: the stored response stays valid, with this head.
    Kept(Box<Head>),
    /// The response replaces the stored one, whatever its status.
    Replaced,
    /// 304 for another version than the stored one, or for one that may no longer be stored: ask
    /// again without conditions (RFC 9111 4.3.4).
    AskAgain,
}

impl Head {
    /// The validators of the object.
    pub fn validators(&self) -> Validators<'_> {
        self.meta.validators()
    }

    /// Identifies the version of the object; `None`: parts of two responses cannot be combined.
    pub fn version(&self) -> Option<Vec<u8>> {
        self.meta.version(self.total_bytes)
    }

    /// Heap memory, in bytes.
    pub fn heap_bytes(&self) -> usize {
        self.fields.capacity() + self.meta.heap_bytes()
    }

    /// The status of a response with the whole object: a 206 is only due to our range request.
    pub fn whole_status(&self) -> u16 {
        if self.meta.status == 206 { 200 } else { self.meta.status }
    }

    /// How to handle `answer`, the response to a conditional request that validates this one.
    pub fn revalidated(&self, answer: &Self, policy: &CachePolicy) -> Revalidated {
        match validated(&[&self.meta], &answer.meta) {
            Validated::Replaced => Revalidated::Replaced,
            Validated::AskAgain => Revalidated::AskAgain,
            Validated::Fresh(_) => {
                let stored = (&self.meta, self.field_lines());
                let news = (&answer.meta, answer.field_lines());
                // A response that is for one client, or for no cache, is not for all waiting
                // requests.
                let Ok((meta, fields)) = updated(stored, news, &RequestMeta::PLAIN_GET, policy)
                else {
                    return Revalidated::AskAgain;
                };
                Revalidated::Kept(Box::new(Self { meta, fields, ..self.clone() }))
            }
        }
    }

    /// Its fields, as name and value.
    pub fn field_lines(&self) -> impl Iterator<Item = FieldLine<'_>> + Clone {
        self.lines().map(|(name, line)| {
            let value = line.get(name.len() + 1..).unwrap_or_default();
            (name, value.trim_ascii())
        })
    }

    /// Its fields, as name and complete line.
    pub fn lines(&self) -> impl Iterator<Item = (&[u8], &[u8])> + Clone {
        let named = |line| {
            let mut parts = <[u8]>::splitn(line, 2, |byte| *byte == b':');
            (parts.next().unwrap_or(line), line)
        };
        self.fields.split_inclusive(|byte| *byte == b'\n').map(named)
    }

    /// The head in the form of a response with the whole object, for another cache at `now_unix_ms`.
    pub fn to_text(&self, now_unix_ms: u64) -> Vec<u8> {
        let since_ms = now_unix_ms.saturating_sub(self.meta.times.received_unix_ms);
        // Rounded up: an older response is fresh for a shorter time.
        let age_s = (self.meta.initial_age_ms().saturating_add(since_ms)).div_ceil(1000);
        let mut text = Vec::new();
        write_status_line(&mut text, self.whole_status());
        if let Some(bytes) = self.total_bytes {
            write_field(&mut text, "Content-Length", bytes.to_string().as_bytes());
        }
        text.extend_from_slice(&self.fields);
        if self.has_ranges {
            write_field(&mut text, "Accept-Ranges", b"bytes");
        }
        write_field(&mut text, "Age", age_s.to_string().as_bytes());
        write_field(&mut text, "Date", &HttpDate(self.meta.made_unix_s()).format());
        text.extend_from_slice(b"\r\n");
        text
    }

    /// Parses [`Self::to_text`], received just now; `None`: it is invalid.
    pub fn from_text(text: &[u8], now_unix_ms: u64) -> Option<Self> {
        let mut slots = FieldSlots::new();
        let head = parse_response(&mut slots, text, Method::Get, &RESPONSE_HEAD).ok()?;
        Self::new(&head, &Ask::default(), (now_unix_ms, now_unix_ms)).ok()
    }

    /// The caching metadata of a response to a request for the whole object, of any client.
    pub fn meta_of_whole(head: &ResponseHead<'_, '_>, times: ExchangeTimes) -> ResponseMeta {
        let lines = head.fields.iter().map(|(name, value)| (name.as_bytes(), value));
        let is_open_ended = head.framing == ResponseFraming::UntilClose;
        ResponseMeta { is_open_ended, ..ResponseMeta::parse(head.status, lines, times) }
    }

    /// The head of such a response, with its [`Head::meta_of_whole`]; without the fields for which
    /// `leaves_out` returns true.
    pub fn of_whole(
        head: &ResponseHead<'_, '_>,
        meta: ResponseMeta,
        leaves_out: impl Fn(&[u8], &ResponseMeta) -> bool,
    ) -> Self {
        let total_bytes = match head.framing {
            ResponseFraming::None => Some(0),
            ResponseFraming::Length(bytes) => Some(bytes),
            ResponseFraming::Chunked | ResponseFraming::UntilClose => None,
        };
        let mut fields = Vec::new();
        let is_own = |name: &[u8]| is_of_this_answer(name, head.status) || leaves_out(name, &meta);
        write_kept_fields(&mut fields, head, is_own);
        Self {
            meta,
            total_bytes,
            start: 0,
            end: total_bytes,
            has_ranges: has_ranges(head, false),
            fields,
        }
    }

    /// The tags of the object for purges.
    pub fn tags(&self) -> impl Iterator<Item = Cow<'_, str>> {
        tags(self.field_lines())
    }

    /// Checks `head` against the request.
    pub(crate) fn new(
        head: &ResponseHead<'_, '_>,
        ask: &Ask<'_>,
        (requested_unix_ms, received_unix_ms): (u64, u64),
    ) -> Result<Self, Fault> {
        let part = part_of(head, ask)?;
        let mut fields = Vec::new();
        write_kept_fields(&mut fields, head, |name| is_of_this_answer(name, head.status));
        let lines = head.fields.iter().map(|(name, value)| (name.as_bytes(), value));
        let times = ExchangeTimes { requested_unix_ms, received_unix_ms };
        let is_open_ended = head.framing == ResponseFraming::UntilClose && part.end.is_none();
        let mut new = Self {
            meta: ResponseMeta { is_open_ended, ..ResponseMeta::parse(head.status, lines, times) },
            total_bytes: part.total_bytes,
            start: part.start,
            end: part.end,
            has_ranges: has_ranges(head, ask.range.is_some()),
            fields,
        };
        new.adopt_pinned_date(ask);
        Ok(new)
    }

    /// RFC 9110 15.3.7: a 206 to If-Range may omit fields that the client knows, including
    /// Last-Modified, but not an entity tag. The 206 itself confirms the date.
    fn adopt_pinned_date(&mut self, ask: &Ask<'_>) {
        if let Condition::Pinned(Validators { etag: "", last_modified }) = ask.condition
            && self.meta.status == 206
            && !self.meta.has_validator()
        {
            self.meta.last_modified = last_modified;
        }
    }
}

/// The range of the object's bytes that follow, and the object's length.
struct Part {
    total_bytes: Option<u64>,
    start: u64,
    end: Option<u64>,
}

fn part_of(head: &ResponseHead<'_, '_>, ask: &Ask<'_>) -> Result<Part, Fault> {
    let body_bytes = match head.framing {
        ResponseFraming::None => Some(0),
        ResponseFraming::Length(bytes) => Some(bytes),
        ResponseFraming::Chunked | ResponseFraming::UntilClose => None,
    };
    match head.status {
        206 => partial(head, ask, body_bytes),
        304 => Ok(Part { total_bytes: None, start: 0, end: Some(0) }),
        416 => {
            let range = first(head, Known::ContentRange).and_then(content_range);
            let total_bytes = range.and_then(|(range, total)| total.filter(|_| range.is_none()));
            Ok(Part { total_bytes, start: 0, end: body_bytes })
        }
        _ => Ok(Part { total_bytes: body_bytes, start: 0, end: body_bytes }),
    }
}

/// RFC 9110 15.3.7: one part, which begins at the requested offset and is at most as long as
/// requested.
fn partial(
    head: &ResponseHead<'_, '_>,
    ask: &Ask<'_>,
    body_bytes: Option<u64>,
) -> Result<Part, Fault> {
    let asked = ask.range.as_ref().ok_or(Fault::Range("206, but no range was asked for"))?;
    let (range, total_bytes) = first(head, Known::ContentRange)
        .and_then(content_range)
        .ok_or(Fault::Range("206 without a Content-Range that can be read"))?;
    let range = range.ok_or(Fault::Range("206 that says to have no range"))?;
    if range.start != asked.start || range.end > asked.end {
        return Err(Fault::Range("Content-Range is not in the range asked for"));
    }
    if total_bytes.is_some_and(|total| range.end > total) {
        return Err(Fault::Range("Content-Range ends behind the object"));
    }
    if body_bytes.is_some_and(|bytes| bytes != range.end - range.start) {
        return Err(Fault::Range("Content-Length and Content-Range disagree"));
    }
    Ok(Part { total_bytes, start: range.start, end: Some(range.end) })
}

/// Parses `bytes 0-9/100`, `bytes 0-9/*` or `bytes */100` (RFC 9110 14.4): the range, which is not
/// empty, and the length of the whole.
fn content_range(value: &[u8]) -> Option<(Option<Range<u64>>, Option<u64>)> {
    let value = std::str::from_utf8(value).ok()?;
    let (unit, rest) = value.split_once(' ')?;
    let (range, total) = rest.trim().split_once('/')?;
    if !unit.eq_ignore_ascii_case("bytes") {
        return None;
    }
    let total = if total == "*" { None } else { Some(number(total)?) };
    if range == "*" {
        return Some((None, total));
    }
    let (first, last) = range.split_once('-')?;
    let (first, last) = (number(first)?, number(last)?);
    (first <= last).then_some((Some(first..last.checked_add(1)?), total))
}

/// Digits only: `str::parse` accepts a sign.
fn number(digits: &str) -> Option<u64> {
    digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok())?
}

/// Value of a field that must occur in one line only; `None` if it occurs in more.
fn first<'b>(head: &ResponseHead<'_, 'b>, field: Known) -> Option<&'b [u8]> {
    let mut values = head.fields.known_all(field);
    let value = values.next()?;
    values.next().is_none().then_some(value)
}

/// Whether the server sends ranges (RFC 9110 14.3). A server that answers a range with the whole object does not, whatever
/// it says.
fn has_ranges(head: &ResponseHead<'_, '_>, was_asked_for_range: bool) -> bool {
    let is_said = |(name, value): (&str, &[u8])| {
        name.eq_ignore_ascii_case("accept-ranges")
            && value.trim_ascii().eq_ignore_ascii_case(b"bytes")
    };
    head.status == 206 || (!was_asked_for_range && head.fields.iter().any(is_said))
}

/// Fields that a later reply from memory must not repeat. Content-Range has a meaning in a 206 and a
/// 416 only (RFC 9110 14.4); in other responses it is stored like any other field (RFC 9111 3.1).
fn is_of_this_answer(name: &[u8], status: u16) -> bool {
    match Known::of(name) {
        Some(Known::Date | Known::Age) => true,
        Some(Known::ContentRange) => matches!(status, 206 | 416),
        Some(_) => false,
        None => name.eq_ignore_ascii_case(b"accept-ranges"),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

    use skep_http::limits::RESPONSE_HEAD;
    use skep_http::{FieldSlots, Method, parse_response};

    use super::*;

    fn read(status: u16, fields: &str, ask: &Ask<'_>) -> Result<Head, Fault> {
        let text = format!("HTTP/1.1 {status} x\r\n{fields}\r\n");
        let mut slots = FieldSlots::new();
        let head =
            parse_response(&mut slots, text.as_bytes(), Method::Get, &RESPONSE_HEAD).unwrap();
        Head::new(&head, ask, (1_000, 2_000))
    }

    fn ranged(range: Range<u64>) -> Ask<'static> {
        Ask { path_and_query: b"/", range: Some(range), ..Ask::default() }
    }

    #[test]
    fn a_head_keeps_what_concerns_clients() {
        let fields = "Content-Length: 5\r\nETag: \"a\"\r\nAge: 7\r\nConnection: close, X-Hop\r\n\
            X-Hop: 1\r\nX-End: 2\r\nVary: Accept-Encoding , Origin\r\nExpires: 0\r\n\
            Date: Thu, 01 Jan 1970 00:00:09 GMT\r\nLast-Modified: Thu, 01 Jan 1970 00:00:01 GMT\r\n";
        let head = read(200, fields, &Ask::default()).unwrap();
        assert_eq!((head.total_bytes, head.start, head.end), (Some(5), 0, Some(5)));
        assert_eq!(head.validators(), Validators { etag: "\"a\"", last_modified: Some(1) });
        let meta = &head.meta;
        assert_eq!((meta.age_s, meta.date, meta.expires), (Some(7), Some(9), Some(0)));
        assert_eq!(meta.vary.names(), ["accept-encoding", "origin"]);
        let kept = String::from_utf8(head.fields).unwrap();
        assert!(kept.contains("X-End: 2\r\n") && kept.contains("ETag: \"a\"\r\n"));
        for gone in ["X-Hop", "Connection", "Content-Length", "Date:", "Age"] {
            assert!(!kept.contains(gone), "{gone}");
        }
    }

    #[test]
    fn tags_are_read_from_all_fields() {
        let fields = "Surrogate-Key: a  b\r\ncache-tag: c d , e,,\r\nX-Other: f\r\n\
            CACHE-TAG: a\r\nSurrogate-Key:\r\nCache-Groups: \"g\"\r\n";
        let head = read(200, fields, &Ask::default()).unwrap();
        assert_eq!(head.tags().collect::<Vec<_>>(), ["a", "b", "c d", "e", "a", "g"]);
    }

    #[test]
    fn a_head_that_is_handed_on_says_the_same_and_is_older() {
        let fields = "Content-Range: bytes 0-4/9\r\nETag: \"a\"\r\nAge: 7\r\n\
            Cache-Control: max-age=60\r\nX-Own: 1\r\n\
            Date: Thu, 01 Jan 1970 00:00:01 GMT\r\n";
        let head = read(206, fields, &ranged(0..5)).unwrap();
        let handed_on = Head::from_text(&head.to_text(12_000), 12_500).unwrap();
        assert_eq!((handed_on.meta.status, handed_on.total_bytes), (200, Some(9)));
        assert_eq!((handed_on.meta.age_s, handed_on.meta.date), (Some(18), Some(1)));
        assert_eq!(handed_on.meta.times.received_unix_ms, 12_500);
        assert!(handed_on.has_ranges, "another node can ask for parts of it");
        assert_eq!(
            (&handed_on.meta.etag, &handed_on.meta.directives, &handed_on.fields),
            (&head.meta.etag, &head.meta.directives, &head.fields)
        );
        assert_eq!(Head::from_text(b"HTTP/1.1 200 OK\r\n", 0), None);
    }

    #[test]
    fn ranges_are_known_from_a_part_or_from_the_field() {
        let of = |status, fields: &str| {
            let ask = if status == 206 { ranged(0..5) } else { Ask::default() };
            read(status, fields, &ask).unwrap().has_ranges
        };
        assert!(of(206, "Content-Range: bytes 0-4/9\r\nETag: \"a\"\r\nContent-Length: 5\r\n"));
        assert!(of(200, "Accept-Ranges: bytes\r\nContent-Length: 5\r\n"));
        assert!(!of(200, "Accept-Ranges: none\r\nContent-Length: 5\r\n"));
        let said = "Accept-Ranges: bytes\r\nContent-Length: 5\r\n";
        assert!(!read(200, said, &ranged(0..9)).unwrap().has_ranges, "it sent all of it");
        assert!(!of(200, "Content-Length: 5\r\n"));
    }

    #[test]
    fn a_range_without_meaning_is_a_field_like_any_other() {
        let field = "Content-Range: bytes 0-4/9\r\n";
        for (status, is_kept) in [(200, true), (404, true), (206, false), (416, false)] {
            let head = read(status, field, &ranged(0..5)).unwrap();
            assert_eq!(head.fields == field.as_bytes(), is_kept, "{status}");
        }
        let head = read(200, &format!("Content-Length: 9\r\n{field}"), &Ask::default()).unwrap();
        let handed_on = Head::from_text(&head.to_text(2_000), 2_000).unwrap();
        assert_eq!((handed_on.total_bytes, handed_on.fields), (Some(9), head.fields));
    }

    #[test]
    fn partial_responses_are_of_what_was_asked() {
        let part = |fields: &str, range| read(206, fields, &ranged(range));
        let head = part("Content-Length: 10\r\nContent-Range: bytes 5-14/20\r\n", 5..15).unwrap();
        assert_eq!((head.total_bytes, head.start, head.end), (Some(20), 5, Some(15)));
        let head = part("Content-Range: bytes 5-14/*\r\n", 5..99).unwrap();
        assert_eq!((head.total_bytes, head.end, head.meta.is_open_ended), (None, Some(15), false));
        for (fields, range) in [
            ("", 0..5),
            ("Content-Range: bytes 0-4/4\r\n", 0..5),
            ("Content-Range: bytes 1-4/9\r\n", 0..5),
            ("Content-Range: bytes 0-5/9\r\n", 0..5),
            ("Content-Range: bytes 4-0/9\r\n", 4..5),
            ("Content-Range: bytes +0-4/9\r\n", 0..5),
            ("Content-Range: bytes */9\r\n", 0..5),
            ("Content-Range: items 0-4/9\r\n", 0..5),
            ("Content-Length: 4\r\nContent-Range: bytes 0-4/9\r\n", 0..5),
            ("Content-Range: bytes 0-4/9\r\nContent-Range: bytes 0-4/8\r\n", 0..5),
            ("Content-Range: bytes 0-18446744073709551615/*\r\n", 0..u64::MAX),
        ] {
            let got = part(fields, range);
            assert!(matches!(got, Err(Fault::Range(_))), "{fields}: {got:?}");
        }
        assert!(read(206, "Content-Range: bytes 0-4/9\r\n", &Ask::default()).is_err());
        let head = read(416, "Content-Range: bytes */9\r\n", &ranged(9..10)).unwrap();
        assert_eq!(head.total_bytes, Some(9));
    }

    #[test]
    fn validators_that_break_the_rules_are_none() {
        for etag in ["a", "\"a", "\"a\"b\"", "w/\"a\"", "\"a b\"", "\"a\"\r\nETag: \"b\""] {
            let head = read(200, &format!("ETag: {etag}\r\n"), &Ask::default()).unwrap();
            assert_eq!(head.meta.etag, None, "{etag}");
        }
        let head = read(200, "ETag: W/\"\"\r\n", &Ask::default()).unwrap();
        assert_eq!(head.meta.etag.as_deref(), Some("W/\"\""));
    }

    #[test]
    fn a_pinned_date_needs_no_repetition_and_a_tag_does() {
        let part = "Content-Range: bytes 0-4/9\r\n";
        let pinned = |etag| {
            let version = Validators { etag, last_modified: Some(3) };
            Ask { condition: Condition::Pinned(version), ..ranged(0..5) }
        };
        assert_eq!(read(206, part, &pinned("")).unwrap().meta.last_modified, Some(3));
        assert_eq!(read(206, part, &pinned("\"a\"")).unwrap().meta.last_modified, None);
        assert_eq!(read(200, "", &pinned("")).unwrap().meta.last_modified, None);
    }
}
