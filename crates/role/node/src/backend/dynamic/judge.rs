//! The permitted use of a stored response for one request: reuse, validation, or stale use.

use std::sync::Arc;

use skep_http::RequestHead;
use skep_httpcache::{
    CachingRule, ForwardReason, OnFailure, OriginFailure, RequestMeta, Reuse, SecondaryKey,
    VaryNames, on_failure, reuse,
};
use skep_serve::monotonic_ms;

use crate::model::pool_cache::PoolCache;
use crate::model::resource::Resource;
use crate::model::route::Route;

/// A request that no other request waits for.
#[derive(Debug)]
pub(crate) struct Alone {
    pub(crate) reason: ForwardReason,
    /// The reason, as a token.
    pub(crate) why: Option<&'static str>,
    pub(crate) kept: Option<Arc<Resource>>,
    /// Whether it has waited for another request without getting a usable response.
    pub(crate) has_waited: bool,
}

impl Alone {
    pub(crate) fn new(reason: ForwardReason, why: Option<&'static str>) -> Self {
        Self { reason, why, kept: None, has_waited: false }
    }
}

/// How a stale response is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StaleUse {
    Send,
    SendAndValidate,
    Validate,
}

/// The permitted use of a stored response.
pub(super) enum Judged {
    Send,
    SendAndValidate,
    /// One request validates it for all.
    Validate,
    Alone(Alone),
    OnlyIfCached,
}

/// Determines the permitted use of `kept`.
pub(super) fn judge(
    kept: &Arc<Resource>,
    cache: &PoolCache,
    meta: &RequestMeta<'_>,
    now_ms: u64,
) -> Judged {
    let (Some(remote), Some(freshness)) = (kept.remote(), kept.freshness()) else {
        return Judged::Alone(Alone::new(ForwardReason::UriMiss, None));
    };
    let directives = &remote.head.meta.directives;
    let is_shared =
        directives.public || directives.must_revalidate || directives.s_maxage_s.is_some();
    if meta.has_authorization && !is_shared {
        // The response that others got without credentials may be a login page.
        let rule = CachingRule::Authorization.token();
        return Judged::Alone(Alone::new(ForwardReason::Bypass, Some(rule)));
    }
    let (rules, resident_ms) = freshness.rules(now_ms);
    let validate_alone = |reason, rule: CachingRule| {
        let kept = Some(Arc::clone(kept));
        Judged::Alone(Alone { kept, ..Alone::new(reason, Some(rule.token())) })
    };
    match reuse(&rules, meta, resident_ms, &cache.policy) {
        Reuse::Send(_) => Judged::Send,
        Reuse::SendAndValidate(_) => Judged::SendAndValidate,
        Reuse::GatewayTimeout(_) => Judged::OnlyIfCached,
        Reuse::Bypass(rule) => {
            Judged::Alone(Alone::new(ForwardReason::of(rule), Some(rule.token())))
        }
        // A response requested before the client demanded revalidation does not meet that demand.
        Reuse::Validate(rule) if ForwardReason::of(rule) == ForwardReason::Request => {
            validate_alone(ForwardReason::Request, rule)
        }
        // Each request must validate it: there is nothing to wait for.
        Reuse::Validate(rule) if rules.lifetime_ms == 0 => {
            validate_alone(ForwardReason::Stale, rule)
        }
        Reuse::Validate(_) => Judged::Validate,
    }
}

/// Whether `kept`, which matches the request's fields, answers the request without validation.
pub(crate) fn is_sent_as_it_is(
    kept: &Arc<Resource>,
    cache: &PoolCache,
    meta: &RequestMeta<'_>,
    now_ms: u64,
) -> bool {
    matches!(judge(kept, cache, meta, now_ms), Judged::Send)
}

/// How a stale response of another node is used.
pub(crate) fn use_of_stale(
    stale: &Arc<Resource>,
    cache: &PoolCache,
    meta: &RequestMeta<'_>,
) -> StaleUse {
    match judge(stale, cache, meta, monotonic_ms()) {
        Judged::Send => StaleUse::Send,
        Judged::SendAndValidate => StaleUse::SendAndValidate,
        Judged::Validate | Judged::Alone(_) | Judged::OnlyIfCached => StaleUse::Validate,
    }
}

/// The stored response, if it may be used although it is stale, and the reason.
pub(super) fn stale_after(
    kept: Option<&Arc<Resource>>,
    failure: OriginFailure,
    cache: &PoolCache,
    now_ms: u64,
) -> Option<(Arc<Resource>, CachingRule)> {
    let kept = kept.filter(|kept| !kept.is_retired())?;
    let (rules, resident_ms) = kept.freshness()?.rules(now_ms);
    match on_failure(&rules, failure, resident_ms, &cache.policy) {
        OnFailure::SendStale(rule) => Some((Arc::clone(kept), rule)),
        OnFailure::SendError(_) => None,
    }
}

/// The secondary key of a request by `vary`. If servers are asked for unencoded bytes, they get the same
/// Accept-Encoding in all requests.
pub(super) fn secondary_key(
    route: &Route,
    vary: &VaryNames,
    request: &RequestHead<'_, '_>,
) -> Option<SecondaryKey> {
    let is_replaced =
        |name: &str| route.asks_for_plain() && name.eq_ignore_ascii_case("accept-encoding");
    let sent = request.fields.iter().filter(|(name, _)| !is_replaced(name));
    vary.secondary_key(sent.map(|(name, value)| (name.as_bytes(), value)))
}

/// Whether a stored response matches the fields of the request. Names match only by a hash.
pub(crate) fn is_for(resource: &Resource, request: &RequestHead<'_, '_>) -> bool {
    resource.remote().is_some_and(|remote| {
        secondary_key(&resource.route, &remote.head.meta.vary, request).as_ref()
            == Some(&remote.vary_key)
    })
}

/// RFC 9111 4.1: responses with Vary take precedence over those without, then the latest.
pub(super) fn rank(resource: &Resource) -> (bool, u64) {
    resource.remote().map_or((false, 0), |remote| {
        let meta = &remote.head.meta;
        (!meta.vary.is_nothing(), meta.made_unix_s())
    })
}
