//! Determines which requests the cache in front of a pool handles, and their keys.

use skep_http::forward::Claims;
use skep_http::path::Path;
use skep_http::{Method, Reject, RequestHead};
use skep_httpcache::{CacheStatus, CachingRule, ForwardReason, RequestMeta};

use crate::model::pool_backend::PoolBackend;
use crate::model::pool_cache::{PoolCache, PoolKey, is_named_by_purges};

/// A request that may be answered by a stored response.
pub(crate) struct Cacheable<'a> {
    pub(crate) pool: &'a PoolBackend,
    pub(crate) cache: &'a PoolCache,
    pub(crate) key: PoolKey,
    pub(crate) meta: RequestMeta<'a>,
    pub(crate) claims: Claims,
    /// The target requested from servers.
    pub(crate) target: Vec<u8>,
}

/// A request bypasses the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CacheBypass {
    pub(crate) reason: ForwardReason,
    /// The reason, as a token.
    pub(crate) why: &'static str,
}

/// Cache-Status of routes without a cache.
pub(crate) const CACHE_OFF: CacheStatus<'static> =
    CacheStatus { forwarded: Some(ForwardReason::Bypass), ..CacheStatus::HIT };

impl CacheBypass {
    /// The Cache-Status for clients.
    pub(crate) fn status(self) -> CacheStatus<'static> {
        // For a method the forward reason is sufficient.
        let detail = Some(self.why).filter(|_| self.reason != ForwardReason::Method);
        CacheStatus { forwarded: Some(self.reason), detail, ..CACHE_OFF }
    }
}

impl<'a> Cacheable<'a> {
    /// The cache properties of a request.
    pub(crate) fn of(
        request: &RequestHead<'_, 'a>,
        (pool, cache): (&'a PoolBackend, &'a PoolCache),
        path: &Path<'_>,
        claims: Claims,
    ) -> Result<Result<Self, CacheBypass>, Reject> {
        let past = |why| Ok(Err(CacheBypass { reason: ForwardReason::Bypass, why }));
        let meta = match meta_for_cache(request, cache) {
            Ok(meta) => meta,
            Err(past) => return Ok(Err(past)),
        };
        let public = cache.target(path.target(), request.query);
        let Some(key) = cache.key(request, &public, claims) else {
            return past("key-cookie");
        };
        if !is_named_by_purges(&public) {
            return past("url-too-long");
        }
        let query = public.splitn(2, |byte| *byte == b'?').nth(1);
        let target = pool.target(path.target(), query).ok_or(Reject::PATH_TWO_ROUTES)?;
        Ok(Ok(Self { pool, cache, key, meta, claims, target }))
    }
}

/// The fields of a request that matter to `cache`.
///
/// # Errors
/// The request bypasses the cache.
pub(crate) fn meta_for_cache<'a>(
    request: &RequestHead<'_, 'a>,
    cache: &PoolCache,
) -> Result<RequestMeta<'a>, CacheBypass> {
    let past = |reason, why| Err(CacheBypass { reason, why });
    let meta = RequestMeta::of(request, &cache.policy);
    if !matches!(request.method, Method::Get | Method::Head) {
        return past(ForwardReason::Method, CachingRule::Method.token());
    }
    if !meta.is_for_cache() {
        let rule = match meta {
            RequestMeta { has_body: true, .. } => CachingRule::RequestBody,
            RequestMeta { bypass: Some(rule), .. } => rule,
            // An upgrade or an event stream.
            _ => CachingRule::EventStream,
        };
        return past(ForwardReason::Bypass, rule.token());
    }
    // Fields that Connection names are not sent to the server, but would be part of the key and of
    // Vary.
    if names_fields(request) {
        return past(ForwardReason::Bypass, "connection");
    }
    Ok(meta)
}

/// Whether Connection has an option that may be a field name.
fn names_fields(request: &RequestHead<'_, '_>) -> bool {
    const OTHERS: [&[u8]; 4] = [b"keep-alive", b"close", b"upgrade", b"te"];
    let options = request.fields.all("connection").flat_map(|value| value.split(|it| *it == b','));
    options
        .map(<[u8]>::trim_ascii)
        .any(|it| !it.is_empty() && !OTHERS.iter().any(|other| other.eq_ignore_ascii_case(it)))
}
