//! What of a response's head matters to a cache, parsed once.

use skep_http::{Known, Validators};

use crate::directives::{ResponseDirectives, TARGETED_FIELDS};
use crate::list::{date, delta_seconds, members};
use crate::vary::VaryNames;

/// A line of a head: name and value.
pub type FieldLine<'f> = (&'f [u8], &'f [u8]);

/// When an exchange took place, in milliseconds since the Unix epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExchangeTimes {
    /// When the request was sent.
    pub requested_unix_ms: u64,
    /// When the head of its response was complete.
    pub received_unix_ms: u64,
}

/// What of a response's head matters to a cache.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResponseMeta {
    /// Status code, 200 to 599.
    pub status: u16,
    /// When it was requested and received.
    pub times: ExchangeTimes,
    /// Entity tag with its quotes, `W/` in front when weak.
    pub etag: Option<String>,
    /// Last change, in seconds since the Unix epoch.
    pub last_modified: Option<u64>,
    /// When it was generated, likewise.
    pub date: Option<u64>,
    /// Until when it is fresh, likewise; 0 if the field can't be read (RFC 9111 5.3).
    pub expires: Option<u64>,
    /// Seconds for which upstream caches stored it.
    pub age_s: Option<u64>,
    /// What it depends on.
    pub vary: VaryNames,
    /// What a cache may do with it: by Cache-Control, or by a targeted field.
    pub directives: ResponseDirectives,
    /// Whether these directives are of a targeted field: then Cache-Control and Expires are
    /// ignored (RFC 9213 2.1).
    pub is_targeted: bool,
    /// It sets a cookie: meant for one client.
    pub sets_cookie: bool,
    /// It is a stream of events, which does not end.
    pub is_event_stream: bool,
    /// Only the end of the connection delimits the body: a truncated one looks complete. The
    /// caller knows.
    pub is_open_ended: bool,
}

impl ResponseMeta {
    /// Reads a head.
    pub fn parse<'f>(
        status: u16,
        fields: impl Iterator<Item = FieldLine<'f>> + Clone,
        times: ExchangeTimes,
    ) -> Self {
        let now_unix_s = times.received_unix_ms / 1000;
        // Each name is looked at once.
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
            // An invalid date, "0" above all, or two are in the past.
            expires: has(Known::Expires).then(|| date_of(Known::Expires).unwrap_or(0)),
            // RFC 9111 5.1: the first member of a list; what can't be read is ignored.
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

    /// When it was generated, in seconds since the Unix epoch; without a Date, when it was
    /// received (RFC 9110 6.6.1).
    pub fn made_unix_s(&self) -> u64 {
        self.date.unwrap_or(self.times.received_unix_ms / 1000)
    }

    /// Its age when it came, in milliseconds (RFC 9111 4.2.3: corrected_initial_age).
    pub fn initial_age_ms(&self) -> u64 {
        let ExchangeTimes { requested_unix_ms, received_unix_ms } = self.times;
        let date_ms = self.date.map_or(received_unix_ms, |date| date.saturating_mul(1000));
        // Dates are whole seconds: the rest of one is no age.
        let apparent_ms = received_unix_ms.saturating_sub(date_ms) / 1000 * 1000;
        let delay_ms = received_unix_ms.saturating_sub(requested_unix_ms);
        let corrected_ms = (self.age_s.unwrap_or(0) * 1000).saturating_add(delay_ms);
        apparent_ms.max(corrected_ms)
    }

    /// Bytes that name the version of an object of `total_bytes`: as long as they and its length
    /// are equal, its bytes are, so that parts of two responses can be joined (RFC 9111 3.4).
    /// (Constant build tags, or origins that disagree, make one tag of several lengths.) The strong
    /// entity tag; else last change and length, if the change is older than the answer, for a date
    /// tells no two changes of one second apart (RFC 9110 8.8.2.2). `None`: parts can't be joined.
    pub fn version(&self, total_bytes: Option<u64>) -> Option<Vec<u8>> {
        let etag = self.etag.as_deref().unwrap_or("");
        if etag.starts_with('"') {
            return Some(format!("tag {etag}").into_bytes());
        }
        let (modified, bytes) = (self.last_modified?, total_bytes?);
        // A weak tag that differs says at least that much.
        (modified < self.made_unix_s())
            .then(|| format!("date {modified} {bytes} {etag}").into_bytes())
    }

    /// Bytes on the heap.
    pub fn heap_bytes(&self) -> usize {
        self.etag.as_ref().map_or(0, String::capacity)
            + self.vary.heap_bytes()
            + self.directives.heap_bytes()
    }
}

/// The values of all lines of a field, which is given in lower case.
pub(crate) fn values<'f>(
    fields: impl Iterator<Item = FieldLine<'f>> + Clone,
    wanted: &'static str,
) -> impl Iterator<Item = &'f [u8]> + Clone {
    let is_it = move |line: &FieldLine<'f>| line.0.eq_ignore_ascii_case(wanted.as_bytes());
    fields.filter(is_it).map(|(_, value)| value)
}

/// The value of a field that may stand in one line only; `None` if it is in more.
fn single<'f>(mut values: impl Iterator<Item = &'f [u8]>) -> Option<&'f [u8]> {
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

fn is_event_stream(content_type: &[u8]) -> bool {
    let kind = content_type.split(|byte| *byte == b';').next().unwrap_or(content_type);
    kind.trim_ascii().eq_ignore_ascii_case(b"text/event-stream")
}
