//! What is cached of an origin's head: how long it may be used, under which version, and
//! the field lines of its replies.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use skep_origin::Head;
use skep_origin::freshness;
use skep_serve::unix_ms;
use skep_units::SEGMENT_BYTES;
use skep_wire::cache::PurgeStamp;
use skep_wire::limits::OBJECT_BYTES_MAX;

use crate::model::freshness::{Freshness, Remote};
use crate::model::object::{Object, Variants};
use crate::model::origin_backend::OriginBackend;
use crate::model::purges::Snapshot;
use crate::model::resource::Resource;
use crate::model::route::Route;

/// Length of a cacheable object: it is known, its segments can be counted, and its head does
/// not forbid caching. A response that is no object may be cached if it is small.
pub(super) fn keepable_bytes(head: &Head) -> Option<u64> {
    let bytes_max = match head.status {
        200 | 206 => OBJECT_BYTES_MAX,
        301 | 302 | 307 | 308 | 404 | 410 => SEGMENT_BYTES,
        _ => return None,
    };
    let bytes = head.total_bytes.filter(|bytes| *bytes <= bytes_max);
    bytes.filter(|_| freshness::allowed(head).is_ok())
}

/// Length of a response's object, and the version under which it is cached; `None`: it is not.
pub(super) fn version(head: &Head) -> Option<(u64, Vec<u8>)> {
    let bytes = keepable_bytes(head)?;
    // A page without any word on it may be anything.
    if head.start > 0 || freshness::storable(head).is_err() {
        return None;
    }
    let is_whole = head.end == Some(bytes);
    if !matches!(head.status, 200 | 206) {
        // As long as it says so; it is no version of what may be there otherwise.
        let fresh = freshness::freshness(head);
        let is_fresh = fresh.fresh_until_unix_ms > head.received_unix_ms;
        return (is_whole && is_fresh).then(|| (bytes, once()));
    }
    // 200 to an ask for a range: an origin that knows no ranges would send
    // all of it for each segment.
    if bytes > SEGMENT_BYTES && is_whole {
        return None;
    }
    let version = freshness::version(head).or_else(|| is_whole.then(once))?;
    Some((bytes, version))
}

/// A unique version, unlike that of any other response to any node: nothing shows whether parts
/// of two responses belong together.
fn once() -> Vec<u8> {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let mut version = format!("once {count} ").into_bytes();
    let mut random = [0; 16];
    // Without entropy the process does not get as far as this.
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
    /// The latest purge of it known to the node that fetched it.
    pub(super) purged: PurgeStamp,
}

/// The resource to be served, for as long as `freshness` allows. `purges` were known before the
/// request.
pub(super) fn resource(
    route: &Arc<Route>,
    origin: &OriginBackend,
    got: FetchedHead,
    freshness: Freshness,
    purges: &Snapshot,
) -> Arc<Resource> {
    let FetchedHead { target, version, bytes, head, purged } = got;
    let is_success = (200..300).contains(&head.status);
    let lines = lines(&head, origin.sets_cache_control && is_success);
    let content_type = head.content_type.as_deref().map(String::from_utf8_lossy);
    let unknown = || "application/octet-stream".to_owned();
    let content_type = content_type.map_or_else(unknown, |text| text.into_owned());
    let remote = Remote { target: target.into(), version: version.into(), head };
    let object = Object::of_origin(route, content_type, &lines, bytes, remote, purged);
    Arc::new(Resource::of_origin(route, Variants::of_one(object), freshness, purges))
}

/// Lines for clients, Content-Type first: without those that this server sets itself.
pub(crate) fn lines(head: &Head, route_says: bool) -> Vec<u8> {
    let is_of = |name: &[u8], names: &[&str]| {
        names.iter().any(|ours| name.eq_ignore_ascii_case(ours.as_bytes()))
    };
    let types = head.lines().filter(|(name, _)| is_of(name, &["content-type"]));
    let mut lines: Vec<u8> = types.flat_map(|(_, line)| line).copied().collect();
    // Tags are for caches: elsewhere, too, the one that purges by them keeps them.
    let ours = ["content-type", "server", "surrogate-key", "cache-tag"];
    for (name, line) in head.lines().filter(|(name, _)| !is_of(name, &ours)) {
        if !(route_says && is_of(name, &["cache-control", "expires"])) {
            lines.extend_from_slice(line);
        }
    }
    lines
}
