//! Refreshes of frequently requested responses before they become stale, so that no client waits when
//! they expire.
//!
//! ```text
//!  hit --> due, and asked for often? --> lease of the refresh's own name ----> server, If-None-Match
//!   | at once                            | another node has it: its response     |
//!   v                                    v                                       v
//!  client                          stored, under the names of the key, and of the refresh
//! ```
//!
//! A refresh has its own name, made of the response that it replaces and therefore equal on all nodes:
//! a lease of that name ensures that it is made once in the cluster, and other nodes find its result
//! there. Under the name of the key they would find each other's old responses.

use std::sync::Arc;

use hashbrown::HashMap;
use skep_httpcache::RequestMeta;
use skep_serve::monotonic_ms;
use skep_units::stable_hash;
use skep_wire::cache::{PurgeStamp, SegmentName};

use super::heads::{PoolFlight, PoolHeads};
use super::refresh_place::RefreshPlace;
use super::slot::PoolSlot;
use crate::backend::single_flight::FlightRole;
use crate::limits::REFRESHES_AHEAD_MAX;
use crate::model::pool_cache::{PoolCache, PoolKey, RefreshAhead};
use crate::model::purges::PurgeSnapshot;
use crate::model::resource::Resource;
use crate::model::route::Route;

const SPREAD_SEED: u64 = 0x61_6865_6164;

impl PoolHeads {
    /// The refresh of `kept`, which answers a request, if it is due and not in progress on this node.
    pub(super) fn ahead(
        self: &Arc<Self>,
        slots: &HashMap<SegmentName, PoolSlot>,
        (route, cache): (&Arc<Route>, &PoolCache),
        key: &PoolKey,
        (kept, meta): (&Arc<Resource>, &RequestMeta<'_>),
        (purges, purged): (&Arc<PurgeSnapshot>, PurgeStamp),
    ) -> Option<Box<PoolFlight>> {
        let ahead = cache.ahead?;
        let is_often = kept.count_hit() >= ahead.hits_min;
        let now_ms = monotonic_ms();
        if !is_often || !is_to_be_refreshed(kept, cache, now_ms) || !cache.may_collapse(meta) {
            return None;
        }
        let name = refresh_name(route, key, purged, kept)?;
        // The refresh has just failed, or its result is here already.
        if slots.get(&name).is_some_and(|slot| slot.kept.is_some() || slot.is_paused(now_ms)) {
            return None;
        }
        let place = RefreshPlace::take(&cache.refreshes_ahead, REFRESHES_AHEAD_MAX)?;
        let FlightRole::Lead(flight) = self.flights.join(&name) else { return None };
        Some(Box::new(PoolFlight {
            heads: Arc::clone(self),
            key: key.clone(),
            kept: Some(Arc::clone(kept)),
            gone: None,
            purges: Arc::clone(purges),
            purged,
            is_ahead: true,
            place: Some(place),
            flight,
        }))
    }

    /// Stores the result of a refresh under its name, for other nodes, in place of the previous one.
    pub(super) fn keep_refreshed(
        &self,
        (route, key): (&Route, &PoolKey),
        purged: PurgeStamp,
        name: SegmentName,
        resource: &Arc<Resource>,
    ) {
        self.slots.change(name, |slot| {
            slot.kept = Some(Arc::clone(resource));
            slot.charge = self.slots.charge(slot.kept_bytes());
        });
        let primary = route.primary_name(key, purged);
        let last = self.slots.change(primary, |slot| slot.refreshed.replace(name));
        if let Some(last) = last.filter(|last| *last != name) {
            self.slots.remove(last);
        }
    }
}

/// Whether a response is in the part of its lifetime in which it is refreshed.
pub(crate) fn is_to_be_refreshed(kept: &Resource, cache: &PoolCache, now_ms: u64) -> bool {
    let is_due = |ahead: RefreshAhead| {
        let (freshness, remote) = (kept.freshness()?, kept.remote()?);
        let (rules, _) = freshness.rules(now_ms);
        let spread = stable_hash(&remote.version, SPREAD_SEED);
        Some(ahead.is_due(rules.lifetime_ms, freshness.fresh_ms(now_ms), spread))
    };
    cache.ahead.and_then(is_due).unwrap_or(false)
}

/// The name of a refresh of a response: no key has it, since a line of a key is never empty.
fn refresh_name(
    route: &Route,
    key: &PoolKey,
    purged: PurgeStamp,
    kept: &Resource,
) -> Option<SegmentName> {
    let remote = kept.remote()?;
    // A confirmed response keeps its version but has a new date.
    let made = remote.head.meta.made_unix_s().to_le_bytes();
    let variant = key.variant(&remote.vary_key);
    let text = [&*variant, b"\n\n\nrefresh ", &made, &*remote.version].concat();
    Some(route.head_name(&text, purged))
}
