//! The table of nodes: which nodes belong to the cluster, and their states.
//!
//! Invariants: ids increase and are never reused; names and addresses are unique; `version` changes
//! if and only if the set of nodes or a weight does (health and drain do not change it, so dispatch
//! tables built for a version remain valid).
//!
//! The owner of the table counts each node's requests and passes the counts to
//! [`Membership::tick`], which ends drains and removals.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use skep_units::{NodeId, Now, ServerAddress, stable_hash};

use crate::health::{
    CheckResult, Failure, HealthSettings, HealthState, NodeHealth, RequestOutcome, Transition,
};
use crate::limits::{EJECTED_PERCENT_MAX, NAME_BYTES_MAX, NODES_MAX, WEIGHT_MAX};

/// Settings of the table of nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MembershipSettings {
    /// When a node counts as dead or alive.
    pub health: HealthSettings,
    /// If no node is up, send requests to all that are not drained, assuming that the checks are
    /// wrong and not the nodes ("panic mode"). Off by default: a quick 503 is better than a slow
    /// one.
    pub fail_open: bool,
    /// Largest share of the nodes that may be ejected at a time for failed requests, in percent; at
    /// least one node, unless it is 0 (Envoy's `max_ejection_percent`).
    pub ejected_percent_max: u32,
}

impl Default for MembershipSettings {
    fn default() -> Self {
        Self {
            health: HealthSettings::default(),
            fail_open: false,
            ejected_percent_max: EJECTED_PERCENT_MAX,
        }
    }
}

/// An operator's request that cannot be carried out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MembershipError {
    /// Operators identify nodes by name.
    #[error("a node named \"{0}\" exists already")]
    DuplicateName(Arc<str>),
    /// Two nodes cannot have the same address.
    #[error("{address} is the address of node \"{name}\" already")]
    DuplicateAddress {
        /// The requested address.
        address: Box<ServerAddress>,
        /// The node that has this address.
        name: Arc<str>,
    },
    /// Names are used in header fields and command lines.
    #[error("\"{0}\" is no node name: 1 to {NAME_BYTES_MAX} letters, digits, '-', '_' or '.'")]
    BadName(Arc<str>),
    /// To send a node no requests, drain it.
    #[error("weight {0} is not in 1..={WEIGHT_MAX} (to give a node no requests, drain it)")]
    BadWeight(u32),
    /// The table is full.
    #[error("a cluster has at most {NODES_MAX} nodes")]
    TooManyNodes,
    /// No such node, or no longer.
    #[error("there is no node {0}")]
    UnknownNode(NodeId),
    /// A removal cannot be undone.
    #[error(
        "node \"{0}\" is being removed, and gone when its last request has ended (skep node remove \
         {0} --wait returns then)"
    )]
    BeingRemoved(Arc<str>),
}

/// A node of the table.
#[derive(Clone, Debug)]
pub struct Member {
    id: NodeId,
    name: Arc<str>,
    name_hash: u64,
    address: ServerAddress,
    weight: u32,
    health: NodeHealth,
    removal_deadline: Option<Now>,
}

/// Properties of a node for a dispatch policy and for display.
#[derive(Clone, Debug)]
pub struct MemberView {
    pub id: NodeId,
    pub name: Arc<str>,
    /// `stable_hash` of the name, equal on every machine.
    pub name_hash: u64,
    /// Address at which it listens.
    pub address: ServerAddress,
    /// `1..=WEIGHT_MAX`.
    pub weight: u32,
    /// Whether it may receive new requests, including panic mode.
    pub eligible: bool,
    /// Current fraction of its share, in thousandths.
    pub slow_start_permille: u16,
    /// The displayed state.
    pub state: HealthState,
}

/// An event concerning a node, for the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MembershipEvent {
    pub at: Now,
    pub node: NodeId,
    pub name: Arc<str>,
    pub change: Change,
}

/// A change of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// It was added, and is joining.
    Added {
        /// Address at which it listens.
        address: ServerAddress,
        weight: u32,
    },
    /// Its weight changed.
    Weight {
        /// The previous weight.
        from: u32,
        /// The new weight.
        to: u32,
    },
    /// Its state changed.
    State(Transition),
    /// Enough consecutive requests failed to eject it, but it cannot be spared.
    Spared(Failure),
    /// It receives no new requests, and is removed when idle or at the deadline.
    Removing {
        /// Latest time of its removal.
        deadline: Now,
    },
    /// It was removed from the table.
    Removed {
        /// Requests that it still had at the deadline.
        abandoned_requests: u64,
    },
}

/// The table of nodes.
#[derive(Clone, Debug)]
pub struct Membership {
    settings: MembershipSettings,
    /// Ordered by id.
    members: Vec<Member>,
    /// Ids by name.
    ids: HashMap<Arc<str>, NodeId>,
    next_id: u32,
    version: u64,
}

impl Membership {
    /// An empty table.
    pub fn new(settings: MembershipSettings) -> Self {
        Self { settings, members: Vec::new(), ids: HashMap::new(), next_id: 0, version: 0 }
    }

    /// A number that changes when the set of nodes or a weight does.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// All nodes in the order of their ids, including those being removed.
    pub fn members(&self) -> &[Member] {
        &self.members
    }

    /// The node with this id.
    pub fn get(&self, id: NodeId) -> Option<&Member> {
        self.position(id).map(|position| &self.members[position])
    }

    /// The node with this name.
    pub fn find(&self, name: &str) -> Option<&Member> {
        self.get(*self.ids.get(name)?)
    }

    /// The table at `now`, in the order of ids.
    pub fn view(&self, now: Now) -> impl Iterator<Item = MemberView> {
        let panicking = self.is_panicking();
        self.members.iter().map(move |member| MemberView {
            id: member.id,
            name: Arc::clone(&member.name),
            name_hash: member.name_hash,
            address: member.address,
            weight: member.weight,
            eligible: member.health.eligible() || (panicking && member.health.is_wanted()),
            slow_start_permille: member.health.slow_start_permille(now),
            state: member.health.state(),
        })
    }

    /// Whether requests are sent to nodes that are not up because no node is.
    pub fn is_panicking(&self) -> bool {
        self.settings.fail_open && !self.members.iter().any(|member| member.health.eligible())
    }

    /// Adds a node; it receives requests after its first good check. The event contains the id.
    pub fn add(
        &mut self,
        now: Now,
        name: &str,
        address: impl Into<ServerAddress>,
        weight: u32,
    ) -> Result<MembershipEvent, MembershipError> {
        let address = address.into();
        check_name(name)?;
        check_weight(weight)?;
        if let Some(twin) = self.find(name) {
            if twin.removal_deadline.is_some() {
                return Err(MembershipError::BeingRemoved(Arc::clone(&twin.name)));
            }
            return Err(MembershipError::DuplicateName(Arc::clone(&twin.name)));
        }
        if let Some(twin) = self.members.iter().find(|member| member.address == address) {
            return Err(MembershipError::DuplicateAddress {
                address: Box::new(address),
                name: Arc::clone(&twin.name),
            });
        }
        if self.members.len() >= NODES_MAX {
            return Err(MembershipError::TooManyNodes);
        }
        let member = Member {
            id: NodeId(self.next_id),
            name: name.into(),
            name_hash: stable_hash(name.as_bytes(), 0),
            address,
            weight,
            health: NodeHealth::new(self.settings.health, now),
            removal_deadline: None,
        };
        let event = member.event(now, Change::Added { address, weight });
        self.ids.insert(Arc::clone(&member.name), member.id);
        self.members.push(member);
        self.next_id += 1;
        self.version += 1;
        self.check_invariants();
        Ok(event)
    }

    /// Starts to remove a node: it receives no new requests, and is removed at the first
    /// [`tick`](Self::tick) that finds it idle, or after `deadline`. Another call can only shorten
    /// the deadline.
    pub fn remove(
        &mut self,
        now: Now,
        id: NodeId,
        deadline: Now,
    ) -> Result<MembershipEvent, MembershipError> {
        let member = self.member(id)?;
        let deadline = member.removal_deadline.map_or(deadline, |earlier| earlier.min(deadline));
        member.removal_deadline = Some(deadline);
        // The event carries more than the transition would.
        let _ = member.health.drain(now);
        let event = member.event(now, Change::Removing { deadline });
        self.check_invariants();
        Ok(event)
    }

    /// The operator drains a node. `None` if it was drained already.
    pub fn drain(
        &mut self,
        now: Now,
        id: NodeId,
    ) -> Result<Option<MembershipEvent>, MembershipError> {
        let member = self.member(id)?;
        let transition = member.health.drain(now);
        Ok(member.event_of(transition))
    }

    /// The operator resumes a node. `None` if it was not drained.
    pub fn resume(
        &mut self,
        now: Now,
        id: NodeId,
    ) -> Result<Option<MembershipEvent>, MembershipError> {
        let member = self.member(id)?;
        if member.removal_deadline.is_some() {
            return Err(MembershipError::BeingRemoved(Arc::clone(&member.name)));
        }
        let transition = member.health.resume(now);
        Ok(member.event_of(transition))
    }

    /// Changes a node's weight. `None` if it had that weight already.
    pub fn set_weight(
        &mut self,
        now: Now,
        id: NodeId,
        weight: u32,
    ) -> Result<Option<MembershipEvent>, MembershipError> {
        check_weight(weight)?;
        let member = self.member(id)?;
        let from = std::mem::replace(&mut member.weight, weight);
        if from == weight {
            return Ok(None);
        }
        let event = member.event(now, Change::Weight { from, to: weight });
        self.version += 1;
        self.check_invariants();
        Ok(Some(event))
    }

    pub fn begin_check(&mut self, now: Now, id: NodeId) {
        if let Ok(member) = self.member(id) {
            member.health.begin_check(now);
        }
    }

    /// A check of a node has ended. Results for removed nodes are ignored.
    pub fn on_check(
        &mut self,
        now: Now,
        id: NodeId,
        result: CheckResult,
    ) -> Option<MembershipEvent> {
        let member = self.member(id).ok()?;
        let transition = member.health.on_check(now, result);
        member.event_of(transition)
    }

    /// A request to a node has ended. Results for removed nodes are ignored. `serves` returns
    /// whether a node that is up receives requests.
    pub fn on_request(
        &mut self,
        now: Now,
        id: NodeId,
        outcome: RequestOutcome,
        serves: impl Fn(NodeId) -> bool,
    ) -> Option<MembershipEvent> {
        let may_eject = outcome.is_err_and(|failure| self.can_spare(id, failure, serves));
        let member = self.member(id).ok()?;
        let was_spared = member.health.is_to_be_ejected();
        if let Some(transition) = member.health.on_request(now, outcome, may_eject) {
            return member.event_of(Some(transition));
        }
        let failure = outcome.err()?;
        let is_spared = !was_spared && member.health.is_to_be_ejected();
        is_spared.then(|| member.event(now, Change::Spared(failure)))
    }

    /// A node's heartbeats stopped.
    pub fn on_silence(&mut self, now: Now, id: NodeId) -> Option<MembershipEvent> {
        let member = self.member(id).ok()?;
        let transition = member.health.on_silence(now);
        member.event_of(transition)
    }

    /// Ends drains and removals. `outstanding` returns a node's requests in flight; call this after
    /// the view without the node has taken effect.
    pub fn tick(&mut self, now: Now, outstanding: impl Fn(NodeId) -> u64) -> Vec<MembershipEvent> {
        let is_over = |deadline, requests| requests == 0 || now >= deadline;
        let mut events = self.end_removals(now, &outstanding, is_over);
        for member in self.members.iter_mut().filter(|member| outstanding(member.id) == 0) {
            let transition = member.health.on_idle(now);
            events.extend(member.event_of(transition));
        }
        self.check_invariants();
        events
    }

    /// Ends removals whose deadline has passed. An idle node stays until the next tick: the view without it may
    /// not have taken effect.
    pub fn end_due_removals(
        &mut self,
        now: Now,
        outstanding: impl Fn(NodeId) -> u64,
    ) -> Vec<MembershipEvent> {
        let events = self.end_removals(now, &outstanding, |deadline, _| now >= deadline);
        self.check_invariants();
        events
    }

    fn end_removals(
        &mut self,
        now: Now,
        outstanding: &impl Fn(NodeId) -> u64,
        is_over: impl Fn(Now, u64) -> bool,
    ) -> Vec<MembershipEvent> {
        let mut events = Vec::new();
        self.members.retain(|member| {
            let Some(deadline) = member.removal_deadline else { return true };
            let requests = outstanding(member.id);
            if !is_over(deadline, requests) {
                return true;
            }
            events.push(member.event(now, Change::Removed { abandoned_requests: requests }));
            self.ids.remove(&member.name);
            false
        });
        self.version += events.len() as u64;
        events
    }

    /// Settings were reloaded.
    pub fn set_settings(&mut self, settings: MembershipSettings) {
        self.settings = settings;
        for member in &mut self.members {
            member.health.set_settings(settings.health);
        }
        self.check_invariants();
    }

    /// Whether a node may be ejected. The last one never is: otherwise all clients would pay for
    /// the failed requests of some. A refused connection does not depend on the request, so any
    /// number of nodes may be ejected for that.
    fn can_spare(&self, id: NodeId, failure: Failure, serves: impl Fn(NodeId) -> bool) -> bool {
        let serves = |other: &Member| other.health.eligible() && serves(other.id);
        if !self.members.iter().any(|other| other.id != id && serves(other)) {
            return false;
        }
        let ejected = self.members.iter().filter(|other| other.health.is_ejected()).count();
        let percent_max = self.settings.ejected_percent_max as usize;
        let is_in_bounds = (ejected + 1) * 100 <= percent_max * self.members.len();
        failure == Failure::Refused || is_in_bounds || (ejected == 0 && percent_max > 0)
    }

    fn member(&mut self, id: NodeId) -> Result<&mut Member, MembershipError> {
        match self.position(id) {
            Some(position) => Ok(&mut self.members[position]),
            None => Err(MembershipError::UnknownNode(id)),
        }
    }

    fn position(&self, id: NodeId) -> Option<usize> {
        self.members.binary_search_by_key(&id, |member| member.id).ok()
    }

    fn check_invariants(&self) {
        if !cfg!(debug_assertions) {
            return;
        }
        assert!(self.members.len() <= NODES_MAX);
        assert_eq!(self.ids.len(), self.members.len(), "each name has its id");
        assert!(self.members.is_sorted_by(|a, b| a.id < b.id), "ids grow");
        assert!(self.members.last().is_none_or(|last| last.id.0 < self.next_id), "ids are new");
        for member in &self.members {
            member.health.check_invariants();
            assert!((1..=WEIGHT_MAX).contains(&member.weight));
            assert!(member.removal_deadline.is_none() || !member.health.is_wanted());
        }
        // Names and addresses never change, so only the newest node can duplicate one.
        if let Some((newest, others)) = self.members.split_last() {
            let twin =
                |other: &Member| other.name == newest.name || other.address == newest.address;
            assert!(!others.iter().any(twin), "names and addresses are unique");
        }
    }
}

impl Member {
    pub fn id(&self) -> NodeId {
        self.id
    }

    pub fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// Address at which it listens.
    pub fn address(&self) -> ServerAddress {
        self.address
    }

    /// `1..=WEIGHT_MAX`.
    pub fn weight(&self) -> u32 {
        self.weight
    }

    /// Its health.
    pub fn health(&self) -> &NodeHealth {
        &self.health
    }

    /// Latest time of its removal, if it is being removed.
    pub fn removal_deadline(&self) -> Option<Now> {
        self.removal_deadline
    }

    fn event(&self, at: Now, change: Change) -> MembershipEvent {
        MembershipEvent { at, node: self.id, name: Arc::clone(&self.name), change }
    }

    fn event_of(&self, transition: Option<Transition>) -> Option<MembershipEvent> {
        transition.map(|transition| self.event(transition.at, Change::State(transition)))
    }
}

fn check_name(name: &str) -> Result<(), MembershipError> {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    if (1..=NAME_BYTES_MAX).contains(&name.len()) && name.bytes().all(allowed) {
        Ok(())
    } else {
        Err(MembershipError::BadName(name.into()))
    }
}

fn check_weight(weight: u32) -> Result<(), MembershipError> {
    if (1..=WEIGHT_MAX).contains(&weight) {
        Ok(())
    } else {
        Err(MembershipError::BadWeight(weight))
    }
}

impl fmt::Display for MembershipEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "node {}: {}", self.name, self.change)
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Added { address, weight } => write!(f, "added at {address}, weight {weight}"),
            Self::Weight { from, to } => write!(f, "weight {from} -> {to}"),
            Self::State(transition) => transition.fmt(f),
            Self::Spared(failure) => {
                write!(f, "requests failed: {failure}; not taken out, since too few others are up")
            }
            Self::Removing { .. } => f.write_str("removing"),
            Self::Removed { abandoned_requests: 0 } => f.write_str("removed"),
            Self::Removed { abandoned_requests } => {
                write!(f, "removed with {abandoned_requests} requests in flight")
            }
        }
    }
}
