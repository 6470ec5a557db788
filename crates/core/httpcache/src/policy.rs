//! The settings of a site's cache: everything that RFC 9111 leaves to the operator.

use std::ops::RangeInclusive;

use crate::limits::{HEURISTIC_MS_MAX, HEURISTIC_PERCENT};

/// The settings for storing and reusing responses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CachePolicy {
    /// Statuses of responses that may be stored.
    pub statuses: StoredStatuses,
    /// How responses with Set-Cookie are handled.
    pub set_cookie: SetCookiePolicy,
    /// How requests with Cookie are handled.
    pub cookies: CookiePolicy,
    /// Names of cookies to ignore, perhaps with a trailing `*`: those of analytics.
    pub cookies_ignored: Vec<String>,
    /// Names of cookies, likewise, that make a request bypass the cache, unless they are ignored.
    pub bypass_cookies: Vec<String>,
    /// Names of fields, in any case, that make a request bypass the cache.
    pub bypass_fields: Vec<String>,
    /// Names in Vary, in lower case, that prevent storing: their values are as many as clients, so
    /// that a variant would serve no other client. Not for fields that are part of the primary key.
    pub vary_refused: Vec<String>,
    /// Whether `no-cache="..."` and `private="..."` apply only to the listed fields, which are then
    /// not stored; otherwise they apply to the whole response (RFC 9111 5.2.2.4 and 5.2.2.7 allow
    /// both).
    pub honours_field_names: bool,
    /// The heuristic lifetime of responses without an explicit one (RFC 9111 4.2.2).
    pub heuristic: Option<HeuristicLifetime>,
    /// Lifetime of successful responses without an explicit one, from their receipt; 0 for none.
    pub default_ms: u64,
    /// Whether it also applies to responses without a validator; otherwise a response without any
    /// caching information, which may be anything, is not stored.
    pub default_without_validator: bool,
    /// Lifetime of 404, 405, 410 and 451 without an explicit one, from their receipt; 0 for none.
    pub negative_ms: u64,
    /// Lifetimes of responses without an explicit one, by status; they override the other settings.
    pub by_status: StatusLifetimes,
    /// How long a stale response that has been fresh may be used while it is validated, unless the
    /// response specifies it.
    pub stale_while_ms: u64,
    /// How long a stale response may be used if the origin fails, unless the response specifies it.
    pub stale_error_ms: u64,
    /// How long a stale response may be used if the origin cannot be reached, in addition to what
    /// the response allows (RFC 9111 4.2.4).
    pub stale_on_disconnect_ms: u64,
    /// Statuses that count as a failure of the origin (RFC 5861 4).
    pub failures: FailureStatuses,
    /// Request directives that are obeyed.
    pub obeyed: ObeyedDirectives,
}

impl CachePolicy {
    /// The configured lifetime of responses with this status and no explicit lifetime, in
    /// milliseconds.
    pub fn status_lifetime_ms(&self, status: u16) -> Option<u64> {
        self.by_status.of(status, self.statuses)
    }

    /// Whether responses with this status may be stored.
    pub fn stores_status(&self, status: u16) -> bool {
        self.statuses.has(status) || self.status_lifetime_ms(status).is_some_and(|ms| ms > 0)
    }

    /// Settings that are safe for any application: nothing is stored unless the application allows
    /// it.
    pub fn safe() -> Self {
        Self {
            statuses: StoredStatuses::Usual,
            set_cookie: SetCookiePolicy::Never,
            cookies: CookiePolicy::Bypass,
            cookies_ignored: Vec::new(),
            bypass_cookies: Vec::new(),
            bypass_fields: Vec::new(),
            vary_refused: ["cookie", "user-agent"].map(str::to_owned).into(),
            honours_field_names: true,
            heuristic: None,
            default_ms: 0,
            default_without_validator: false,
            negative_ms: 0,
            by_status: StatusLifetimes::default(),
            stale_while_ms: 0,
            stale_error_ms: 0,
            stale_on_disconnect_ms: 0,
            failures: FailureStatuses::Rfc5861,
            obeyed: ObeyedDirectives::SAFE,
        }
    }
}

/// Lifetimes of responses without an explicit one, by status.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StatusLifetimes {
    exact: Vec<(u16, u64)>,
    classes: Vec<(u16, u64)>,
}

impl StatusLifetimes {
    /// Lifetimes in milliseconds, by status, and by class as its first digit.
    pub fn new(exact: Vec<(u16, u64)>, classes: Vec<(u16, u64)>) -> Self {
        Self { exact, classes }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.exact.is_empty() && self.classes.is_empty()
    }

    /// The lifetime of `status` in milliseconds; that of its class only if it is one of `stored`: a
    /// status that an odd request can provoke must be listed explicitly.
    pub fn of(&self, status: u16, stored: StoredStatuses) -> Option<u64> {
        let is_part = matches!(status, 206 | 304);
        let exact = self.exact.iter().find(|(known, _)| *known == status && !is_part);
        let class =
            || self.classes.iter().find(|(digit, _)| *digit == status / 100 && stored.has(status));
        exact.or_else(class).map(|(_, lifetime_ms)| *lifetime_ms)
    }
}

/// Statuses of responses that may be stored; never 206 and 304 unless listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoredStatuses {
    /// Successes, redirections, and 404, 405, 410, 451: statuses that odd request fields do not
    /// cause (cache-poisoned denial of service: Nguyen et al., CCS 2019).
    Usual,
    /// Any final status.
    Any,
    /// Only these.
    Only(&'static [u16]),
}

impl StoredStatuses {
    /// Whether it contains this status.
    pub fn has(self, status: u16) -> bool {
        match self {
            Self::Only(statuses) => statuses.contains(&status),
            Self::Any => (200..600).contains(&status) && !matches!(status, 206 | 304),
            Self::Usual => match status {
                206 | 304 => false,
                404 | 405 | 410 | 451 => true,
                status => (200..400).contains(&status),
            },
        }
    }
}

/// How responses with Set-Cookie are handled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetCookiePolicy {
    /// They are not stored, as in all widely used caches (RFC 9111 7.3 warns, but allows it).
    Never,
    /// Stored only if the response is explicitly for shared caches: `public`, `s-maxage` or a
    /// targeted field.
    Shared,
    /// Stored as if the field were absent.
    Always,
}

/// How requests with a cookie that is not ignored are handled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CookiePolicy {
    /// They use and create stored responses only if the lifetime is set by the application.
    Bypass,
    /// They are handled as if the field were absent.
    Ignore,
}

/// A lifetime from the time since the last change (RFC 9111 4.2.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeuristicLifetime {
    /// The fraction of that time, in percent.
    pub percent: u64,
    /// Longest lifetime, in milliseconds.
    pub ms_max: u64,
}

impl Default for HeuristicLifetime {
    fn default() -> Self {
        Self { percent: HEURISTIC_PERCENT, ms_max: HEURISTIC_MS_MAX }
    }
}

/// Statuses that count as a failure of the origin, so that a stale response may be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureStatuses {
    /// 500, 502, 503, 504 (RFC 5861 4).
    Rfc5861,
    /// Also all other 5xx, and 408, 425, 429: temporary states that say nothing about the object.
    Overload,
}

impl FailureStatuses {
    const SERVER: RangeInclusive<u16> = 500..=599;

    /// Whether it contains this status.
    pub fn has(self, status: u16) -> bool {
        match self {
            Self::Rfc5861 => matches!(status, 500 | 502..=504),
            Self::Overload => matches!(status, 408 | 425 | 429) || Self::SERVER.contains(&status),
        }
    }
}

/// Request directives that the cache obeys: all of them are advisory (RFC 9111 5.2.1), and
/// `no-cache` and `max-age` let every reload reach the origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObeyedDirectives {
    pub no_cache: bool,
    pub no_store: bool,
    pub max_age: bool,
    pub min_fresh: bool,
    pub max_stale: bool,
    pub only_if_cached: bool,
}

impl ObeyedDirectives {
    /// Those that cost the origin nothing.
    pub const SAFE: Self = Self {
        no_cache: false,
        no_store: true,
        max_age: false,
        min_fresh: false,
        max_stale: false,
        only_if_cached: true,
    };
    /// All of them.
    pub const ALL: Self = Self {
        no_cache: true,
        no_store: true,
        max_age: true,
        min_fresh: true,
        max_stale: true,
        only_if_cached: true,
    };
}
