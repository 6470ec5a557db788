//! The cache of heads that origins sent, for all workers: what each path of the sites
//! with origins leads to.
//!
//! A single flight is the one request to an origin for a head. While it is under way all
//! other requests for that head wait for its outcome; if it is dropped without one, they
//! are told. After some outcomes nobody asks for a time: the last one holds.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hashbrown::HashMap;
use skep_directory::PurgeTable;
use skep_segments::{Charge, FetchError, HeadAccount, SegmentStore};
use skep_serve::monotonic_ms;
use skep_telemetry::CacheResult;
use skep_wire::cache::{ObjectName, PeerRefusal, SegmentName};
use tokio::sync::watch;

use super::peer_head::{self, PeerHead};
use crate::limits::{FAILED_MS, HEAD_SLOT_BYTES, HEAD_WAIT_MS, LEASE_WAIT_MS};
use crate::model::purges::Snapshot;
use crate::model::resource::Resource;
use crate::model::route::Route;

/// The outcome of a request for a head. `P` describes an answer that is not cached.
#[derive(Clone, Debug)]
pub(crate) enum HeadOutcome<P> {
    /// The resource may be served; with what the cache did for it.
    Resource(Arc<Resource>, CacheResult),
    /// The answer is passed on to one client, and not cached.
    Passed(P),
    /// The origin failed.
    Failed(FetchError),
}

/// Tells those who waited for an answer that was passed on: each client asks for itself,
/// for so many milliseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PassFor {
    pub(crate) ms: u64,
}

/// The progress of a single flight, as those see it who wait for it.
#[derive(Clone, Debug)]
pub(crate) enum FlightState {
    /// It may wait for another node.
    AskingPeers,
    /// It waits for an origin alone.
    AskingOrigin,
    Done(HeadOutcome<PassFor>),
}

/// What the cache knows of a path.
pub(crate) enum HeadLookup {
    /// The resource may be served.
    Hit(Arc<Resource>),
    /// The resource may be served, but the caller must ask as well.
    Stale(Arc<Resource>, SingleFlight),
    /// Answers for the path are not cached (Varnish: hit-for-pass).
    HitForPass,
    /// The origin has just failed.
    Failed(FetchError),
    /// A single flight is under way.
    Wait(watch::Receiver<FlightState>),
    /// The caller must ask.
    Lead(SingleFlight),
}

/// Caches the heads that origins sent, by path, and lets one request at a time ask for
/// each of them.
#[derive(Debug)]
pub(crate) struct OriginHeadCache {
    store: Arc<SegmentStore>,
    account: Arc<HeadAccount>,
    slots: Mutex<HashMap<SegmentName, Slot>>,
    slots_max: usize,
}

#[derive(Debug)]
struct Slot {
    /// For the slot and what is kept.
    charge: Charge,
    kept: Option<Arc<Resource>>,
    /// Until then nobody asks, by the monotonic clock in milliseconds, and why.
    pause: Option<(u64, Pause)>,
    flight: Option<watch::Receiver<FlightState>>,
}

/// Why nobody asks for all.
#[derive(Clone, Copy, Debug)]
enum Pause {
    /// Answers are for one.
    Passed,
    /// The origin failed.
    Failed(FetchError),
}

impl Slot {
    fn new(account: &Arc<HeadAccount>) -> Self {
        Self { charge: Self::charge(account, 0), kept: None, pause: None, flight: None }
    }

    fn charge(account: &Arc<HeadAccount>, kept_bytes: usize) -> Charge {
        account.charge(HEAD_SLOT_BYTES + kept_bytes)
    }
}

impl OriginHeadCache {
    /// An empty cache for at most `slots_max` paths.
    pub(crate) fn new(store: &Arc<SegmentStore>, slots_max: usize) -> Arc<Self> {
        let (store, account) = (Arc::clone(store), store.account());
        Arc::new(Self { store, account, slots: Mutex::default(), slots_max })
    }

    /// What is known of `target` of a route.
    pub(crate) fn look_up(self: &Arc<Self>, route: &Route, target: &[u8]) -> HeadLookup {
        let purges = route.purges.load();
        let name = head_name(route, target, &purges.known);
        let now_ms = monotonic_ms();
        let mut slots = self.lock();
        let is_full = slots.len() >= self.slots_max || self.account.is_full();
        if is_full && !slots.contains_key(&name) {
            let gone = make_room(&mut slots, self.slots_max, &self.account);
            self.store.withdraw(gone.into_iter());
        }
        let slot = slots.entry(name).or_insert_with(|| Slot::new(&self.account));
        let gone = slot.kept.take_if(|kept| kept.is_retired() || kept.is_purged());
        if let Some(kept) = &gone {
            kept.drop_purged(&self.store);
        }
        if let Some(kept) = slot.kept.as_ref().filter(|kept| kept.is_current(now_ms, 0)) {
            kept.mark_used();
            return HeadLookup::Hit(Arc::clone(kept));
        }
        let usable = |kept: &&Arc<Resource>| {
            kept.freshness().is_some_and(|fresh| fresh.is_usable_while_asking(now_ms))
        };
        let usable = slot.kept.as_ref().filter(usable).map(Arc::clone);
        match slot.pause.filter(|(until_ms, _)| now_ms < *until_ms) {
            Some((_, Pause::Passed)) => return HeadLookup::HitForPass,
            Some((_, Pause::Failed(error))) => {
                let may_do = slot.kept.as_ref().filter(|kept| kept.may_do_on_error());
                let may_do = usable.or_else(|| may_do.map(Arc::clone));
                return may_do.map_or(HeadLookup::Failed(error), HeadLookup::Hit);
            }
            None => {}
        }
        match (&slot.flight, usable) {
            (Some(_), Some(kept)) => HeadLookup::Hit(kept),
            (Some(flight), None) => HeadLookup::Wait(flight.clone()),
            (None, usable) => {
                let (sender, receiver) = watch::channel(FlightState::AskingPeers);
                slot.flight = Some(receiver);
                let (cache, kept) = (Arc::clone(self), slot.kept.clone());
                let target = target.into();
                let flight = SingleFlight { cache, name, target, kept, gone, purges, sender };
                match usable {
                    Some(kept) => HeadLookup::Stale(kept, flight),
                    None => HeadLookup::Lead(flight),
                }
            }
        }
    }

    /// What another node is told of the head of this name: waits a little for an
    /// origin that is being asked, but for no other node, which may wait for us.
    pub(crate) async fn head_for_peer(&self, name: SegmentName) -> Result<PeerHead, PeerRefusal> {
        let mut flight = {
            let slots = self.lock();
            let slot = slots.get(&name).ok_or(PeerRefusal::NotThere)?;
            let unpurged = slot.kept.as_ref().filter(|kept| !kept.is_purged());
            if let Some(kept) = unpurged.filter(|kept| kept.is_current(monotonic_ms(), 0)) {
                return peer_head::of(kept).ok_or(PeerRefusal::Mismatch);
            }
            slot.flight.as_ref().ok_or(PeerRefusal::NotThere)?.clone()
        };
        // The lease that the other has heard of may still be on its way to us.
        let asks = flight.wait_for(|state| !matches!(state, FlightState::AskingPeers));
        let asks = tokio::time::timeout(Duration::from_millis(LEASE_WAIT_MS), asks).await;
        drop(asks.ok().and_then(Result::ok).ok_or(PeerRefusal::NotThere)?);
        let limit = Duration::from_millis(HEAD_WAIT_MS);
        match tokio::time::timeout(limit, wait_for_outcome(&mut flight)).await {
            Err(_) => Err(PeerRefusal::Overloaded),
            Ok(None) => Err(PeerRefusal::NotThere),
            Ok(Some(HeadOutcome::Resource(resource, _))) => {
                peer_head::of(&resource).ok_or(PeerRefusal::Mismatch)
            }
            Ok(Some(_)) => Err(PeerRefusal::OriginFailed),
        }
    }

    /// Forgets all but who is asking.
    pub(crate) fn forget_all(&self) {
        let mut slots = self.lock();
        let gone = slots.extract_if(|_, slot| slot.flight.is_none()).map(|(name, _)| name);
        self.store.withdraw(gone.collect::<Vec<_>>().into_iter());
        slots.shrink_to_fit();
    }

    /// Takes a resource out because the origin has another by now, or none.
    pub(crate) fn retire(&self, resource: &Resource) {
        resource.retire(&self.store);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<SegmentName, Slot>> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Waits for the outcome of a flight; `None`: it was dropped without one.
pub(crate) async fn wait_for_outcome(
    flight: &mut watch::Receiver<FlightState>,
) -> Option<HeadOutcome<PassFor>> {
    let state = flight.wait_for(|state| matches!(state, FlightState::Done(_))).await.ok()?;
    match &*state {
        FlightState::Done(outcome) => Some(outcome.clone()),
        FlightState::AskingPeers | FlightState::AskingOrigin => None,
    }
}

/// The one request under way for the head of a path. Its holder has to ask, and to
/// complete it; all others wait for it.
#[derive(Debug)]
pub(crate) struct SingleFlight {
    cache: Arc<OriginHeadCache>,
    name: SegmentName,
    target: Box<[u8]>,
    kept: Option<Arc<Resource>>,
    /// What was kept and can't be had any more.
    gone: Option<Arc<Resource>>,
    /// Known when it began.
    purges: Arc<Snapshot>,
    sender: watch::Sender<FlightState>,
}

impl SingleFlight {
    /// Path and query.
    pub(crate) fn target(&self) -> &[u8] {
        &self.target
    }

    /// What the head is called in the cluster.
    pub(crate) fn name(&self) -> SegmentName {
        self.name
    }

    /// Purges that what it brings is later than.
    pub(crate) fn purges(&self) -> &Snapshot {
        &self.purges
    }

    /// Says that from now on it waits for an origin alone.
    pub(crate) fn asks_origin(&self) {
        self.sender.send_replace(FlightState::AskingOrigin);
    }

    /// What is there, to be asked about.
    pub(crate) fn kept(&self) -> Option<&Arc<Resource>> {
        self.kept.as_ref()
    }

    /// Whether this is what was found to be had no more, though another node says
    /// that it is fresh.
    pub(crate) fn is_gone(&self, resource: &Resource) -> bool {
        self.gone.as_ref().is_some_and(|gone| gone.is_same_version(resource))
    }

    /// Nobody is to ask again soon: the origin failed.
    pub(crate) fn pause(&self, error: FetchError) {
        let mut slots = self.cache.lock();
        let slot = slots.entry(self.name).or_insert_with(|| Slot::new(&self.cache.account));
        slot.pause = Some((monotonic_ms() + FAILED_MS, Pause::Failed(error)));
    }

    /// Keeps what the flight brought, and tells those who wait.
    pub(crate) fn complete(self, outcome: HeadOutcome<PassFor>) {
        let mut replaced = None;
        {
            let mut slots = self.cache.lock();
            let slot = slots.entry(self.name).or_insert_with(|| Slot::new(&self.cache.account));
            match &outcome {
                HeadOutcome::Resource(resource, _) => {
                    slot.charge = Slot::charge(&self.cache.account, resource.memory_bytes());
                    replaced = slot.kept.replace(Arc::clone(resource));
                }
                HeadOutcome::Passed(PassFor { ms }) => {
                    replaced = slot.kept.take();
                    slot.pause = Some((monotonic_ms() + ms, Pause::Passed));
                }
                HeadOutcome::Failed(_) => {}
            }
        }
        if let Some(replaced) = replaced
            && !matches!(&outcome, HeadOutcome::Resource(new, _) if new.is_same_version(&replaced))
        {
            self.cache.retire(&replaced);
        }
        self.cache.store.fit();
        self.sender.send_replace(FlightState::Done(outcome));
    }
}

impl Drop for SingleFlight {
    fn drop(&mut self) {
        let mut slots = self.cache.lock();
        if let Some(slot) = slots.get_mut(&self.name) {
            slot.flight = None;
            if slot.kept.is_none() && slot.pause.is_none() {
                slots.remove(&self.name);
            }
        }
    }
}

/// What the head of a target is called: as a segment that no object has. A purge
/// of the target gives it another name; one by tag, which only the head tells,
/// does not.
fn head_name(route: &Route, target: &[u8], known: &PurgeTable) -> SegmentName {
    let kind = format!("head of route {}", route.index);
    let purged = route.purged(known, target);
    ObjectName::head(route.key(), target, kind.as_bytes(), purged)
}

/// Forgets some of what was not used since the last time, then of anything; but no
/// flight. Tells what is gone.
fn make_room(
    slots: &mut HashMap<SegmentName, Slot>,
    slots_max: usize,
    account: &HeadAccount,
) -> Vec<SegmentName> {
    let is_unused = |slot: &Slot| slot.kept.as_ref().is_none_or(|kept| !kept.take_used());
    let mut surplus = (slots.len() + 1).saturating_sub(slots_max * 7 / 8);
    let mut gone = Vec::new();
    for spares_used in [true, false] {
        let is_to_go = |slot: &Slot, surplus| {
            let is_crowded = surplus > 0 || !account.is_roomy();
            is_crowded && slot.flight.is_none() && (!spares_used || is_unused(slot))
        };
        slots.retain(|name, slot| {
            let goes = is_to_go(slot, surplus);
            surplus = surplus.saturating_sub(usize::from(goes));
            goes.then(|| gone.push(*name));
            !goes
        });
    }
    if slots.capacity() / 4 > slots.len() {
        slots.shrink_to_fit();
    }
    gone
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use skep_origin::FaultKind;
    use skep_wire::cache::ToCoordinator;

    use super::super::fault::fetch_error;
    use super::super::rig::{node, resource};
    use super::*;

    fn lead(cache: &Arc<OriginHeadCache>, route: &Route) -> SingleFlight {
        let HeadLookup::Lead(flight) = cache.look_up(route, b"/a") else { panic!("nobody asks") };
        flight
    }

    #[test]
    fn heads_that_leave_are_not_said_to_be_here_any_longer() {
        let (route, store) = (node(), SegmentStore::new(1 << 20, usize::MAX, true));
        let cache = OriginHeadCache::new(&store, 8);
        let completed = |target: &[u8]| {
            let HeadLookup::Lead(flight) = cache.look_up(&route, target) else {
                panic!("nobody asks")
            };
            let kept = resource(&route, 5, "ETag: \"v\"\r\nCache-Control: max-age=9\r\n");
            let name = flight.name();
            flight.complete(HeadOutcome::Resource(kept, CacheResult::Fill));
            name
        };
        let names: Vec<_> = (0..9_u8).map(|number| completed(&[b'/', b'a' + number])).collect();
        let mut told = Vec::new();
        for delta in store.changes() {
            let ToCoordinator::Delta { removed, .. } = delta else { panic!("{delta:?}") };
            told.extend(removed);
        }
        assert!(!told.is_empty() && told.iter().all(|name| names.contains(name)), "{told:?}");
        assert_eq!(told.len() + cache.lock().len(), names.len());
    }

    #[test]
    fn behind_a_failure_nobody_asks_for_a_time() {
        let (route, cache) =
            (node(), OriginHeadCache::new(&SegmentStore::new(1 << 20, usize::MAX, false), 10));
        let flight = lead(&cache, &route);
        let late = fetch_error(FaultKind::Late);
        flight.pause(late);
        flight.complete(HeadOutcome::Failed(late));
        assert!(matches!(cache.look_up(&route, b"/a"), HeadLookup::Failed(error) if error == late));
        assert!(matches!(cache.look_up(&route, b"/b"), HeadLookup::Lead(_)));
    }

    #[test]
    fn behind_a_failure_what_is_stale_may_do() {
        let (route, cache) =
            (node(), OriginHeadCache::new(&SegmentStore::new(1 << 20, usize::MAX, false), 10));
        let words = "ETag: \"v\"\r\nCache-Control: max-age=0";
        for (more, may_do) in [(", stale-if-error=60\r\n", true), ("\r\n", false)] {
            let kept = resource(&route, 5, &format!("{words}{more}"));
            let flight = match cache.look_up(&route, b"/a") {
                HeadLookup::Lead(flight) => flight,
                _ => panic!("nobody asks"),
            };
            flight.complete(HeadOutcome::Resource(kept, CacheResult::Fill));
            let flight = lead(&cache, &route);
            assert!(flight.kept().is_some());
            let failed = FetchError::OriginStatus(502);
            flight.pause(failed);
            flight.complete(HeadOutcome::Failed(failed));
            match cache.look_up(&route, b"/a") {
                HeadLookup::Hit(_) => assert!(may_do),
                HeadLookup::Failed(error) => assert!(!may_do && error == failed),
                _ => panic!("somebody asks"),
            }
            cache.lock().clear();
        }
    }

    #[test]
    fn a_single_flight_knows_what_is_gone() {
        let (route, cache) =
            (node(), OriginHeadCache::new(&SegmentStore::new(1 << 20, usize::MAX, false), 10));
        let fresh = "ETag: \"v\"\r\nCache-Control: max-age=60\r\n";
        let kept = resource(&route, 5, fresh);
        lead(&cache, &route).complete(HeadOutcome::Resource(Arc::clone(&kept), CacheResult::Fill));
        cache.retire(&kept);
        let flight = lead(&cache, &route);
        assert!(flight.is_gone(&resource(&route, 5, fresh)));
        assert!(!flight.is_gone(&resource(&route, 6, fresh)));
    }
}
