//! The head of an origin's response: the object's metadata, and which of its bytes follow.

use std::ops::Range;

use skep_http::encode::{write_field, write_status_line};
use skep_http::forward::write_kept_fields;
use skep_http::limits::RESPONSE_HEAD;
use skep_http::{
    FieldSlots, HttpDate, Known, Method, ResponseFraming, ResponseHead, Validators, parse_response,
};

use crate::cache_control::{CacheControl, delta_seconds};
use crate::error::Fault;
use crate::request::{Ask, Condition};

/// The head of a response, parsed and checked against the request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head {
    /// Status code, 200 to 599.
    pub status: u16,
    /// Length of the whole object in bytes, as far as the answer tells: also
    /// of a 206 and a 416.
    pub total_bytes: Option<u64>,
    /// Where in the object the body begins: 0 unless the status is 206.
    pub start: u64,
    /// Where it ends, if that is known in advance.
    pub end: Option<u64>,
    /// Only the end of the connection delimits the body: a truncated one looks complete.
    pub is_open_ended: bool,
    /// Entity tag with its quotes, `W/` in front when weak.
    pub etag: Option<String>,
    /// Last change, in seconds since the Unix epoch.
    pub last_modified: Option<u64>,
    /// Media type as sent.
    pub content_type: Option<Vec<u8>>,
    /// Names of request fields that the answer depends on, in lower case; or
    /// `*`.
    pub vary: Vec<String>,
    /// What a cache may do with it.
    pub cache_control: CacheControl,
    /// Seconds for which upstream caches stored it.
    pub age_s: Option<u64>,
    /// When it was made, in seconds since the Unix epoch.
    pub date: Option<u64>,
    /// Until when it is fresh, likewise; 0 if the field can't be read.
    pub expires: Option<u64>,
    /// It sets a cookie: meant for one client.
    pub sets_cookie: bool,
    /// Lines `Name: value\r\n` for clients, those above included. Without what
    /// concerns one hop, the framing and the range of this answer, its date and
    /// its age.
    pub fields: Vec<u8>,
    /// When the request was sent, in milliseconds since the Unix epoch.
    pub requested_unix_ms: u64,
    /// When the head was complete, likewise.
    pub received_unix_ms: u64,
}

impl Head {
    /// The validators of the object.
    pub fn validators(&self) -> Validators<'_> {
        let etag = self.etag.as_deref().unwrap_or("");
        Validators { etag, last_modified: self.last_modified }
    }

    /// Bytes on the heap.
    pub fn heap_bytes(&self) -> usize {
        let vary = self.vary.iter().map(|name| size_of::<String>() + name.capacity());
        let texts = self.etag.as_ref().map_or(0, String::capacity)
            + self.content_type.as_ref().map_or(0, Vec::capacity);
        self.fields.capacity() + texts + vary.sum::<usize>()
    }

    /// The status of a response with the whole object: a 206 is due only to our range request.
    pub fn whole_status(&self) -> u16 {
        if self.status == 206 { 200 } else { self.status }
    }

    /// When it was generated, in seconds since the Unix epoch; without a Date, when it was
    /// received (RFC 9110 6.6.1).
    pub fn made_unix_s(&self) -> u64 {
        self.date.unwrap_or(self.received_unix_ms / 1000)
    }

    /// Whether it has an explicit lifetime.
    pub fn says_how_long(&self) -> bool {
        let control = &self.cache_control;
        control.max_age_s.or(control.s_maxage_s).is_some() || self.expires.is_some()
    }

    /// The answer's age when it came, in milliseconds (RFC 9111 4.2.3:
    /// corrected_initial_age).
    pub fn age_ms(&self) -> u64 {
        let date_ms = self.date.map_or(self.received_unix_ms, |date| date * 1000);
        // Dates are whole seconds: the rest of one is no age.
        let apparent_ms = self.received_unix_ms.saturating_sub(date_ms) / 1000 * 1000;
        let delay_ms = self.received_unix_ms.saturating_sub(self.requested_unix_ms);
        let corrected_ms = self.age_s.unwrap_or(0) * 1000 + delay_ms;
        apparent_ms.max(corrected_ms)
    }

    /// Its fields: name, and line with name and end.
    pub fn lines(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let named = |line| {
            let mut parts = <[u8]>::splitn(line, 2, |byte| *byte == b':');
            (parts.next().unwrap_or(line), line)
        };
        self.fields.split_inclusive(|byte| *byte == b'\n').map(named)
    }

    /// The head as that of an answer with the whole, for another cache at
    /// `now_unix_ms`.
    pub fn to_text(&self, now_unix_ms: u64) -> Vec<u8> {
        let since_ms = now_unix_ms.saturating_sub(self.received_unix_ms);
        let age_s = (self.age_ms() + since_ms) / 1000;
        let mut text = Vec::new();
        write_status_line(&mut text, self.whole_status());
        if let Some(bytes) = self.total_bytes {
            write_field(&mut text, "Content-Length", bytes.to_string().as_bytes());
        }
        text.extend_from_slice(&self.fields);
        write_field(&mut text, "Age", age_s.to_string().as_bytes());
        write_field(&mut text, "Date", &HttpDate(self.made_unix_s()).format());
        text.extend_from_slice(b"\r\n");
        text
    }

    /// Parses [`Self::to_text`], received just now; `None`: it is no such head.
    pub fn from_text(text: &[u8], now_unix_ms: u64) -> Option<Self> {
        let mut slots = FieldSlots::new();
        let head = parse_response(&mut slots, text, Method::Get, &RESPONSE_HEAD).ok()?;
        Self::new(&head, &Ask::default(), (now_unix_ms, now_unix_ms)).ok()
    }

    /// The tags of the object for purges: field Surrogate-Key, separated by spaces, and
    /// Cache-Tag, separated by commas.
    pub fn tags(&self) -> impl Iterator<Item = &str> {
        let tags = |(name, line): (&[u8], _)| {
            let part = match name {
                _ if name.eq_ignore_ascii_case(b"surrogate-key") => ' ',
                _ if name.eq_ignore_ascii_case(b"cache-tag") => ',',
                _ => return None,
            };
            let (_, value) = str::from_utf8(line).ok()?.split_once(':')?;
            Some(value.split(part).map(str::trim).filter(|tag| !tag.is_empty()))
        };
        self.lines().filter_map(tags).flatten()
    }

    /// Checks `head` against what was asked.
    pub(crate) fn new(
        head: &ResponseHead<'_, '_>,
        ask: &Ask<'_>,
        (requested_unix_ms, received_unix_ms): (u64, u64),
    ) -> Result<Self, Fault> {
        let now = received_unix_ms / 1000;
        let date = |field| first(head, field).and_then(|value| HttpDate::parse(value, now));
        let part = part_of(head, ask)?;
        let mut fields = Vec::new();
        write_kept_fields(&mut fields, head, is_of_this_answer);
        let mut new = Self {
            status: head.status,
            total_bytes: part.total_bytes,
            start: part.start,
            end: part.end,
            is_open_ended: head.framing == ResponseFraming::UntilClose && part.end.is_none(),
            etag: first(head, Known::Etag).and_then(etag_of),
            last_modified: date(Known::LastModified).map(|date| date.0),
            content_type: head.fields.known(Known::ContentType).map(<[u8]>::to_vec),
            vary: vary_of(head),
            cache_control: CacheControl::parse(head.fields.all("cache-control")),
            age_s: head.fields.known(Known::Age).and_then(delta_seconds),
            date: date(Known::Date).map(|date| date.0),
            // RFC 9111 5.3: an invalid date, "0" above all, is in the past.
            expires: head
                .fields
                .known(Known::Expires)
                .map(|_| date(Known::Expires).map_or(0, |date| date.0)),
            sets_cookie: head.fields.known(Known::SetCookie).is_some(),
            fields,
            requested_unix_ms,
            received_unix_ms,
        };
        new.adopt_pinned_date(ask);
        Ok(new)
    }

    /// RFC 9110 15.3.7: a 206 to If-Range may leave out fields that the asker
    /// knows, Last-Modified among them, but no entity tag. The 206 itself says
    /// that the date still holds.
    fn adopt_pinned_date(&mut self, ask: &Ask<'_>) {
        if let Condition::Pinned(Validators { etag: "", last_modified }) = ask.condition
            && self.status == 206
            && self.etag.is_none()
            && self.last_modified.is_none()
        {
            self.last_modified = last_modified;
        }
    }
}

/// Which bytes of the object follow, and its length.
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

/// RFC 9110 15.3.7: one part, from where it was asked for, at most as long.
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

/// `bytes 0-9/100`, `bytes 0-9/*` or `bytes */100` (RFC 9110 14.4): the range,
/// not empty, and the length of the whole.
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

/// Digits only: `str::parse` takes a sign.
fn number(digits: &str) -> Option<u64> {
    digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok())?
}

/// Value of a field that may stand in one line only; `None` if it is in more.
fn first<'b>(head: &ResponseHead<'_, 'b>, field: Known) -> Option<&'b [u8]> {
    let mut values = head.fields.known_all(field);
    let value = values.next()?;
    values.next().is_none().then_some(value)
}

/// RFC 9110 8.8.3: quotes around neither quotes nor spaces. Anything else can't
/// be compared by the rules, so it is no tag.
fn etag_of(value: &[u8]) -> Option<String> {
    let quoted = value.strip_prefix(b"W/").unwrap_or(value);
    let opaque = quoted.strip_prefix(b"\"")?.strip_suffix(b"\"")?;
    let is_opaque = opaque.iter().all(|byte| byte.is_ascii_graphic() && *byte != b'"');
    is_opaque.then(|| String::from_utf8_lossy(value).into_owned())
}

fn vary_of(head: &ResponseHead<'_, '_>) -> Vec<String> {
    let names =
        head.fields.known_all(Known::Vary).flat_map(|value| value.split(|byte| *byte == b','));
    let lower = names.map(|name| String::from_utf8_lossy(name.trim_ascii()).to_ascii_lowercase());
    lower.filter(|name| !name.is_empty()).collect()
}

/// Fields that a later reply from memory must not repeat.
fn is_of_this_answer(name: &[u8]) -> bool {
    match Known::of(name) {
        Some(Known::Date | Known::Age | Known::ContentRange) => true,
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
        assert_eq!((head.age_s, head.date, head.expires), (Some(7), Some(9), Some(0)));
        assert_eq!(head.vary, ["accept-encoding", "origin"]);
        let kept = String::from_utf8(head.fields).unwrap();
        assert!(kept.contains("X-End: 2\r\n") && kept.contains("ETag: \"a\"\r\n"));
        for gone in ["X-Hop", "Connection", "Content-Length", "Date:", "Age"] {
            assert!(!kept.contains(gone), "{gone}");
        }
    }

    #[test]
    fn tags_are_read_from_both_fields() {
        let fields = "Surrogate-Key: a  b\r\ncache-tag: c d , e,,\r\nX-Other: f\r\n\
            CACHE-TAG: a\r\nSurrogate-Key:\r\n";
        let head = read(200, fields, &Ask::default()).unwrap();
        assert_eq!(head.tags().collect::<Vec<_>>(), ["a", "b", "c d", "e", "a"]);
    }

    #[test]
    fn a_head_that_is_handed_on_says_the_same_and_is_older() {
        let fields = "Content-Range: bytes 0-4/9\r\nETag: \"a\"\r\nAge: 7\r\n\
            Cache-Control: max-age=60\r\nX-Own: 1\r\n\
            Date: Thu, 01 Jan 1970 00:00:01 GMT\r\n";
        let head = read(206, fields, &ranged(0..5)).unwrap();
        let handed_on = Head::from_text(&head.to_text(12_000), 12_500).unwrap();
        assert_eq!((handed_on.status, handed_on.total_bytes), (200, Some(9)));
        assert_eq!((handed_on.age_s, handed_on.date), (Some(18), Some(1)));
        assert_eq!(handed_on.received_unix_ms, 12_500);
        assert_eq!(
            (&handed_on.etag, handed_on.cache_control, &handed_on.fields),
            (&head.etag, head.cache_control, &head.fields)
        );
        assert_eq!(Head::from_text(b"HTTP/1.1 200 OK\r\n", 0), None);
    }

    #[test]
    fn partial_responses_are_of_what_was_asked() {
        let part = |fields: &str, range| read(206, fields, &ranged(range));
        let head = part("Content-Length: 10\r\nContent-Range: bytes 5-14/20\r\n", 5..15).unwrap();
        assert_eq!((head.total_bytes, head.start, head.end), (Some(20), 5, Some(15)));
        let head = part("Content-Range: bytes 5-14/*\r\n", 5..99).unwrap();
        assert_eq!((head.total_bytes, head.end, head.is_open_ended), (None, Some(15), false));
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
            assert_eq!(head.etag, None, "{etag}");
        }
        let head = read(200, "ETag: W/\"\"\r\n", &Ask::default()).unwrap();
        assert_eq!(head.etag.as_deref(), Some("W/\"\""));
    }

    #[test]
    fn a_pinned_date_needs_no_repetition_and_a_tag_does() {
        let part = "Content-Range: bytes 0-4/9\r\n";
        let pinned = |etag| {
            let version = Validators { etag, last_modified: Some(3) };
            Ask { condition: Condition::Pinned(version), ..ranged(0..5) }
        };
        assert_eq!(read(206, part, &pinned("")).unwrap().last_modified, Some(3));
        assert_eq!(read(206, part, &pinned("\"a\"")).unwrap().last_modified, None);
        assert_eq!(read(200, "", &pinned("")).unwrap().last_modified, None);
    }
}
