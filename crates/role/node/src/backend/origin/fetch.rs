//! Single flights: turn an origin's response into the outcome for all waiting requests.

use std::rc::Rc;
use std::sync::Arc;

use skep_origin::{Condition, FaultKind, OriginError, OriginReply, Revalidated};
use skep_segments::{Acquired, FetchError};
use skep_serve::monotonic_ms;
use skep_telemetry::CacheResult;
use skep_units::SEGMENT_BYTES;
use tokio::sync::oneshot;

use super::client::{OriginRequest, Passed, Remotes, is_origin_failure};
use super::head_cache::{HeadFlight, HeadLookup, HeadOutcome, PassFor};
use super::kept::{FetchedHead, NotKept};
use super::segment::RemoteSegment;
use super::{kept, peer_head};
use crate::limits::{ATTEMPTS_MAX, PASS_MS, PASS_NO_ROOM_MS, PASS_OTHER_MS};
use crate::model::fault::fetch_error;
use crate::model::freshness::{self, ResourceFreshness};
use crate::model::origin_backend::OriginBackend;
use crate::model::purges::PurgeSnapshot;
use crate::model::resource::Resource;
use crate::model::route::Route;
use crate::peers::{HeadLease, HeadSought, renewing};

/// The outcome of a request to an origin.
enum AskOutcome {
    /// The resource may be served; with the cache result.
    Resource(Arc<Resource>, CacheResult),
    /// The response is not cacheable; with the reason, unless it is a failure.
    Passed(Box<OriginReply>, Option<NotKept>),
    /// The response is cacheable, but there is no memory for it.
    NoRoom(Box<OriginReply>),
    Failed(FetchError),
}

impl Remotes {
    /// The resource at `target`, a path and query. Waits for at most one head.
    pub(crate) async fn find(
        self: &Rc<Self>,
        route: &Arc<Route>,
        origin: &OriginBackend,
        target: &[u8],
    ) -> HeadOutcome<Box<Passed>> {
        for _ in 0..ATTEMPTS_MAX {
            match self.origin_heads.look_up(route, target) {
                HeadLookup::Hit(resource) => {
                    return HeadOutcome::Resource(resource, CacheResult::Hit);
                }
                HeadLookup::Failed(error) => return HeadOutcome::Failed(error),
                HeadLookup::HitForPass(why) => {
                    return self.pass(route, origin, target, why).await;
                }
                HeadLookup::Stale(resource, flight) => {
                    drop(self.start_flight(route, flight));
                    return HeadOutcome::Resource(resource, CacheResult::Hit);
                }
                HeadLookup::Wait(mut flight) => match flight.outcome().await {
                    // It was requested before the purge, and possibly before this client's request.
                    Some(HeadOutcome::Resource(resource, _)) if resource.is_softly_purged() => {}
                    Some(HeadOutcome::Resource(resource, cache_result)) => {
                        let is_fill = cache_result == CacheResult::Fill;
                        let cache_result = if is_fill { CacheResult::Miss } else { cache_result };
                        return HeadOutcome::Resource(resource, cache_result);
                    }
                    Some(HeadOutcome::Failed(error)) => return HeadOutcome::Failed(error),
                    Some(HeadOutcome::Passed(PassFor { why, .. })) => {
                        return self.pass(route, origin, target, why).await;
                    }
                    None => {}
                },
                HeadLookup::Lead(flight) => {
                    if let Ok(outcome) = self.start_flight(route, flight).await {
                        return outcome;
                    }
                }
            }
        }
        // The flights were purged, or their workers ended: the origin is not the cause.
        HeadOutcome::Failed(FetchError::Abandoned)
    }

    /// The resource at `target`, cached or fetched now, unless the response is for one client only.
    pub(super) async fn kept(
        self: &Rc<Self>,
        route: &Arc<Route>,
        origin: &OriginBackend,
        target: &[u8],
    ) -> Option<Arc<Resource>> {
        if matches!(self.origin_heads.look_up(route, target), HeadLookup::HitForPass(_)) {
            return None;
        }
        match self.find(route, origin, target).await {
            HeadOutcome::Resource(resource, _) => Some(resource),
            _ => None,
        }
    }

    /// Runs a flight in its own task: waiting requests and the cache must not depend on the client
    /// whose request started it.
    fn start_flight(
        self: &Rc<Self>,
        route: &Arc<Route>,
        flight: HeadFlight,
    ) -> oneshot::Receiver<HeadOutcome<Box<Passed>>> {
        let (sender, receiver) = oneshot::channel();
        let (remotes, route) = (Rc::clone(self), Arc::clone(route));
        tokio::task::spawn_local(async move {
            let outcome = run_flight(&remotes, &route, flight).await;
            // The receiver may be gone.
            drop(sender.send(outcome));
        });
        receiver
    }
}

/// Sends the flight's request, and completes the flight.
pub(super) async fn run_flight(
    remotes: &Rc<Remotes>,
    route: &Arc<Route>,
    flight: HeadFlight,
) -> HeadOutcome<Box<Passed>> {
    let Some(origin) = route.origin() else {
        debug_assert!(false, "only a route with an origin has flights to it");
        return HeadOutcome::Failed(FetchError::Abandoned);
    };
    let target = flight.target().to_vec();
    let lease = match seek(remotes, route, origin, &flight).await {
        Sought::Found(resource) => {
            flight.complete(HeadOutcome::Resource(Arc::clone(&resource), CacheResult::Peer));
            return HeadOutcome::Resource(resource, CacheResult::Peer);
        }
        Sought::Lease(lease) => Some(lease),
        Sought::Nothing => None,
    };
    flight.asks_origin();
    let answer = answer_under(lease.as_ref(), remotes, route, origin, &flight).await;
    let is_held = matches!(&answer, AskOutcome::Resource(..));
    let outcome = complete(remotes, route, origin, &target, flight, answer).await;
    if let Some(lease) = lease {
        lease.end(is_held);
    }
    outcome
}

/// The result of asking other nodes for a head.
enum Sought {
    Found(Arc<Resource>),
    /// No node has it, and this one has the lease to fetch it.
    Lease(HeadLease),
    Nothing,
}

async fn seek(
    remotes: &Rc<Remotes>,
    route: &Arc<Route>,
    origin: &OriginBackend,
    flight: &HeadFlight,
) -> Sought {
    let Some(peer_client) = &remotes.peer_client else { return Sought::Nothing };
    let read = |peer_head: &_, transit_ms| {
        let came = (peer_head, transit_ms);
        let read = peer_head::read(route, origin, flight.target(), came, flight.purges());
        read.filter(|resource| !flight.is_gone(resource))
    };
    match peer_client.seek_head(flight.name(), read).await {
        HeadSought::Found(resource) => Sought::Found(resource),
        HeadSought::Granted(lease) => Sought::Lease(lease),
        HeadSought::NotStored | HeadSought::Nowhere => Sought::Nothing,
    }
}

/// Asks the origin and renews the lease until it answers.
async fn answer_under(
    lease: Option<&HeadLease>,
    remotes: &Rc<Remotes>,
    route: &Arc<Route>,
    origin: &OriginBackend,
    flight: &HeadFlight,
) -> AskOutcome {
    let answer = answer(remotes, route, origin, flight);
    match lease {
        Some(lease) => renewing(answer, || lease.renew()).await,
        None => answer.await,
    }
}

async fn complete(
    remotes: &Rc<Remotes>,
    route: &Arc<Route>,
    origin: &OriginBackend,
    target: &[u8],
    flight: HeadFlight,
    answer: AskOutcome,
) -> HeadOutcome<Box<Passed>> {
    match answer {
        AskOutcome::Resource(resource, cache_result) => {
            flight.complete(HeadOutcome::Resource(Arc::clone(&resource), cache_result));
            HeadOutcome::Resource(resource, cache_result)
        }
        AskOutcome::Failed(error) => {
            flight.complete(HeadOutcome::Failed(error));
            HeadOutcome::Failed(error)
        }
        AskOutcome::NoRoom(reply) => {
            let why = Some(NotKept::NoMemory);
            flight.complete(HeadOutcome::Passed(PassFor { ms: PASS_NO_ROOM_MS, why }));
            remotes.pass_on(route, origin, *reply, why).await
        }
        AskOutcome::Passed(reply, why) => {
            let is_part = reply.head.meta.status == 206 && reply.head.end != reply.head.total_bytes;
            let status = reply.head.meta.status;
            match status {
                // The response of a failing origin does not show how it responds otherwise.
                _ if is_origin_failure(status) => {
                    flight.complete(HeadOutcome::Failed(FetchError::OriginStatus(status)));
                }
                200..300 => flight.complete(HeadOutcome::Passed(PassFor { ms: PASS_MS, why })),
                // The origin may have a storable response at any moment.
                _ => flight.complete(HeadOutcome::Passed(PassFor { ms: PASS_OTHER_MS, why })),
            }
            if !is_part {
                return remotes.pass_on(route, origin, *reply, why).await;
            }
            drop(reply);
            remotes.pass(route, origin, target, why).await
        }
    }
}

async fn answer(
    remotes: &Rc<Remotes>,
    route: &Arc<Route>,
    origin: &OriginBackend,
    flight: &HeadFlight,
) -> AskOutcome {
    let target = flight.target();
    let mut kept = flight.kept().filter(|kept| !kept.is_retired());
    loop {
        let head = kept.and_then(|kept| Some(&kept.remote()?.head));
        let condition = head.map_or(Condition::None, |head| Condition::Unless(head.validators()));
        // One exchange returns the head and the first segment.
        let asked = OriginRequest { target, range: Some(0..SEGMENT_BYTES), condition };
        let reply = match remotes.ask(route, origin, asked).await {
            Ok(reply) if !is_origin_failure(reply.head.meta.status) => reply,
            failed => return failed_with(flight, origin, failed),
        };
        if reply.head.meta.status != 304 {
            return judge(remotes, route, origin, flight, reply).await;
        }
        let Some((kept_resource, head)) = kept.zip(head) else {
            tracing::warn!(origin = %reply.origin, "an origin answered 304 to an unconditional request");
            return AskOutcome::Failed(fetch_error(FaultKind::Malformed));
        };
        match head.revalidated(&reply.head, &origin.policy) {
            Revalidated::Kept(head) => {
                let renewed = renewed(route, origin, kept_resource, *head, flight.purges());
                return AskOutcome::Resource(renewed, CacheResult::Revalidated);
            }
            // Without conditions there is no second 304.
            Revalidated::AskAgain | Revalidated::Replaced => kept = None,
        }
    }
}

/// RFC 5861 4: a stale resource may be used. Later requests do not wait for the same failure again
/// for a while, unless the origin sent a response to pass to each client.
fn failed_with(
    flight: &HeadFlight,
    origin: &OriginBackend,
    failed: Result<OriginReply, OriginError>,
) -> AskOutcome {
    let error = match &failed {
        Ok(reply) => FetchError::OriginStatus(reply.head.meta.status),
        Err(error) => fetch_error(error.fault.kind()),
    };
    let usable = |kept: &&Arc<Resource>| {
        !kept.is_retired() && kept::may_do_after(error, kept, origin, monotonic_ms())
    };
    if let Some(kept) = flight.kept().filter(usable) {
        flight.pause(error);
        return AskOutcome::Resource(Arc::clone(kept), CacheResult::Hit);
    }
    match failed {
        Ok(reply) => AskOutcome::Passed(Box::new(reply), None),
        Err(OriginError { fault, .. }) => {
            if fault.blames_origin() {
                flight.pause(error);
            }
            AskOutcome::Failed(error)
        }
    }
}

/// The same version with the updated head.
fn renewed(
    route: &Arc<Route>,
    origin: &OriginBackend,
    kept: &Arc<Resource>,
    head: skep_origin::Head,
    purges: &PurgeSnapshot,
) -> Arc<Resource> {
    let bytes = kept.variants.plain.bytes();
    let (target, version, is_from_peer) = kept.remote().map_or_else(Default::default, |old| {
        (old.target.to_vec(), old.version.to_vec(), old.is_from_peer)
    });
    // The stored response may come from a node that knew later purges.
    let purged = freshness::purged(route, purges, &target, &head).max(kept.purges_before());
    let freshness = ResourceFreshness::of(&head, &origin.policy);
    kept::resource(
        route,
        origin,
        FetchedHead { target, version, bytes, head, purged, is_from_peer },
        freshness,
        purges,
    )
}

/// Caches a response if allowed, and begins to read its body.
async fn judge(
    remotes: &Rc<Remotes>,
    route: &Arc<Route>,
    origin: &OriginBackend,
    flight: &HeadFlight,
    reply: OriginReply,
) -> AskOutcome {
    let (bytes, version) = match kept::version(&reply.head, origin) {
        Ok(kept) => kept,
        Err(why) => return AskOutcome::Passed(Box::new(reply), Some(why)),
    };
    let (head, target, purges) = (reply.head.clone(), flight.target(), flight.purges());
    let freshness = ResourceFreshness::of(&head, &origin.policy);
    let purged = freshness::purged(route, purges, target, &head);
    let target = target.to_vec();
    let got = FetchedHead { target, version, bytes, head, purged, is_from_peer: false };
    let resource = kept::resource(route, origin, got, freshness, purges);
    let object = &resource.variants.plain;
    if bytes > 0 {
        let may_fill = remotes.store.room_to_fill(Some(&origin.fills)).await;
        let is_here = remotes.store.has(&object.segment_name(0));
        if !may_fill && !is_here && reply.head.end == Some(bytes) {
            // The whole body is being received, and may not be sent a second time.
            return AskOutcome::NoRoom(Box::new(reply));
        }
        // Acquired before the object is published: the next request joins this fill.
        let may_acquire = may_fill || is_here;
        let acquired = may_acquire.then(|| remotes.store.acquire(object.wanted(0)));
        if let Some(Acquired::Fill(filler)) = acquired {
            let segment = RemoteSegment::new(remotes, &resource, 0).with(reply);
            if let Some(known) = remotes.fill(filler, segment) {
                // Awaited before the object is announced to other nodes: otherwise one of them
                // could be asked to fetch what was just received. A dropped sender counts as well.
                drop(known.await);
            }
        }
    }
    AskOutcome::Resource(resource, CacheResult::Fill)
}
