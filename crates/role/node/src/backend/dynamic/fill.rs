//! Decides how a response of a pool's server is handled: it is stored and answers all waiting requests, or it
//! is passed to the client that asked and the other requests are released.
//!
//! ```text
//!  head --> 304, 5xx with something stale --------------> that, renewed or as it is
//!    |----> may not be stored, too long, no memory -----> passed; flight: each for itself
//!    |----> known length ----> segment; flight: complete now, all read along
//!    '----> unknown length --> copied --end--> segment; flight: complete
//!             |                  '--longer, no memory, held up--> flight: each for itself
//!             '--> the client that asked, as it comes; if it wants a part, has a condition, or is one
//!                  of HTTP/1.0: from the segment, or it asks anew
//! ```

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;

use skep_http::{RequestHead, ResponseFraming, ResponseHead};
use skep_httpcache::{
    CacheStatus, CachingRule, ExchangeTimes, ForwardReason, OriginFailure, RequestMeta,
    ResponseMeta, SecondaryKey, is_stored_field, store,
};
use skep_origin::{Head, Revalidated};
use skep_proxy::{Tap, TapBody, Tapped};
use skep_segments::Acquired;
use skep_serve::{monotonic_ms, unix_ms};
use skep_units::SEGMENT_BYTES;
use skep_wire::cache::PurgeStamp;

use super::body::{BodyWriter, PoolSegment};
use super::heads::{PoolFlight, PoolHeads};
use super::judge::{secondary_key, stale_after};
use super::received::{ReceivedHead, resource};
use super::response_copy::{CopyFull, ResponseCopy};
use super::slot::Refusal;
use crate::backend::origin::once;
use crate::limits::{DISCARDED_BYTES_MAX, MARK_ERROR_MS, MARK_MS};
use crate::model::freshness::{self, ResourceFreshness};
use crate::model::pool_cache::{PoolCache, PoolKey};
use crate::model::purges::PurgeSnapshot;
use crate::model::resource::Resource;
use crate::model::route::Route;
use crate::peers::{HeadLease, PeerClient, read_all};

/// Where a response is stored.
pub(crate) struct FillPlan {
    pub(crate) heads: Arc<PoolHeads>,
    pub(crate) peer_client: Option<Rc<PeerClient>>,
    pub(crate) route: Arc<Route>,
    pub(crate) key: PoolKey,
    /// The purges known before the request.
    pub(crate) purges: Arc<PurgeSnapshot>,
    /// The latest of these purges that applies to the target.
    pub(crate) purged: PurgeStamp,
    /// The stored response to validate.
    pub(crate) kept: Option<Arc<Resource>>,
}

impl FillPlan {
    /// The stored response to validate, if it is still in use; otherwise the response that it was to replace
    /// when its body broke off.
    pub(crate) fn kept_now(
        &self,
        of: (&RequestHead<'_, '_>, &RequestMeta<'_>),
    ) -> Option<Arc<Resource>> {
        self.heads.in_use(self.kept.clone()?, (&self.route, &self.key), self.purged, of)
    }
}

/// The request that others wait for, on this node and, with a lease, on all nodes.
pub(crate) struct Led {
    pub(crate) flight: Box<PoolFlight>,
    pub(crate) lease: Option<HeadLease>,
}

/// Properties of the client's request that are not forwarded.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wishes {
    /// Why the request is forwarded.
    pub(crate) reason: ForwardReason,
    /// The reason, as a token, if no other request waits for it.
    pub(crate) why: Option<&'static str>,
    /// `Some(false)`: it waited for another request without getting a usable response.
    pub(crate) collapsed: Option<bool>,
    /// The client requests a range.
    pub(crate) is_ranged: bool,
    /// The client accepts a response of unknown length while it is received.
    pub(crate) streams: bool,
}

/// How a fill ended.
#[derive(Debug)]
pub(crate) enum FillOutcome {
    /// The client received the response, or there was none.
    Passed,
    /// The response is stored, or will be when complete.
    Stored(Arc<Resource>),
    /// 304: the stored response was confirmed.
    Renewed(Arc<Resource>),
    /// The stored response is used although it is stale; with the status received, if any.
    Stale(Arc<Resource>, CachingRule, Option<u16>),
    /// 304 that does not match the stored response: ask again without conditions.
    AskAgain,
    /// The response may not be stored, and the client requests less than was received: ask again with the
    /// client's own fields.
    PassAgain(&'static str),
}

pub(crate) struct Fill<'r> {
    plan: FillPlan,
    request: &'r RequestHead<'r, 'r>,
    meta: RequestMeta<'r>,
    wishes: Wishes,
    led: Option<Led>,
    requested_unix_ms: u64,
    /// The status of the response; 0 before it is received.
    status: u16,
    stage: Stage,
    /// Whether the client is sent what is copied.
    is_streamed: bool,
    outcome: Cell<Option<FillOutcome>>,
}

enum Stage {
    /// Waits for the head.
    Waits,
    Copies(Box<Copied>),
    Fills(BodyWriter),
    /// The body is not needed.
    Discards(usize),
    /// The whole response was received and stored.
    Stored,
    Over,
}

/// A response of unknown length.
struct Copied {
    head: Head,
    vary_key: SecondaryKey,
    body: ResponseCopy,
}

/// The reason for not storing a response that is longer than a segment.
const TOO_LONG: &str = "too-long";

/// The reason for not storing a response, and the time for which requests of its key do not wait for each
/// other.
#[derive(Clone, Copy)]
struct Unstorable {
    why: &'static str,
    mark_ms: u64,
}

impl<'r> Fill<'r> {
    /// The fill of the response to `request`; others wait for it if there is a flight.
    pub(crate) fn new(
        plan: FillPlan,
        (request, meta): (&'r RequestHead<'r, 'r>, RequestMeta<'r>),
        wishes: Wishes,
        led: Option<Led>,
    ) -> Self {
        Self {
            plan,
            request,
            meta,
            wishes,
            led,
            requested_unix_ms: unix_ms(),
            status: 0,
            stage: Stage::Waits,
            is_streamed: false,
            outcome: Cell::new(None),
        }
    }

    /// The outcome, once the exchange is over.
    pub(crate) fn outcome(&self) -> FillOutcome {
        self.outcome.take().unwrap_or(FillOutcome::Passed)
    }

    /// Whether the client was sent the stored response while it was received.
    pub(crate) fn has_streamed(&self) -> bool {
        self.is_streamed && matches!(self.stage, Stage::Stored)
    }

    /// The flight and its plan, for another attempt.
    pub(crate) fn into_parts(self) -> (FillPlan, Option<Led>) {
        (self.plan, self.led)
    }

    /// Handles the failure of all servers: a stale response is used if allowed. Waiting requests share the
    /// failure only if it `concerns_all`: any other failure may be caused by this request, or by the server
    /// of its session, and sharing it would let one client have all others refused.
    pub(crate) fn failed(&mut self, refusal: &Refusal, concerns_all: bool) -> FillOutcome {
        let failure = OriginFailure::Disconnected;
        let kept = self.plan.kept_now((self.request, &self.meta));
        let stale = self
            .cache()
            .and_then(|cache| stale_after(kept.as_ref(), failure, cache, monotonic_ms()));
        let led = self.led.take().filter(|_| concerns_all);
        match stale {
            Some((kept, rule)) => {
                if let Some(Led { flight, .. }) = led {
                    flight.land_stale(Arc::clone(&kept), failure);
                }
                FillOutcome::Stale(kept, rule, None)
            }
            None => {
                // Otherwise the request may be the cause, and the next one leads.
                if let Some(Led { flight, .. }) = led.filter(|_| refusal.status == 503) {
                    flight.land_failed(refusal.clone());
                }
                FillOutcome::Passed
            }
        }
    }

    fn cache(&self) -> Option<&PoolCache> {
        self.plan.route.pool_cache()
    }

    fn end_with(&mut self, outcome: FillOutcome) {
        self.outcome.set(Some(outcome));
    }

    /// Decides how to handle a response; `Err`: it may not be stored.
    fn judge(&mut self, head: &ResponseHead<'_, '_>) -> Result<Tapped, Unstorable> {
        let of_policy = Unstorable { why: CachingRule::Status.token(), mark_ms: 0 };
        let Some(pool) = self.plan.route.pool() else { return Err(of_policy) };
        let Some(cache) = &pool.cache else { return Err(of_policy) };
        let times = ExchangeTimes {
            requested_unix_ms: self.requested_unix_ms,
            received_unix_ms: unix_ms(),
        };
        let meta = Head::meta_of_whole(head, times);
        let may_be_stored = self.may_be_stored(cache, &meta);
        if self.plan.kept.is_none() {
            // There is nothing to renew and no stale response to send instead.
            may_be_stored?;
        }
        let leaves_out =
            |name: &[u8], meta: &ResponseMeta| !is_stored_field(name, meta, &cache.policy);
        let received = Head::of_whole(head, meta, leaves_out);
        if let Some(kept) = self.plan.kept.clone().filter(|_| head.status == 304) {
            return Ok(self.renewed(&kept, &received));
        }
        let failure = OriginFailure::Status(head.status);
        let kept = self.plan.kept_now((self.request, &self.meta));
        if let Some((kept, rule)) = stale_after(kept.as_ref(), failure, cache, monotonic_ms()) {
            if let Some(Led { flight, .. }) = self.led.take() {
                flight.land_stale(Arc::clone(&kept), failure);
            }
            self.end_with(FillOutcome::Stale(kept, rule, Some(head.status)));
            self.stage = Stage::Discards(0);
            return Ok(Tapped::Take);
        }
        may_be_stored?;
        let vary_key = self.storable(cache, &received)?;
        let is_unbounded =
            matches!(head.framing, ResponseFraming::Chunked | ResponseFraming::UntilClose);
        let bytes = received.total_bytes.filter(|_| !is_unbounded);
        if bytes.is_none() && self.wishes.why == Some(TOO_LONG) {
            // The previous response was too long just now: do not copy each one in vain.
            return Err(Unstorable { why: TOO_LONG, mark_ms: MARK_MS });
        }
        cache.was_stored(true);
        Ok(match bytes {
            None => {
                let (copies, store) = (&self.plan.heads.copies, self.plan.heads.store());
                let body = ResponseCopy::new(copies, store, &cache.fills);
                self.is_streamed = self.wishes.streams;
                let lines = self.is_streamed.then(|| self.copied_lines(head, &received, cache));
                self.stage = Stage::Copies(Box::new(Copied { head: received, vary_key, body }));
                lines.map_or(Tapped::Take, Tapped::Copy)
            }
            Some(bytes) => {
                self.stage = Stage::Fills(self.begin(received, vary_key, bytes, None));
                Tapped::Take
            }
        })
    }

    /// Whether the rules allow a response to be stored.
    fn may_be_stored(&self, cache: &PoolCache, meta: &ResponseMeta) -> Result<(), Unstorable> {
        store(&self.meta, meta, &cache.policy).map(|_| ()).map_err(|rule| {
            let mark_ms = if is_of_request(rule) { 0 } else { mark_ms(meta.status) };
            Unstorable { why: rule.token(), mark_ms }
        })
    }

    /// The secondary key under which a storable response is stored.
    fn storable(&self, cache: &PoolCache, head: &Head) -> Result<SecondaryKey, Unstorable> {
        let because = |why| Unstorable { why, mark_ms: mark_ms(head.meta.status) };
        if !PoolCache::may_vary(&head.meta.vary) {
            return Err(because(CachingRule::VaryRefused.token()));
        }
        // The values of this request are too long: those of others may be shorter.
        let too_long = Unstorable { why: "vary-too-long", mark_ms: 0 };
        let vary_key =
            secondary_key(&self.plan.route, &head.meta.vary, self.request).ok_or(too_long)?;
        if head.total_bytes.is_some_and(|bytes| bytes > SEGMENT_BYTES) {
            return Err(because(TOO_LONG));
        }
        if !self.plan.heads.store().may_fill_beside(Some(&cache.fills)) {
            return Err(Unstorable { why: "no-memory", mark_ms: MARK_ERROR_MS });
        }
        Ok(vary_key)
    }

    /// Handles a 304 to the conditions that were sent.
    fn renewed(&mut self, kept: &Arc<Resource>, answer: &Head) -> Tapped {
        let (Some(cache), Some(remote)) = (self.cache(), kept.remote()) else {
            return Tapped::Stop;
        };
        let Revalidated::Kept(head) = remote.head.revalidated(answer, &cache.policy) else {
            self.end_with(FillOutcome::AskAgain);
            return Tapped::Stop;
        };
        let plan = &self.plan;
        // The stored response may come from a node that knew later purges.
        let purged = freshness::purged(&plan.route, &plan.purges, &plan.key.target, &head)
            .max(kept.purges_before());
        let freshness = ResourceFreshness::of(&head, &cache.policy);
        let received = ReceivedHead {
            key: &plan.key,
            version: remote.version.to_vec(),
            bytes: kept.variants.plain.bytes(),
            head: *head,
            vary_key: remote.vary_key.clone(),
            purged,
            is_from_peer: remote.is_from_peer,
        };
        let resource = resource(&plan.route, received, freshness, &plan.purges);
        cache.was_stored(true);
        self.land(Arc::clone(&resource), None, None);
        self.end_with(FillOutcome::Renewed(resource));
        self.stage = Stage::Discards(0);
        Tapped::Take
    }

    /// Stores a response of `bytes` bytes whose body was `copied` or is still being received.
    fn begin(
        &mut self,
        head: Head,
        vary_key: SecondaryKey,
        bytes: u64,
        copied: Option<ResponseCopy>,
    ) -> BodyWriter {
        let (writer, queue) = BodyWriter::new(copied);
        let Some(cache) = self.cache() else { return writer };
        let plan = &self.plan;
        let freshness = ResourceFreshness::of(&head, &cache.policy);
        let purged = freshness::purged(&plan.route, &plan.purges, &plan.key.target, &head);
        let (key, version, is_from_peer) = (&plan.key, once(), false);
        let received = ReceivedHead { key, version, bytes, head, vary_key, purged, is_from_peer };
        let resource = resource(&plan.route, received, freshness, &plan.purges);
        let (mut known, mut replaces) = (None, None);
        if bytes > 0 {
            let store = plan.heads.store();
            replaces = plan.kept.clone();
            let segment = PoolSegment::coming(store, &resource, queue, replaces.clone());
            // A new version is unknown to others, so this request gets the fill.
            if let Acquired::Fill(filler) = store.acquire(resource.variants.plain.wanted(0)) {
                match &plan.peer_client {
                    Some(peer_client) => known = Some(peer_client.fill(filler, segment)),
                    None => {
                        tokio::task::spawn_local(async move { read_all(&segment, filler).await });
                    }
                }
            }
        }
        self.land(Arc::clone(&resource), known, replaces);
        if !self.is_streamed {
            self.end_with(FillOutcome::Stored(resource));
        }
        writer
    }

    /// Publishes a response: here at once; to other nodes when the coordinator knows of its bytes, otherwise
    /// one of them could be asked to fetch what was just received.
    fn land(
        &mut self,
        resource: Arc<Resource>,
        known: Option<tokio::sync::oneshot::Receiver<()>>,
        replaces: Option<Arc<Resource>>,
    ) {
        let lifetime = resource.freshness().map(|it| it.rules(monotonic_ms()).0.source);
        self.judged(true, lifetime.unwrap_or(CachingRule::NoLifetime).token());
        let plan = &self.plan;
        let route = Arc::clone(&plan.route);
        let Some(Led { flight, lease }) = self.led.take() else {
            let (heads, key, purged) = (Arc::clone(&plan.heads), plan.key.clone(), plan.purged);
            heads.keep((&route, &key), purged, &resource, replaces.as_ref());
            return when_known(known, move || heads.announce((&route, &key), purged));
        };
        when_known(known, move || {
            flight.land_stored(&route, resource, replaces.as_ref());
            if let Some(lease) = lease {
                lease.end(true);
            }
        });
    }

    /// Releases all waiting requests because a response may not be stored, or no longer can be.
    fn release(&mut self, Unstorable { why, mark_ms }: Unstorable) {
        self.judged(false, why);
        // If no request could wait, as for a page known to be private, the result adds nothing about the
        // route.
        let is_new = self.led.is_some();
        if let Some(cache) = self.cache().filter(|_| is_new && mark_ms > 0) {
            cache.was_stored(false);
        }
        if let Some(Led { flight, lease }) = self.led.take() {
            flight.land_unstorable(mark_ms, why);
            if let Some(lease) = lease {
                // The holder stores the mark: other nodes get it from there.
                lease.end(mark_ms == MARK_MS);
            }
        }
        self.stage = Stage::Over;
    }

    /// Passes on the response because it may not be stored.
    fn pass(&mut self, unstorable: Unstorable) -> Tapped {
        let why = unstorable.why;
        self.release(unstorable);
        if self.wishes.is_ranged {
            self.end_with(FillOutcome::PassAgain(why));
            return Tapped::Stop;
        }
        Tapped::Pass(self.passed_line(why))
    }

    /// Stops copying.
    fn give_up(&mut self, unstorable: Unstorable) -> TapBody {
        let why = unstorable.why;
        self.release(unstorable);
        if !self.is_streamed {
            self.end_with(FillOutcome::PassAgain(why));
        }
        TapBody::Stop
    }

    /// Records the decision for operators.
    fn judged(&self, is_stored: bool, why: &'static str) {
        let FillPlan { heads, route, key, purged, .. } = &self.plan;
        let name = route.primary_name(key, *purged);
        heads.judgements.record(name, self.status, is_stored, why);
    }

    /// The lines added to a response that is sent while it is received and stored when complete.
    fn copied_lines(
        &self,
        head: &ResponseHead<'_, '_>,
        received: &Head,
        cache: &PoolCache,
    ) -> Vec<u8> {
        let freshness = ResourceFreshness::of(received, &cache.policy);
        let now_ms = monotonic_ms();
        let (rules, resident_ms) = freshness.rules(now_ms);
        let ttl_s = Some(rules.ttl_s(resident_ms));
        let mut lines = CacheStatus { ttl_s, stored: true, ..self.cache_status() }.line();
        // Otherwise the server's own Age is passed.
        if head.fields.get("age").is_none() {
            lines.extend(format!("Age: {}\r\n", freshness.age_s(now_ms)).into_bytes());
        }
        lines
    }

    fn passed_line(&self, why: &'static str) -> Vec<u8> {
        CacheStatus { detail: Some(why), ..self.cache_status() }.line()
    }

    /// The Cache-Status of the request.
    fn cache_status(&self) -> CacheStatus<'_> {
        let key = self.plan.key.primary();
        CacheStatus {
            forwarded: Some(self.wishes.reason),
            collapsed: self.wishes.collapsed,
            key: self.cache().and_then(|cache| cache.shown_key(key)),
            ..CacheStatus::default()
        }
    }
}

/// Runs `then` when the coordinator knows of the bytes, if it has to be informed.
fn when_known(known: Option<tokio::sync::oneshot::Receiver<()>>, then: impl FnOnce() + 'static) {
    // At once if not: a client that gets the end of a response finds it stored.
    let Some(known) = known else { return then() };
    tokio::task::spawn_local(async move {
        // A dropped sender counts as well.
        drop(known.await);
        then();
    });
}

/// Time for which requests do not wait for each other after a response with this status that may not be
/// stored, in milliseconds.
fn mark_ms(status: u16) -> u64 {
    match status {
        200..300 => MARK_MS,
        _ => MARK_ERROR_MS,
    }
}

/// Whether a rule concerns the request only, so that responses to other requests may still be stored.
fn is_of_request(rule: CachingRule) -> bool {
    use CachingRule::{Authorization, Cookie, Method, RequestBody, RequestNoStore};
    matches!(rule, Authorization | Cookie | Method | RequestBody | RequestNoStore)
}

impl Tap for Fill<'_> {
    fn head(&mut self, head: &ResponseHead<'_, '_>) -> Tapped {
        self.status = head.status;
        // The response to a client's own conditions and ranges is for this client only.
        if matches!(head.status, 206 | 304 | 412 | 416) && self.plan.kept.is_none() {
            let why = self.wishes.why.unwrap_or(CachingRule::Status.token());
            return self.pass(Unstorable { why, mark_ms: 0 });
        }
        match self.judge(head) {
            Ok(tapped) => tapped,
            Err(unstorable) => self.pass(unstorable),
        }
    }

    fn body(&mut self, data: &[u8]) -> TapBody {
        match &mut self.stage {
            Stage::Fills(writer) => {
                writer.push(data);
                TapBody::Go
            }
            Stage::Discards(bytes) => {
                *bytes += data.len();
                if *bytes > DISCARDED_BYTES_MAX { TapBody::Stop } else { TapBody::Go }
            }
            Stage::Copies(copied) => match copied.body.push(data) {
                Ok(()) => TapBody::Go,
                Err(CopyFull::TooLong) => {
                    self.give_up(Unstorable { why: TOO_LONG, mark_ms: MARK_MS })
                }
                Err(CopyFull::NoMemory) => {
                    self.give_up(Unstorable { why: "no-memory", mark_ms: MARK_ERROR_MS })
                }
            },
            Stage::Waits | Stage::Stored | Stage::Over => TapBody::Stop,
        }
    }

    fn end(&mut self) {
        let writer = match std::mem::replace(&mut self.stage, Stage::Over) {
            Stage::Fills(writer) => writer,
            Stage::Copies(copied) => {
                let Copied { mut head, vary_key, body } = *copied;
                let bytes = body.len();
                (head.total_bytes, head.end) = (Some(bytes), Some(bytes));
                self.begin(head, vary_key, bytes, Some(body))
            }
            Stage::Waits | Stage::Discards(_) | Stage::Stored | Stage::Over => return,
        };
        writer.finish();
        self.stage = Stage::Stored;
    }

    fn held_up(&mut self) {
        self.judged(false, "slow-client");
        self.stage = Stage::Over;
        // The cause is this client and not the response: another waiting request leads.
        self.led = None;
    }

    fn may_wait_for_session(&self) -> bool {
        self.led.is_none()
    }

    fn outlives_client(&self) -> bool {
        // Otherwise a client that requests many pages and disconnects would occupy all slots of the servers.
        let is_awaited = self.led.as_ref().is_some_and(|led| led.flight.is_awaited());
        is_awaited || matches!(self.stage, Stage::Fills(_) | Stage::Copies(_))
    }
}
