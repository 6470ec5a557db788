//! Requests for routes that cache the responses of their pool.

use std::rc::Rc;
use std::sync::Arc;

use skep_engine::{Exchange, ExchangeError};
use skep_http::forward::Claims;
use skep_http::limits::NODE_RESPONSE_HEAD;
use skep_http::{HeapFieldSlots, Known, RequestHead, Version, encode, parse_request};
use skep_httpcache::{CacheStatus, ForwardReason, RequestMeta};
use skep_proxy::{Ends, ForwardError, RefusalScope, Refused, ReplyCoding, WorkerGroup};
use skep_segments::FetchError;
use skep_telemetry::{CacheResult, Counter};
use skep_wire::cache::SegmentName;

use super::SlowRequest;
use super::hand_over::HandOver;
use super::outgoing::Outgoing;
use super::send::{ResponseSource, SendOutcome, SendPurpose};
use crate::backend::dynamic::{
    Alone, Fill, FillOutcome, FillPlan, FlightOutcome, Led, PoolFlight, PoolHeads, PoolLookup,
    PoolRequest, PoolSought, Refusal, StaleUse, Wishes, is_for, seek, use_of_stale,
};
use crate::http::cacheable::Cacheable;
use crate::http::respond::{StoredStatus, is_simple};
use crate::limits::{ATTEMPTS_MAX, COLLAPSES_MAX, PASS_MS};
use crate::model::changes::SeenVersion;
use crate::model::pool_backend::PoolBackend;
use crate::model::pool_cache::PoolKey;
use crate::model::resource::Resource;
use crate::model::route::Route;
use crate::peers::{HeadLease, PeerClient, renewing};

/// The result of one look-up, including a request to a server if needed.
enum CacheLookup {
    /// The client has been answered.
    Answered,
    /// Send this.
    Send(Arc<Resource>, CacheResult, StoredStatus<'static>),
    /// Send this, and store the look-up in the worker's index.
    Hit(Arc<Resource>, Option<SeenVersion>),
    /// Forward the request as the client sent it, without storing the response; with the reason.
    Pass(&'static str),
    Refused(Refusal),
}

impl SlowRequest<'_> {
    /// Answers with a stored response, or with one of a server.
    pub(super) async fn answer_cacheable(
        &self,
        request: &RequestHead<'_, '_>,
        exchange: &mut Exchange<'_>,
        of: &Cacheable<'_>,
    ) -> Result<(), ExchangeError> {
        let mut collapses = 0;
        for _ in 0..ATTEMPTS_MAX {
            let asked = match self.look_up(request, exchange, of, &mut collapses).await? {
                Some(asked) => asked,
                // The state has changed: look up again.
                None => continue,
            };
            let (resource, cache_result, purpose) = match asked {
                CacheLookup::Answered => return Ok(()),
                CacheLookup::Send(resource, cache_result, how) => {
                    let key = of.cache.shown_key(of.key.primary());
                    let how = StoredStatus { key, ..how };
                    (resource, cache_result, SendPurpose::Stored(how))
                }
                CacheLookup::Hit(resource, version) => {
                    (resource, CacheResult::Hit, SendPurpose::Found(of.key.primary(), version))
                }
                CacheLookup::Refused(Refusal { status, lines }) => {
                    return self.error(request, exchange, status, &lines).await;
                }
                CacheLookup::Pass(why) => {
                    return self.pass_uncached(request, exchange, of, why).await;
                }
            };
            let ready = ResponseSource { resource, file: None, cache_result };
            match self.send(request, exchange, ready, purpose).await? {
                SendOutcome::Done => return Ok(()),
                SendOutcome::Changed(_) => {}
                SendOutcome::Failed(error) => return self.failed(request, exchange, error).await,
            }
        }
        self.failed(request, exchange, FetchError::Lost).await
    }

    /// Looks up the request once, and acts on the result; `None`: look up again.
    async fn look_up(
        &self,
        request: &RequestHead<'_, '_>,
        exchange: &mut Exchange<'_>,
        of: &Cacheable<'_>,
        collapses: &mut usize,
    ) -> Result<Option<CacheLookup>, ExchangeError> {
        let heads = self.catalog.pool_heads();
        let rules = (&self.route, of.cache);
        let has_waited = *collapses > 0;
        let stale = |resource, detail| {
            let how = StoredStatus { detail, ..StoredStatus::default() };
            CacheLookup::Send(resource, CacheResult::Hit, how)
        };
        Ok(Some(match heads.look_up(rules, &of.key, request, &of.meta) {
            PoolLookup::Hit(resource, version) => CacheLookup::Hit(resource, version),
            PoolLookup::Unrefreshed(resource, why) => stale(resource, Some(why)),
            PoolLookup::Stale(resource, flight) => {
                if let Some(flight) = flight {
                    self.refresh(request, exchange, of, flight, None);
                }
                stale(resource, None)
            }
            PoolLookup::OnlyIfCached => CacheLookup::Refused(only_if_cached()),
            PoolLookup::Failed(refusal) => CacheLookup::Refused(refusal),
            PoolLookup::Alone(alone) => {
                let alone = Alone { has_waited, ..alone };
                self.ask_alone(request, exchange, of, alone).await?
            }
            PoolLookup::Lead(flight, reason) => {
                let alone = Alone { has_waited, ..Alone::new(reason, None) };
                return self.lead(request, exchange, of, flight, alone).await;
            }
            PoolLookup::Wait(_, reason) if *collapses == COLLAPSES_MAX => {
                let alone = Alone { has_waited, ..Alone::new(reason, None) };
                self.ask_alone(request, exchange, of, alone).await?
            }
            PoolLookup::Wait(mut waiter, reason) => {
                *collapses += 1;
                let how = StoredStatus {
                    forwarded: Some(reason),
                    collapsed: Some(true),
                    ..StoredStatus::default()
                };
                let alone = match waiter.outcome().await {
                    Some(FlightOutcome::Stored(resource)) => {
                        match PoolHeads::answers(&resource, of.cache, request, &of.meta) {
                            Ok(true) => {
                                let sent = CacheLookup::Send(resource, CacheResult::Miss, how);
                                return Ok(Some(sent));
                            }
                            Ok(false) => return Ok(None),
                            Err(alone) => alone,
                        }
                    }
                    Some(FlightOutcome::Stale(resource)) if is_for(&resource, request) => {
                        return Ok(Some(stale(resource, Some("stale-if-error"))));
                    }
                    Some(FlightOutcome::Unstorable(why)) => Alone::new(reason, Some(why)),
                    Some(FlightOutcome::Failed(refusal)) => {
                        return Ok(Some(CacheLookup::Refused(refusal)));
                    }
                    Some(FlightOutcome::Stale(_)) | None => return Ok(None),
                };
                let alone = Alone { has_waited: true, ..alone };
                self.ask_alone(request, exchange, of, alone).await?
            }
        }))
    }

    /// Asks other nodes, then a server, for all waiting requests.
    async fn lead(
        &self,
        request: &RequestHead<'_, '_>,
        exchange: &mut Exchange<'_>,
        of: &Cacheable<'_>,
        flight: Box<PoolFlight>,
        Alone { reason, has_waited, .. }: Alone,
    ) -> Result<Option<CacheLookup>, ExchangeError> {
        let peers = self.handler.peer_client.as_ref();
        let seeker = (request, &*flight);
        let pool_request = match seek(peers, (&self.route, of.cache, &of.key), seeker).await {
            PoolSought::Found(resource) => {
                flight.land_stored(&self.route, Arc::clone(&resource), None);
                let answers = PoolHeads::answers(&resource, of.cache, request, &of.meta);
                return Ok(match answers {
                    Ok(true) => Some(CacheLookup::Send(
                        resource,
                        CacheResult::Peer,
                        StoredStatus::default(),
                    )),
                    // The response shows which fields responses vary by.
                    Ok(false) => None,
                    Err(alone) => {
                        let alone = Alone { has_waited, ..alone };
                        Some(self.ask_alone(request, exchange, of, alone).await?)
                    }
                });
            }
            PoolSought::NotStored => {
                flight.land_unstorable(PASS_MS, "not-stored");
                let alone = Alone { has_waited, ..Alone::new(reason, Some("not-stored")) };
                return Ok(Some(self.ask_alone(request, exchange, of, alone).await?));
            }
            PoolSought::Ask(pool_request) => pool_request,
        };
        flight.asks_pool();
        // The response found here was judged at the look-up.
        if let Some(stale) = pool_request.kept.clone().filter(|kept| !flight.has(kept)) {
            let send = || {
                CacheLookup::Send(Arc::clone(&stale), CacheResult::Peer, StoredStatus::default())
            };
            match use_of_stale(&stale, of.cache, &of.meta) {
                StaleUse::Send => {
                    flight.land_stored(&self.route, Arc::clone(&stale), None);
                    return Ok(Some(send()));
                }
                StaleUse::SendAndValidate => {
                    flight.keep_stale(&self.route, &stale);
                    self.refresh(request, exchange, of, flight, Some(pool_request));
                    return Ok(Some(send()));
                }
                StaleUse::Validate => {}
            }
        }
        let PoolRequest { lease, kept } = pool_request;
        // For the client the cluster is one cache.
        let reason = kept.as_ref().map_or(reason, |_| ForwardReason::Stale);
        let plan = FillPlan {
            heads: Arc::clone(self.catalog.pool_heads()),
            peer_client: peers.map(Rc::clone),
            route: Arc::clone(&self.route),
            key: of.key.clone(),
            purges: Arc::clone(flight.purges()),
            purged: flight.purged(),
            kept,
        };
        let led = Some(Led { flight, lease });
        let alone = Alone { has_waited, ..Alone::new(reason, None) };
        self.fill(request, exchange, of, (plan, led), alone).await.map(Some)
    }

    /// Asks a server for this client only; the response may still be stored.
    async fn ask_alone(
        &self,
        request: &RequestHead<'_, '_>,
        exchange: &mut Exchange<'_>,
        of: &Cacheable<'_>,
        mut alone: Alone,
    ) -> Result<CacheLookup, ExchangeError> {
        let purges = self.route.purges.load();
        let purged = self.route.purged(purges.hard(), &of.key.target);
        let plan = FillPlan {
            heads: Arc::clone(self.catalog.pool_heads()),
            peer_client: self.handler.peer_client.as_ref().map(Rc::clone),
            route: Arc::clone(&self.route),
            key: of.key.clone(),
            purges,
            purged,
            kept: alone.kept.take(),
        };
        self.fill(request, exchange, of, (plan, None), alone).await
    }

    /// Asks a server, and stores or passes the response.
    async fn fill(
        &self,
        request: &RequestHead<'_, '_>,
        exchange: &mut Exchange<'_>,
        of: &Cacheable<'_>,
        (mut plan, mut led): (FillPlan, Option<Led>),
        Alone { reason, why, has_waited, .. }: Alone,
    ) -> Result<CacheLookup, ExchangeError> {
        let collapsed = has_waited.then_some(false);
        let servers = self.handler.servers(&of.pool.group);
        let client = exchange.conn().peer().ip();
        plan.kept = plan.kept_now((request, &of.meta));
        loop {
            let keeps_conditions = led.is_none() && plan.kept.is_none();
            let outgoing = Outgoing::new(
                request,
                (of.pool, &of.target, of.claims),
                (client, self.site.name.as_deref()),
                plan.kept.as_ref(),
                keeps_conditions,
            );
            let is_ranged = !keeps_conditions && request.fields.known(Known::Range).is_some();
            let renewer = renewer(led.as_ref());
            // A client of HTTP/1.0 could not detect a response that broke off.
            let streams = is_simple(request) && exchange.reply.version() == Version::Http11;
            let wishes = Wishes { reason, why, collapsed, is_ranged, streams };
            let mut fill = Fill::new(plan, (request, of.meta), wishes, led);
            let coding = self.passed_compression(request);
            let coding = coding.as_ref().map(|it| it as &dyn ReplyCoding);
            let rules = of.pool.reply_rules(b"", coding);
            let forward = outgoing.forward();
            let mut tap = HandOver::new(of.pool, Some(&mut fill), b"");
            let exchanged = servers.forward_tapped(request, exchange, &forward, &rules, &mut tap);
            let exchanged = renewing(exchanged, renewer).await;
            if let Some(named) = tap.into_named(&exchanged).await {
                self.send_named(request, exchange, of.pool, &named).await?;
                return Ok(CacheLookup::Answered);
            }
            if fill.has_streamed() && exchanged.is_ok() {
                self.handler.context.counters().inc(Counter::CacheFill);
                exchange.reply.write().summary().cache = CacheResult::Fill;
            }
            match ended(exchanged, exchange, &mut fill, (reason, collapsed))? {
                FillEnd::Ended(asked) => return Ok(asked),
                FillEnd::AskAgain => {
                    (plan, led) = fill.into_parts();
                    plan.kept = None;
                }
                // The next waiting request leads.
                FillEnd::AskAlone => (plan, led) = (fill.into_parts().0, None),
            }
        }
    }

    /// Passes the request on as the client sent it, and the response as it is received.
    async fn pass_uncached(
        &self,
        request: &RequestHead<'_, '_>,
        exchange: &mut Exchange<'_>,
        of: &Cacheable<'_>,
        why: &'static str,
    ) -> Result<(), ExchangeError> {
        let client = exchange.conn().peer().ip();
        let outgoing = Outgoing::new(
            request,
            (of.pool, &of.target, of.claims),
            (client, self.site.name.as_deref()),
            None,
            true,
        );
        let forwarded = Some(ForwardReason::Miss);
        let key = of.cache.shown_key(of.key.primary());
        let status = CacheStatus { forwarded, key, detail: Some(why), ..CacheStatus::default() };
        self.pass(request, exchange, of.pool, &outgoing.forward(), &status).await
    }

    /// Refreshes a stored response in the background. With a `pool_request` other nodes have already been
    /// asked.
    fn refresh(
        &self,
        request: &RequestHead<'_, '_>,
        exchange: &Exchange<'_>,
        of: &Cacheable<'_>,
        flight: Box<PoolFlight>,
        pool_request: Option<PoolRequest>,
    ) {
        let why = if flight.is_ahead() { Counter::RefreshAhead } else { Counter::RefreshStale };
        self.handler.context.counters().inc(why);
        let conn = exchange.conn();
        let refresh = Refresh {
            head: text_of(request),
            ends: Ends { client: conn.peer(), local: conn.local() },
            claims: of.claims,
            target: of.target.clone(),
            key: of.key.clone(),
            server_name: self.site.name.clone(),
            route: Arc::clone(&self.route),
            heads: Arc::clone(self.catalog.pool_heads()),
            servers: self.handler.servers(&of.pool.group),
            peer_client: self.handler.peer_client.as_ref().map(Rc::clone),
        };
        tokio::task::spawn_local(async move { refresh.run(flight, pool_request).await });
    }
}

enum FillEnd {
    Ended(CacheLookup),
    /// Without conditions.
    AskAgain,
    /// By itself: it has to wait for the server of its session.
    AskAlone,
}

/// The outcome of an exchange with a server.
fn ended(
    exchanged: Result<(), ForwardError>,
    exchange: &Exchange<'_>,
    fill: &mut Fill<'_>,
    (reason, collapsed): (ForwardReason, Option<bool>),
) -> Result<FillEnd, ExchangeError> {
    let mut concerns_all = true;
    let how = StoredStatus { forwarded: Some(reason), collapsed, ..StoredStatus::default() };
    let refusal = match exchanged {
        Ok(()) => {
            return Ok(FillEnd::Ended(match fill.outcome() {
                FillOutcome::Passed => CacheLookup::Answered,
                FillOutcome::Stored(resource) => {
                    CacheLookup::Send(resource, CacheResult::Fill, how)
                }
                FillOutcome::Renewed(resource) => {
                    let how = StoredStatus { forward_status: Some(304), ..how };
                    CacheLookup::Send(resource, CacheResult::Revalidated, how)
                }
                FillOutcome::Stale(resource, rule, forward_status) => {
                    let how = StoredStatus { forward_status, detail: Some(rule.token()), ..how };
                    CacheLookup::Send(resource, CacheResult::Hit, how)
                }
                FillOutcome::AskAgain => return Ok(FillEnd::AskAgain),
                FillOutcome::PassAgain(why) => CacheLookup::Pass(why),
            }));
        }
        Err(ForwardError::Refused(Refused { scope: RefusalScope::Wait, .. })) => {
            return Ok(FillEnd::AskAlone);
        }
        Err(ForwardError::Refused(Refused { status, lines, scope, detail })) => {
            concerns_all = scope == RefusalScope::All;
            refusal(status, &lines, detail.unwrap_or(NO_ANSWER))
        }
        // The response that was to be stored broke off.
        Err(ForwardError::Exchange(error @ ExchangeError::ReplyCutShort(_))) => {
            let refusal = refusal(502, b"", NO_ANSWER);
            if exchange.reply.is_begun() {
                // The client has received part of it; waiting requests have not.
                fill.failed(&refusal, concerns_all);
                return Err(error);
            }
            refusal
        }
        Err(ForwardError::Exchange(error)) => return Err(error),
    };
    Ok(FillEnd::Ended(match fill.failed(&refusal, concerns_all) {
        FillOutcome::Stale(resource, rule, _) => {
            let how = StoredStatus { detail: Some(rule.token()), ..how };
            CacheLookup::Send(resource, CacheResult::Hit, how)
        }
        _ => CacheLookup::Refused(refusal),
    }))
}

/// The token for the case that no server answered.
const NO_ANSWER: &str = "no-answer";

fn refusal(status: u16, lines: &[u8], why: &'static str) -> Refusal {
    let forwarded = Some(ForwardReason::Miss);
    let line = CacheStatus { forwarded, detail: Some(why), ..CacheStatus::default() };
    Refusal { status, lines: [lines, &line.line()].concat().into() }
}

fn only_if_cached() -> Refusal {
    let forwarded = Some(ForwardReason::Miss);
    let line = CacheStatus { forwarded, detail: Some("only-if-cached"), ..CacheStatus::default() };
    Refusal { status: 504, lines: line.line().into() }
}

/// A closure that renews the lease of a flight, if there is one, and does not borrow it.
fn renewer(led: Option<&Led>) -> impl Fn() + use<> {
    let renew = led.and_then(|led| led.lease.as_ref()).map(HeadLease::renewer);
    move || {
        if let Some(renew) = &renew {
            renew();
        }
    }
}

/// The background refresh of a stored response, with the fields of the request that found it stale.
struct Refresh {
    head: Vec<u8>,
    ends: Ends,
    claims: Claims,
    target: Vec<u8>,
    key: PoolKey,
    server_name: Option<Box<[u8]>>,
    route: Arc<Route>,
    heads: Arc<PoolHeads>,
    servers: Rc<WorkerGroup>,
    peer_client: Option<Rc<PeerClient>>,
}

impl Refresh {
    async fn run(self, flight: Box<PoolFlight>, pool_request: Option<PoolRequest>) {
        let Some(pool) = self.route.pool() else { return };
        let Some(cache) = &pool.cache else { return };
        let mut slots = HeapFieldSlots::for_head(&self.head);
        let Ok(request) = parse_request(&mut slots, &self.head, &NODE_RESPONSE_HEAD) else {
            return tracing::debug!("a request that was parsed is not parsed again");
        };
        let peers = self.peer_client.as_ref();
        let sought = match pool_request {
            Some(pool_request) => PoolSought::Ask(pool_request),
            None => seek(peers, (&self.route, cache, &self.key), (&request, &flight)).await,
        };
        let PoolRequest { lease, kept } = match sought {
            PoolSought::Found(resource) => return flight.land_stored(&self.route, resource, None),
            PoolSought::NotStored => return flight.land_unstorable(PASS_MS, "not-stored"),
            PoolSought::Ask(pool_request) => pool_request,
        };
        flight.asks_pool();
        let name = flight.name();
        let plan = FillPlan {
            heads: Arc::clone(&self.heads),
            peer_client: peers.map(Rc::clone),
            route: Arc::clone(&self.route),
            key: self.key.clone(),
            purges: Arc::clone(flight.purges()),
            purged: flight.purged(),
            kept,
        };
        let meta = RequestMeta::of(&request, &cache.policy);
        let led = Some(Led { flight, lease });
        self.ask(pool, &request, meta, (plan, led, name)).await;
    }

    async fn ask(
        &self,
        pool: &PoolBackend,
        request: &RequestHead<'_, '_>,
        meta: RequestMeta<'_>,
        (mut plan, mut led, name): (FillPlan, Option<Led>, SegmentName),
    ) {
        plan.kept = plan.kept_now((request, &meta));
        loop {
            let outgoing = Outgoing::new(
                request,
                (pool, &self.target, self.claims),
                (self.ends.client.ip(), self.server_name.as_deref()),
                plan.kept.as_ref(),
                false,
            );
            let renewer = renewer(led.as_ref());
            let (reason, why) = (ForwardReason::Stale, None);
            let (collapsed, is_ranged, streams) = (None, false, false);
            let wishes = Wishes { reason, why, collapsed, is_ranged, streams };
            let mut fill = Fill::new(plan, (request, meta), wishes, led);
            let forward = outgoing.forward();
            let mut tap = HandOver::new(pool, Some(&mut fill), b"");
            let exchanged = self.servers.forward_for_tap(request, self.ends, &forward, &mut tap);
            let exchanged = renewing(exchanged, renewer).await;
            drop(tap);
            match (exchanged, fill.outcome()) {
                (Ok(()), FillOutcome::AskAgain) => {
                    (plan, led) = fill.into_parts();
                    plan.kept = None;
                }
                (Ok(()), _) => return,
                // Paused before the flight ends, so that no other request leads in between.
                (Err(_), _) => return self.heads.pause_refreshes(name),
            }
        }
    }
}

/// The request as a GET, with its end-to-end fields.
fn text_of(request: &RequestHead<'_, '_>) -> Vec<u8> {
    let mut text = b"GET ".to_vec();
    text.extend_from_slice(request.target.as_bytes());
    text.extend_from_slice(b" HTTP/1.1\r\n");
    let host = if request.host.is_empty() { b"localhost" } else { request.host };
    encode::write_field(&mut text, "Host", host);
    let of_hop = ["host", "connection", "te", "upgrade", "expect", "content-length"];
    for (name, value) in request.fields.iter() {
        if !of_hop.iter().any(|it| name.eq_ignore_ascii_case(it)) {
            encode::write_field(&mut text, name, value);
        }
    }
    text.extend_from_slice(b"\r\n");
    text
}
