//! The parts of a response head that matter to a cache, parsed once.

use skep_http::{Known, Validators};

use crate::directives::{ResponseDirectives, TARGETED_FIELDS};
use crate::list::{date, delta_seconds, members};
use crate::vary::VaryNames;

/// A line of a head: name and value.
pub type FieldLine<'f> = (&'f [u8], &'f [u8]);

/// The times of an exchange, in milliseconds since the Unix epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExchangeTimes {
    /// When the request was sent.
    pub requested_unix_ms: u64,
    /// When the response head was complete.
    pub received_unix_ms: u64,
}

/// The parts of a response head that matter to a cache.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResponseMeta {
    /// Status code, 200 to 599.
    pub status: u16,
    /// The times of the exchange.
    pub times: ExchangeTimes,
    /// Entity tag with its quotes, prefixed with `W/` if weak.
    pub etag: Option<String>,
    /// Last-Modified, in seconds since the Unix epoch.
    pub last_modified: Option<u64>,
    /// Date, likewise.
    pub date: Option<u64>,
    /// Expires, likewise; 0 if the field is invalid (RFC 9111 5.3).
    pub expires: Option<u64>,
    /// Age: seconds for which upstream caches stored it.
    pub age_s: Option<u64>,
    /// The request fields that it depends on.
    pub vary: VaryNames,
    /// The directives, from Cache-Control or from a targeted field.
    pub directives: ResponseDirectives,
    /// Whether the directives are from a targeted field: then Cache-Control and Expires are ignored
    /// (RFC 9213 2.1).
    pub is_targeted: bool,
    /// Whether it sets a cookie: it may be meant for one client.
    pub sets_cookie: bool,
    /// Whether it is an event stream, which does not end.
    pub is_event_stream: bool,
    /// Whether only the end of the connection delimits the body: a truncated one looks complete.
    /// Set by the caller.
    pub is_open_ended: bool,
}

impl ResponseMeta {
    /// Parses a head.
    pub fn parse<'f>(
        status: u16,
        fields: impl Iterator<Item = FieldLine<'f>> + Clone,
        times: ExchangeTimes,
    ) -> Self {
        let now_unix_s = times.received_unix_ms / 1000;
        // Each name is classified once.
        let known = |(name, value)| Known::of(name).map(|known| (known, value));
        let known: Vec<_> = fields.clone().filter_map(known).collect();
        let all = |wanted| {
            known.iter().filter(move |(known, _)| *known == wanted).map(|(_, value)| *value)
        };
        let date_of = |wanted| single(all(wanted)).and_then(|value| date(value, now_unix_s));
        let mut targeted = TARGETED_FIELDS
            .iter()
            .map(|name| ResponseDirectives::parse_targeted(values(fields.clone(), name)));
        let targeted = targeted.find_map(|directives| directives);
        let has = |wanted| all(wanted).next().is_some();
        Self {
            status,
            times,
            etag: single(all(Known::Etag)).and_then(etag_of),
            last_modified: date_of(Known::LastModified),
            date: date_of(Known::Date),
            // An invalid date, especially "0", or two dates count as a time in the past.
            expires: has(Known::Expires).then(|| date_of(Known::Expires).unwrap_or(0)),
            // RFC 9111 5.1: the first member of a list; an invalid value is ignored.
            age_s: all(Known::Age).flat_map(members).next().and_then(delta_seconds),
            vary: VaryNames::parse(all(Known::Vary)),
            is_targeted: targeted.is_some(),
            directives: targeted
                .unwrap_or_else(|| ResponseDirectives::parse(all(Known::CacheControl))),
            sets_cookie: has(Known::SetCookie),
            is_event_stream: all(Known::ContentType).any(is_event_stream),
            is_open_ended: false,
        }
    }

    /// The validators of the object.
    pub fn validators(&self) -> Validators<'_> {
        let etag = self.etag.as_deref().unwrap_or("");
        Validators { etag, last_modified: self.last_modified }
    }

    /// Whether it can be validated.
    pub fn has_validator(&self) -> bool {
        self.etag.is_some() || self.last_modified.is_some()
    }

    /// When it was generated, in seconds since the Unix epoch; the time of receipt if there is no
    /// Date (RFC 9110 6.6.1).
    pub fn made_unix_s(&self) -> u64 {
        self.date.unwrap_or(self.times.received_unix_ms / 1000)
    }

    /// Its age when received, in milliseconds (RFC 9111 4.2.3: corrected_initial_age).
    pub fn initial_age_ms(&self) -> u64 {
        let ExchangeTimes { requested_unix_ms, received_unix_ms } = self.times;
        let date_ms = self.date.map_or(received_unix_ms, |date| date.saturating_mul(1000));
        // Dates are whole seconds: a fraction is no age.
        let apparent_ms = received_unix_ms.saturating_sub(date_ms) / 1000 * 1000;
        let delay_ms = received_unix_ms.saturating_sub(requested_unix_ms);
        let corrected_ms = (self.age_s.unwrap_or(0) * 1000).saturating_add(delay_ms);
        apparent_ms.max(corrected_ms)
    }

    /// Bytes that identify the version of an object of `total_bytes`: as long as they and its
    /// length are equal, its bytes are, so that parts of two responses can be combined (RFC 9111
    /// 3.4). (With constant build tags, or origins that disagree, one tag may occur with several
    /// lengths.) The strong entity tag; or else Last-Modified and length, if the modification is
    /// older than the response, since a date cannot distinguish two changes within a second (RFC
    /// 9110 8.8.2.2). `None` if parts cannot be combined.
    pub fn version(&self, total_bytes: Option<u64>) -> Option<Vec<u8>> {
        let etag = self.etag.as_deref().unwrap_or("");
        if etag.starts_with('"') {
            return Some(format!("tag {etag}").into_bytes());
        }
        let (modified, bytes) = (self.last_modified?, total_bytes?);
        // A different weak tag still indicates another version.
        (modified < self.made_unix_s())
            .then(|| format!("date {modified} {bytes} {etag}").into_bytes())
    }

    /// Memory on the heap, in bytes.
    pub fn heap_bytes(&self) -> usize {
        self.etag.as_ref().map_or(0, String::capacity)
            + self.vary.heap_bytes()
            + self.directives.heap_bytes()
    }
}

/// The values of all lines of a field; its name is passed in lower case.
pub(crate) fn values<'f>(
    fields: impl Iterator<Item = FieldLine<'f>> + Clone,
    wanted: &'static str,
) -> impl Iterator<Item = &'f [u8]> + Clone {
    let is_it = move |line: &FieldLine<'f>| line.0.eq_ignore_ascii_case(wanted.as_bytes());
    fields.filter(is_it).map(|(_, value)| value)
}

/// The value of a field that must occur only once; `None` if there are more lines.
fn single<'f>(mut values: impl Iterator<Item = &'f [u8]>) -> Option<&'f [u8]> {
    let value = values.next()?;
    values.next().is_none().then_some(value)
}

/// RFC 9110 8.8.3: quotes around bytes other than quotes and spaces. Any other value cannot be
/// compared by the rules, so it is ignored.
fn etag_of(value: &[u8]) -> Option<String> {
    let quoted = value.strip_prefix(b"W/").unwrap_or(value);
    let opaque = quoted.strip_prefix(b"\"")?.strip_suffix(b"\"")?;
    let is_opaque = opaque.iter().all(|byte| byte.is_ascii_graphic() && *byte != b'"');
    is_opaque.then(|| String::from_utf8_lossy(value).into_owned())
}

fn is_event_stream(content_type: &[u8]) -> bool {
    let kind = content_type.split(|byte| *byte == b';').next().unwrap_or(content_type);
    kind.trim_ascii().eq_ignore_ascii_case(b"text/event-stream")
}
