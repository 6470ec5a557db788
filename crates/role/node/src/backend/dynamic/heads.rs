//! The cache of heads that servers of pools sent, shared by all workers: under each primary key the
//! responses to requests with different fields, and what was learned of the key.

use std::sync::Arc;

use hashbrown::HashMap;
use skep_http::RequestHead;
use skep_httpcache::{ForwardReason, OriginFailure, RequestMeta, may_forward};
use skep_segments::SegmentStore;
use skep_serve::monotonic_ms;
use skep_wire::cache::{PeerRefusal, PurgeStamp, SegmentName};

use super::judge::{Alone, Judged, is_for, judge, rank, secondary_key, stale_after};
use super::judgements::Judgements;
use super::paused::{Paused, paused};
use super::peer_head;
use super::refresh_place::RefreshPlace;
use super::response_copy::Copies;
use super::slot::{PoolSlot, Refusal};
use crate::backend::head_slots::HeadSlots;
use crate::backend::single_flight::{FlightRole, FlightWaiter, Flights, SingleFlight};
use crate::limits::{MARK_ERROR_MS, POOL_FAILED_MS, REFRESHES_STALE_MAX};
use crate::model::changes::SeenVersion;
use crate::model::peer::PeerHead;
use crate::model::pool_cache::{PoolCache, PoolKey};
use crate::model::purges::PurgeSnapshot;
use crate::model::resource::Resource;
use crate::model::route::Route;

/// What those who waited get.
#[derive(Clone, Debug)]
pub(crate) enum FlightOutcome {
    /// A response that may be stored; whether it answers a request that waited, [`PoolHeads::answers`]
    /// says.
    Stored(Arc<Resource>),
    /// It may not, and why: each asks for itself.
    Unstorable(&'static str),
    /// A stored response that is stale, since no server has a better one.
    Stale(Arc<Resource>),
    /// No server answered.
    Failed(Refusal),
}

/// The result of a look-up.
pub(crate) enum PoolLookup {
    /// Send it; with until when the look-up may be remembered.
    Hit(Arc<Resource>, Option<SeenVersion>),
    /// Send it although it is stale, and why.
    Unrefreshed(Arc<Resource>, &'static str),
    /// Send it, and refresh it: it is stale, or will be. Nothing if another request does.
    Stale(Arc<Resource>, Option<Box<PoolFlight>>),
    /// Another request asks.
    Wait(FlightWaiter<FlightOutcome>, ForwardReason),
    /// The caller must ask, for all who wait.
    Lead(Box<PoolFlight>, ForwardReason),
    /// The caller asks for itself; `kept` is to be validated.
    Alone(Alone),
    /// No server answered just now.
    Failed(Refusal),
    /// 504: the client wants a stored response only.
    OnlyIfCached,
}

#[derive(Debug)]
pub(crate) struct PoolHeads {
    pub(super) slots: HeadSlots<PoolSlot>,
    /// What was last said of responses, for operators.
    pub(super) judgements: Judgements,
    /// Of responses of unknown length.
    pub(super) copies: Arc<Copies>,
    pub(super) flights: Arc<Flights<SegmentName, FlightOutcome>>,
}

/// What is to be done for a request, before it is known whether another one is on its way.
pub(super) enum LookupDecision {
    /// Send it; with why it may be although it is stale.
    Hit(Arc<Resource>, Option<&'static str>),
    /// Send it, and refresh it.
    HitWhileRefreshed(Arc<Resource>, FoundVariants),
    /// Ask, for all who wait.
    Ask(FoundVariants, ForwardReason),
    Alone(Alone),
    Failed(Refusal),
    OnlyIfCached,
}

/// What was found under a key, while its slots are locked.
#[derive(Clone)]
pub(super) struct FoundVariants {
    /// The response that answers the request.
    pub(super) kept: Option<Arc<Resource>>,
    /// What was, and is no longer available.
    gone: Option<Arc<Resource>>,
    /// Where the request's own variant is; the primary name while nothing is known of Vary.
    name: SegmentName,
    /// Whether some response is stored, for other requests.
    has_others: bool,
}

impl PoolHeads {
    /// An empty cache for at most `slots_max` names.
    pub(crate) fn new(store: &Arc<SegmentStore>, slots_max: usize) -> Arc<Self> {
        let (slots, flights) = (HeadSlots::new(store, slots_max), Flights::new());
        Arc::new(Self { slots, judgements: Judgements::default(), copies: Arc::default(), flights })
    }

    /// Looks up what answers `request`, of which `meta` is what matters.
    pub(crate) fn look_up(
        self: &Arc<Self>,
        (route, cache): (&Arc<Route>, &PoolCache),
        key: &PoolKey,
        request: &RequestHead<'_, '_>,
        meta: &RequestMeta<'_>,
    ) -> PoolLookup {
        let purges = route.purges.load();
        let purged = route.purged(purges.hard(), &key.target);
        let mut slots = self.slots.lock();
        let decision = self.consider(&mut slots, (route, cache), (key, purged), (request, meta));
        // While the slots are locked: nobody may have an outcome that is not in its slot.
        match decision {
            LookupDecision::Hit(kept, None) => {
                kept.mark_used();
                let hit = (&kept, meta);
                let ahead = self.ahead(&slots, (route, cache), key, hit, (&purges, purged));
                match ahead {
                    Some(flight) => PoolLookup::Stale(kept, Some(flight)),
                    None => {
                        let primary = route.primary_name(key, purged);
                        let version = slots.get(&primary).and_then(PoolSlot::version);
                        PoolLookup::Hit(kept, version)
                    }
                }
            }
            LookupDecision::Hit(kept, Some(why)) => {
                kept.mark_used();
                PoolLookup::Unrefreshed(kept, why)
            }
            LookupDecision::HitWhileRefreshed(kept, found) => {
                let flight = self.refresh(&slots, (cache, key), found, (purges, purged));
                PoolLookup::Stale(kept, flight)
            }
            LookupDecision::Ask(found, reason) => match self.flights.join(&found.name) {
                FlightRole::Lead(flight) => {
                    PoolLookup::Lead(self.flight(flight, key, found, (purges, purged)), reason)
                }
                FlightRole::Wait(waiter) => PoolLookup::Wait(waiter, reason),
            },
            LookupDecision::Alone(alone) => PoolLookup::Alone(alone),
            LookupDecision::Failed(refusal) => PoolLookup::Failed(refusal),
            LookupDecision::OnlyIfCached => PoolLookup::OnlyIfCached,
        }
    }

    /// The background refresh of a stale response that is sent meanwhile; `None`: one is under way or paused, or there
    /// are too many.
    fn refresh(
        self: &Arc<Self>,
        slots: &HashMap<SegmentName, PoolSlot>,
        (cache, key): (&PoolCache, &PoolKey),
        found: FoundVariants,
        of: (Arc<PurgeSnapshot>, PurgeStamp),
    ) -> Option<Box<PoolFlight>> {
        if slots.get(&found.name).is_some_and(|slot| slot.is_paused(monotonic_ms())) {
            return None;
        }
        let place = RefreshPlace::take(&cache.refreshes_stale, REFRESHES_STALE_MAX)?;
        let FlightRole::Lead(flight) = self.flights.join(&found.name) else { return None };
        let flight = self.flight(flight, key, found, of);
        Some(Box::new(PoolFlight { place: Some(place), ..*flight }))
    }

    /// A background refresh of this name has failed: there is no other one for [`POOL_FAILED_MS`].
    pub(crate) fn pause_refreshes(&self, name: SegmentName) {
        let until_ms = monotonic_ms() + POOL_FAILED_MS;
        self.slots.change(name, |slot| slot.refreshes_paused_until_ms = until_ms);
    }

    /// What is to be done for `request`, given the requests in flight.
    pub(super) fn consider(
        &self,
        slots: &mut HashMap<SegmentName, PoolSlot>,
        (route, cache): (&Arc<Route>, &PoolCache),
        (key, purged): (&PoolKey, PurgeStamp),
        (request, meta): (&RequestHead<'_, '_>, &RequestMeta<'_>),
    ) -> LookupDecision {
        let primary = route.primary_name(key, purged);
        let now_ms = monotonic_ms();
        let Some(found) = self.find(slots, (key, route, purged), primary, request) else {
            return LookupDecision::Alone(Alone::new(ForwardReason::Bypass, Some("vary-too-long")));
        };
        let (kept, name) = (found.kept.clone(), found.name);
        let reason = match (&kept, found.has_others) {
            (Some(_), _) => ForwardReason::Stale,
            (None, true) => ForwardReason::VaryMiss,
            (None, false) => ForwardReason::UriMiss,
        };
        let mut is_validation = false;
        if let Some(kept) = &kept {
            match judge(kept, cache, meta, now_ms) {
                Judged::Send => return LookupDecision::Hit(Arc::clone(kept), None),
                Judged::SendAndValidate => {
                    return LookupDecision::HitWhileRefreshed(Arc::clone(kept), found);
                }
                Judged::OnlyIfCached => return LookupDecision::OnlyIfCached,
                Judged::Alone(alone) => return LookupDecision::Alone(alone),
                Judged::Validate => is_validation = true,
            }
        }
        if !is_validation && may_forward(meta, &cache.policy).is_err() {
            return LookupDecision::OnlyIfCached;
        }
        if let Some(paused) = paused(slots, [primary, name], now_ms)
            && let Some(paused) = paused.verdict(kept.as_ref(), cache, reason, now_ms)
        {
            return paused;
        }
        if !cache.may_collapse(meta) {
            return LookupDecision::Alone(Alone { kept, ..Alone::new(reason, None) });
        }
        LookupDecision::Ask(found, reason)
    }

    /// Whether `resource`, which another request brought just now, answers this one; else it must ask
    /// for itself, as it says.
    pub(crate) fn answers(
        resource: &Arc<Resource>,
        cache: &PoolCache,
        request: &RequestHead<'_, '_>,
        meta: &RequestMeta<'_>,
    ) -> Result<bool, Alone> {
        if !is_for(resource, request) {
            return Ok(false);
        }
        // So that it is stale if a soft purge was faster.
        let is_late = resource.is_softly_purged();
        match judge(resource, cache, meta, monotonic_ms()) {
            Judged::Send | Judged::SendAndValidate => Ok(true),
            // Others validate it for all.
            Judged::Validate if is_late => Ok(false),
            Judged::Alone(alone) => Err(alone),
            // To wait for one more would be to wait for all.
            Judged::Validate | Judged::OnlyIfCached => Err(Alone {
                kept: Some(Arc::clone(resource)),
                ..Alone::new(ForwardReason::Stale, None)
            }),
        }
    }

    /// What a request may validate: `kept`; or, if that was still coming and broke off, what it was to
    /// replace.
    pub(crate) fn in_use(
        &self,
        kept: Arc<Resource>,
        (route, key): (&Route, &PoolKey),
        purged: PurgeStamp,
        (request, meta): (&RequestHead<'_, '_>, &RequestMeta<'_>),
    ) -> Option<Arc<Resource>> {
        if !kept.is_retired() {
            return Some(kept);
        }
        // Of another response than `kept` nobody has said that it is for those with credentials, too.
        if meta.has_authorization {
            return None;
        }
        let primary = route.primary_name(key, purged);
        self.find(&mut self.slots.lock(), (key, route, purged), primary, request)?.kept
    }

    /// The stored responses that match: the most specific, then the latest. `None`: the request has
    /// no secondary key.
    fn find(
        &self,
        slots: &mut HashMap<SegmentName, PoolSlot>,
        (key, route, purged): (&PoolKey, &Route, PurgeStamp),
        primary: SegmentName,
        request: &RequestHead<'_, '_>,
    ) -> Option<FoundVariants> {
        let varies = slots.get(&primary).map(|slot| slot.varies.clone()).unwrap_or_default();
        let mut found = FoundVariants { kept: None, gone: None, name: primary, has_others: false };
        for (place, vary) in varies.iter().enumerate() {
            let secondary = secondary_key(route, vary, request)?;
            let name = route.head_name(&key.variant(&secondary), purged);
            if place + 1 == varies.len() {
                found.name = name;
            }
            let (kept, gone) = self.usable(slots, name);
            found.gone = gone.or(found.gone);
            let Some(kept) = kept else { continue };
            if !is_for(&kept, request) {
                continue;
            }
            let is_better = found.kept.as_ref().is_none_or(|best| rank(&kept) > rank(best));
            if is_better {
                found.kept = Some(kept);
            }
        }
        found.has_others = !varies.is_empty() && self.usable(slots, primary).0.is_some();
        Some(found)
    }

    /// What is kept under a name; and what was, if it was purged or taken out of use.
    pub(super) fn usable(
        &self,
        slots: &mut HashMap<SegmentName, PoolSlot>,
        name: SegmentName,
    ) -> (Option<Arc<Resource>>, Option<Arc<Resource>>) {
        let Some(slot) = slots.get_mut(&name) else { return (None, None) };
        let gone = slot.drop_gone(self.slots.store());
        (slot.usable(monotonic_ms()).map(Arc::clone), gone)
    }

    fn flight(
        self: &Arc<Self>,
        flight: SingleFlight<SegmentName, FlightOutcome>,
        key: &PoolKey,
        found: FoundVariants,
        (purges, purged): (Arc<PurgeSnapshot>, PurgeStamp),
    ) -> Box<PoolFlight> {
        let (heads, key) = (Arc::clone(self), key.clone());
        let FoundVariants { kept, gone, .. } = found;
        let is_ahead = false;
        Box::new(PoolFlight {
            heads,
            key,
            kept,
            gone,
            purges,
            purged,
            is_ahead,
            place: None,
            flight,
        })
    }

    /// Stores a response, of a request that began when `purged` was the latest purge of its target.
    /// `replaces` is what its body, when it is complete, takes out of use.
    pub(crate) fn keep(
        &self,
        (route, key): (&Route, &PoolKey),
        purged: PurgeStamp,
        resource: &Arc<Resource>,
        replaces: Option<&Arc<Resource>>,
    ) {
        // Its body broke off before anybody could know of it.
        let Some(remote) = resource.remote().filter(|_| !resource.is_retired()) else { return };
        let primary = route.primary_name(key, purged);
        let variant = route.head_name(&key.variant(&remote.vary_key), purged);
        let vary = remote.head.meta.vary.clone();
        let put = |slot: &mut PoolSlot| {
            let old = slot.put(Arc::clone(resource), replaces);
            slot.charge = self.slots.charge(slot.kept_bytes());
            old
        };
        let replaced = self.slots.change(primary, |slot| {
            slot.learn_vary(vary, &remote.vary_key);
            slot.count_change();
            put(slot)
        });
        let replaced = match variant == primary {
            true => replaced,
            false => {
                // The lease was for one name; other nodes ask for both.
                [primary, variant].iter().for_each(|name| self.slots.store().announce(*name));
                let replaced = self.slots.change(variant, put);
                // Once more: a look-up in between has not found it.
                self.slots.lock().get(&primary).into_iter().for_each(PoolSlot::count_change);
                replaced
            }
        };
        let is_out_of_use = |old: &&Arc<Resource>| {
            let is_same_variant = old.remote().is_some_and(|old| old.vary_key == remote.vary_key);
            is_same_variant && !old.is_same_version(resource)
        };
        replaced.iter().filter(is_out_of_use).for_each(|old| old.retire(self.slots.store()));
        self.slots.store().fit();
    }

    /// Tells other nodes that this one has a response that came without a lease.
    pub(crate) fn announce(&self, (route, key): (&Route, &PoolKey), purged: PurgeStamp) {
        self.slots.store().announce(route.primary_name(key, purged));
    }

    /// Requests for these names do not wait for each other from now on; what is kept there and stale
    /// is dropped.
    fn mark(&self, name: SegmentName, ms: u64, why: &'static str) {
        let now_ms = monotonic_ms();
        let dropped = self.slots.change(name, |slot| {
            slot.mark = Some((now_ms + ms, why));
            slot.drop_stale(now_ms)
        });
        dropped.iter().for_each(|dropped| dropped.retire(self.slots.store()));
    }

    /// The peer head of this name, for another node: waits briefly for servers that are being asked,
    /// but for no other node, which may be waiting for this one.
    pub(crate) async fn head_for_peer(&self, name: SegmentName) -> Result<PeerHead, PeerRefusal> {
        let (kept, mark) = match self.slots.lock().get(&name) {
            Some(slot) => (slot.kept.clone(), slot.mark),
            None => (None, None),
        };
        if mark.is_some_and(|(until_ms, _)| monotonic_ms() < until_ms) {
            return Err(PeerRefusal::NotStored);
        }
        let unpurged = kept.filter(|kept| !kept.is_purged());
        let of = |resource: &Resource| peer_head::of(resource).ok_or(PeerRefusal::Mismatch);
        if let Some(kept) = unpurged.as_ref().filter(|kept| kept.is_current(monotonic_ms(), 0)) {
            return of(kept);
        }
        let outcome = match self.flights.outcome_for_peer(&name).await {
            // It is stale: the other one asks a server whether it still holds.
            Err(PeerRefusal::NotThere) => {
                let stale = unpurged.filter(|kept| kept.is_in_use(monotonic_ms()));
                return stale.map_or(Err(PeerRefusal::NotThere), |stale| of(&stale));
            }
            outcome => outcome?,
        };
        match outcome {
            FlightOutcome::Stored(resource) => of(&resource),
            FlightOutcome::Unstorable(_) => Err(PeerRefusal::NotStored),
            FlightOutcome::Stale(_) | FlightOutcome::Failed(_) => Err(PeerRefusal::OriginFailed),
        }
    }

    /// Removes all entries. Requests in progress continue.
    pub(crate) fn forget_all(&self) {
        self.slots.forget_all();
    }

    pub(crate) fn store(&self) -> &Arc<SegmentStore> {
        self.slots.store()
    }
}

/// The only request in progress for a variant, or for a key of which nothing is known. Its holder
/// must send it, and land it; dropped, it ends without an outcome, and the next one leads.
#[derive(Debug)]
pub(crate) struct PoolFlight {
    pub(super) heads: Arc<PoolHeads>,
    pub(super) key: PoolKey,
    pub(super) kept: Option<Arc<Resource>>,
    /// What was kept and is no longer available.
    pub(super) gone: Option<Arc<Resource>>,
    pub(super) purges: Arc<PurgeSnapshot>,
    pub(super) purged: PurgeStamp,
    /// It refreshes what is not stale yet.
    pub(super) is_ahead: bool,
    /// Of a background refresh: its place among those under way.
    pub(super) place: Option<RefreshPlace>,
    pub(super) flight: SingleFlight<SegmentName, FlightOutcome>,
}

impl PoolFlight {
    /// Its name in the cluster.
    pub(crate) fn name(&self) -> SegmentName {
        *self.flight.key()
    }

    /// Whether it refreshes what is not stale yet.
    pub(crate) fn is_ahead(&self) -> bool {
        self.is_ahead
    }

    /// The purges that its outcome is later than.
    pub(crate) fn purges(&self) -> &Arc<PurgeSnapshot> {
        &self.purges
    }

    /// The latest of them of its target.
    pub(crate) fn purged(&self) -> PurgeStamp {
        self.purged
    }

    /// Whether this response was found to be unavailable, though another node has it as fresh.
    pub(crate) fn is_gone(&self, resource: &Resource) -> bool {
        self.gone.as_ref().is_some_and(|gone| gone.is_same_version(resource))
    }

    /// Whether `resource` is what was found here.
    pub(crate) fn has(&self, resource: &Arc<Resource>) -> bool {
        self.kept.as_ref().is_some_and(|kept| Arc::ptr_eq(kept, resource))
    }

    /// The stored response, to be validated: of the one that is here and `stale`, which another node
    /// had, the later one.
    pub(crate) fn kept_or(&self, stale: Option<Arc<Resource>>) -> Option<Arc<Resource>> {
        // Of equals the last: its bytes are here.
        stale.into_iter().chain(self.kept.clone()).max_by_key(|it| rank(it))
    }

    /// Keeps a stale response of another node's, until it is replaced.
    pub(crate) fn keep_stale(&self, route: &Route, stale: &Arc<Resource>) {
        self.heads.keep((route, &self.key), self.purged, stale, None);
    }

    /// Whether others wait for its outcome, here or on other nodes.
    pub(crate) fn is_awaited(&self) -> bool {
        self.flight.is_awaited()
    }

    /// Records that from now on it waits for servers alone.
    pub(crate) fn asks_pool(&self) {
        self.flight.asks_origin();
    }

    /// A response came that may be stored; `replaces` is as for [`PoolHeads::keep`].
    pub(crate) fn land_stored(
        self,
        route: &Route,
        resource: Arc<Resource>,
        replaces: Option<&Arc<Resource>>,
    ) {
        self.heads.keep((route, &self.key), self.purged, &resource, replaces);
        if self.is_ahead() {
            let (name, key) = (self.name(), (route, &self.key));
            self.heads.keep_refreshed(key, self.purged, name, &resource);
        }
        self.flight.land(FlightOutcome::Stored(resource));
    }

    /// A response came that may not be stored. `mark_ms`: how long requests go on their own; 0 if it
    /// is because of the request that it answers, so that it says nothing of others.
    pub(crate) fn land_unstorable(self, mark_ms: u64, why: &'static str) {
        // What is there holds on; it is not tried again at each request.
        let mark_ms = if self.is_ahead() { mark_ms.max(MARK_ERROR_MS) } else { mark_ms };
        if mark_ms > 0 {
            self.heads.mark(self.name(), mark_ms, why);
        } else if self.place.is_some() {
            self.heads.pause_refreshes(self.name());
        }
        self.flight.land(FlightOutcome::Unstorable(why));
    }

    /// No server answered. For a moment nobody asks again.
    pub(crate) fn land_failed(self, refusal: Refusal) {
        self.pause(OriginFailure::Disconnected, Some(refusal.clone()));
        self.flight.land(FlightOutcome::Failed(refusal));
    }

    /// The stored response is used although it is stale, because of `failure`: by those who waited,
    /// too, and for a moment by all.
    pub(crate) fn land_stale(self, kept: Arc<Resource>, failure: OriginFailure) {
        self.pause(failure, None);
        self.flight.land(FlightOutcome::Stale(kept));
    }

    fn pause(&self, failure: OriginFailure, refusal: Option<Refusal>) {
        let until_ms = monotonic_ms() + POOL_FAILED_MS;
        self.heads.slots.change(self.name(), |slot| {
            slot.failed = Some((until_ms, failure, refusal));
        });
    }
}

impl Paused {
    /// What becomes of a request; `None`: it goes on.
    fn verdict(
        self,
        kept: Option<&Arc<Resource>>,
        cache: &PoolCache,
        reason: ForwardReason,
        now_ms: u64,
    ) -> Option<LookupDecision> {
        match self {
            Self::Marked(why) => {
                let kept = kept.map(Arc::clone);
                Some(LookupDecision::Alone(Alone { kept, ..Alone::new(reason, Some(why)) }))
            }
            Self::Failed(failure, refusal) => match stale_after(kept, failure, cache, now_ms) {
                Some((kept, rule)) => Some(LookupDecision::Hit(kept, Some(rule.token()))),
                None => refusal.map(LookupDecision::Failed),
            },
        }
    }
}
