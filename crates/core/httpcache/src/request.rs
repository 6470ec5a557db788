//! The parts of a request that matter to a cache.

use skep_http::{BodyFraming, Known, Method, RequestHead};

use crate::cookies::{cookies_of_line, is_plain, may_be_read_like};
use crate::directives::RequestDirectives;
use crate::list::members;
use crate::policy::CachePolicy;
use crate::rule::CachingRule;

/// The parts of a request that matter to a cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestMeta<'a> {
    pub method: Method<'a>,
    /// Its directives, from Cache-Control or Pragma.
    pub directives: RequestDirectives,
    /// Whether it carries credentials (RFC 9111 3.5).
    pub has_authorization: bool,
    /// Whether it has a cookie that the policy does not ignore.
    pub has_cookie: bool,
    /// The rule by which it bypasses the cache, because of a cookie or field, if any.
    pub bypass: Option<CachingRule>,
    /// Whether it has a body, which is part of no key.
    pub has_body: bool,
    /// Whether it requests an upgrade or an event stream: never answered from memory.
    pub is_stream: bool,
}

impl RequestMeta<'static> {
    /// A GET without any client's data, as used to fill static content.
    pub const PLAIN_GET: Self = Self {
        method: Method::Get,
        directives: RequestDirectives {
            max_age_s: None,
            max_stale_s: None,
            min_fresh_s: None,
            no_cache: false,
            no_store: false,
            only_if_cached: false,
        },
        has_authorization: false,
        has_cookie: false,
        bypass: None,
        has_body: false,
        is_stream: false,
    };
}

impl<'a> RequestMeta<'a> {
    /// Parses a request.
    pub fn of(head: &RequestHead<'_, 'a>, policy: &CachePolicy) -> Self {
        let fields = &head.fields;
        let control = fields.known_all(Known::CacheControl);
        let is_events = |accepts: &[u8]| accepts.eq_ignore_ascii_case(b"text/event-stream");
        Self {
            method: head.method,
            directives: RequestDirectives::parse(control, fields.all("pragma")),
            has_authorization: fields.known(Known::Authorization).is_some(),
            has_cookie: fields.known_all(Known::Cookie).any(|line| counts(line, policy)),
            bypass: bypass(head, policy),
            has_body: head.framing != BodyFraming::None,
            is_stream: head.upgrade.is_some()
                || fields.known_all(Known::Accept).flat_map(members).any(is_events),
        }
    }

    /// Whether a stored response can answer it, or its response can be stored, at all.
    pub fn is_for_cache(&self) -> bool {
        let is_plain = !self.has_body && !self.is_stream && self.bypass.is_none();
        matches!(self.method, Method::Get | Method::Head) && is_plain
    }
}

/// Whether a Cookie line has a cookie that is not ignored. Ambiguous ones count, too.
fn counts(line: &[u8], policy: &CachePolicy) -> bool {
    cookies_of_line(line).any(|cookie| !is_plain(cookie) || !is_ignored(cookie.0, policy))
}

fn bypass(head: &RequestHead<'_, '_>, policy: &CachePolicy) -> Option<CachingRule> {
    let mut lines = head.fields.known_all(Known::Cookie);
    if !policy.bypass_cookies.is_empty() && lines.any(|line| bypasses(line, policy)) {
        return Some(CachingRule::BypassCookie);
    }
    let is_named = |name: &str| policy.bypass_fields.iter().any(|it| it.eq_ignore_ascii_case(name));
    let has_field =
        !policy.bypass_fields.is_empty() && head.fields.iter().any(|(name, _)| is_named(name));
    has_field.then_some(CachingRule::BypassField)
}

/// Whether a Cookie line has a cookie that some application may read as one of
/// [`CachePolicy::bypass_cookies`].
fn bypasses(line: &[u8], policy: &CachePolicy) -> bool {
    let is_named =
        |name| policy.bypass_cookies.iter().any(|pattern| may_be_read_like(name, pattern));
    cookies_of_line(line)
        .any(|cookie| !is_plain(cookie) || (is_named(cookie.0) && !is_ignored(cookie.0, policy)))
}

fn is_ignored(name: &[u8], policy: &CachePolicy) -> bool {
    policy.cookies_ignored.iter().any(|pattern| is_like(name, pattern))
}

/// Whether a name matches `pattern`, in which a trailing `*` matches any suffix.
pub(crate) fn is_like(name: &[u8], pattern: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(begin) => name.starts_with(begin.as_bytes()),
        None => name == pattern.as_bytes(),
    }
}
