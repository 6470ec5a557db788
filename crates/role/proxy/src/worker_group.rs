//! A worker's share of a group: its connections to members, and its load balancer.

use std::cell::{RefCell, RefMut};
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use skep_comparison::ArmEvent;
use skep_engine::{Context, Reply};
use skep_http::RequestHead;
use skep_policy::AttemptEnd;
use skep_telemetry::{CoreCounters, Counter};
use skep_units::{NodeId, Now, Rng};
use skep_upstream::ConnectionPool;

use crate::members::group::Group;
use crate::members::session::Session;
use crate::worker_balancer::{PickedMember, WorkerBalancer};

pub struct WorkerGroup {
    group: Arc<Group>,
    context: Rc<Context>,
    connections: Rc<ConnectionPool>,
    balancer: RefCell<WorkerBalancer>,
}

impl WorkerGroup {
    /// Creates the share of `group` for the worker of `context`.
    pub fn new(group: &Arc<Group>, context: &Rc<Context>) -> Rc<Self> {
        let worker = context.worker();
        let connections =
            ConnectionPool::new(worker, group.published().load().settings.connections);
        // Each worker has its own random sequence, so that they do not select in step.
        let seed = Rng::new(group.seed().wrapping_add(worker.index() as u64)).next_u64();
        let balancer = WorkerBalancer::new(group.published(), Rc::clone(&connections), seed);
        let own = Rc::new(Self {
            group: Arc::clone(group),
            context: Rc::clone(context),
            connections,
            balancer: RefCell::new(balancer),
        });
        let ticking = Rc::downgrade(&own);
        worker.on_tick(move || {
            let own = ticking.upgrade();
            own.map(|own| own.balancer().tick()).is_some()
        });
        own
    }

    pub fn group(&self) -> &Arc<Group> {
        &self.group
    }

    /// Selects a member for a client that connects to it directly. The client's requests there are
    /// not seen here.
    pub fn send_away(
        &self,
        request: &RequestHead<'_, '_>,
        client: SocketAddr,
    ) -> Option<PickedMember> {
        let target = loop {
            match self.pick(request, client, &Session::default(), &[]) {
                // Each pick syncs.
                None if !self.balancer().is_synced() => {}
                picked => break picked?,
            }
        };
        target.member().totals.requests.fetch_add(1, Relaxed);
        target.member().reported.sent_on();
        self.finished(&target, AttemptEnd::Inconclusive);
        if let Some(arm) = target.arm() {
            arm.count(&ArmEvent::Redirected);
        }
        Some(target)
    }

    /// Replies 503, since no member can take the request.
    pub fn refuse_for_want_of_members(&self, reply: &mut Reply<'_>) {
        self.counters().inc(Counter::NoNode);
        let in_force = Rc::clone(self.balancer().sync());
        reply.plain(503, &in_force.settings.retry_after_line);
    }

    /// Reports the end of an attempt, or the speed of its member, to the policy.
    pub(crate) fn finished(&self, picked: &PickedMember, end: AttemptEnd) {
        let now = self.now();
        self.balancer().finished(now, picked, end);
    }

    /// Reports the size of the object in a selected member's response to the policy.
    pub(crate) fn learned(&self, picked: &PickedMember, bytes: u64) {
        self.balancer().learned(picked, bytes);
    }

    pub(crate) fn connections(&self) -> &Rc<ConnectionPool> {
        &self.connections
    }

    /// Must not be held over an `await`.
    pub(crate) fn balancer(&self) -> RefMut<'_, WorkerBalancer> {
        self.balancer.borrow_mut()
    }

    pub(crate) fn context(&self) -> &Rc<Context> {
        &self.context
    }

    pub(crate) fn counters(&self) -> &CoreCounters {
        self.context.counters()
    }

    pub(crate) fn now(&self) -> Now {
        Now(self.context.worker().now_ms())
    }

    pub(crate) fn pick(
        &self,
        request: &RequestHead<'_, '_>,
        client: SocketAddr,
        session: &Session<'_>,
        exclude: &[NodeId],
    ) -> Option<PickedMember> {
        self.balancer().pick(request, client, session, exclude, self.now())
    }
}
