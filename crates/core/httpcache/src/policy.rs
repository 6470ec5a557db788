//! What RFC 9111 leaves to the operator, as one value: the settings of a site's cache.

use std::ops::RangeInclusive;

use crate::limits::{HEURISTIC_MS_MAX, HEURISTIC_PERCENT};

/// The settings by which responses are stored and reused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CachePolicy {
    /// Statuses of responses that may be stored.
    pub statuses: StoredStatuses,
    /// What happens to responses with Set-Cookie.
    pub set_cookie: SetCookiePolicy,
    /// What happens to requests with Cookie.
    pub cookies: CookiePolicy,
    /// Names of cookies that do not count, each with `*` at its end or not: those of analytics.
    pub cookies_ignored: Vec<String>,
    /// Names of cookies, likewise, with one of which a request is none for the cache, unless it is ignored.
    pub bypass_cookies: Vec<String>,
    /// Names of fields, in any case, with one of which a request is none for the cache.
    pub bypass_fields: Vec<String>,
    /// Names in Vary, in lower case, with which a response is not stored: their values are as many as
    /// clients, so that a variant serves nobody else. Not what is part of the primary key.
    pub vary_refused: Vec<String>,
    /// Whether `no-cache="..."` and `private="..."` are about those fields only, which are then not
    /// stored; else they are about the whole response (RFC 9111 5.2.2.4 and 5.2.2.7 allow both).
    pub honours_field_names: bool,
    /// The guessed lifetime of what gives none (RFC 9111 4.2.2).
    pub heuristic: Option<HeuristicLifetime>,
    /// Lifetime of successful responses that give none, from their receipt; 0: none.
    pub default_ms: u64,
    /// Whether that is also for those without a validator: else a page without any word on it,
    /// which may be anything, is not stored.
    pub default_without_validator: bool,
    /// Lifetime of 404, 405, 410 and 451 that give none, from their receipt; 0: none.
    pub negative_ms: u64,
    /// Lifetimes of what gives none, by its status: in the place of all others.
    pub by_status: StatusLifetimes,
    /// How long a stale response may be used while it is validated, where it does not say it, and has
    /// been fresh.
    pub stale_while_ms: u64,
    /// How long a stale response may be used if the origin fails, where it does not say it.
    pub stale_error_ms: u64,
    /// How long a stale response may be used where the origin cannot be reached, beside what the
    /// response allows (RFC 9111 4.2.4).
    pub stale_on_disconnect_ms: u64,
    /// Statuses that count as a failure of the origin (RFC 5861 4), beside those of its table.
    pub failures: FailureStatuses,
    /// Directives of requests that are obeyed.
    pub obeyed: ObeyedDirectives,
}

impl CachePolicy {
    /// The lifetime that the settings give to what has this status and none of its own, in milliseconds.
    pub fn status_lifetime_ms(&self, status: u16) -> Option<u64> {
        self.by_status.of(status, self.statuses)
    }

    /// Whether responses with this status may be stored.
    pub fn stores_status(&self, status: u16) -> bool {
        self.statuses.has(status) || self.status_lifetime_ms(status).is_some_and(|ms| ms > 0)
    }

    /// What is safe for any application: nothing is kept without its word.
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

/// Lifetimes of responses that give none, by their status.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StatusLifetimes {
    exact: Vec<(u16, u64)>,
    classes: Vec<(u16, u64)>,
}

impl StatusLifetimes {
    /// Lifetimes in milliseconds, of statuses, and of classes by their first digit.
    pub fn new(exact: Vec<(u16, u64)>, classes: Vec<(u16, u64)>) -> Self {
        Self { exact, classes }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.exact.is_empty() && self.classes.is_empty()
    }

    /// The lifetime of `status` in milliseconds; that of its class, if it is one of `stored`: what an odd
    /// request provokes is meant only if it is named by itself.
    pub fn of(&self, status: u16, stored: StoredStatuses) -> Option<u64> {
        let is_part = matches!(status, 206 | 304);
        let exact = self.exact.iter().find(|(known, _)| *known == status && !is_part);
        let class =
            || self.classes.iter().find(|(digit, _)| *digit == status / 100 && stored.has(status));
        exact.or_else(class).map(|(_, lifetime_ms)| *lifetime_ms)
    }
}

/// Statuses of responses that may be stored; never 206 and 304 but by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoredStatuses {
    /// Successes, redirections, and 404, 405, 410, 451: what a request's odd fields do not cause
    /// (cache-poisoned denial of service: Nguyen et al., CCS 2019).
    Usual,
    /// Any final status.
    Any,
    /// These.
    Only(&'static [u16]),
}

impl StoredStatuses {
    /// Whether it is one of them.
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

/// What happens to responses with Set-Cookie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetCookiePolicy {
    /// They are not stored: no cache in wide use does (RFC 9111 7.3 warns, and allows it).
    Never,
    /// Only where the response is for shared caches: `public`, `s-maxage` or a targeted field.
    Shared,
    /// As if there were no such field.
    Always,
}

/// What happens to requests with a cookie that is not ignored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CookiePolicy {
    /// They see and make stored responses only with a lifetime of the application's own.
    Bypass,
    /// As if there were no such field.
    Ignore,
}

/// A lifetime from the time since the last change (RFC 9111 4.2.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeuristicLifetime {
    /// Its share of that time.
    pub percent: u64,
    /// Its maximum.
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
    /// Also all other 5xx, and 408, 425, 429: a temporary state that says nothing of the object.
    Overload,
}

impl FailureStatuses {
    const SERVER: RangeInclusive<u16> = 500..=599;

    /// Whether it is one of them.
    pub fn has(self, status: u16) -> bool {
        match self {
            Self::Rfc5861 => matches!(status, 500 | 502..=504),
            Self::Overload => matches!(status, 408 | 425 | 429) || Self::SERVER.contains(&status),
        }
    }
}

/// Directives of requests that the cache obeys: all of them are advice (RFC 9111 5.2.1), and
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
