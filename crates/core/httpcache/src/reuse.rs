//! Whether a stored response may answer a request (RFC 9111 4), and what may be sent if the origin
//! does not respond.

use skep_http::Method;

use crate::freshness::Freshness;
use crate::policy::{CachePolicy, CookiePolicy};
use crate::request::RequestMeta;
use crate::rule::CachingRule;

/// What to do with a stored response whose key and Vary match, each with the rule behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reuse {
    /// Send it.
    Send(CachingRule),
    /// Send it, and validate it in the background, once for all requests.
    SendAndValidate(CachingRule),
    /// Send it only after validation by the origin.
    Validate(CachingRule),
    /// Forward the request as if nothing were stored.
    Bypass(CachingRule),
    /// Respond with 504 (5.2.1.7).
    GatewayTimeout(CachingRule),
}

/// How the origin failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OriginFailure {
    /// It responded with this status, one of [`crate::FailureStatuses`].
    Status(u16),
    /// It could not be reached, did not respond, or sent an invalid response.
    Disconnected,
}

/// What to send if the origin failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnFailure {
    /// The stored response, although it is stale.
    SendStale(CachingRule),
    /// The origin's response, or 502 or 504 if there is none; with the reason why the stored
    /// response may not be used (5.2.2.2 requires an error response).
    SendError(CachingRule),
}

/// What to do with a stored response `resident_ms` after its receipt (RFC 9111 4).
pub fn reuse(
    freshness: &Freshness,
    request: &RequestMeta<'_>,
    resident_ms: u64,
    policy: &CachePolicy,
) -> Reuse {
    if !request.is_for_cache() {
        return Reuse::Bypass(CachingRule::Method);
    }
    if request.has_cookie && policy.cookies == CookiePolicy::Bypass && !freshness.is_explicit() {
        return Reuse::Bypass(CachingRule::Cookie);
    }
    if request.has_authorization && freshness.is_of_settings() {
        return Reuse::Bypass(CachingRule::Authorization);
    }
    let verdict = judge(freshness, request, resident_ms, policy);
    match verdict {
        Reuse::Validate(_) if wants_only_cached(request, policy) => {
            Reuse::GatewayTimeout(CachingRule::OnlyIfCached)
        }
        verdict => verdict,
    }
}

/// Whether a request without a stored response may be forwarded.
///
/// # Errors
/// [`CachingRule::OnlyIfCached`]: respond with 504.
pub fn may_forward(request: &RequestMeta<'_>, policy: &CachePolicy) -> Result<(), CachingRule> {
    if wants_only_cached(request, policy) {
        return Err(CachingRule::OnlyIfCached);
    }
    Ok(())
}

/// What to send if the origin failed while a stored response was validated (RFC 9111 4.2.4 and
/// 4.3.3, RFC 5861 4).
pub fn on_failure(
    freshness: &Freshness,
    failure: OriginFailure,
    resident_ms: u64,
    policy: &CachePolicy,
) -> OnFailure {
    let is_failure = match failure {
        OriginFailure::Status(status) => policy.failures.has(status),
        OriginFailure::Disconnected => true,
    };
    if is_failure && freshness.is_fresh(resident_ms) {
        return OnFailure::SendStale(CachingRule::Fresh);
    }
    if is_failure && freshness.is_usable_if_error(resident_ms) {
        return OnFailure::SendStale(CachingRule::IfError);
    }
    let is_gone = failure == OriginFailure::Disconnected;
    if is_gone && freshness.is_usable_on_disconnect(resident_ms) {
        return OnFailure::SendStale(CachingRule::OnDisconnect);
    }
    OnFailure::SendError(freshness.stale_forbidden.unwrap_or(CachingRule::Stale))
}

fn judge(
    freshness: &Freshness,
    request: &RequestMeta<'_>,
    resident_ms: u64,
    policy: &CachePolicy,
) -> Reuse {
    let (directives, obeyed) = (&request.directives, &policy.obeyed);
    if directives.no_cache && obeyed.no_cache {
        return Reuse::Validate(CachingRule::RequestNoCache);
    }
    let age_ms = freshness.age_ms(resident_ms);
    let max_age_ms = directives.max_age_s.filter(|_| obeyed.max_age).map(|seconds| seconds * 1000);
    let stale_ms = freshness.stale_ms(resident_ms);
    let max_stale_ms =
        directives.max_stale_s.filter(|_| obeyed.max_stale && freshness.stale_forbidden.is_none());
    let is_within_stale = max_stale_ms.is_some_and(|seconds| stale_ms <= seconds * 1000);
    // 5.2.1.1: with max-stale, an older one is acceptable, too.
    if max_age_ms.is_some_and(|max_ms| age_ms > max_ms) && max_stale_ms.is_none() {
        return Reuse::Validate(CachingRule::RequestMaxAge);
    }
    if freshness.is_fresh(resident_ms) {
        let left_ms = freshness.fresh_until_age_ms() - age_ms;
        let wanted_ms = directives.min_fresh_s.filter(|_| obeyed.min_fresh).unwrap_or(0) * 1000;
        return match left_ms < wanted_ms {
            true => Reuse::Validate(CachingRule::MinFresh),
            false => Reuse::Send(CachingRule::Fresh),
        };
    }
    if is_within_stale {
        return Reuse::Send(CachingRule::MaxStale);
    }
    if freshness.is_usable_while_revalidating(resident_ms) {
        return Reuse::SendAndValidate(CachingRule::WhileRevalidating);
    }
    Reuse::Validate(match freshness.stale_forbidden {
        Some(CachingRule::NoCache) => CachingRule::NoCache,
        _ if age_ms < freshness.lifetime_ms => CachingRule::Purged,
        _ => CachingRule::Stale,
    })
}

fn wants_only_cached(request: &RequestMeta<'_>, policy: &CachePolicy) -> bool {
    let is_read = matches!(request.method, Method::Get | Method::Head);
    is_read && request.directives.only_if_cached && policy.obeyed.only_if_cached
}
