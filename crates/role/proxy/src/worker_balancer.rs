//! The load balancer of one worker: everything the worker needs to select members.
//!
//! The only shared data are the members' counters; each pick copies them into the policy's view. For
//! the number of members in one group, that copy is cheaper than any scheme to avoid it.

use std::borrow::Cow;
use std::net::SocketAddr;
use std::ops::Deref;
use std::rc::Rc;
use std::sync::Arc;

use arc_swap::{ArcSwap, Cache};
use skep_cluster::RetryBudget;
use skep_http::RequestHead;
use skep_http::path::{self, Path, Reading};
use skep_policy::{
    AttemptEnd, ClusterView, NodeView, Policy, PolicyInfo, RequestKey, ServedObject, policies,
};
use skep_units::{NodeId, Now};
use skep_upstream::Pool;

use crate::members::member::SharedMember;
use crate::members::published::{Entry, Published};
use crate::members::session::{Session, highest_random_weight};
use crate::members::settings::GroupSettings;

/// Selects the members for the requests of one worker: by its own instance of the policy, its own
/// view of the members, and its own budget of retries.
pub(crate) struct WorkerBalancer {
    latest: Cache<Arc<ArcSwap<Published>>, Arc<Published>>,
    /// The published state for which `view`, `policy` and `budget` were made.
    in_force: Rc<InForce>,
    connections: Rc<Pool>,
    seed: u64,
    policy: Box<dyn Policy>,
    content_aware: bool,
    learns_sizes: bool,
    view: ClusterView,
    budget: RetryBudget,
    /// Scratch: a host in lower case.
    host: Vec<u8>,
}

/// The input of a worker's picks. Requests hold a reference to it while they are in progress, and
/// are counted here: without atomics, for which all workers would contend.
pub(crate) struct InForce(Arc<Published>);

/// A member that was picked, and the settings it was picked under.
#[derive(Clone)]
pub struct PickedMember {
    in_force: Rc<InForce>,
    index: usize,
    /// Of the request, if the policy is to learn the size of its object.
    url_hash: Option<u64>,
}

impl WorkerBalancer {
    pub(crate) fn new(
        published: &Arc<ArcSwap<Published>>,
        connections: Rc<Pool>,
        seed: u64,
    ) -> Self {
        let mut latest = Cache::new(Arc::clone(published));
        let published = Arc::clone(latest.load());
        let settings = &published.settings;
        let mut balancer = Self {
            latest,
            policy: build(&settings.policy, seed),
            content_aware: info_of(&settings.policy).content_aware,
            learns_sizes: info_of(&settings.policy).learns_sizes,
            view: ClusterView::default(),
            budget: RetryBudget::new(settings.retry_budget),
            host: Vec::new(),
            in_force: Rc::new(InForce(published)),
            connections,
            seed,
        };
        balancer.rebuild_view();
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

    /// Selects a member for `request` that is not in `exclude`: that of its session, else as its
    /// session's hash has it, else as the policy has it.
    pub(crate) fn pick(
        &mut self,
        request: &RequestHead<'_, '_>,
        client: SocketAddr,
        session: &Session<'_>,
        exclude: &[NodeId],
        now: Now,
    ) -> Option<PickedMember> {
        self.sync();
        self.view.now = now;
        let interval_ms = self.in_force.settings.report_interval_ms;
        for (view, entry) in self.view.nodes.iter_mut().zip(&self.in_force.members) {
            entry.member.refresh(view, now, interval_ms);
        }
        let by_hash = || session.hash.and_then(|hash| self.index_by_hash(hash, exclude));
        let (index, url_hash) = match self.index_of(session, exclude).or_else(by_hash) {
            // It waits for its member.
            Some(index) if !self.in_force.members[index].member.can_begin() => return None,
            Some(index) => {
                self.policy.started(self.view.nodes[index].id);
                (index, None)
            }
            None => self.pick_by_policy(request, client, exclude)?,
        };
        Some(PickedMember { in_force: Rc::clone(&self.in_force), index, url_hash })
    }

    /// The member that the session has, if it may go there.
    fn index_of(&self, session: &Session<'_>, exclude: &[NodeId]) -> Option<usize> {
        let members = &self.in_force.members;
        let index = session.find(members.iter().map(|entry| &*entry.session_name))?;
        let member = &members[index].member;
        (member.keeps_sessions() && !exclude.contains(&member.id)).then_some(index)
    }

    /// The member for a session with that hash.
    fn index_by_hash(&self, hash: u64, exclude: &[NodeId]) -> Option<usize> {
        let members = self.in_force.members.iter().map(|entry| &entry.member).enumerate();
        let open = members.filter(|(_, it)| it.is_in() && !exclude.contains(&it.id));
        highest_random_weight(hash, open.map(|(index, member)| (index, member.name_hash)))
    }

    fn pick_by_policy(
        &mut self,
        request: &RequestHead<'_, '_>,
        client: SocketAddr,
        exclude: &[NodeId],
    ) -> Option<(usize, Option<u64>)> {
        let (mut host, mut path) = (request.authority.name, Cow::Borrowed(request.path));
        if self.content_aware {
            if host.iter().any(u8::is_ascii_uppercase) {
                self.host.clear();
                request.authority.write_lower(&mut self.host);
                host = &self.host;
            }
            // What can't be normalised is the member's to refuse.
            path = path::read(request.path, Reading::Origins).map_or(path, Path::into_place);
        }
        let key = RequestKey {
            client: client.ip(),
            client_port: client.port(),
            host,
            path: &path,
            query: request.query,
        };
        let id = self.policy.pick(&key, &self.view, exclude).node()?;
        self.policy.started(id);
        let url_hash = self.learns_sizes.then(|| key.url_hash());
        let index = self.view.nodes.iter().position(|node| node.id == id)?;
        Some((index, url_hash))
    }

    /// Reports the size of a picked member's object to the policy.
    pub(crate) fn learned(&mut self, picked: &PickedMember, bytes: u64) {
        if let Some(url_hash) = picked.url_hash {
            let object = ServedObject { node: picked.member().id, bytes };
            self.policy.learned(url_hash, object);
        }
    }

    /// Reports the end of an attempt to the policy.
    pub(crate) fn finished(&mut self, now: Now, node: NodeId, end: AttemptEnd) {
        self.policy.finished(now, node, end);
    }

    /// A client's request arrived.
    pub(crate) fn deposit(&mut self, now: Now) {
        self.budget.on_request(now);
    }

    /// Whether a retry may be made; if so, charges the budget.
    pub(crate) fn try_retry(&mut self, now: Now) -> bool {
        self.budget.try_retry(now)
    }

    /// Whether a member that was not tried may take the request, now or later: one that is up, or was
    /// not checked yet. Whether it has room says nothing: that changes at any moment.
    pub(crate) fn may_wait(&mut self, session: &Session<'_>, exclude: &[NodeId]) -> bool {
        self.sync();
        if self.index_of(session, exclude).is_some() {
            return true;
        }
        let mut members = self.in_force.members.iter().map(|entry| &entry.member);
        members.any(|member| member.is_in() && !exclude.contains(&member.id))
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
            self.policy = build(&new.policy, self.seed);
            self.content_aware = info_of(&new.policy).content_aware;
            self.learns_sizes = info_of(&new.policy).learns_sizes;
        }
        if old.retry_budget != new.retry_budget {
            self.budget = RetryBudget::new(new.retry_budget);
        }
        self.connections.set_limits(new.connections);
        for gone in &self.in_force.members {
            let address = gone.member.address;
            let is_kept = |entry: &Entry| entry.member.address == address;
            // What was said on a connection is not to be taken for another protocol.
            if old.protocol != new.protocol || !latest.members.iter().any(is_kept) {
                self.connections.close_address(address);
            }
        }
        self.in_force = Rc::new(InForce(latest));
        self.rebuild_view();
    }

    fn rebuild_view(&mut self) {
        let memory_bytes = self.in_force.settings.memory_bytes;
        self.view.version = self.in_force.members_version;
        self.view.has_cluster_cache = self.in_force.settings.have_cluster_cache;
        self.view.nodes.clear();
        self.view.nodes.extend(self.in_force.members.iter().map(|entry| NodeView {
            eligible: false,
            slow_start_permille: 1,
            memory_bytes,
            ..NodeView::idle(entry.member.id, entry.member.name_hash, entry.weight)
        }));
    }
}

impl PickedMember {
    /// Host and port that clients reach it at.
    pub fn authority(&self) -> &str {
        &self.entry().authority
    }

    /// The line that names it, if replies shall have one.
    pub fn name_line(&self) -> &[u8] {
        &self.entry().name_line
    }

    /// Whether the client gets a session there by the reply.
    pub(crate) fn begins(&self, session: &Session<'_>) -> bool {
        session.is_new_at(&self.entry().session_name)
    }

    /// What a reply gets by which a session begins.
    pub(crate) fn session_lines(&self) -> &[u8] {
        &self.entry().session_lines
    }

    /// Whether the session had been at another member.
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

    /// The settings the member was picked under.
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

fn build(policy: &str, seed: u64) -> Box<dyn Policy> {
    #[expect(clippy::expect_used, reason = "config and control take no other names")]
    skep_policy::build(policy, seed).expect("a policy in force has a known name")
}

fn info_of(policy: &str) -> &'static PolicyInfo {
    let info = policies().iter().find(|info| info.name == policy);
    #[expect(clippy::expect_used, reason = "config and control take no other names")]
    info.expect("a policy in force has a known name")
}
