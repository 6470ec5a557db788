//! Heads of pool responses, as sent from node to node: the format for origins, preceded by the
//! secondary key of the request that they answer.
//!
//! ```text
//!  0 bytes of the secondary key (u16)   2 secondary key   ... as for origins
//! ```

use std::sync::Arc;

use skep_httpcache::{RequestMeta, SecondaryKey, VaryNames, may_store};

use super::received::{ReceivedHead, resource};
use crate::backend::origin::{ReadHead, decode, encode};
use crate::model::freshness::{self, LatestPurges, ResourceFreshness};
use crate::model::peer::PeerHead;
use crate::model::pool_cache::{PoolCache, PoolKey};
use crate::model::purges::PurgeSnapshot;
use crate::model::resource::Resource;
use crate::model::route::Route;

/// The peer head of `resource`; `None`: it is too long.
pub(super) fn of(resource: &Resource) -> Option<PeerHead> {
    let key = resource.remote()?.vary_key.as_bytes();
    let mut prefix = u16::try_from(key.len()).ok()?.to_le_bytes().to_vec();
    prefix.extend_from_slice(key);
    encode(resource, prefix)
}

/// Parses another node's head for `key`; `None`: the head is invalid, this node would not store the
/// response, or it was fetched before one of `purges`, which the other node does not know yet. The
/// head arrived `transit_ms` after it was requested.
pub(super) fn read(
    (route, cache, key): (&Arc<Route>, &PoolCache, &PoolKey),
    (peer_head, transit_ms): (&PeerHead, u64),
    purges: &PurgeSnapshot,
) -> Option<Arc<Resource>> {
    let (key_len, rest) = peer_head.head.split_first_chunk()?;
    let (vary_key, rest) = rest.split_at_checked(usize::from(u16::from_le_bytes(*key_len)))?;
    let ReadHead { version, bytes, purged, head } = decode(rest)?;
    // It is checked like a server's response.
    may_store(&RequestMeta::PLAIN_GET, &head.meta, &cache.policy).ok()?;
    let is_right = head.total_bytes == Some(bytes)
        && bytes <= skep_units::SEGMENT_BYTES
        && PoolCache::may_vary(&head.meta.vary);
    // A response that a soft purge made stale may still be validated.
    let known = freshness::purged(route, purges, &key.target, &head);
    let purged = LatestPurges { hard: purged, soft: peer_head.softly_purged };
    if !is_right || purged.hard < known.hard {
        return None;
    }
    let vary_key = vary_key_of(&head.meta.vary, vary_key)?;
    let freshness =
        ResourceFreshness::of(&head, &cache.policy).handed_over(peer_head.fresh_ms, transit_ms);
    let received = ReceivedHead { key, version, bytes, head, vary_key, purged, is_from_peer: true };
    Some(resource(route, received, freshness, purges))
}

/// The secondary key that another node sent, if it has a value for each name of `vary`.
fn vary_key_of(vary: &VaryNames, bytes: &[u8]) -> Option<SecondaryKey> {
    let lines = bytes.strip_suffix(b"\n").map_or(0, |lines| lines.split(|b| *b == b'\n').count());
    (lines == vary.names().len()).then(|| SecondaryKey::from_bytes(bytes))
}
