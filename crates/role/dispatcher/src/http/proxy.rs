//! `proxy` mode: sends a request to a node and returns its response.
//!
//! ```text
//!  pick --> connect --> attempt (upload | download) --> give the connection back
//!   ^          | refused, late         | broke before the first byte
//!   '--- retry: another node ----------'
//! ```
//!
//! A request may be retried (RFC 9110 9.2.2) if none of it was given to the kernel; or if it has no
//! body, its method is idempotent, and nothing of a reply was sent to the client. A retry at
//! another node is charged to the budget. A kept connection that turns out to be dead is not: it is
//! no evidence about the node, which is tried on a fresh connection first.

mod attempt;
mod download;
mod fault;
mod in_flight;
mod upload;

use std::future::poll_fn;
use std::sync::Arc;
use std::time::Instant;

use skep_cluster::Failure;
use skep_engine::{Exchange, ExchangeError, tunnel};
use skep_http::forward::{Forward, HostPolicy, upgrade_of};
use skep_http::{BodyFraming, RequestHead};
use skep_telemetry::Counter;
use skep_units::NodeId;
use skep_upstream::{PooledConn, UpstreamError};
use smallvec::SmallVec;

use crate::http::handler::DispatcherHandler;
use crate::http::worker_balancer::PickedNode;
use crate::limits::TUNNEL_IDLE_MS;
use crate::service::probe::failure_of;
use attempt::Attempt;
use download::Asked;
use fault::{AttemptFault, NodeFault};
use in_flight::InFlight;
use upload::Upload;

impl DispatcherHandler {
    /// Answers `request` with a node's response.
    pub(crate) async fn proxy(
        &self,
        request: &RequestHead<'_, '_>,
        exchange: &mut Exchange<'_>,
    ) -> Result<(), ExchangeError> {
        self.balancer().deposit(self.now());
        let trust_forwarded = self.balancer().sync().settings.trust_forwarded;
        let forward = Forward {
            client: exchange.conn().peer().ip(),
            proto: "http",
            host: HostPolicy::Keep,
            trusted: trust_forwarded,
            target: None,
            upgrade: true,
            extra: b"",
        };
        let upload = Upload::new(exchange.context().worker(), request, &forward);
        let began = Instant::now();
        let tried = SmallVec::new();
        let mut trip =
            Trip { handler: self, request, forward, exchange, upload, tried, retries: 0, began };
        trip.run().await
    }
}

/// One client's request in progress, over all attempts.
struct Trip<'a, 'c, 'h, 'b> {
    handler: &'a DispatcherHandler,
    request: &'a RequestHead<'h, 'b>,
    forward: Forward<'a>,
    exchange: &'a mut Exchange<'c>,
    upload: Upload,
    /// Nodes that must not be tried (again).
    tried: SmallVec<[NodeId; 4]>,
    retries: u32,
    began: Instant,
}

/// How an attempt ended.
enum Step {
    /// The client has its reply, or the rest of it is queued.
    Done,
    /// The node did not answer; another node may be tried.
    Next(Refusal),
    /// No other node may be tried.
    Stop(Refusal),
}

/// The error reply when no node answered.
#[derive(Clone, Copy)]
enum Refusal {
    /// No node could be connected to: 503.
    NoNode,
    /// A node failed: 502 or 504.
    Failed(NodeFault),
}

impl<'a> Trip<'a, '_, '_, '_> {
    async fn run(&mut self) -> Result<(), ExchangeError> {
        let mut refusal = Refusal::NoNode;
        loop {
            let client = self.exchange.conn().peer();
            let Some(target) = self.handler.pick(self.request, client, &self.tried) else {
                break;
            };
            if !self.tried.is_empty() {
                self.handler.counters().inc(Counter::UpstreamRetries);
            }
            match self.attempt(target).await? {
                Step::Done => return Ok(()),
                Step::Stop(last) => {
                    refusal = last;
                    break;
                }
                Step::Next(last) => refusal = last,
            }
        }
        self.refuse(refusal);
        Ok(())
    }

    /// Tries one node: on a kept connection first, and if that is dead on a new
    /// one.
    async fn attempt(&mut self, target: PickedNode) -> Result<Step, ExchangeError> {
        let handler = self.handler;
        let mut began = self.began;
        if !self.tried.is_empty() {
            began = Instant::now();
            let queue_us = began.duration_since(self.began).as_micros() as u64;
            self.exchange.reply.write().summary().queue_us = queue_us;
        }
        let mut in_flight = InFlight::new(handler, target.clone(), began);
        self.tried.push(target.node().id);
        let mut kept = handler.pool().reuse(target.node().address);
        if kept.as_ref().is_some_and(|lease| self.is_risky(lease)) {
            kept = None;
        }
        loop {
            let (lease, sent) = match kept.take() {
                Some(lease) => {
                    handler.counters().inc(Counter::UpstreamReused);
                    (lease, began)
                }
                None => match self.dial(&target).await {
                    Ok(lease) => (lease, Instant::now()),
                    Err(error) => return Ok(self.not_connected(&target, &mut in_flight, &error)),
                },
            };
            let is_kept = lease.reused;
            match self.exchange_on(lease, sent, &mut in_flight).await {
                Ok(()) => return Ok(Step::Done),
                Err((AttemptFault::Client(error), _)) => {
                    in_flight.succeed();
                    return Err(error);
                }
                Err((AttemptFault::Node(NodeFault::Broken), true))
                    if is_kept && self.may_resend() =>
                {
                    self.upload.restart(self.request, &self.forward);
                }
                Err((AttemptFault::Node(fault), is_silent)) => {
                    return self.failed(&target, fault, is_silent);
                }
            }
        }
    }

    /// Sends the request over `lease` and passes the response on. A fault is returned with whether
    /// the node sent nothing at all.
    async fn exchange_on(
        &mut self,
        lease: PooledConn,
        sent: Instant,
        in_flight: &mut InFlight<'a>,
    ) -> Result<(), (AttemptFault, bool)> {
        self.handler.counters().inc(Counter::UpstreamRequests);
        let asked =
            Asked { method: self.request.method, upgrade: upgrade_of(self.request, &self.forward) };
        let mut attempt =
            Attempt::new(&lease.conn, asked, self.exchange, &mut self.upload, in_flight);
        let ended = poll_fn(|cx| attempt.poll(cx)).await;
        let (first_byte, download) = (attempt.first_byte, attempt.download);
        let is_silent = first_byte.is_none();
        if let Some(first_byte) = first_byte {
            let us = first_byte.duration_since(sent).as_micros() as u64;
            self.exchange.reply.write().summary().first_byte_us = us;
        }
        if let Err(fault) = ended {
            return Err((fault, is_silent));
        }
        in_flight.succeed();
        self.succeeded(in_flight.target());
        if download.is_reusable() && self.upload.is_complete() {
            lease.give_back(self.handler.pool());
        } else if let Some(behind) = download.into_switched() {
            let tunnelled = self.tunnel(&lease, behind, in_flight).await;
            tunnelled.map_err(|error| (error.into(), false))?;
        }
        Ok(())
    }

    /// Copies bytes in both directions, from the 101 on. Bytes that the client sent after its
    /// request's head go to the node now and not earlier (CVE-2026-2833).
    async fn tunnel(
        &mut self,
        lease: &PooledConn,
        behind: Vec<u8>,
        in_flight: &mut InFlight<'a>,
    ) -> Result<(), ExchangeError> {
        in_flight.become_tunnel();
        self.handler.counters().inc(Counter::Upgrades);
        self.exchange.reply.flush().await?;
        let early = self.exchange.body.take_rest();
        let client = self.exchange.conn();
        match tunnel(client, &lease.conn, early, behind, TUNNEL_IDLE_MS).await {
            Ok((_, bytes)) => {
                in_flight.tunnelled(bytes);
                self.exchange.reply.write().summary().body_bytes = bytes;
            }
            // One of the two is gone; so is the other then.
            Err(error) => tracing::debug!(%error, "tunnel ended"),
        }
        Ok(())
    }

    async fn dial(&mut self, target: &PickedNode) -> Result<PooledConn, UpstreamError> {
        let began = Instant::now();
        let dialled = self.handler.pool().dial(target.node().address).await;
        if !matches!(dialled, Err(UpstreamError::PoolFull)) {
            self.handler.counters().inc(Counter::UpstreamConnects);
        }
        let us = began.elapsed().as_micros() as u64;
        self.exchange.reply.write().summary().connect_us += us;
        dialled
    }

    /// A kept connection may die during a request; for one that can't be retried, the kernel is
    /// asked first whether the connection is alive.
    fn is_risky(&self, lease: &PooledConn) -> bool {
        let is_repeatable =
            self.request.method.is_idempotent() && self.request.framing == BodyFraming::None;
        !is_repeatable && lease.conn.probe_stale()
    }

    /// Whether the request may be sent once more, to any node.
    fn may_resend(&self) -> bool {
        let is_repeatable =
            self.request.method.is_idempotent() && self.request.framing == BodyFraming::None;
        !self.exchange.reply.is_begun() && (is_repeatable || !self.upload.is_begun())
    }

    /// Whether another node may be tried; if so, charges the budget.
    fn may_retry(&mut self, target: &PickedNode) -> bool {
        let counters = self.handler.counters();
        if self.retries >= target.settings().retries_max {
            return false;
        }
        if !self.handler.balancer().try_retry(self.handler.now()) {
            counters.inc(Counter::UpstreamRetryBudgetExhausted);
            return false;
        }
        self.retries += 1;
        true
    }

    /// There is no connection to the node. Nothing was sent, so any request may
    /// go to another.
    fn not_connected(
        &mut self,
        target: &PickedNode,
        in_flight: &mut InFlight<'_>,
        error: &UpstreamError,
    ) -> Step {
        if !matches!(error, UpstreamError::PoolFull) {
            self.handler.counters().inc(Counter::UpstreamConnectFailures);
        }
        if !error.blames_node() {
            // Nobody failed; to ask elsewhere costs the cluster nothing.
            in_flight.succeed();
            return Step::Next(Refusal::NoNode);
        }
        self.report(target, Err(failure_of(error)));
        match self.may_retry(target) {
            true => Step::Next(Refusal::NoNode),
            false => Step::Stop(Refusal::NoNode),
        }
    }

    /// The node failed while it had the request.
    fn failed(
        &mut self,
        target: &PickedNode,
        fault: NodeFault,
        is_silent: bool,
    ) -> Result<Step, ExchangeError> {
        let node = &target.node().name;
        tracing::debug!(%node, reason = fault.reason(), "request failed at a node");
        let counters = self.handler.counters();
        counters.inc(Counter::UpstreamFailures);
        if fault == NodeFault::Late {
            counters.inc(Counter::UpstreamTimeouts);
        }
        // A client that does not send its body may be what the node waited for.
        let has_all = self.request.framing == BodyFraming::None || self.upload.is_complete();
        if let Some(failure) = fault.failure().filter(|_| is_silent && has_all) {
            self.report(target, Err(failure));
        }
        self.exchange.reply.write().summary().node = Some(Arc::clone(node));
        if !self.exchange.reply.take_back() {
            return Err(ExchangeError::ReplyCutShort(fault.reason()));
        }
        let refusal = Refusal::Failed(fault);
        // A node that is late may be at work: its twin would be late too. One
        // that answers nonsense would do so again.
        if fault != NodeFault::Broken || !self.may_resend() || !self.may_retry(target) {
            return Ok(Step::Stop(refusal));
        }
        self.upload.restart(self.request, &self.forward);
        Ok(Step::Next(refusal))
    }

    fn succeeded(&mut self, target: &PickedNode) {
        let node = target.node();
        if node.is_suspect() {
            self.report(target, Ok(()));
        }
        self.exchange.reply.write().summary().node = Some(Arc::clone(&node.name));
    }

    fn report(&self, target: &PickedNode, outcome: Result<(), Failure>) {
        if self.handler.dispatcher().report(target.node().id, outcome) {
            self.handler.counters().inc(Counter::UpstreamSpared);
        }
    }

    /// Replies to the client that no node answered.
    fn refuse(&mut self, refusal: Refusal) {
        let queue_us = self.began.elapsed().as_micros() as u64;
        let mut reply = self.exchange.reply.write();
        match refusal {
            Refusal::NoNode => {
                reply.summary().queue_us = queue_us;
                self.handler.refuse_for_want_of_nodes(&mut reply);
            }
            Refusal::Failed(fault) => reply.plain(fault.status(), b""),
        }
    }
}
