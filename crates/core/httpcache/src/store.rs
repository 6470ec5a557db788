//! Whether a response may be stored (RFC 9111 3), and which of its fields.

use skep_http::Method;

use crate::freshness::{Freshness, is_heuristic_status, is_set};
use crate::policy::{CachePolicy, CookiePolicy, SetCookiePolicy};
use crate::request::RequestMeta;
use crate::response::ResponseMeta;
use crate::rule::CachingRule;

/// Whether storing the response is allowed, and useful.
///
/// # Errors
/// The errors of [`may_store`]; and [`CachingRule::NothingToReuse`].
pub fn store(
    request: &RequestMeta<'_>,
    response: &ResponseMeta,
    policy: &CachePolicy,
) -> Result<Freshness, CachingRule> {
    may_store(request, response, policy)?;
    let freshness = Freshness::of(response, policy);
    // Storing may be useful even if the response is only ever used stale.
    let until_ms = freshness.while_revalidating_until_ms().max(freshness.if_error_until_ms());
    let may_be_stale =
        policy.obeyed.max_stale && freshness.is_explicit() && freshness.stale_forbidden.is_none();
    if until_ms == 0 && !may_be_stale && !response.has_validator() {
        return Err(CachingRule::NothingToReuse);
    }
    Ok(freshness)
}

/// Whether a shared cache may store the response (RFC 9111 3). It may depend on request fields: see
/// [`ResponseMeta::vary`].
///
/// # Errors
/// The rule that forbids it.
pub fn may_store(
    request: &RequestMeta<'_>,
    response: &ResponseMeta,
    policy: &CachePolicy,
) -> Result<(), CachingRule> {
    request_allows(request, policy)?;
    directives_allow(request, response, policy)?;
    if response.sets_cookie && !may_set_cookie(response, policy) {
        return Err(CachingRule::SetCookie);
    }
    if response.vary.is_all() {
        return Err(CachingRule::VaryAll);
    }
    if policy.vary_refused.iter().any(|name| response.vary.has(name)) {
        return Err(CachingRule::VaryRefused);
    }
    if !policy.stores_status(response.status) {
        return Err(CachingRule::Status);
    }
    let freshness = Freshness::of(response, policy);
    let is_by_status = freshness.source == CachingRule::StatusLifetime;
    let is_explicit = freshness.is_explicit() || response.directives.public;
    if !is_explicit && !is_by_status && !is_heuristic_status(response.status) {
        return Err(CachingRule::StatusNotHeuristic);
    }
    if request.has_authorization && freshness.is_of_settings() {
        return Err(CachingRule::Authorization);
    }
    if request.has_cookie && policy.cookies == CookiePolicy::Bypass && !is_explicit {
        return Err(CachingRule::Cookie);
    }
    if response.is_open_ended {
        return Err(CachingRule::OpenEnded);
    }
    if response.is_event_stream || request.is_stream {
        return Err(CachingRule::EventStream);
    }
    Ok(())
}

/// Whether a response field is stored, apart from hop-by-hop fields (RFC 9111 3.1; see
/// `skep_http::forward::write_kept_fields`): not if `no-cache="..."` or `private="..."` lists it.
pub fn is_stored_field(name: &[u8], response: &ResponseMeta, policy: &CachePolicy) -> bool {
    let directives = &response.directives;
    let is_named = directives.no_cache.names(name) || directives.private.names(name);
    !(policy.honours_field_names && is_named)
}

fn request_allows(request: &RequestMeta<'_>, policy: &CachePolicy) -> Result<(), CachingRule> {
    if request.method != Method::Get {
        return Err(CachingRule::Method);
    }
    if request.has_body {
        return Err(CachingRule::RequestBody);
    }
    if let Some(rule) = request.bypass {
        return Err(rule);
    }
    if request.directives.no_store && policy.obeyed.no_store {
        return Err(CachingRule::RequestNoStore);
    }
    Ok(())
}

fn directives_allow(
    request: &RequestMeta<'_>,
    response: &ResponseMeta,
    policy: &CachePolicy,
) -> Result<(), CachingRule> {
    let directives = &response.directives;
    // 5.2.2.3: a cache that understands the status ignores no-store.
    if directives.must_understand && !is_known_status(response.status) {
        return Err(CachingRule::MustUnderstand);
    }
    if directives.no_store && !directives.must_understand {
        return Err(CachingRule::NoStore);
    }
    if is_set(&directives.private, policy) {
        return Err(CachingRule::Private);
    }
    let is_shared =
        directives.public || directives.must_revalidate || directives.s_maxage_s.is_some();
    if request.has_authorization && !is_shared {
        return Err(CachingRule::Authorization);
    }
    Ok(())
}

fn may_set_cookie(response: &ResponseMeta, policy: &CachePolicy) -> bool {
    let directives = &response.directives;
    match policy.set_cookie {
        SetCookiePolicy::Never => false,
        SetCookiePolicy::Shared => {
            directives.public || directives.s_maxage_s.is_some() || response.is_targeted
        }
        SetCookiePolicy::Always => true,
    }
}

/// Statuses whose caching requirements are those of RFC 9110 15, all of which are met here.
fn is_known_status(status: u16) -> bool {
    matches!(status, 200..=206 | 300..=305 | 307 | 308 | 400..=417 | 421 | 422 | 426 | 451 | 500..=505)
}
