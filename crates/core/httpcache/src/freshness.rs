//! How long a response may be used (RFC 9111 4.2, RFC 5861): its lifetime, its age, and by how much
//! it may be stale. All are durations since its receipt, independent of the caller's clock.

use crate::directives::DirectiveScope;
use crate::policy::CachePolicy;
use crate::response::ResponseMeta;
use crate::rule::CachingRule;

/// How long a response may be used. `resident_ms` in the methods is the time since the receipt of
/// the head, or since its last validation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Freshness {
    /// Its age when it was received (4.2.3: corrected_initial_age).
    pub initial_age_ms: u64,
    /// The age up to which it is fresh (4.2.1); 0 if it must be validated each time.
    pub lifetime_ms: u64,
    /// The source of the lifetime.
    pub source: CachingRule,
    /// The rule that forbids using it stale, if any.
    pub stale_forbidden: Option<CachingRule>,
    /// How long after the lifetime it may be used while it is validated (RFC 5861 3).
    pub while_revalidating_ms: u64,
    /// How long after the lifetime it may be used if the origin fails (RFC 5861 4).
    pub if_error_ms: u64,
    /// How long after the lifetime it may be used if the origin cannot be reached (4.2.4); at least
    /// `if_error_ms`.
    pub on_disconnect_ms: u64,
    /// The age from which it is stale whatever its lifetime: by a soft purge, or as reported by
    /// another cache.
    pub expired_at_age_ms: Option<u64>,
}

impl Freshness {
    /// The freshness of a response.
    pub fn of(meta: &ResponseMeta, policy: &CachePolicy) -> Self {
        let directives = &meta.directives;
        let initial_age_ms = meta.initial_age_ms();
        let (lifetime_ms, source) = lifetime(meta, policy);
        let must_validate = is_set(&directives.no_cache, policy);
        let stale_forbidden = match () {
            () if must_validate => Some(CachingRule::NoCache),
            () if directives.must_revalidate => Some(CachingRule::MustRevalidate),
            () if directives.proxy_revalidate => Some(CachingRule::ProxyRevalidate),
            () if directives.s_maxage_s.is_some() => Some(CachingRule::SMaxageRevalidate),
            () => None,
        };
        // By 5.2.2.10 s-maxage forbids staleness, too; but an origin that explicitly allows it
        // besides s-maxage means it.
        let by_words = matches!(stale_forbidden, None | Some(CachingRule::SMaxageRevalidate));
        let by_policy_ms = |ms: u64| if stale_forbidden.is_none() { ms } else { 0 };
        let grace_ms = |seconds: Option<u64>, policy_ms: u64| match seconds {
            Some(seconds) if by_words => seconds * 1000,
            Some(_) => 0,
            None => by_policy_ms(policy_ms),
        };
        // Otherwise responses that are never fresh would be stored and used by the settings alone.
        let was_fresh = lifetime_ms > 0;
        let may_fail = was_fresh || meta.has_validator();
        let while_ms = if was_fresh { policy.stale_while_ms } else { 0 };
        let error_ms = if may_fail { policy.stale_error_ms } else { 0 };
        let if_error_ms = grace_ms(directives.stale_if_error_s, error_ms);
        Self {
            initial_age_ms,
            lifetime_ms: if must_validate { 0 } else { lifetime_ms },
            source,
            stale_forbidden,
            while_revalidating_ms: grace_ms(directives.stale_while_revalidate_s, while_ms),
            if_error_ms,
            on_disconnect_ms: by_policy_ms(policy.stale_on_disconnect_ms).max(if_error_ms),
            expired_at_age_ms: None,
        }
    }

    /// The same, but stale from this age on, or from an earlier one that is already set.
    #[must_use]
    pub fn expired_at(self, age_ms: u64) -> Self {
        let earlier_ms = self.expired_at_age_ms.unwrap_or(u64::MAX).min(age_ms);
        Self { expired_at_age_ms: Some(earlier_ms), ..self }
    }

    /// The same, as received from another cache, which stated how long it stays fresh, in
    /// milliseconds (`fresh_ms`), `transit_ms` after the request to it. Age in a head is in whole
    /// seconds.
    #[must_use]
    pub fn handed_over(self, fresh_ms: u64, transit_ms: u64) -> Self {
        let age_ms = self.lifetime_ms.checked_sub(fresh_ms).filter(|_| fresh_ms > 0);
        let there_ms = age_ms.unwrap_or(self.initial_age_ms);
        let here = Self { initial_age_ms: there_ms.saturating_add(transit_ms), ..self };
        // The other cache may know of a soft purge.
        if fresh_ms == 0 { here.expired_at(there_ms) } else { here }
    }

    /// The age up to which it is fresh, by its lifetime or by a purge.
    pub fn fresh_until_age_ms(&self) -> u64 {
        self.lifetime_ms.min(self.expired_at_age_ms.unwrap_or(u64::MAX))
    }

    /// Its age (4.2.3: current_age).
    pub fn age_ms(&self, resident_ms: u64) -> u64 {
        self.initial_age_ms.saturating_add(resident_ms)
    }

    /// Whether it is fresh (4.2).
    pub fn is_fresh(&self, resident_ms: u64) -> bool {
        self.age_ms(resident_ms) < self.fresh_until_age_ms()
    }

    /// By how much it is stale; 0 if it is fresh.
    pub fn stale_ms(&self, resident_ms: u64) -> u64 {
        self.age_ms(resident_ms).saturating_sub(self.fresh_until_age_ms())
    }

    /// Whether it may be used while it is validated, or without validation.
    pub fn is_usable_while_revalidating(&self, resident_ms: u64) -> bool {
        self.is_usable(resident_ms, self.while_revalidating_ms)
    }

    /// Whether it may be used if the origin fails.
    pub fn is_usable_if_error(&self, resident_ms: u64) -> bool {
        self.is_usable(resident_ms, self.if_error_ms)
    }

    /// Whether it may be used if the origin can't be reached.
    pub fn is_usable_on_disconnect(&self, resident_ms: u64) -> bool {
        self.is_usable(resident_ms, self.on_disconnect_ms)
    }

    /// Time until it becomes stale, in whole seconds, negative if it is stale: `ttl` of RFC 9211
    /// 2.4.
    pub fn ttl_s(&self, resident_ms: u64) -> i64 {
        let seconds = |ms: u64| i64::try_from(ms / 1000).unwrap_or(i64::MAX);
        let age_ms = self.age_ms(resident_ms);
        let until_ms = self.fresh_until_age_ms();
        match until_ms.checked_sub(age_ms) {
            Some(left_ms) => seconds(left_ms),
            None => -seconds(age_ms - until_ms),
        }
    }

    /// The residence time up to which it is fresh.
    pub fn fresh_until_ms(&self) -> u64 {
        self.until_ms(0)
    }

    /// The residence time up to which it may be used while it is validated; at least
    /// [`Self::fresh_until_ms`].
    pub fn while_revalidating_until_ms(&self) -> u64 {
        self.until_ms(self.while_revalidating_ms)
    }

    /// The residence time up to which it may be used if the origin fails; likewise.
    pub fn if_error_until_ms(&self) -> u64 {
        self.until_ms(self.if_error_ms)
    }

    /// Whether the lifetime is set by the application, not by the settings.
    pub fn is_explicit(&self) -> bool {
        use CachingRule::{Expires, MaxAge, SMaxage, Targeted};
        matches!(self.source, Targeted | SMaxage | MaxAge | Expires)
    }

    /// Whether the lifetime comes only from the settings.
    pub fn is_of_settings(&self) -> bool {
        use CachingRule::{DefaultLifetime, NegativeLifetime, StatusLifetime};
        matches!(self.source, DefaultLifetime | NegativeLifetime | StatusLifetime)
    }

    fn is_usable(&self, resident_ms: u64, grace_ms: u64) -> bool {
        self.is_fresh(resident_ms) || self.stale_ms(resident_ms) < grace_ms
    }

    fn until_ms(&self, grace_ms: u64) -> u64 {
        let until_ms = self.fresh_until_age_ms();
        until_ms.saturating_add(grace_ms).saturating_sub(self.initial_age_ms)
    }
}

/// Whether a directive that may list fields applies to the response under this policy.
pub(crate) fn is_set(scope: &DirectiveScope, policy: &CachePolicy) -> bool {
    match scope {
        DirectiveScope::Nothing => false,
        DirectiveScope::Fields(_) => !policy.honours_field_names,
        DirectiveScope::Response => true,
    }
}

/// Statuses that may be stored with a heuristic lifetime, without an explicit one (RFC 9110 15.1).
pub(crate) fn is_heuristic_status(status: u16) -> bool {
    matches!(status, 200 | 203 | 204 | 206 | 300 | 301 | 308 | 404 | 405 | 410 | 414 | 501)
}

/// RFC 9111 4.2.1, for a shared cache: the lifetime in milliseconds, and its rule.
fn lifetime(meta: &ResponseMeta, policy: &CachePolicy) -> (u64, CachingRule) {
    let directives = &meta.directives;
    let by_rule = |seconds: u64, rule| {
        (seconds * 1000, if meta.is_targeted { CachingRule::Targeted } else { rule })
    };
    if let Some(seconds) = directives.s_maxage_s {
        return by_rule(seconds, CachingRule::SMaxage);
    }
    if let Some(seconds) = directives.max_age_s {
        return by_rule(seconds, CachingRule::MaxAge);
    }
    if let Some(expires) = meta.expires.filter(|_| !meta.is_targeted) {
        return by_rule(expires.saturating_sub(meta.made_unix_s()), CachingRule::Expires);
    }
    guessed(meta, policy)
}

/// RFC 9111 4.2.2: the lifetime without an explicit one, if the status or `public` allows it.
fn guessed(meta: &ResponseMeta, policy: &CachePolicy) -> (u64, CachingRule) {
    // Lifetimes from the settings count from the receipt, minus the time in upstream caches.
    let from_receipt = |lifetime_ms: u64| {
        let upstream_ms = meta.age_s.unwrap_or(0) * 1000;
        lifetime_ms.saturating_add(meta.initial_age_ms()).saturating_sub(upstream_ms)
    };
    match policy.status_lifetime_ms(meta.status) {
        Some(0) => return (0, CachingRule::NoLifetime),
        Some(lifetime_ms) => return (from_receipt(lifetime_ms), CachingRule::StatusLifetime),
        None => {}
    }
    if !is_heuristic_status(meta.status) && !meta.directives.public {
        return (0, CachingRule::NoLifetime);
    }
    if let (Some(heuristic), Some(modified)) = (policy.heuristic, meta.last_modified) {
        let unchanged_s = meta.made_unix_s().saturating_sub(modified);
        let share_ms = unchanged_s.saturating_mul(10 * heuristic.percent);
        return (share_ms.min(heuristic.ms_max), CachingRule::Heuristic);
    }
    match meta.status {
        404 | 405 | 410 | 451 if policy.negative_ms > 0 => {
            (from_receipt(policy.negative_ms), CachingRule::NegativeLifetime)
        }
        200..300
            if policy.default_ms > 0
                && (policy.default_without_validator || meta.has_validator()) =>
        {
            (from_receipt(policy.default_ms), CachingRule::DefaultLifetime)
        }
        _ => (0, CachingRule::NoLifetime),
    }
}
