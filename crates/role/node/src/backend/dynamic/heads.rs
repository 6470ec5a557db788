//! The cache of response heads of pool servers, shared by all workers: under each primary key the responses
//! to requests with different fields, and the state of the key.

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

/// The outcome for the waiting requests.
#[derive(Clone, Debug)]
pub(crate) enum FlightOutcome {
    /// A response that may be stored; [`PoolHeads::answers`] determines whether it answers a waiting request.
    Stored(Arc<Resource>),
    /// It may not be stored, for this reason: each request is forwarded by itself.
    Unstorable(&'static str),
    /// A stored response that is stale, since no server sent a better one.
    Stale(Arc<Resource>),
    /// No server answered.
    Failed(Refusal),
}

/// The result of a look-up.
pub(crate) enum PoolLookup {
    /// Send it; the look-up may be reused for as long as the version is current.
    Hit(Arc<Resource>, Option<SeenVersion>),
    /// Send it although it is stale, for this reason.
    Unrefreshed(Arc<Resource>, &'static str),
    /// Send it, and refresh it since it is stale or soon will be; `None`: another request does.
    Stale(Arc<Resource>, Option<Box<PoolFlight>>),
    /// Another request is in progress.
    Wait(FlightWaiter<FlightOutcome>, ForwardReason),
    /// The caller must forward the request for all that wait.
    Lead(Box<PoolFlight>, ForwardReason),
    /// The caller forwards the request for itself only; `kept` is to be validated.
    Alone(Alone),
    /// No server answered a moment ago.
    Failed(Refusal),
    /// 504: the client accepts only a stored response.
    OnlyIfCached,
}

#[derive(Debug)]
pub(crate) struct PoolHeads {
    pub(super) slots: HeadSlots<PoolSlot>,
    /// The last decisions on responses, for operators.
    pub(super) judgements: Judgements,
    /// Copies of responses of unknown length.
    pub(super) copies: Arc<Copies>,
    pub(super) flights: Arc<Flights<SegmentName, FlightOutcome>>,
}

/// The decision for a request, before it is known whether another one is in progress.
pub(super) enum LookupDecision {
    /// Send it; with the reason if it is sent although stale.
    Hit(Arc<Resource>, Option<&'static str>),
    /// Send it, and refresh it.
    HitWhileRefreshed(Arc<Resource>, FoundVariants),
    /// Forward the request for all that wait.
    Ask(FoundVariants, ForwardReason),
    Alone(Alone),
    Failed(Refusal),
    OnlyIfCached,
}

/// The result of a search under a key, while the slots are locked.
#[derive(Clone)]
pub(super) struct FoundVariants {
    /// The response that answers the request.
    pub(super) kept: Option<Arc<Resource>>,
    /// A matching response that is no longer available.
    gone: Option<Arc<Resource>>,
    /// The name of the request's own variant; the primary name while no Vary is known.
    name: SegmentName,
    /// Whether a response to other requests is stored.
    has_others: bool,
}

impl PoolHeads {
    /// An empty cache for at most `slots_max` names.
    pub(crate) fn new(store: &Arc<SegmentStore>, slots_max: usize) -> Arc<Self> {
        let (slots, flights) = (HeadSlots::new(store, slots_max), Flights::new());
        Arc::new(Self { slots, judgements: Judgements::default(), copies: Arc::default(), flights })
    }

    /// Looks up the response to `request`; `meta` contains its fields that matter for caching.
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
        // Flights are joined while the slots are locked: an outcome must not exist without being in its slot.
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

    /// The background refresh of a stale response that is sent meanwhile; `None`: a refresh is in progress or
    /// paused, or there are too many.
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

    /// Records that a background refresh of this name has failed: there is no other one for
    /// [`POOL_FAILED_MS`].
    pub(crate) fn pause_refreshes(&self, name: SegmentName) {
        let until_ms = monotonic_ms() + POOL_FAILED_MS;
        self.slots.change(name, |slot| slot.refreshes_paused_until_ms = until_ms);
    }

    /// Decides on `request` without regard to requests in progress.
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

    /// Whether `resource`, which another request has just fetched, answers this one; `Err`: this request must
    /// be forwarded by itself.
    pub(crate) fn answers(
        resource: &Arc<Resource>,
        cache: &PoolCache,
        request: &RequestHead<'_, '_>,
        meta: &RequestMeta<'_>,
    ) -> Result<bool, Alone> {
        if !is_for(resource, request) {
            return Ok(false);
        }
        // Compares with the purges, so that a soft purge since the fetch makes it stale.
        let is_late = resource.is_softly_purged();
        match judge(resource, cache, meta, monotonic_ms()) {
            Judged::Send | Judged::SendAndValidate => Ok(true),
            // One request validates it for all.
            Judged::Validate if is_late => Ok(false),
            Judged::Alone(alone) => Err(alone),
            // Waiting again for each response would serialise the requests.
            Judged::Validate | Judged::OnlyIfCached => Err(Alone {
                kept: Some(Arc::clone(resource)),
                ..Alone::new(ForwardReason::Stale, None)
            }),
        }
    }

    /// The response that a request may validate: `kept`, or the one that `kept` was to replace if its body
    /// broke off.
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
        // A response other than `kept` was not checked for requests with credentials.
        if meta.has_authorization {
            return None;
        }
        let primary = route.primary_name(key, purged);
        self.find(&mut self.slots.lock(), (key, route, purged), primary, request)?.kept
    }

    /// Searches the stored responses that match; the most specific, then the latest takes precedence. `None`:
    /// the request has no secondary key.
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

    /// The usable response under a name, and the previous one if it was purged or taken out of use.
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

    /// Stores a response to a request that began when `purged` was the latest purge of its target. When its
    /// body is complete, `replaces` is taken out of use.
    pub(crate) fn keep(
        &self,
        (route, key): (&Route, &PoolKey),
        purged: PurgeStamp,
        resource: &Arc<Resource>,
        replaces: Option<&Arc<Resource>>,
    ) {
        // Its body broke off before it was published.
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
                // The lease was for one of the names; other nodes ask for both.
                [primary, variant].iter().for_each(|name| self.slots.store().announce(*name));
                let replaced = self.slots.change(variant, put);
                // Counted again: a look-up in between did not find it.
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

    /// Announces to coordinators that this node has a response that it got without a lease.
    pub(crate) fn announce(&self, (route, key): (&Route, &PoolKey), purged: PurgeStamp) {
        self.slots.store().announce(route.primary_name(key, purged));
    }

    /// Marks a name: requests for it do not wait for each other from now on; stale responses under it are
    /// dropped.
    fn mark(&self, name: SegmentName, ms: u64, why: &'static str) {
        let now_ms = monotonic_ms();
        let dropped = self.slots.change(name, |slot| {
            slot.mark = Some((now_ms + ms, why));
            slot.drop_stale(now_ms)
        });
        dropped.iter().for_each(|dropped| dropped.retire(self.slots.store()));
    }

    /// The peer head of this name, for another node: waits briefly for servers that are being asked, but not
    /// for other nodes, which may be waiting for this one.
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
            // A stale response is sent, too: the requester validates it at a server.
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

/// The only request in progress for a variant, or for a key without known variants. Its holder must forward
/// it and land it; if it is dropped, it ends without an outcome and the next request leads.
#[derive(Debug)]
pub(crate) struct PoolFlight {
    pub(super) heads: Arc<PoolHeads>,
    pub(super) key: PoolKey,
    pub(super) kept: Option<Arc<Resource>>,
    /// The stored response that is no longer available.
    pub(super) gone: Option<Arc<Resource>>,
    pub(super) purges: Arc<PurgeSnapshot>,
    pub(super) purged: PurgeStamp,
    /// Whether it refreshes a response that is not stale yet.
    pub(super) is_ahead: bool,
    /// The slot of a background refresh.
    pub(super) place: Option<RefreshPlace>,
    pub(super) flight: SingleFlight<SegmentName, FlightOutcome>,
}

impl PoolFlight {
    /// Its name in the cluster.
    pub(crate) fn name(&self) -> SegmentName {
        *self.flight.key()
    }

    /// Whether it refreshes a response that is not stale yet.
    pub(crate) fn is_ahead(&self) -> bool {
        self.is_ahead
    }

    /// The purges that precede its outcome.
    pub(crate) fn purges(&self) -> &Arc<PurgeSnapshot> {
        &self.purges
    }

    /// The latest of these purges that applies to its target.
    pub(crate) fn purged(&self) -> PurgeStamp {
        self.purged
    }

    /// Whether this response was found to be unavailable here, although another node has it as fresh.
    pub(crate) fn is_gone(&self, resource: &Resource) -> bool {
        self.gone.as_ref().is_some_and(|gone| gone.is_same_version(resource))
    }

    /// Whether `resource` is the response that was found here.
    pub(crate) fn has(&self, resource: &Arc<Resource>) -> bool {
        self.kept.as_ref().is_some_and(|kept| Arc::ptr_eq(kept, resource))
    }

    /// The stored response to validate: the later one of the response found here and `stale`, which another
    /// node had.
    pub(crate) fn kept_or(&self, stale: Option<Arc<Resource>>) -> Option<Arc<Resource>> {
        // Of equal ones the last: its bytes are here.
        stale.into_iter().chain(self.kept.clone()).max_by_key(|it| rank(it))
    }

    /// Stores a stale response of another node until it is replaced.
    pub(crate) fn keep_stale(&self, route: &Route, stale: &Arc<Resource>) {
        self.heads.keep((route, &self.key), self.purged, stale, None);
    }

    /// Whether others wait for its outcome, here or on other nodes.
    pub(crate) fn is_awaited(&self) -> bool {
        self.flight.is_awaited()
    }

    /// Records that from now on it waits for servers only.
    pub(crate) fn asks_pool(&self) {
        self.flight.asks_origin();
    }

    /// Lands a response that may be stored; `replaces` is as for [`PoolHeads::keep`].
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

    /// Lands a response that may not be stored. `mark_ms`: time for which requests do not wait for each
    /// other; 0 if the reason is in the request itself, so that other requests are not concerned.
    pub(crate) fn land_unstorable(self, mark_ms: u64, why: &'static str) {
        // The stored response stays in use, and its refresh is not retried at each request.
        let mark_ms = if self.is_ahead() { mark_ms.max(MARK_ERROR_MS) } else { mark_ms };
        if mark_ms > 0 {
            self.heads.mark(self.name(), mark_ms, why);
        } else if self.place.is_some() {
            self.heads.pause_refreshes(self.name());
        }
        self.flight.land(FlightOutcome::Unstorable(why));
    }

    /// Lands the failure of all servers. No request is forwarded again for a moment.
    pub(crate) fn land_failed(self, refusal: Refusal) {
        self.pause(OriginFailure::Disconnected, Some(refusal.clone()));
        self.flight.land(FlightOutcome::Failed(refusal));
    }

    /// Lands the stored response, which is used although stale because of `failure`: by waiting requests, and
    /// for a moment by all.
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
    /// The decision for a paused request; `None`: it is not paused.
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
