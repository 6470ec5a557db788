//! The stored form of a pool response: its head, version and key, and the field lines of replies.

use std::sync::Arc;

use skep_httpcache::{SecondaryKey, TARGETED_FIELDS};
use skep_origin::Head;

use crate::model::freshness::{LatestPurges, Remote, ResourceFreshness};
use crate::model::object::{Object, Variants};
use crate::model::pool_backend::PoolBackend;
use crate::model::pool_cache::PoolKey;
use crate::model::purges::PurgeSnapshot;
use crate::model::resource::Resource;
use crate::model::route::Route;

/// The head of a pool response, in its stored form.
pub(super) struct ReceivedHead<'k> {
    pub(super) key: &'k PoolKey,
    pub(super) version: Vec<u8>,
    /// Length of the whole body, in bytes.
    pub(super) bytes: u64,
    pub(super) head: Head,
    pub(super) vary_key: SecondaryKey,
    /// The latest purges of it known to the node that received it.
    pub(super) purged: LatestPurges,
    pub(super) is_from_peer: bool,
}

/// The resource to serve, for as long as `freshness` allows. `purges` were known before the request.
pub(super) fn resource(
    route: &Arc<Route>,
    received: ReceivedHead<'_>,
    freshness: ResourceFreshness,
    purges: &PurgeSnapshot,
) -> Arc<Resource> {
    let ReceivedHead { key, version, bytes, head, vary_key, purged, is_from_peer } = received;
    let lines = lines(&head, route.pool());
    let (target, version) = (key.target.clone(), version.into());
    let remote = Remote { target, version, head, vary_key, is_from_peer };
    let object = Object::of_origin(route, lines, bytes, remote, purged.hard);
    let purges = (purges, purged.soft);
    Arc::new(Resource::of_origin(route, Variants::of_one(object), freshness, purges))
}

/// Field lines for clients, without those that this server sets itself.
fn lines(head: &Head, pool: Option<&PoolBackend>) -> Vec<u8> {
    let without = pool.map_or(&[][..], |pool| &pool.response_without);
    let ours = ["server", "surrogate-key", "cache-tag", "cache-status", TARGETED_FIELDS[0]];
    let is_of = |name: &[u8], it: &str| name.eq_ignore_ascii_case(it.as_bytes());
    let is_left_out = |name: &[u8]| {
        ours.iter().any(|it| is_of(name, it)) || without.iter().any(|it| is_of(name, it))
    };
    let kept = head.lines().filter(|(name, _)| !is_left_out(name));
    let mut lines: Vec<u8> = kept.flat_map(|(_, line)| line).copied().collect();
    lines.extend_from_slice(pool.map_or(&[][..], |pool| &pool.response_lines));
    lines
}
