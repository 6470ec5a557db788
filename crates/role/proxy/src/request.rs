//! Sends a request to a member and returns its response.
//!
//! ```text
//!  admit --> connect --> attempt (upload | download) --> give the connection back
//!   ^          | refused, late         | broke before the first byte
//!   '--- retry: another member --------'
//! ```
//!
//! A request may be retried (RFC 9110 9.2.2) if none of it was given to the kernel; or if it has no body,
//! its method is idempotent, and nothing of a reply was sent to the client. A retry at another member is
//! charged to the budget. The failure of a kept connection that turns out to be dead is not: it shows
//! nothing about the member, to which a new connection is tried first.

mod admit;
mod asked;
mod attempt;
mod coding;
mod collect;
mod collected_body;
mod copy_wait;
mod download;
mod fault;
mod gateway;
mod http_leg;
mod in_flight;
mod member_test;
mod outbound;
mod passage;
mod ping;
mod read_ahead;
mod recipient;
mod refused;
mod requests_in_flight;
mod times;
mod tunnel;
mod unread_response;
mod upload;

use std::borrow::Cow;
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use skep_cluster::Failure;
use skep_comparison::ArmEvent;
use skep_engine::{Exchange, ExchangeError};
use skep_http::forward::{Forward, takes_trailers, upgrade_of};
use skep_http::{BodyFraming, RequestHead};
use skep_serve::{Conn, others_first};
use skep_telemetry::Counter;
use skep_units::NodeId;
use skep_upstream::{PooledConn, UpstreamError};
use smallvec::SmallVec;

use crate::limits::TOLD_PATH_BYTES_MAX;
use crate::members::cause::Cause;
use crate::members::probe::failure_of;
use crate::members::protocol::MemberProtocol;
use crate::members::session::Session;
use crate::members::settings::{GroupSettings, GroupWords};
use crate::worker_arms::ArmOfRequest;
use crate::worker_balancer::PickedMember;
use crate::worker_group::WorkerGroup;
use asked::Asked;
pub use asked::ReplyRules;
use attempt::{Attempt, Leg};
pub use coding::{BodyCoder, CodedReply, CoderFailed, ReplyCoding};
use download::Download;
use fault::AttemptFault;
use gateway::GatewayLeg;
use http_leg::HttpLeg;
use in_flight::InFlight;
pub use member_test::{MemberTest, Question, TestRequest, ask_once};
use outbound::Outbound;
pub use read_ahead::BUFFERING_FIELD;
use recipient::Recipient;
pub use recipient::{Ends, Tap, TapBody, Tapped};
pub use refused::{ForwardError, RefusalScope, Refused};
pub use requests_in_flight::{RequestInFlight, tell_requests};
pub use times::OwnTimes;
use unread_response::{AfterResponse, UnreadResponse};
use upload::Upload;

impl WorkerGroup {
    /// Forwards `request` to a member and passes its response to the client.
    ///
    /// # Errors
    /// [`ForwardError`].
    pub async fn forward(
        self: &Rc<Self>,
        request: &RequestHead<'_, '_>,
        exchange: &mut Exchange<'_>,
        forward: &Forward<'_>,
        rules: &ReplyRules<'_>,
    ) -> Result<(), ForwardError> {
        let mut recipient = Recipient::of_client(exchange, None);
        self.run(request, &mut recipient, forward, rules).await
    }

    /// The same, with a tap that may take the response; in that case nothing is sent to the client.
    ///
    /// # Errors
    /// [`ForwardError`].
    pub async fn forward_tapped(
        self: &Rc<Self>,
        request: &RequestHead<'_, '_>,
        exchange: &mut Exchange<'_>,
        forward: &Forward<'_>,
        rules: &ReplyRules<'_>,
        tap: &mut dyn Tap,
    ) -> Result<(), ForwardError> {
        let mut recipient = Recipient::of_client(exchange, Some(tap));
        self.run(request, &mut recipient, forward, rules).await
    }

    /// Sends `request`, which has no body, for a tap only, on behalf of the client at `ends`.
    ///
    /// # Errors
    /// [`ForwardError`].
    pub async fn forward_for_tap(
        self: &Rc<Self>,
        request: &RequestHead<'_, '_>,
        ends: Ends,
        forward: &Forward<'_>,
        tap: &mut dyn Tap,
    ) -> Result<(), ForwardError> {
        assert!(request.framing == BodyFraming::None, "there is nobody to read it from");
        let mut recipient = Recipient::of_tap(self.context(), ends, tap);
        self.run(request, &mut recipient, forward, &ReplyRules::default()).await
    }

    async fn run(
        self: &Rc<Self>,
        request: &RequestHead<'_, '_>,
        recipient: &mut Recipient<'_, '_>,
        forward: &Forward<'_>,
        rules: &ReplyRules<'_>,
    ) -> Result<(), ForwardError> {
        self.balancer().deposit(self.now());
        let collected = self.collect(request, recipient, rules).await?;
        // The request waits for a member from now on; settings may have changed since it was received.
        let began = Instant::now();
        let in_force = Rc::clone(self.balancer().sync());
        let sticky = in_force.settings.sticky.as_ref();
        let outbound = match self.gateway_settings() {
            None => {
                let (body, _) = collected;
                Outbound::Http(Box::new(Upload::new(recipient.worker(), request, forward, body)))
            }
            Some(settings) => {
                let leg = GatewayLeg::new(settings, request, recipient, forward, collected);
                Outbound::Gateway(Box::new(leg?))
            }
        };
        let mut proxied = ProxiedRequest {
            group: self,
            request,
            forward: *forward,
            rules,
            recipient: &mut *recipient,
            outbound,
            session: Session::of(request, sticky),
            tried: SmallVec::new(),
            retries: 0,
            would_wait: false,
            began,
            arm: None,
        };
        if let Err(error) = proxied.run().await {
            proxied.count_failure(&error);
            return Err(error);
        }
        drop(proxied);
        // The slot at the member is free.
        Ok(recipient.send_rest().await?)
    }

    /// The settings in force, if the members' protocol is not HTTP.
    fn gateway_settings(&self) -> Option<Arc<GroupSettings>> {
        let mut balancer = self.balancer();
        let settings = &balancer.sync().settings;
        (settings.protocol != MemberProtocol::Http).then(|| Arc::clone(settings))
    }
}

/// One client's request in progress, over all attempts.
struct ProxiedRequest<'a, 'r, 'c, 'h, 'b> {
    group: &'a Rc<WorkerGroup>,
    request: &'a RequestHead<'h, 'b>,
    forward: Forward<'a>,
    rules: &'a ReplyRules<'a>,
    recipient: &'a mut Recipient<'r, 'c>,
    outbound: Outbound,
    session: Session<'a>,
    /// Members that must not be tried, or not again.
    tried: SmallVec<[NodeId; 4]>,
    retries: u32,
    /// The member of its session has no room, and the request must not wait for it.
    would_wait: bool,
    began: Instant,
    /// In an A/B test: the arm and the last member that was tried.
    arm: Option<ArmOfRequest>,
}

/// Runs an attempt to its end; also returns the time at which the member's first byte arrived.
async fn drive<L: Leg>(
    conn: &Conn,
    asked: Asked<'_>,
    recipient: &mut Recipient<'_, '_>,
    leg: &mut L,
    in_flight: &mut InFlight,
) -> (Result<(), AttemptFault>, Option<Instant>) {
    let mut attempt = Attempt::new(conn, asked, recipient, leg, in_flight);
    let ended = poll_fn(|cx| attempt.poll(cx)).await;
    (ended, attempt.first_byte)
}

/// The beginning of `path` for the log, without parameters: they may contain a session id, as
/// `;jsessionid=` does.
fn told_path(path: &[u8]) -> Cow<'_, str> {
    let path = path.split(|byte| *byte == b';').next().unwrap_or_default();
    String::from_utf8_lossy(&path[..path.len().min(TOLD_PATH_BYTES_MAX)])
}

/// How an attempt ended.
enum Step {
    /// The client has its reply, or the rest of it is queued.
    Done,
    /// The member did not respond; another one may be tried.
    Next(Refusal),
    /// No other member may be tried.
    Stop(Refusal),
}

/// The error reply if no member responded.
#[derive(Clone, Copy)]
enum Refusal {
    /// No member could be connected to, or none has room: 503.
    NoMember,
    /// A member failed: 502 or 504.
    Failed(Cause),
}

impl ProxiedRequest<'_, '_, '_, '_, '_> {
    async fn run(&mut self) -> Result<(), ForwardError> {
        let mut refusal = Refusal::NoMember;
        loop {
            let Some(in_flight) = self.admit().await? else { break };
            self.arm = in_flight.target().arm().cloned();
            self.adopt_settings(in_flight.target().member().is_draining())?;
            if !self.tried.is_empty() {
                self.group.counters().inc(Counter::UpstreamRetries);
            }
            match self.attempt(in_flight).await? {
                Step::Done => return Ok(()),
                Step::Stop(last) => {
                    refusal = last;
                    break;
                }
                Step::Next(last) => refusal = last,
            }
        }
        Err(ForwardError::Refused(self.refused(refusal)))
    }

    /// In an A/B test: counts a request without a complete response, unless the client caused that.
    fn count_failure(&self, error: &ForwardError) {
        let is_ours = match error {
            ForwardError::Refused(_) => true,
            ForwardError::Exchange(error) => matches!(error, ExchangeError::ReplyCutShort(_)),
        };
        if let Some(arm) = self.arm.as_ref().filter(|_| is_ours) {
            arm.count(&ArmEvent::Failed);
        }
    }

    /// Applies the settings in force when the member was selected, just now, to a request for an
    /// application server.
    fn adopt_settings(&mut self, is_draining: bool) -> Result<(), ForwardError> {
        if let Outbound::Gateway(leg) = &mut self.outbound
            && let Some(settings) = self.group.gateway_settings()
        {
            let of = (settings, is_draining);
            leg.adopt(of, self.request, &self.forward, self.recipient.ends())?;
        }
        Ok(())
    }

    /// Tries one member: on a kept connection first, and on a new one if that is dead.
    async fn attempt(&mut self, mut in_flight: InFlight) -> Result<Step, ExchangeError> {
        let (group, target) = (self.group, in_flight.target().clone());
        let began = in_flight.began();
        self.tried.push(target.member().id);
        // Requests that were received together are sent together: a member on this machine is then woken
        // once.
        others_first().await;
        let mut kept = group.connections().reuse(target.member().address);
        if kept.as_ref().is_some_and(|lease| self.is_risky(lease)) {
            kept = None;
        }
        if let Some(lease) = kept.take() {
            kept = ping::if_answered(lease, &target).await;
        }
        loop {
            let (lease, sent) = match kept.take() {
                Some(lease) => {
                    group.counters().inc(Counter::UpstreamReused);
                    (lease, began)
                }
                // Boxed because it is rare and large.
                None => match Box::pin(self.dial(&target)).await {
                    Ok(lease) => match ping::if_answered(lease, &target).await {
                        Some(lease) => (lease, Instant::now()),
                        None => return Ok(self.no_pong(&target, &mut in_flight)),
                    },
                    Err(error) => return Ok(self.not_connected(&target, &mut in_flight, &error)),
                },
            };
            let is_kept = lease.reused;
            match self.exchange_on(lease, sent, &mut in_flight).await {
                Ok(rest) => {
                    if let Some((rest, lease)) = rest {
                        rest.read_beside(lease, in_flight);
                    }
                    return Ok(Step::Done);
                }
                Err((AttemptFault::Client(error), _)) => return Err(error),
                Err((AttemptFault::Member(Cause::Broken), true))
                    if is_kept && self.may_resend() =>
                {
                    self.restart();
                }
                Err((AttemptFault::Member(cause), is_silent)) => {
                    in_flight.fail(cause);
                    return self.failed(&target, cause, is_silent);
                }
            }
        }
    }

    /// Sends the request over `lease` and passes the response on; returns the rest of a response that is
    /// not needed. A fault is returned together with whether the member sent nothing at all.
    async fn exchange_on(
        &mut self,
        lease: PooledConn,
        sent: Instant,
        in_flight: &mut InFlight,
    ) -> Result<Option<(UnreadResponse, PooledConn)>, (AttemptFault, bool)> {
        self.group.counters().inc(Counter::UpstreamRequests);
        let asked = Asked {
            method: self.request.method,
            has_body: self.request.framing != BodyFraming::None,
            upgrade: upgrade_of(self.request, &self.forward),
            trailers: takes_trailers(self.request),
            rules: self.rules,
            host: self.request.host,
            begins_session: in_flight.target().begins(&self.session),
            is_secure: self.forward.claims.is_secure(self.request),
        };
        let (ended, first_byte, behind) = match &mut self.outbound {
            Outbound::Http(upload) => {
                let mut leg = HttpLeg { upload, download: Download::new() };
                let (ended, first_byte) =
                    drive(&lease.conn, asked, self.recipient, &mut leg, in_flight).await;
                (ended, first_byte, leg.after_response())
            }
            Outbound::Gateway(leg) => {
                let (ended, first_byte) =
                    drive(&lease.conn, asked, self.recipient, &mut **leg, in_flight).await;
                in_flight.count_dropped(leg.dropped());
                (ended, first_byte, leg.after_response())
            }
        };
        let is_silent = first_byte.is_none();
        if let Some(first_byte) = first_byte {
            let us = first_byte.duration_since(sent).as_micros() as u64;
            self.recipient.note(|summary| summary.first_byte_us = us);
        }
        if let Err(fault) = ended {
            return Err((fault, is_silent));
        }
        in_flight.succeed();
        in_flight.count_in_arm(self.began);
        self.succeeded(in_flight.target());
        match behind {
            AfterResponse::Idle => lease.give_back(self.group.connections()),
            AfterResponse::Switched(early) => {
                let tunnelled = Box::pin(self.tunnel(&lease, early, in_flight)).await;
                tunnelled.map_err(|error| (error.into(), false))?;
            }
            AfterResponse::Unread(rest) => return Ok(Some((rest, lease))),
            AfterResponse::Close => {}
        }
        Ok(None)
    }

    async fn dial(&mut self, target: &PickedMember) -> Result<PooledConn, UpstreamError> {
        let began = Instant::now();
        let dialled = self.group.connections().dial(target.member().address).await;
        if !matches!(dialled, Err(UpstreamError::PoolFull)) {
            self.group.counters().inc(Counter::UpstreamConnects);
        }
        let us = began.elapsed().as_micros() as u64;
        self.recipient.note(|summary| summary.connect_us += us);
        dialled
    }

    /// A kept connection may close during a request; before a request that cannot be retried, the kernel is
    /// asked whether the connection is alive.
    fn is_risky(&self, lease: &PooledConn) -> bool {
        !self.is_repeatable() && lease.conn.probe_stale()
    }

    fn is_repeatable(&self) -> bool {
        self.request.method.is_idempotent() && self.request.framing == BodyFraming::None
    }

    /// Restores the request for another connection; see [`ProxiedRequest::may_resend`].
    fn restart(&mut self) {
        self.outbound.restart(self.request, &self.forward, self.recipient.ends());
    }

    /// Whether the request may be sent again, to any member.
    fn may_resend(&self) -> bool {
        let is_unsent = !self.outbound.is_begun();
        !self.recipient.is_begun() && (self.is_repeatable() || is_unsent)
    }

    /// Whether another member may be tried; if so, charges the retry budget.
    fn may_retry(&mut self, target: &PickedMember) -> bool {
        let counters = self.group.counters();
        if self.retries >= target.settings().retries_max {
            return false;
        }
        if !self.group.balancer().try_retry(self.group.now()) {
            counters.inc(Counter::UpstreamRetryBudgetExhausted);
            return false;
        }
        self.retries += 1;
        true
    }

    /// Handles a failure to connect to the member. Nothing was sent, so any request may be sent to another
    /// one.
    fn not_connected(
        &mut self,
        target: &PickedMember,
        in_flight: &mut InFlight,
        error: &UpstreamError,
    ) -> Step {
        if !matches!(error, UpstreamError::PoolFull) {
            self.group.counters().inc(Counter::UpstreamConnectFailures);
        }
        if !error.blames_node() {
            // No member failed, and trying another one costs the cluster nothing.
            return Step::Next(Refusal::NoMember);
        }
        let cause = Cause::of_connect(error);
        in_flight.fail(cause);
        self.tell(target, cause);
        self.report(target, Err(failure_of(error)));
        match self.may_retry(target) {
            true => Step::Next(Refusal::NoMember),
            false => Step::Stop(Refusal::NoMember),
        }
    }

    /// Handles a member that answers no CPING, neither on a kept connection nor on a new one. It may only
    /// be busy, which checks determine.
    fn no_pong(&mut self, target: &PickedMember, in_flight: &mut InFlight) -> Step {
        in_flight.fail(Cause::NoPong);
        self.tell(target, Cause::NoPong);
        match self.may_retry(target) {
            true => Step::Next(Refusal::NoMember),
            false => Step::Stop(Refusal::NoMember),
        }
    }

    /// Handles a failure of the member while it had the request.
    fn failed(
        &mut self,
        target: &PickedMember,
        cause: Cause,
        is_silent: bool,
    ) -> Result<Step, ExchangeError> {
        self.tell(target, cause);
        let counters = self.group.counters();
        counters.inc(Counter::UpstreamFailures);
        if matches!(cause, Cause::Late | Cause::Stalled) {
            counters.inc(Counter::UpstreamTimeouts);
        }
        // A client that does not send its body may be what the member waited for.
        let has_all = self.request.framing == BodyFraming::None || self.outbound.is_complete();
        if let Some(failure) = cause.failure().filter(|_| is_silent && has_all) {
            self.report(target, Err(failure));
        }
        self.recipient.note(|summary| summary.node = Some(Arc::clone(target.name())));
        if !self.recipient.take_back() {
            return Err(ExchangeError::ReplyCutShort(cause.reason()));
        }
        let refusal = Refusal::Failed(cause);
        // A member that is late may still be working: a retry would be late, too. A request with an invalid
        // response would get one again.
        if cause != Cause::Broken || !self.may_resend() || !self.may_retry(target) {
            return Ok(Step::Stop(refusal));
        }
        self.restart();
        Ok(Step::Next(refusal))
    }

    /// Logs a failure of a member, at most once per second: metrics count all of them.
    fn tell(&self, target: &PickedMember, cause: Cause) {
        let (group, words) = (self.group.group().name(), self.group.group().words);
        let (name, address) = (target.name(), target.member().address);
        let method = self.request.method.as_str();
        if target.member().may_tell(self.group.now()) {
            let path = told_path(self.request.path);
            tracing::warn!(
                "{} {group}: {} {name} ({address}): {cause}: {method} {path}",
                words.group,
                words.member
            );
        }
    }

    fn succeeded(&mut self, target: &PickedMember) {
        if target.member().is_suspect() {
            self.report(target, Ok(()));
        }
        if target.has_inherited(&self.session) {
            self.lost_session(target);
        }
        self.recipient.note(|summary| summary.node = Some(Arc::clone(target.name())));
    }

    /// Handles the loss of a session whose member no longer responds.
    fn lost_session(&self, successor: &PickedMember) {
        let group = self.group.group();
        group.count_lost_session();
        if successor.member().may_tell(self.group.now()) {
            let GroupWords { group: word, member } = group.words;
            let (group, name) = (group.name(), successor.name());
            // Data sent by clients is logged only if it names a member.
            let lost = successor.session_member(&self.session);
            let lost = lost.map_or_else(|| format!("a {member} that is gone"), |it| it.to_string());
            tracing::info!("{word} {group}: {member} {name} continues a session of {lost}");
        }
    }

    fn report(&self, target: &PickedMember, outcome: Result<(), Failure>) {
        if self.group.group().report(target.member().id, outcome) {
            self.group.counters().inc(Counter::UpstreamSpared);
        }
    }

    /// The reply to the client if no member responded.
    fn refused(&mut self, refusal: Refusal) -> Refused {
        let scope = match (self.would_wait, self.session.is_bound()) {
            (true, _) => RefusalScope::Wait,
            (false, true) => RefusalScope::Session,
            (false, false) => RefusalScope::All,
        };
        match refusal {
            Refusal::NoMember if self.would_wait => Refused { scope, ..Refused::plain(503) },
            Refusal::NoMember => {
                let queue_us = self.began.elapsed().as_micros() as u64;
                self.recipient.note(|summary| summary.queue_us = queue_us);
                self.group.counters().inc(Counter::NoNode);
                let (method, path) = (self.request.method.as_str(), told_path(self.request.path));
                self.group.group().tell_refused(self.group.now(), method, &path);
                let in_force = Rc::clone(self.group.balancer().sync());
                let lines = in_force.settings.retry_after_line.clone();
                Refused { lines, scope, ..Refused::plain(503) }
            }
            Refusal::Failed(cause) => Refused { scope, ..Refused::plain(cause.status()) },
        }
    }
}
