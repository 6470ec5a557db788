//! The cached form of an origin's head: its freshness, its version, and the field lines of its replies.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use skep_http::encode;
use skep_httpcache::{
    CachingRule, OnFailure, OriginFailure, RequestMeta, Reuse, SecondaryKey, TARGETED_FIELDS,
    may_store, on_failure, reuse, store,
};
use skep_origin::Head;
use skep_segments::FetchError;
use skep_serve::unix_ms;
use skep_units::SEGMENT_BYTES;
use skep_wire::limits::OBJECT_BYTES_MAX;

use crate::model::field_lines::is_type;
use crate::model::freshness::{LatestPurges, Remote, ResourceFreshness};
use crate::model::object::{Object, Variants};
use crate::model::origin_backend::OriginBackend;
use crate::model::purges::PurgeSnapshot;
use crate::model::resource::Resource;
use crate::model::route::Route;

/// The reason why a response is not cached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotKept {
    /// A rule of RFC 9111, or of the policy.
    Rule(CachingRule),
    /// Its length is not known in advance.
    UnknownLength,
    /// It is longer than allowed for its status.
    TooLong,
    /// It does not start at the first byte, or is not whole where that is required.
    Part,
    /// Its versions cannot be distinguished, or the origin does not support ranges: its parts cannot be
    /// requested again.
    NoParts,
    /// There is no memory for it.
    NoMemory,
}

impl NotKept {
    /// The `detail` parameter of Cache-Status.
    pub(crate) fn token(self) -> &'static str {
        match self {
            Self::Rule(rule) => rule.token(),
            Self::UnknownLength => "unknown-length",
            Self::TooLong => "too-long",
            Self::Part => "part",
            Self::NoParts => "no-parts",
            Self::NoMemory => "no-memory",
        }
    }
}

/// Length of a cacheable object: the length is known, the segments can be numbered, and the head does not
/// forbid caching. A response that is not an object may be cached if it is short.
pub(super) fn keepable_bytes(head: &Head, origin: &OriginBackend) -> Result<u64, NotKept> {
    may_store(&RequestMeta::PLAIN_GET, &head.meta, &origin.policy).map_err(NotKept::Rule)?;
    let bytes_max = if is_object(head) { OBJECT_BYTES_MAX } else { SEGMENT_BYTES };
    let bytes = head.total_bytes.ok_or(NotKept::UnknownLength)?;
    if bytes > bytes_max { Err(NotKept::TooLong) } else { Ok(bytes) }
}

/// Length of a response's object, and the version under which it is cached.
pub(super) fn version(head: &Head, origin: &OriginBackend) -> Result<(u64, Vec<u8>), NotKept> {
    let bytes = keepable_bytes(head, origin)?;
    let fresh = store(&RequestMeta::PLAIN_GET, &head.meta, &origin.policy);
    let fresh = fresh.map_err(NotKept::Rule)?;
    let is_whole = head.end == Some(bytes);
    if head.start > 0 || (!is_object(head) && !is_whole) {
        return Err(NotKept::Part);
    }
    if !is_object(head) {
        // Cached while fresh; it does not validate an object that may exist later.
        let is_fresh = fresh.is_fresh(0);
        return is_fresh.then(|| (bytes, once())).ok_or(NotKept::Rule(fresh.source));
    }
    // 200 in response to a range request: an origin without range support would send the whole object for
    // each segment.
    if bytes > SEGMENT_BYTES && is_whole {
        return Err(NotKept::NoParts);
    }
    let version = head.version().or_else(|| is_whole.then(once)).ok_or(NotKept::NoParts)?;
    Ok((bytes, version))
}

/// Whether a response contains an object's bytes, not an error or redirect in their place.
fn is_object(head: &Head) -> bool {
    matches!(head.meta.status, 200 | 206)
}

/// Whether a resource may be served at once while it is revalidated at the origin.
pub(super) fn may_do_meanwhile(kept: &Resource, origin: &OriginBackend, now_ms: u64) -> bool {
    kept.freshness().is_some_and(|freshness| {
        let (rules, resident_ms) = freshness.rules(now_ms);
        let verdict = reuse(&rules, &RequestMeta::PLAIN_GET, resident_ms, &origin.policy);
        matches!(verdict, Reuse::Send(_) | Reuse::SendAndValidate(_))
    })
}

/// Whether a stale resource may be served because its origin failed with `error`.
pub(super) fn may_do_after(
    error: FetchError,
    kept: &Resource,
    origin: &OriginBackend,
    now_ms: u64,
) -> bool {
    let failure = match error {
        FetchError::OriginStatus(status) => OriginFailure::Status(status),
        _ => OriginFailure::Disconnected,
    };
    kept.freshness().is_some_and(|freshness| {
        let (rules, resident_ms) = freshness.rules(now_ms);
        let verdict = on_failure(&rules, failure, resident_ms, &origin.policy);
        matches!(verdict, OnFailure::SendStale(_))
    })
}

/// A version that differs from that of any other response to any node: nothing shows whether parts of two
/// such responses belong together.
pub(crate) fn once() -> Vec<u8> {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let mut version = format!("once {count} ").into_bytes();
    let mut random = [0; 16];
    // A process without entropy fails earlier.
    if rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty()).is_err() {
        random[..8].copy_from_slice(&unix_ms().to_le_bytes());
    }
    version.extend(random);
    version
}

/// The head of an object as fetched from its origin.
pub(super) struct FetchedHead {
    pub(super) target: Vec<u8>,
    pub(super) version: Vec<u8>,
    /// Length of the whole object.
    pub(super) bytes: u64,
    pub(super) head: Head,
    /// The latest purges of it known to the node that fetched it.
    pub(super) purged: LatestPurges,
    pub(super) is_from_peer: bool,
}

/// The resource to serve, for as long as `freshness` allows. `purges` were known before the request.
pub(super) fn resource(
    route: &Arc<Route>,
    origin: &OriginBackend,
    got: FetchedHead,
    freshness: ResourceFreshness,
    purges: &PurgeSnapshot,
) -> Arc<Resource> {
    let FetchedHead { target, version, bytes, head, purged, is_from_peer } = got;
    let is_success = (200..300).contains(&head.meta.status);
    let mut lines = lines(&head, route, origin.sets_cache_control && is_success);
    let is_object = matches!(head.meta.status, 200 | 206);
    lines.extend_from_slice(if is_object { &route.lines_success } else { &route.lines });
    let remote = Remote {
        target: target.into(),
        version: version.into(),
        head,
        vary_key: SecondaryKey::default(),
        is_from_peer,
    };
    let object = Object::of_origin(route, lines, bytes, remote, purged.hard);
    let purges = (purges, purged.soft);
    Arc::new(Resource::of_origin(route, Variants::of_one(object), freshness, purges))
}

/// Field lines for clients, without those that this server sets itself. `route_says`: the route sets how
/// long clients may cache the response.
pub(crate) fn lines(head: &Head, route: &Route, route_says: bool) -> Vec<u8> {
    let is_of = |name: &[u8], names: &[&str]| {
        names.iter().any(|ours| name.eq_ignore_ascii_case(ours.as_bytes()))
    };
    let mut lines = Vec::new();
    if let Some(content_type) = &route.content_type {
        encode::write_field(&mut lines, "Content-Type", content_type.as_bytes());
    }
    // Tags are for caches, and the cache that purges by them must be the one that keeps them. A field
    // targeted at this cache does not concern anyone behind it.
    let ours = ["server", "surrogate-key", "cache-tag", TARGETED_FIELDS[0]];
    for (name, line) in head.lines().filter(|(name, _)| !is_of(name, &ours)) {
        let is_replaced = route_says && is_of(name, &["cache-control", "expires"])
            || route.content_type.is_some() && is_type(name);
        if !is_replaced {
            lines.extend_from_slice(line);
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::super::rig::node;
    use super::*;

    fn judged(start: &str, fields: &str) -> Result<u64, &'static str> {
        let route = node();
        let text = format!("HTTP/1.1 {start}\r\n{fields}\r\n");
        let head = Head::from_text(text.as_bytes(), unix_ms()).unwrap();
        let kept = version(&head, route.origin().unwrap());
        kept.map(|(bytes, _)| bytes).map_err(NotKept::token)
    }

    #[test]
    fn what_is_not_cached_says_why() {
        let (tag, fresh) = ("ETag: \"a\"\r\n", "Cache-Control: max-age=9\r\n");
        let length = |bytes: u64| format!("Content-Length: {bytes}\r\n");
        let of = |start: &str, fields: &[&str]| judged(start, &fields.concat());
        let five = length(5);
        assert_eq!(of("200 OK", &[&five, tag]), Ok(5));
        assert_eq!(of("200 OK", &[&five]), Err("nothing-to-reuse"));
        assert_eq!(of("200 OK", &[&five, fresh]), Ok(5));
        assert_eq!(of("200 OK", &[&five, "CDN-Cache-Control: max-age=9\r\n"]), Ok(5));
        let targeted = "CDN-Cache-Control: no-store\r\n";
        assert_eq!(of("200 OK", &[&five, fresh, targeted]), Err("no-store"));
        assert_eq!(of("200 OK", &[&five, fresh, "Set-Cookie: a\r\n"]), Err("set-cookie"));
        let named = "Cache-Control: max-age=9, private=\"a\"\r\n";
        assert_eq!(of("200 OK", &[&five, named]), Err("private"));
        assert_eq!(of("404 No", &[&five, fresh]), Ok(5));
        assert_eq!(of("404 No", &[&five, tag]), Err("no-lifetime"));
        assert_eq!(of("500 No", &[&five, fresh]), Err("status"));
        assert_eq!(of("200 OK", &["Transfer-Encoding: chunked\r\n", fresh]), Err("unknown-length"));
        assert_eq!(of("200 OK", &[&length(SEGMENT_BYTES + 1), fresh, tag]), Err("no-parts"));
        assert_eq!(of("404 No", &[&length(SEGMENT_BYTES + 1), fresh]), Err("too-long"));
    }
}
