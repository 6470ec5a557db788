//! A group: its state behind a lock, the published copy, and the workers' reports.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arc_swap::ArcSwap;
use skep_cluster::Failure;
use skep_serve::monotonic_ms;
use skep_units::{NodeId, Now};

use crate::members::node_reports::NodeReports;
use crate::members::published::Published;
use crate::members::queue::Queue;
use crate::members::settings::{GroupSpec, GroupWords};
use crate::members::state::GroupState;
use crate::members::status::MemberStatus;

/// Members of which each request is sent to one. Shared by all threads.
pub struct Group {
    name: Arc<str>,
    pub(crate) words: &'static GroupWords,
    seed: u64,
    state: Mutex<GroupState>,
    published: Arc<ArcSwap<Published>>,
    /// Revision of the state.
    revision: AtomicU64,
    pub(crate) queue: Queue,
    /// Requests that another member answered than the one that has their session.
    sessions_lost: AtomicU64,
    /// The second, counted from 1, in which a refusal was last logged.
    told_s: AtomicU64,
}

impl Group {
    /// Creates the group `name`. No member gets requests before its first successful check: see
    /// [`Group::start_checks`]. `seed` initialises policies and the spread of checks; it differs
    /// between processes.
    pub fn new(name: &str, words: &'static GroupWords, spec: GroupSpec, seed: u64) -> Arc<Self> {
        let mut state = GroupState::new(name, words, spec.settings.clone());
        let published = Arc::new(ArcSwap::from_pointee(state.snapshot()));
        state.adopt(spec, now());
        state.publish(now(), &published);
        let revision = AtomicU64::new(state.revision);
        Arc::new(Self {
            name: name.into(),
            words,
            seed,
            state: Mutex::new(state),
            published,
            revision,
            queue: Queue::default(),
            sessions_lost: AtomicU64::new(0),
            told_s: AtomicU64::new(0),
        })
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// Applies the settings, members and weights of a new config. Changes made at run time are kept,
    /// unless the file has changed the same setting. Requests in progress are not affected.
    pub fn reload(&self, spec: GroupSpec) {
        self.change(|state, now| state.adopt(spec, now));
    }

    /// Incremented whenever members, their states or weights, or settings may have changed. Takes no
    /// lock.
    pub fn revision(&self) -> u64 {
        self.revision.load(Ordering::Acquire)
    }

    /// The policy in force.
    pub fn policy(&self) -> String {
        self.lock().settings.policy.clone()
    }

    /// The members at this moment, the oldest first.
    pub fn members(&self) -> Vec<MemberStatus> {
        self.lock().member_statuses(now())
    }

    /// Names of the members whose checks succeed, including those that drain.
    pub fn well_members(&self) -> BTreeSet<String> {
        let state = self.lock();
        let well = state.membership.members().iter().filter(|member| member.health().is_well());
        well.map(|member| member.name().to_string()).collect()
    }

    /// Requests that wait for a member with room, and requests that got none since the start.
    pub fn queued(&self) -> (usize, u64) {
        (self.queue.waiting(), self.queue.refused())
    }

    /// Requests that another member answered than the one that has their session.
    pub fn sessions_lost(&self) -> u64 {
        self.sessions_lost.load(Ordering::Relaxed)
    }

    /// Logs that no member took a request, at most once per second.
    pub(crate) fn tell_refused(&self, now: Now, method: &str, path: &str) {
        let now_s = now.0 / 1000 + 1;
        if self.told_s.swap(now_s, Ordering::Relaxed) == now_s {
            return;
        }
        let members = self.members();
        let up = members.iter().filter(|member| member.state == "up").count();
        let (GroupWords { group, member }, name, count) = (self.words, &self.name, members.len());
        tracing::warn!(
            "{group} {name}: no {member} took the request, {up} of {count} are up: {method} {path}"
        );
    }

    pub(crate) fn count_lost_session(&self) {
        self.sessions_lost.fetch_add(1, Ordering::Relaxed);
    }

    /// Reads nodes' loads from `reports` from now on.
    pub fn follow_reports(&self, reports: &Arc<NodeReports>) {
        self.change(|state, _| state.follow_reports(reports));
    }

    pub(crate) fn seed(&self) -> u64 {
        self.seed
    }

    pub(crate) fn published(&self) -> &Arc<ArcSwap<Published>> {
        &self.published
    }

    /// Records that a request to a member failed, or succeeded after others had failed. Returns
    /// whether the member would be marked down if it could be spared, and was not before.
    pub(crate) fn report(&self, id: NodeId, outcome: Result<(), Failure>) -> bool {
        self.change(|state, now| state.on_request(now, id, outcome))
    }

    /// Runs `job` on the state and publishes the changes to the workers.
    pub(crate) fn change<R>(&self, job: impl FnOnce(&mut GroupState, Now) -> R) -> R {
        let (mut state, now) = (self.lock(), now());
        let before = state.revision;
        let result = job(&mut state, now);
        // While the lock is held, so that a later state is never overwritten.
        state.publish(now, &self.published);
        let is_changed = state.revision != before;
        self.revision.store(state.revision, Ordering::Release);
        drop(state);
        if is_changed {
            self.queue.look();
        }
        result
    }

    fn lock(&self) -> MutexGuard<'_, GroupState> {
        // A panic under the lock is a bug of ours; the table that it left passes its own checks, and
        // is better than no group.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.words.group, self.name)
    }
}

fn now() -> Now {
    Now(monotonic_ms())
}
