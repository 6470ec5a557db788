//! Builds and publishes the forwarding table that all machines use for steering: from the plan,
//! the nodes that are alive, and the operator's settings.
//!
//! The active dispatcher builds it, with a new generation when something has changed: at the next
//! tick if a node must not receive flows any more, else at least one interval after the last table,
//! so that many changes make one table. A standby adopts it, so that after a takeover it continues
//! from there, with the same indexes and histories.
//!
//! Building a table takes time proportional to the members of all services, whatever has changed.
//!
//! Invariants: one table per version; versions increase; a node keeps its index as long as it is
//! planned or in any history, and no other node has that index meanwhile; a service keeps its id,
//! whatever the config of the dispatcher that makes the next table (see [`crate::service_ids`]); a
//! service's history contains no membership twice.

mod invariants;
mod merge;
mod plan;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::net::SocketAddr;
use std::sync::Arc;

use skep_units::Now;
use skep_wire::limits::{HISTORY_MAX, WEIGHT_MAX};
use skep_wire::message::{Mac, Name, NodeHeartbeat};
use skep_wire::seal::Stamp;
use skep_wire::steer::{ForwardingState, NODES_MAX, NodeIndex, service_hash};
use skep_wire::table::{ServiceMembership, Share, Table, TableNode, TableService, TableVersion};

pub use plan::{NodePlan, ServicePlan, TablePlan};

use crate::failure_detector::{FailureDetector, FailureDetectorSettings, Liveness};
use crate::service_ids::{ServiceIds, ServiceKey};
pub use crate::table_note::TableNote;
use crate::table_pace::TablePace;

/// Builds the forwarding table. On the active dispatcher it publishes a new version soon after a
/// change; on a standby it adopts the versions of the active dispatcher.
#[derive(Clone, Debug)]
pub struct TablePublisher {
    detector: FailureDetector,
    plan: TablePlan,
    /// The nodes of the plan.
    planned: BTreeMap<Name, NodePlan>,
    /// Nodes with an index.
    nodes: BTreeMap<Name, Known>,
    /// By service, the latest membership first. Services with the same nodes share memberships.
    histories: BTreeMap<ServiceKey, Vec<Arc<ServiceMembership>>>,
    ids: ServiceIds,
    /// Whether each index occurs in a history.
    is_named: Box<[bool; NODES_MAX]>,
    /// Nodes whose refusal was logged, once for each.
    refused: BTreeSet<Name>,
    /// Nodes checked for missing listeners since the services changed.
    checked: BTreeSet<Name>,
    /// The author's state; `None` on a dispatcher that adopts the tables of another one.
    author: Option<Author>,
    /// Whether the table was rebuilt after the failure detector had listened for long enough.
    has_settled: bool,
    /// The tables of other authors that were merged into it.
    merged: merge::Merged,
    /// Until when silent nodes of merged tables keep their connections.
    presumed_until: Option<Now>,
    pace: TablePace,
    table: Arc<Table>,
}

/// The author of the tables of a term.
#[derive(Clone, Copy, Debug, Default)]
struct Author {
    /// A change that the current table may not contain yet.
    change: Option<PublishedChange>,
}

/// A reason for a new table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum PublishedChange {
    /// It can wait for other changes.
    Usual,
    /// A node must not receive flows any more, or must be reached by another device.
    Urgent,
}

/// All indexes are in use.
struct NoIndexLeft;

/// A node with an index.
#[derive(Clone, Debug)]
struct Known {
    index: NodeIndex,
    address: SocketAddr,
    weight: u32,
    mac: Mac,
    mtu: u32,
    /// Whether the operator has drained it.
    is_drained: bool,
    /// Its state in an adopted table: valid until this dispatcher has listened for long enough.
    adopted: ForwardingState,
    /// Whether it has connections according to a merged table, and has been silent since.
    is_presumed: bool,
}

impl TablePublisher {
    /// A publisher with an empty table, without an author.
    pub fn new(settings: FailureDetectorSettings) -> Self {
        Self {
            detector: FailureDetector::new(settings),
            plan: TablePlan::default(),
            planned: BTreeMap::new(),
            nodes: BTreeMap::new(),
            histories: BTreeMap::new(),
            ids: ServiceIds::default(),
            is_named: Box::new([false; NODES_MAX]),
            refused: BTreeSet::new(),
            checked: BTreeSet::new(),
            author: None,
            has_settled: false,
            merged: merge::Merged::default(),
            presumed_until: None,
            pace: TablePace::new(0),
            table: Arc::default(),
        }
    }

    /// The current table: made here, or adopted.
    pub fn table(&self) -> &Arc<Table> {
        &self.table
    }

    /// The failure detector: which nodes are alive, and their last heartbeats.
    pub fn detector(&self) -> &FailureDetector {
        &self.detector
    }

    /// Sets the plan of the config. A weight set by the operator is kept until the weight in the
    /// config changes.
    pub fn set_plan(&mut self, plan: TablePlan) {
        let mut places = plan.services.iter().flat_map(|service| &*service.nodes);
        assert!(places.all(|&at| at < plan.nodes.len()), "services name nodes of the plan");
        let mut change = PublishedChange::Usual;
        // Nearly always the nodes and their order are the same: then only differences cost time.
        let is_same = plan.nodes.len() == self.plan.nodes.len()
            && plan.nodes.iter().zip(&self.plan.nodes).all(|(a, b)| a.name == b.name);
        for (at, node) in plan.nodes.iter().enumerate() {
            if !is_same || self.plan.nodes[at] != *node {
                change = change.max(self.plan_node(node));
            }
        }
        if plan.services != self.plan.services {
            self.checked.clear();
        }
        if !is_same {
            let names: BTreeSet<&Name> = plan.nodes.iter().map(|node| &node.name).collect();
            self.planned.retain(|name, _| names.contains(name));
            self.pace.set_nodes(plan.nodes.len());
            self.refused.clear();
        }
        self.plan = plan;
        self.changed(change);
        if !is_same {
            self.forget();
        }
        self.check_invariants();
    }

    /// Sets the plan of a node.
    fn plan_node(&mut self, node: &NodePlan) -> PublishedChange {
        let is_up = self.share(&node.name).is_some();
        let before = self.planned.insert(node.name.clone(), node.clone());
        let Some(known) = self.nodes.get_mut(&node.name) else { return PublishedChange::Usual };
        known.address = node.address;
        if before.is_some_and(|before| before.weight != node.weight) {
            known.weight = node.weight;
        }
        let is_still_up = self.share(&node.name).is_some();
        if is_up && !is_still_up { PublishedChange::Urgent } else { PublishedChange::Usual }
    }

    /// A node's heartbeat was received; it must be authentic and fresh.
    pub fn heard(&mut self, now: Now, heartbeat: NodeHeartbeat, stamp: Stamp) -> Vec<TableNote> {
        let name = heartbeat.name.clone();
        if !self.planned.contains_key(&name) && !self.nodes.contains_key(&name) {
            return self.refuse(name, TableNote::Unplanned);
        }
        let (life_before, version) = (self.detector.life(&name), heartbeat.table);
        let was_ready = self.is_ready(&name);
        let known = self.detector.heartbeat(&name);
        let has_moved = known.is_none_or(|known| known.services != heartbeat.services);
        if !self.detector.heard(now, heartbeat, stamp) {
            return Vec::new();
        }
        let life = self.detector.life(&name);
        let note = match (life_before, life) {
            (Liveness::Unheard, _) => Some(TableNote::Came(name.clone())),
            (Liveness::Dead, _) => Some(TableNote::Back(name.clone())),
            (Liveness::Alive, Liveness::Leaving) => Some(TableNote::Leaving(name.clone())),
            _ => None,
        };
        let mut notes: Vec<TableNote> = note.into_iter().collect();
        if has_moved || !self.checked.contains(&name) {
            notes.extend(self.not_listening(&name));
            self.checked.insert(name.clone());
        }
        if self.author.is_some() {
            match self.learn(&name) {
                Ok(is_news)
                    if is_news
                        || has_moved
                        || life != life_before
                        || self.is_ready(&name) != was_ready =>
                {
                    let is_known = life_before == Liveness::Alive && was_ready;
                    self.changed(if is_known {
                        PublishedChange::Urgent
                    } else {
                        PublishedChange::Usual
                    });
                }
                Ok(_) => {}
                Err(NoIndexLeft) => notes.extend(self.refuse(name, TableNote::NoIndex)),
            }
            self.outrun(version);
        }
        self.check_invariants();
        notes
    }

    /// Advances the time: makes the next table if something has changed and the rate limit allows
    /// it.
    pub fn tick(&mut self, now: Now) -> Vec<TableNote> {
        let ms = self.detector.silence_ms();
        let dead = self.detector.tick(now);
        let settles = self.detector.has_settled() && !self.has_settled;
        self.has_settled |= settles;
        self.expire_presumption(now);
        if !dead.is_empty() || settles {
            self.changed(PublishedChange::Urgent);
        }
        let change = self.author.and_then(|author| author.change);
        if change.is_some_and(|change| self.pace.allows(now, change == PublishedChange::Urgent)) {
            self.remake(now);
        }
        self.check_invariants();
        dead.into_iter().map(|name| TableNote::Dead { name, ms }).collect()
    }

    /// The operator drains exactly these nodes of the plan. Nodes whose heartbeats were never
    /// received are ignored.
    pub fn set_drained(&mut self, drained: &BTreeSet<Name>) {
        let mut change = None;
        for (name, node) in &mut self.nodes {
            let is_drained = drained.contains(name);
            if node.is_drained != is_drained && self.planned.contains_key(name) {
                node.is_drained = is_drained;
                let one = if is_drained { PublishedChange::Urgent } else { PublishedChange::Usual };
                change = change.max(Some(one));
            }
        }
        change.into_iter().for_each(|change| self.changed(change));
    }

    /// Sets another weight; 0 drains. Returns false if no heartbeat of the node was ever received.
    pub fn set_weight(&mut self, name: &Name, weight: u32) -> bool {
        let Some(node) = self.nodes.get_mut(name) else { return false };
        if std::mem::replace(&mut node.weight, weight) != weight {
            self.changed(if weight == 0 {
                PublishedChange::Urgent
            } else {
                PublishedChange::Usual
            });
        }
        true
    }

    /// This dispatcher is active now: it becomes the author, in `epoch`.
    pub fn begin_term(&mut self, epoch: u64) {
        let living: Vec<Name> =
            self.detector.living().map(|heartbeat| heartbeat.name.clone()).collect();
        for name in &living {
            // A node without an index is reported at its next heartbeat.
            let _ = self.learn(name);
        }
        self.publish(TableVersion { epoch, generation: 1 });
    }

    /// This dispatcher is no longer active.
    pub fn step_down(&mut self) {
        self.author = None;
        self.check_invariants();
    }

    /// Adopts the table of another dispatcher if it is later than the current one.
    pub fn adopt(&mut self, table: Table) -> bool {
        if table.version <= self.table.version || self.author.is_some() {
            return false;
        }
        self.nodes = table.nodes.iter().map(|node| (node.name.clone(), Known::of(node))).collect();
        let memberships: Vec<Arc<ServiceMembership>> =
            table.memberships.iter().cloned().map(Arc::new).collect();
        let histories = table.services.iter().map(|service| {
            let history = service.history.iter();
            let history = history.filter_map(|&at| memberships.get(usize::from(at)).cloned());
            (ServiceKey::of(&service.service), history.collect())
        });
        self.histories = histories.collect();
        self.ids.adopt(table.services.iter().map(|service| &service.service));
        self.note_named();
        merge::note(&mut self.merged, table.version);
        self.table = Arc::new(table);
        self.check_invariants();
        true
    }

    /// Records that the current table may be outdated.
    fn changed(&mut self, change: PublishedChange) {
        if let Some(author) = &mut self.author {
            author.change = author.change.max(Some(change));
        }
    }

    /// Returns a note about a node, once per node.
    fn refuse(&mut self, name: Name, note: impl FnOnce(Name) -> TableNote) -> Vec<TableNote> {
        let is_news = self.refused.len() < NODES_MAX && self.refused.insert(name.clone());
        if is_news { vec![note(name)] } else { Vec::new() }
    }

    /// Services whose addresses a node does not listen at, although it is planned for them.
    fn not_listening(&self, name: &Name) -> Vec<TableNote> {
        let Some(heartbeat) = self.detector.heartbeat(name) else { return Vec::new() };
        let at = self.plan.nodes.iter().position(|node| node.name == *name);
        let is_behind = |service: &&ServicePlan| at.is_some_and(|at| service.nodes.contains(&at));
        let services = self.plan.services.iter().filter(is_behind);
        let addresses = services.map(|service| service.address);
        let missed =
            addresses.filter(|&address| !heartbeat.services.contains(&service_hash(address)));
        missed.map(|address| TableNote::NotListening { name: name.clone(), address }).collect()
    }

    /// Assigns an index to a live node, and stores what it reported; returns whether anything
    /// changed.
    fn learn(&mut self, name: &Name) -> Result<bool, NoIndexLeft> {
        let Some(heartbeat) = self.detector.heartbeat(name) else { return Ok(false) };
        let (mac, mtu, wished) = (heartbeat.mac, heartbeat.mtu, heartbeat.index);
        if let Some(known) = self.nodes.get_mut(name) {
            let is_news = (known.mac, known.mtu) != (mac, mtu);
            (known.mac, known.mtu) = (mac, mtu);
            return Ok(is_news);
        }
        let Some(NodePlan { address, weight, .. }) = self.planned.get(name).cloned() else {
            return Ok(false);
        };
        let index = self.free_index(wished).ok_or(NoIndexLeft)?;
        let adopted = ForwardingState::Down;
        let is_presumed = false;
        let known =
            Known { index, address, weight, mac, mtu, is_drained: false, adopted, is_presumed };
        self.nodes.insert(name.clone(), known);
        Ok(true)
    }

    /// A free index: the preferred one, else the smallest. If all are in use, drops the oldest
    /// memberships until one is free.
    fn free_index(&mut self, wished: Option<NodeIndex>) -> Option<NodeIndex> {
        loop {
            if let Some(index) = self.vacant_index(wished) {
                return Some(index);
            }
            let oldest = self.histories.values_mut().max_by_key(|history| history.len());
            oldest.filter(|history| history.len() > 1)?.pop();
            self.note_named();
            self.forget();
        }
    }

    /// The preferred index if it is free, else the smallest free one.
    fn vacant_index(&self, wished: Option<NodeIndex>) -> Option<NodeIndex> {
        let mut taken = [false; NODES_MAX];
        self.nodes.values().for_each(|node| taken[usize::from(node.index)] = true);
        let is_free = |index: &NodeIndex| taken.get(usize::from(*index)) == Some(&false);
        let least = (0..NODES_MAX as NodeIndex).find(|index| is_free(index));
        wished.filter(is_free).or(least)
    }

    /// A node reports a table of this term that is later than the current one: the version
    /// persisted here was lost. Skips past that version.
    fn outrun(&mut self, version: TableVersion) {
        let own = self.table.version;
        if version.epoch == own.epoch && version > own {
            let generation = version.generation.saturating_add(1);
            self.publish(TableVersion { epoch: own.epoch, generation });
        }
    }

    /// Makes the next table if it would differ from the current one.
    fn remake(&mut self, now: Now) {
        self.author = Some(Author::default());
        self.remember();
        let version = self.table.version;
        let table = self.make(version);
        if table != *self.table {
            let generation = version.generation.saturating_add(1);
            self.table =
                Arc::new(Table { version: TableVersion { generation, ..version }, ..table });
            self.pace.made(now);
            self.check_table(version);
        }
    }

    fn publish(&mut self, version: TableVersion) {
        self.author = Some(Author::default());
        self.remember();
        let before = self.table.version;
        self.table = Arc::new(self.make(version));
        self.check_table(before);
    }

    /// Updates ids and histories to the plan and the current memberships.
    fn remember(&mut self) {
        self.ids.plan(self.plan.services.iter().map(ServicePlan::key));
        let mut histories = std::mem::take(&mut self.histories);
        let candidate = |node: &NodePlan| {
            let share = self.share(&node.name)?;
            let services =
                self.detector.heartbeat(&node.name).map(|heartbeat| &*heartbeat.services);
            Some(Candidate { share, services })
        };
        let candidates: Vec<_> = self.plan.nodes.iter().map(candidate).collect();
        let mut shared = HashMap::new();
        let planned = self.plan.services.iter().map(|service| {
            let key = service.key();
            let mut history = histories.remove(&key).unwrap_or_default();
            let present = membership(service, &candidates, history.first().map(|it| &**it));
            let known = history.iter().position(|it| **it == present).map(|at| history.remove(at));
            let present = known.unwrap_or_else(|| share_membership(&mut shared, present));
            history.retain(|it| !it.is_empty());
            history.insert(0, present);
            history.truncate(HISTORY_MAX);
            (key, history)
        });
        self.histories = planned.collect();
        self.note_named();
        self.forget();
    }

    /// Records which indexes occur in histories.
    fn note_named(&mut self) {
        self.is_named.fill(false);
        let mut seen = HashSet::new();
        for membership in self.histories.values().flatten() {
            if seen.insert(Arc::as_ptr(membership)) {
                membership.iter().for_each(|it| self.is_named[usize::from(it.index)] = true);
            }
        }
    }

    /// Drops nodes that are neither planned nor in a history.
    fn forget(&mut self) {
        let (planned, is_named, nodes) = (&self.planned, &self.is_named, &mut self.nodes);
        nodes.retain(|name, node| is_named[usize::from(node.index)] || planned.contains_key(name));
        self.detector.retain(|name| nodes.contains_key(name) || planned.contains_key(name));
    }

    /// A node's share in its services, if it takes new flows.
    fn share(&self, name: &Name) -> Option<Share> {
        let node = self.nodes.get(name)?;
        let share = Share { index: node.index, weight: node.weight.min(WEIGHT_MAX) };
        (self.state(name, node) == ForwardingState::Up).then_some(share)
    }

    fn state(&self, name: &Name, node: &Known) -> ForwardingState {
        let is_open = self.planned.get(name).is_some_and(|planned| planned.is_open);
        let is_wanted = is_open && !node.is_drained && node.weight > 0;
        let is_adopted = !self.detector.has_settled() && node.adopted != ForwardingState::Down;
        match self.detector.life(name) {
            Liveness::Unheard if is_adopted => node.adopted(is_wanted),
            Liveness::Unheard | Liveness::Dead if node.is_presumed => ForwardingState::Draining,
            Liveness::Unheard | Liveness::Dead => ForwardingState::Down,
            Liveness::Alive if !self.is_ready(name) => ForwardingState::Down,
            Liveness::Alive if is_wanted => ForwardingState::Up,
            Liveness::Alive | Liveness::Leaving => ForwardingState::Draining,
        }
    }

    /// Whether a node has applied a table: without one it would refuse packets that it must hand
    /// on.
    fn is_ready(&self, name: &Name) -> bool {
        self.detector
            .heartbeat(name)
            .is_some_and(|heartbeat| heartbeat.table > TableVersion::default())
    }

    fn make(&self, version: TableVersion) -> Table {
        let mut memberships: Vec<ServiceMembership> = Vec::new();
        let mut places: HashMap<*const ServiceMembership, u16> = HashMap::new();
        let mut place = |membership: &Arc<ServiceMembership>| {
            *places.entry(Arc::as_ptr(membership)).or_insert_with(|| {
                memberships.push(ServiceMembership::clone(membership));
                (memberships.len() - 1) as u16
            })
        };
        let services = self.plan.services.iter().filter_map(|planned| {
            // All planned services have an id since `remember`.
            let (key, policy) = (planned.key(), planned.policy.clone());
            let service = planned.with_id(self.ids.id(key)?);
            let history = self.histories.get(&key).into_iter().flatten();
            Some(TableService { service, policy, history: history.map(&mut place).collect() })
        });
        let mut services: Vec<TableService> = services.collect();
        services.sort_by_key(|service| service.service.id);
        let nodes = self.nodes.iter().map(|(name, node)| node.row(name, self.state(name, node)));
        let mut nodes: Vec<TableNode> = nodes.collect();
        nodes.sort_by_key(|node| node.index);
        let dispatchers = self.plan.dispatchers.clone();
        Table { version, services, nodes, memberships, dispatchers }
    }
}

impl Known {
    fn of(node: &TableNode) -> Self {
        let TableNode { index, address, weight, mac, mtu, is_drained, state, .. } = *node;
        let (adopted, is_presumed) = (state, false);
        Self { index, address, weight, mac, mtu, is_drained, adopted, is_presumed }
    }

    /// Its state in the adopted table, draining if it is not wanted here.
    fn adopted(&self, is_wanted: bool) -> ForwardingState {
        match self.adopted {
            ForwardingState::Up if !is_wanted => ForwardingState::Draining,
            adopted => adopted,
        }
    }

    fn row(&self, name: &Name, state: ForwardingState) -> TableNode {
        let Self { index, address, weight, mac, mtu, is_drained, .. } = *self;
        let weight = weight.min(WEIGHT_MAX);
        TableNode { index, name: name.clone(), address, weight, state, is_drained, mac, mtu }
    }
}

/// A planned node that takes new flows, for the services that it listens for.
struct Candidate<'a> {
    share: Share,
    /// Hashes of the services that it listens for; `None` if no heartbeat was received yet.
    services: Option<&'a [u64]>,
}

/// The nodes that receive the new flows of a service: those that listen at its address. Nodes whose
/// heartbeats were not received yet are included if they were members `before`.
fn membership(
    service: &ServicePlan,
    candidates: &[Option<Candidate<'_>>],
    before: Option<&ServiceMembership>,
) -> ServiceMembership {
    let hash = service_hash(service.address);
    let listens = |candidate: &&Candidate<'_>| match candidate.services {
        Some(services) => services.contains(&hash),
        None => before.into_iter().flatten().any(|share| share.index == candidate.share.index),
    };
    let behind = service.nodes.iter().filter_map(|&at| candidates.get(at)?.as_ref());
    let mut membership: ServiceMembership =
        behind.filter(listens).map(|candidate| candidate.share).collect();
    membership.sort_unstable();
    membership.dedup();
    membership
}

/// Returns the shared instance of equal memberships.
fn share_membership(
    shared: &mut HashMap<ServiceMembership, Arc<ServiceMembership>>,
    membership: ServiceMembership,
) -> Arc<ServiceMembership> {
    if let Some(known) = shared.get(&membership) {
        return Arc::clone(known);
    }
    let new = Arc::new(membership.clone());
    shared.insert(membership, Arc::clone(&new));
    new
}
