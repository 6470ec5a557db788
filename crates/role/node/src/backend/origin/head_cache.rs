//! The cache of heads from origins, shared by all workers: the resource at each path of the routes
//! with origins.
//!
//! One request at a time fetches a head, in a [`SingleFlight`]. After some outcomes no requests are
//! sent for a while: the last outcome remains valid.

use std::sync::Arc;

use skep_directory::PurgeTable;
use skep_segments::{Charge, FetchError, SegmentStore};
use skep_serve::monotonic_ms;
use skep_telemetry::CacheResult;
use skep_wire::cache::{PeerRefusal, SegmentName};

use super::kept::{self, NotKept};
use super::peer_head;
use crate::backend::head_slots::{HeadSlot, HeadSlots};
use crate::backend::single_flight::{FlightRole, FlightWaiter, Flights, SingleFlight};
use crate::limits::FAILED_MS;
use crate::model::peer::PeerHead;
use crate::model::purges::PurgeSnapshot;
use crate::model::resource::Resource;
use crate::model::route::Route;

/// The outcome of a request for a head. `P` describes a response that is not cached.
#[derive(Clone, Debug)]
pub(crate) enum HeadOutcome<P> {
    /// The resource may be served; with the cache result.
    Resource(Arc<Resource>, CacheResult),
    /// The response is passed on to one client, and not cached.
    Passed(P),
    /// The origin failed.
    Failed(FetchError),
}

/// The outcome for requests that waited for a response that was passed on: for `ms` milliseconds each
/// client's request is forwarded separately.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PassFor {
    pub(crate) ms: u64,
    /// The reason why it is not cached.
    pub(crate) why: Option<NotKept>,
}

/// The state of a path.
pub(crate) struct HeadExplained {
    pub(crate) kept: Option<Arc<Resource>>,
    /// Time until which requests do not share a response, by the monotonic clock in milliseconds, and
    /// the reason as a token. The time may have passed.
    pub(crate) pause: Option<(u64, &'static str)>,
}

/// The result of a look-up in the cache.
pub(crate) enum HeadLookup {
    /// The resource may be served.
    Hit(Arc<Resource>),
    /// The resource may be served, but the caller must ask as well.
    Stale(Arc<Resource>, HeadFlight),
    /// Responses for the path are not cached, for this reason (Varnish: hit-for-pass).
    HitForPass(Option<NotKept>),
    /// The origin has just failed.
    Failed(FetchError),
    /// Another request is in progress.
    Wait(FlightWaiter<HeadOutcome<PassFor>>),
    /// The caller must ask.
    Lead(HeadFlight),
}

/// Caches heads from origins, by path, and limits requests for each head to one at a time.
#[derive(Debug)]
pub(crate) struct OriginHeadCache {
    slots: HeadSlots<OriginSlot>,
    flights: Arc<Flights<SegmentName, HeadOutcome<PassFor>>>,
}

#[derive(Debug)]
struct OriginSlot {
    /// Charge for the slot and its resource.
    charge: Charge,
    kept: Option<Arc<Resource>>,
    /// Time until which no requests are sent, by the monotonic clock in milliseconds, and the reason.
    pause: Option<(u64, Backoff)>,
}

/// The reason why no shared request is sent.
#[derive(Clone, Copy, Debug)]
enum Backoff {
    /// Responses are not cached.
    Passed(Option<NotKept>),
    /// The origin failed.
    Failed(FetchError),
}

impl HeadSlot for OriginSlot {
    fn empty(charge: Charge) -> Self {
        Self { charge, kept: None, pause: None }
    }

    fn take_used(&self) -> bool {
        self.kept.as_ref().is_some_and(|kept| kept.take_used())
    }
}

impl OriginHeadCache {
    /// An empty cache for at most `slots_max` paths.
    pub(crate) fn new(store: &Arc<SegmentStore>, slots_max: usize) -> Arc<Self> {
        Arc::new(Self { slots: HeadSlots::new(store, slots_max), flights: Flights::new() })
    }

    /// Looks up `target` of a route.
    pub(crate) fn look_up(self: &Arc<Self>, route: &Route, target: &[u8]) -> HeadLookup {
        let purges = route.purges.load();
        let name = head_name(route, target, purges.hard());
        let now_ms = monotonic_ms();
        let mut slots = self.slots.lock();
        let gone = slots
            .get_mut(&name)
            .and_then(|slot| slot.kept.take_if(|kept| kept.is_retired() || kept.is_purged()));
        if let Some(kept) = &gone {
            kept.drop_purged(self.slots.store());
        }
        if slots.get(&name).is_some_and(|slot| slot.kept.is_none() && slot.pause.is_none()) {
            slots.remove(&name);
        }
        let slot = slots.get(&name);
        let kept = slot.and_then(|slot| slot.kept.clone());
        if let Some(kept) = kept.as_ref().filter(|kept| kept.is_current(now_ms, 0)) {
            kept.mark_used();
            return HeadLookup::Hit(Arc::clone(kept));
        }
        let origin = route.origin();
        let is_usable = |kept: &Arc<Resource>| {
            origin.is_some_and(|origin| kept::may_do_meanwhile(kept, origin, now_ms))
        };
        let usable = kept.clone().filter(is_usable);
        let pause = slot.and_then(|slot| slot.pause.filter(|(until_ms, _)| now_ms < *until_ms));
        match pause {
            Some((_, Backoff::Passed(why))) => return HeadLookup::HitForPass(why),
            Some((_, Backoff::Failed(error))) => {
                let is_usable = |kept: &Arc<Resource>| {
                    origin.is_some_and(|origin| kept::may_do_after(error, kept, origin, now_ms))
                };
                let may_do = usable.or_else(|| kept.filter(is_usable));
                return may_do.map_or(HeadLookup::Failed(error), HeadLookup::Hit);
            }
            None => {}
        }
        // Joined while the slots are locked: an outcome must not exist without being in its slot.
        let flight = match (self.flights.join(&name), &usable) {
            (FlightRole::Lead(flight), _) => flight,
            (FlightRole::Wait(_), Some(kept)) => return HeadLookup::Hit(Arc::clone(kept)),
            (FlightRole::Wait(flight), None) => return HeadLookup::Wait(flight),
        };
        let (cache, target) = (Arc::clone(self), target.into());
        let flight = HeadFlight { cache, target, kept, gone, purges, flight };
        match usable {
            Some(kept) => HeadLookup::Stale(kept, flight),
            None => HeadLookup::Lead(flight),
        }
    }

    /// The state of `target` of a route, for operators; has no effect.
    pub(crate) fn explain(&self, route: &Route, target: &[u8]) -> HeadExplained {
        let name = head_name(route, target, route.purges.load().hard());
        let slots = self.slots.lock();
        let slot = slots.get(&name);
        let kept = slot.and_then(|slot| slot.kept.clone()).filter(|it| !it.is_purged());
        let pause = slot.and_then(|slot| slot.pause).map(|(until_ms, pause)| {
            let why = match pause {
                Backoff::Passed(why) => why.map_or("not-stored", NotKept::token),
                Backoff::Failed(_) => "no-answer",
            };
            (until_ms, why)
        });
        HeadExplained { kept: kept.filter(|it| !it.is_retired()), pause }
    }

    /// The peer head of this name, for another node: waits briefly for an origin that is being asked,
    /// but not for other nodes, which may be waiting for this one.
    pub(crate) async fn head_for_peer(&self, name: SegmentName) -> Result<PeerHead, PeerRefusal> {
        let kept = self.slots.lock().get(&name).and_then(|slot| slot.kept.clone());
        let unpurged = kept.filter(|kept| !kept.is_purged());
        if let Some(kept) = unpurged.filter(|kept| kept.is_current(monotonic_ms(), 0)) {
            return peer_head::of(&kept).ok_or(PeerRefusal::Mismatch);
        }
        match self.flights.outcome_for_peer(&name).await? {
            HeadOutcome::Resource(resource, _) => {
                peer_head::of(&resource).ok_or(PeerRefusal::Mismatch)
            }
            _ => Err(PeerRefusal::OriginFailed),
        }
    }

    /// Removes all entries. Requests in progress continue.
    pub(crate) fn forget_all(&self) {
        self.slots.forget_all();
    }

    /// Takes a resource out of use because the origin now has another version, or none.
    pub(crate) fn retire(&self, resource: &Resource) {
        resource.retire(self.slots.store());
    }
}

/// The only request in progress for the head of a path. Its holder must send it and complete it.
#[derive(Debug)]
pub(crate) struct HeadFlight {
    cache: Arc<OriginHeadCache>,
    target: Box<[u8]>,
    kept: Option<Arc<Resource>>,
    /// The cached resource that is no longer available.
    gone: Option<Arc<Resource>>,
    /// The purges known when it began.
    purges: Arc<PurgeSnapshot>,
    flight: SingleFlight<SegmentName, HeadOutcome<PassFor>>,
}

impl HeadFlight {
    /// Path and query.
    pub(crate) fn target(&self) -> &[u8] {
        &self.target
    }

    /// The name of the head in the cluster.
    pub(crate) fn name(&self) -> SegmentName {
        *self.flight.key()
    }

    /// The purges that precede its outcome.
    pub(crate) fn purges(&self) -> &PurgeSnapshot {
        &self.purges
    }

    /// Records that from now on it waits for an origin only.
    pub(crate) fn asks_origin(&self) {
        self.flight.asks_origin();
    }

    /// The cached resource, to revalidate.
    pub(crate) fn kept(&self) -> Option<&Arc<Resource>> {
        self.kept.as_ref()
    }

    /// Whether this resource was found to be unavailable here, although another node reports it as
    /// fresh.
    pub(crate) fn is_gone(&self, resource: &Resource) -> bool {
        self.gone.as_ref().is_some_and(|gone| gone.is_same_version(resource))
    }

    /// Prevents further requests for a while: the origin failed.
    pub(crate) fn pause(&self, error: FetchError) {
        self.change(|slot| slot.pause = Some((monotonic_ms() + FAILED_MS, Backoff::Failed(error))));
    }

    /// Stores the outcome of the flight, and wakes its waiters.
    pub(crate) fn complete(self, outcome: HeadOutcome<PassFor>) {
        let replaced = match &outcome {
            HeadOutcome::Resource(resource, _) => self.change(|slot| {
                slot.charge = self.cache.slots.charge(resource.memory_bytes());
                slot.kept.replace(Arc::clone(resource))
            }),
            HeadOutcome::Passed(PassFor { ms, why }) => self.change(|slot| {
                slot.pause = Some((monotonic_ms() + ms, Backoff::Passed(*why)));
                slot.kept.take()
            }),
            HeadOutcome::Failed(_) => None,
        };
        if let Some(replaced) = replaced
            && !matches!(&outcome, HeadOutcome::Resource(new, _) if new.is_same_version(&replaced))
        {
            self.cache.retire(&replaced);
        }
        self.cache.slots.store().fit();
        self.flight.land(outcome);
    }

    /// Changes the state of the path, in a slot of its own.
    fn change<R>(&self, change: impl FnOnce(&mut OriginSlot) -> R) -> R {
        self.cache.slots.change(self.name(), change)
    }
}

/// The name of a target's head: that of a segment that no object has. A purge of the target
/// changes the name; a purge by tag does not, since only the head contains the tags.
fn head_name(route: &Route, target: &[u8], known: &PurgeTable) -> SegmentName {
    let purged = route.purged(known, target);
    route.head_name(target, purged)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use skep_origin::FaultKind;
    use skep_wire::cache::ToCoordinator;

    use super::super::rig::{node, resource};
    use super::*;
    use crate::model::fault::fetch_error;

    fn lead(cache: &Arc<OriginHeadCache>, route: &Route) -> HeadFlight {
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
        assert_eq!(told.len() + cache.slots.lock().len(), names.len());
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
            cache.slots.lock().clear();
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
