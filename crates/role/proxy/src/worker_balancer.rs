//! The load balancer of one worker: everything the worker needs to select members.
//!
//! The only shared data are the members' counters; each selection copies them into the policy's view. For the
//! number of members in one group, that copy is cheaper than any scheme to avoid it.

use std::net::SocketAddr;
use std::ops::Deref;
use std::rc::Rc;
use std::sync::Arc;

use arc_swap::{ArcSwap, Cache};
use skep_cluster::RetryBudget;
use skep_http::RequestHead;
use skep_policy::{AttemptEnd, ServedObject};
use skep_units::{NodeId, Now};
use skep_upstream::ConnectionPool;

use crate::chooser::{Chooser, Chosen};
use crate::members::member::SharedMember;
use crate::members::published::{Entry, Published};
use crate::members::session::{Session, highest_random_weight};
use crate::members::settings::GroupSettings;
use crate::worker_arms::{ArmOfRequest, WorkerArms};

/// Selects members for the requests of one worker, with its own instance of the policy, view of the members,
/// and retry budget.
pub(crate) struct WorkerBalancer {
    latest: Cache<Arc<ArcSwap<Published>>, Arc<Published>>,
    /// The published state for which `chooser`, `arms` and `budget` were made.
    in_force: Rc<InForce>,
    connections: Rc<ConnectionPool>,
    seed: u64,
    /// The policy of the group.
    chooser: Chooser,
    /// The policies of an A/B test.
    arms: Option<WorkerArms>,
    budget: RetryBudget,
    /// Scratch buffer: a host in lower case.
    host: Vec<u8>,
}

/// The input of a worker's selections. Requests in progress hold a reference to it, counted without atomics,
/// for which all workers would contend.
pub(crate) struct InForce(Arc<Published>);

/// A selected member, and the settings under which it was selected.
#[derive(Clone)]
pub struct PickedMember {
    in_force: Rc<InForce>,
    index: usize,
    /// Hash of the request's URL, if the policy is to learn the object's size.
    url_hash: Option<u64>,
    /// The arm of an A/B test, unless the request's session determined the member.
    arm: Option<ArmOfRequest>,
}

impl WorkerBalancer {
    pub(crate) fn new(
        published: &Arc<ArcSwap<Published>>,
        connections: Rc<ConnectionPool>,
        seed: u64,
    ) -> Self {
        let mut latest = Cache::new(Arc::clone(published));
        let published = Arc::clone(latest.load());
        let settings = &published.settings;
        let mut balancer = Self {
            latest,
            chooser: Chooser::new(&settings.policy, seed),
            arms: None,
            budget: RetryBudget::new(settings.retry_budget),
            host: Vec::new(),
            in_force: Rc::new(InForce(published)),
            connections,
            seed,
        };
        balancer.follow();
        balancer
    }

    /// The published state in force.
    pub(crate) fn sync(&mut self) -> &Rc<InForce> {
        let latest = self.latest.load();
        if !Arc::ptr_eq(latest, &self.in_force.0) {
            let latest = Arc::clone(latest);
            self.adopt(latest);
        }
        &self.in_force
    }

    /// Selects a member for `request` that is not in `exclude`: that of its session, otherwise by its
    /// session's hash, otherwise by the policy.
    pub(crate) fn pick(
        &mut self,
        request: &RequestHead<'_, '_>,
        client: SocketAddr,
        session: &Session<'_>,
        exclude: &[NodeId],
        now: Now,
    ) -> Option<PickedMember> {
        self.sync();
        let by_hash = || session.hash.and_then(|hash| self.index_by_hash(hash, exclude));
        let (chosen, arm) = match self.index_of(session, exclude).or_else(by_hash) {
            // The request waits for its member.
            Some(index) if !self.in_force.members[index].member.can_begin() => return None,
            Some(index) => {
                self.chooser.started(self.in_force.members[index].member.id);
                (Chosen { index, url_hash: None }, None)
            }
            None => self.pick_by_policy((request, client), exclude, now)?,
        };
        let Chosen { index, url_hash } = chosen;
        Some(PickedMember { in_force: Rc::clone(&self.in_force), index, url_hash, arm })
    }

    /// The member of the session, if it may get the request.
    fn index_of(&self, session: &Session<'_>, exclude: &[NodeId]) -> Option<usize> {
        let members = &self.in_force.members;
        let index = session.find(members.iter().map(|entry| &*entry.session_name))?;
        let member = &members[index].member;
        (member.keeps_sessions() && !exclude.contains(&member.id)).then_some(index)
    }

    /// The member for a session with this hash.
    fn index_by_hash(&self, hash: u64, exclude: &[NodeId]) -> Option<usize> {
        let members = self.in_force.members.iter().map(|entry| &entry.member).enumerate();
        let open = members.filter(|(_, it)| it.is_in() && !exclude.contains(&it.id));
        highest_random_weight(hash, open.map(|(index, member)| (index, member.name_hash)))
    }

    /// Selects by the policy of the client's arm in an A/B test; otherwise, and if none of the arm's members
    /// can take the request, by the group's policy.
    fn pick_by_policy(
        &mut self,
        (request, client): (&RequestHead<'_, '_>, SocketAddr),
        exclude: &[NodeId],
        now: Now,
    ) -> Option<(Chosen, Option<ArmOfRequest>)> {
        let (of, host) = (&**self.in_force, &mut self.host);
        let asked = (request, client);
        let mut arm = self.arms.as_mut().map(|arms| arms.of(client.ip()));
        if let (Some(arms), Some(own)) = (&mut self.arms, &mut arm) {
            if let Some(chosen) = arms.chooser(own.arm).choose(asked, of, exclude, now, host) {
                return Some((chosen, arm));
            }
            own.has_strayed = true;
        }
        let chosen = self.chooser.choose(asked, of, exclude, now, host)?;
        Some((chosen, arm))
    }

    /// Reports the size of a selected member's object to the policy.
    pub(crate) fn learned(&mut self, picked: &PickedMember, bytes: u64) {
        if let (Some(url_hash), Some(chooser)) = (picked.url_hash, self.chooser_of(picked)) {
            let object = ServedObject { node: picked.member().id, bytes };
            chooser.learned(url_hash, object);
        }
    }

    /// Reports the end of an attempt to the policy.
    pub(crate) fn finished(&mut self, now: Now, picked: &PickedMember, end: AttemptEnd) {
        if let Some(chooser) = self.chooser_of(picked) {
            chooser.finished(now, picked.member().id, end);
        }
    }

    /// The policy that selected a member, unless that is gone.
    fn chooser_of(&mut self, picked: &PickedMember) -> Option<&mut Chooser> {
        match &picked.arm {
            Some(arm) if !arm.has_strayed => self.arms.as_mut()?.chooser_of(arm),
            _ => Some(&mut self.chooser),
        }
    }

    /// Records the arrival of a client's request.
    pub(crate) fn deposit(&mut self, now: Now) {
        self.budget.on_request(now);
    }

    /// Whether a retry may be made; if so, charges the budget.
    pub(crate) fn try_retry(&mut self, now: Now) -> bool {
        self.budget.try_retry(now)
    }

    /// Whether a member that was not tried may take the request, now or later: one that is up, or was not
    /// checked yet. Whether it has room is ignored, since that changes at any moment.
    pub(crate) fn may_wait(&mut self, session: &Session<'_>, exclude: &[NodeId]) -> bool {
        loop {
            self.sync();
            let mut members = self.in_force.members.iter().map(|entry| &entry.member);
            if members.any(|member| member.is_in() && !exclude.contains(&member.id))
                || self.index_of(session, exclude).is_some()
            {
                return true;
            }
            if self.is_synced() {
                return false;
            }
        }
    }

    /// Whether the set of the last sync is still the latest. A new one is published before any member is closed: if
    /// this is false, a worker that found all closed must look again.
    pub(crate) fn is_synced(&mut self) -> bool {
        Arc::ptr_eq(self.latest.load(), &self.in_force.0)
    }

    /// Closes unused connections to members that get no requests.
    pub(crate) fn tick(&mut self) {
        self.sync();
        for entry in &self.in_force.members {
            if entry.member.share_permille() == 0 {
                self.connections.close_address(entry.member.address);
            }
        }
    }

    fn adopt(&mut self, latest: Arc<Published>) {
        let (old, new) = (&self.in_force.settings, &latest.settings);
        if old.policy != new.policy {
            self.chooser = Chooser::new(&new.policy, self.seed);
        }
        if old.retry_budget != new.retry_budget {
            self.budget = RetryBudget::new(new.retry_budget);
        }
        self.connections.set_limits(new.connections);
        for gone in &self.in_force.members {
            let address = gone.member.address;
            let is_kept = |entry: &Entry| entry.member.address == address;
            // Connections opened with one protocol must not be used with another.
            if old.protocol != new.protocol || !latest.members.iter().any(is_kept) {
                self.connections.close_address(address);
            }
        }
        self.in_force = Rc::new(InForce(latest));
        self.follow();
    }

    /// Applies the members and the A/B test in force to the policies.
    fn follow(&mut self) {
        let published = &**self.in_force;
        self.chooser.follow(published, &[]);
        match &published.comparison {
            None => self.arms = None,
            Some(now) if self.arms.as_ref().is_some_and(|arms| arms.is_of(now)) => {}
            Some(now) => self.arms = Some(WorkerArms::new(now, self.seed)),
        }
        if let Some(arms) = &mut self.arms {
            arms.follow(published);
        }
    }
}

impl PickedMember {
    /// Host and port at which clients reach it.
    pub fn authority(&self) -> &str {
        &self.entry().authority
    }

    /// The line that names it in replies, if configured.
    pub fn name_line(&self) -> &[u8] {
        &self.entry().name_line
    }

    /// Whether the reply begins a session of the client with this member.
    pub(crate) fn begins(&self, session: &Session<'_>) -> bool {
        session.is_new_at(&self.entry().session_name)
    }

    /// The lines of a reply that begins a session; `is_secure`: the client used https.
    pub(crate) fn session_lines(&self, is_secure: bool) -> &[u8] {
        &self.entry().session_lines[usize::from(is_secure)]
    }

    /// Name of the member that the session names, if it still exists.
    pub(crate) fn session_member(&self, session: &Session<'_>) -> Option<&Arc<str>> {
        let members = &self.in_force.members;
        let index = session.find(members.iter().map(|entry| &*entry.session_name))?;
        Some(&members[index].member.name)
    }

    /// Whether the session was at another member before.
    pub(crate) fn has_inherited(&self, session: &Session<'_>) -> bool {
        session.names_any() && session.find(std::iter::once(&*self.entry().session_name)).is_none()
    }

    pub fn name(&self) -> &Arc<str> {
        &self.member().name
    }

    /// The member's shared numbers.
    pub(crate) fn member(&self) -> &Arc<SharedMember> {
        &self.entry().member
    }

    fn entry(&self) -> &Entry {
        &self.in_force.members[self.index]
    }

    /// The arm of an A/B test that selected it, or should have.
    pub(crate) fn arm(&self) -> Option<&ArmOfRequest> {
        self.arm.as_ref()
    }

    /// The settings under which the member was selected.
    pub(crate) fn settings(&self) -> &GroupSettings {
        &self.in_force.settings
    }
}

impl Deref for InForce {
    type Target = Published;

    fn deref(&self) -> &Published {
        &self.0
    }
}
