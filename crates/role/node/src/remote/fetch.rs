//! Single flights: from an origin's answer to what all who ask are served.

use std::rc::Rc;
use std::sync::Arc;

use skep_origin::freshness::{Revalidated, revalidate};
use skep_origin::{Condition, FaultKind, OriginError, OriginReply};
use skep_telemetry::CacheResult;
use skep_units::SEGMENT_BYTES;

use super::RemoteSite;
use super::client::{Asked, Passed, Remotes, is_trouble};
use super::head_cache::{HeadOutcome, PassFor, SingleFlight};
use super::kept::{Freshness, Got};
use super::segment::RemoteSegment;
use super::{kept, peer_head};
use crate::cluster::{HeadLease, HeadSought, renewing};
use crate::fetch_error::FetchError;
use crate::limits::{PASS_MS, PASS_NO_ROOM_MS, PASS_OTHER_MS};
use crate::purges::Snapshot;
use crate::resource::Resource;
use crate::site::Site;
use crate::store::Acquired;

/// What an origin made of an ask.
enum Answer {
    /// This may be served from now on, or still; with what the cache did for it.
    Resource(Arc<Resource>, CacheResult),
    /// It is not to be kept.
    Passed(Box<OriginReply>),
    /// It might be kept, and there is no memory for it.
    NoRoom(Box<OriginReply>),
    Failed(FetchError),
}

/// Asks for what the flight is for, and completes it.
pub(super) async fn run_flight(
    remotes: &Rc<Remotes>,
    site: &Arc<Site>,
    flight: SingleFlight,
) -> HeadOutcome<Box<Passed>> {
    let Some(remote) = &site.remote else { return HeadOutcome::Failed(FetchError::OriginChanged) };
    let target = flight.target().to_vec();
    let lease = match seek(remotes, site, remote, &flight).await {
        Sought::Found(resource) => {
            flight.complete(HeadOutcome::Resource(Arc::clone(&resource), CacheResult::Peer));
            return HeadOutcome::Resource(resource, CacheResult::Peer);
        }
        Sought::Lease(lease) => Some(lease),
        Sought::Nothing => None,
    };
    flight.asks_origin();
    let answer = answer_under(lease.as_ref(), remotes, site, remote, &flight).await;
    let is_held = matches!(&answer, Answer::Resource(..));
    let outcome = complete(remotes, site, remote, &target, flight, answer).await;
    if let Some(lease) = lease {
        lease.end(is_held);
    }
    outcome
}

/// What other nodes know of a head.
enum Sought {
    Found(Arc<Resource>),
    /// Nothing, and this one is to ask for all.
    Lease(HeadLease),
    Nothing,
}

async fn seek(
    remotes: &Rc<Remotes>,
    site: &Arc<Site>,
    remote: &RemoteSite,
    flight: &SingleFlight,
) -> Sought {
    let Some(peer_client) = &remotes.peer_client else { return Sought::Nothing };
    let read = |peer_head: &_| {
        let read = peer_head::read(site, remote, flight.target(), peer_head, flight.purges());
        read.filter(|resource| !flight.is_gone(resource))
    };
    match peer_client.seek_head(flight.name(), read).await {
        HeadSought::Found(resource) => Sought::Found(resource),
        HeadSought::Granted(lease) => Sought::Lease(lease),
        HeadSought::Nowhere => Sought::Nothing,
    }
}

/// Asks, and meanwhile says from time to time that it does.
async fn answer_under(
    lease: Option<&HeadLease>,
    remotes: &Rc<Remotes>,
    site: &Arc<Site>,
    remote: &RemoteSite,
    flight: &SingleFlight,
) -> Answer {
    let answer = answer(remotes, site, remote, flight);
    match lease {
        Some(lease) => renewing(answer, || lease.renew()).await,
        None => answer.await,
    }
}

async fn complete(
    remotes: &Rc<Remotes>,
    site: &Arc<Site>,
    remote: &RemoteSite,
    target: &[u8],
    flight: SingleFlight,
    answer: Answer,
) -> HeadOutcome<Box<Passed>> {
    match answer {
        Answer::Resource(resource, cache_result) => {
            flight.complete(HeadOutcome::Resource(Arc::clone(&resource), cache_result));
            HeadOutcome::Resource(resource, cache_result)
        }
        Answer::Failed(error) => {
            flight.complete(HeadOutcome::Failed(error));
            HeadOutcome::Failed(error)
        }
        Answer::NoRoom(reply) => {
            flight.complete(HeadOutcome::Passed(PassFor { ms: PASS_NO_ROOM_MS }));
            remotes.pass_on(site, remote, *reply).await
        }
        Answer::Passed(reply) => {
            let is_part = reply.head.status == 206 && reply.head.end != reply.head.total_bytes;
            let status = reply.head.status;
            match status {
                // An origin in trouble says nothing of what it does when well.
                _ if is_trouble(status) => {
                    flight.complete(HeadOutcome::Failed(FetchError::OriginStatus(status)));
                }
                200..300 => flight.complete(HeadOutcome::Passed(PassFor { ms: PASS_MS })),
                // There may be something to keep any moment.
                _ => flight.complete(HeadOutcome::Passed(PassFor { ms: PASS_OTHER_MS })),
            }
            if !is_part {
                return remotes.pass_on(site, remote, *reply).await;
            }
            drop(reply);
            remotes.pass(site, remote, target).await
        }
    }
}

async fn answer(
    remotes: &Rc<Remotes>,
    site: &Arc<Site>,
    remote: &RemoteSite,
    flight: &SingleFlight,
) -> Answer {
    let target = flight.target();
    let mut kept = flight.kept().filter(|kept| !kept.is_retired());
    loop {
        let head = kept.and_then(|kept| Some(&kept.remote()?.head));
        let condition = head.map_or(Condition::None, |head| Condition::Unless(head.validators()));
        // The head and the first segment by one exchange.
        let asked = Asked { target, range: Some(0..SEGMENT_BYTES), condition };
        let reply = match remotes.ask(site, remote, asked).await {
            Ok(reply) if !is_trouble(reply.head.status) => reply,
            failed => return on_failure(flight, failed),
        };
        if reply.head.status != 304 {
            return judge(remotes, site, remote, flight, reply).await;
        }
        let Some((kept_resource, head)) = kept.zip(head) else {
            tracing::warn!(origin = %reply.origin, "an origin answered 304 without having been asked");
            return Answer::Failed(FetchError::Origin(FaultKind::Malformed));
        };
        match revalidate(head, &reply.head) {
            Revalidated::Kept(head) => {
                let renewed = renewed(site, remote, kept_resource, *head, flight.purges());
                return Answer::Resource(renewed, CacheResult::Revalidated);
            }
            // Without conditions there is no further 304.
            Revalidated::AskAgain | Revalidated::Replaced => kept = None,
        }
    }
}

/// RFC 5861 4: what was good before may do. Whoever comes soon after does not wait
/// for the same failure again, unless the origin has something to say to each.
fn on_failure(flight: &SingleFlight, failed: Result<OriginReply, OriginError>) -> Answer {
    let error = match &failed {
        Ok(reply) => FetchError::OriginStatus(reply.head.status),
        Err(error) => FetchError::from(error),
    };
    let usable = |kept: &&Arc<Resource>| !kept.is_retired() && kept.may_do_on_error();
    if let Some(kept) = flight.kept().filter(usable) {
        flight.pause(error);
        return Answer::Resource(Arc::clone(kept), CacheResult::Hit);
    }
    match failed {
        Ok(reply) => Answer::Passed(Box::new(reply)),
        Err(OriginError { fault, .. }) => {
            if fault.blames_origin() {
                flight.pause(error);
            }
            Answer::Failed(error)
        }
    }
}

/// The same version under a newer head.
fn renewed(
    site: &Arc<Site>,
    remote: &RemoteSite,
    kept: &Arc<Resource>,
    head: skep_origin::Head,
    purges: &Snapshot,
) -> Arc<Resource> {
    let (bytes, got_after) = (kept.variants.plain.bytes(), kept.variants.plain.purged());
    let (target, version) = kept
        .remote()
        .map_or_else(Default::default, |old| (old.target.to_vec(), old.version.to_vec()));
    // It may have come from a node that knew more.
    let purged = kept::purged(site, &purges.known, &target, &head).max(got_after);
    let freshness = Freshness::of(&head, remote);
    kept::resource(site, remote, Got { target, version, bytes, head, purged }, freshness, purges)
}

/// Keeps an answer, if it may be kept, and begins to read its body.
async fn judge(
    remotes: &Rc<Remotes>,
    site: &Arc<Site>,
    remote: &RemoteSite,
    flight: &SingleFlight,
    reply: OriginReply,
) -> Answer {
    let Some((bytes, version)) = kept::version(&reply.head) else {
        return Answer::Passed(Box::new(reply));
    };
    let (head, target, purges) = (reply.head.clone(), flight.target(), flight.purges());
    let freshness = Freshness::of(&head, remote);
    let purged = kept::purged(site, &purges.known, target, &head);
    let got = Got { target: target.to_vec(), version, bytes, head, purged };
    let resource = kept::resource(site, remote, got, freshness, purges);
    let object = &resource.variants.plain;
    if bytes > 0 {
        let may_fill = remotes.store.room_to_fill(Some(&remote.fills)).await;
        let is_here = remotes.store.has(&object.segment_name(0));
        if !may_fill && !is_here && reply.head.end == Some(bytes) {
            // All of it is on its way, and may not come a second time.
            return Answer::NoRoom(Box::new(reply));
        }
        // Before anybody hears of the object: who asks next joins this.
        let may_acquire = may_fill || is_here;
        let acquired = may_acquire.then(|| remotes.store.acquire(object.wanted(0)));
        if let Some(Acquired::Fill(filler)) = acquired {
            let segment = RemoteSegment::new(remotes, &resource, 0).with(reply);
            if let Some(known) = remotes.fill(filler, segment) {
                // Before other nodes hear of the object, too: else one of them may
                // be told to ask for what has just come. An end tells as much.
                drop(known.await);
            }
        }
    }
    Answer::Resource(resource, CacheResult::Fill)
}
