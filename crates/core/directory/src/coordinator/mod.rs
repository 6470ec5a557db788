//! The directory of holders and the leases of fills, for all nodes of a cluster.
//!
//! Every dispatcher has a coordinator, and every node a link to each. All of them maintain the
//! directory; only the active one answers, the others refuse.
//!
//! Invariants: there is at most one lease for a segment at a time; a holder is named only while it
//! is linked and after its inventory is complete, and never to itself; no lease is granted for a
//! segment that a node may hold but has not yet had time to report; no answer is "nobody" for a
//! file of a linked node, or of one that was lost just now; memory is bounded by
//! [`CoordinatorSettings`].

pub(crate) mod directory;
pub(crate) mod files;
pub(crate) mod holders;
mod invariants;
mod leases;
mod members;
mod tail;

use std::net::SocketAddr;

use skep_units::{Now, Rng};
use skep_wire::cache::link::MemberId;
use skep_wire::cache::{
    CoordinatorAnswer, FileAnswer, Held, LeaseId, SegmentName, ToCoordinator, ToNode,
};
use skep_wire::message::Name;

use crate::limits::{
    FILES_MAX, HOLDINGS_MAX, LEASE_TTL_MS, LEASES_MAX, LOAD_MS_MAX, LOST_NODE_MS, SETTLE_MS,
    SWEEPS_PER_TICK,
};
use crate::node_link::NodeLinkId;
use crate::slots::SlotLedger;
use directory::Directory;
use files::{Files, FoundFile};
use leases::Leases;
use members::{Linked, Members};

/// Bounds of a coordinator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CoordinatorSettings {
    /// Largest sum over all segments of their holders.
    pub holdings_max: usize,
    /// Largest sum over all files and folders of the nodes that announce them.
    pub files_max: usize,
    /// How long the files of a node whose link has ended are remembered, in milliseconds.
    pub lost_node_ms: u64,
    /// Most fills in progress.
    pub leases_max: usize,
    /// How long a lease lasts if it is not renewed, in milliseconds.
    pub lease_ttl_ms: u32,
    /// Age of a node's load, in milliseconds, after which it is ignored.
    pub load_ms_max: u64,
    /// Nodes of the config: a coordinator that has just started waits until this many have sent
    /// their inventories.
    pub nodes: usize,
}

impl Default for CoordinatorSettings {
    fn default() -> Self {
        Self {
            holdings_max: HOLDINGS_MAX,
            files_max: FILES_MAX,
            lost_node_ms: LOST_NODE_MS,
            leases_max: LEASES_MAX,
            lease_ttl_ms: LEASE_TTL_MS,
            load_ms_max: LOAD_MS_MAX,
            nodes: 0,
        }
    }
}

/// How a node introduces itself ([`ToCoordinator::Hello`]).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hello {
    /// Its name in the config.
    pub name: Name,
    /// Address at which it serves other nodes.
    pub address: SocketAddr,
    /// Capacity of its cache, in bytes.
    pub capacity_bytes: u64,
}

/// The result of [`Coordinator::joined`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Joined {
    /// The new link.
    pub link: NodeLinkId,
    /// The node's previous link, which is no longer valid: close it.
    pub replaces: Option<NodeLinkId>,
}

/// Counters and gauges.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CoordinatorCounters {
    /// Answers that named holders.
    pub have: u64,
    /// Answers that named a leader.
    pub busy: u64,
    /// Leases granted.
    pub grant: u64,
    /// Requests deferred because not all nodes had sent their inventories.
    pub later: u64,
    /// Requests refused because the coordinator is not active, or has no room for a lease.
    pub refused: u64,
    /// Leases that were not renewed.
    pub expired: u64,
    /// Leases that ended because their leader did not serve.
    pub broken: u64,
    /// Times that a holder did not have a segment listed in the directory.
    pub directory_errors: u64,
    /// Holdings dropped for lack of room.
    pub forgotten: u64,
    /// Answers that no node has a file.
    pub nobody: u64,
    /// Answers that named nodes which may have a file, or no node.
    pub unsure: u64,
    /// Announcements of files refused for lack of room.
    pub files_refused: u64,
    /// Files and folders that nodes have announced.
    pub files: u64,
    /// Nodes whose files are not completely known, or that were lost recently.
    pub nodes_unsure: u64,
    /// Leases in force.
    pub leases: u64,
    /// Segments in the directory.
    pub entries: u64,
    /// The sum over all segments of their holders.
    pub holdings: u64,
    /// Memory of the directory, in bytes.
    pub memory_bytes: u64,
}

/// A linked node, as shown to operators.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheMemberView {
    pub id: MemberId,
    /// Its name in the config.
    pub name: Name,
    /// Address at which it serves other nodes.
    pub address: SocketAddr,
    /// Capacity of its cache, in bytes.
    pub capacity_bytes: u64,
    /// Bytes that it holds according to the directory.
    pub held_bytes: u64,
    /// Of these, bytes that other nodes hold, too.
    pub shared_bytes: u64,
    /// Segments that it holds.
    pub segments: u64,
    /// Whether its inventory is complete.
    pub is_complete: bool,
}

/// A coordinator. It sends nothing itself: drain [`Coordinator::outbox`] after each call.
#[derive(Debug)]
pub struct Coordinator {
    settings: CoordinatorSettings,
    is_active: bool,
    epoch: u64,
    /// Whether all nodes have sent their inventories, or had time to.
    is_settled: bool,
    /// The time of the first event.
    started_at: Option<Now>,
    members: Members,
    /// Counts changes of the list of members, and of the other contents of a `Welcome`.
    changes: u64,
    directory: Directory,
    files: Files,
    leases: Leases,
    slots: SlotLedger,
    rng: Rng,
    counters: CoordinatorCounters,
    outbox: Vec<(NodeLinkId, ToNode)>,
    candidates: Vec<MemberId>,
}

impl Coordinator {
    /// A standby without links. `seed` must differ at each start.
    pub fn new(settings: CoordinatorSettings, seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        Self {
            settings,
            is_active: false,
            epoch: 0,
            is_settled: settings.nodes == 0,
            started_at: None,
            members: Members::default(),
            changes: 0,
            directory: Directory::new(settings.holdings_max),
            files: Files::new(settings.files_max, settings.lost_node_ms),
            leases: Leases::new(settings.lease_ttl_ms, rng.next_u64()),
            slots: SlotLedger::new(settings.nodes),
            rng,
            counters: CoordinatorCounters::default(),
            outbox: Vec::new(),
            candidates: Vec::new(),
        }
    }

    /// A node has sent its hello on a new link. Returns `None` if there are too many links
    /// ([`MEMBERS_MAX`](skep_wire::limits::MEMBERS_MAX)): close it.
    pub fn joined(&mut self, hello: Hello) -> Option<Joined> {
        let replaces = self.members.link_of(&hello.name);
        if let Some(link) = replaces {
            self.drop_link(None, link);
        }
        let holder = self.directory.new_holder();
        let (name, address) = (hello.name.clone(), hello.address);
        let link = self.members.add(hello, holder);
        match link {
            Some(link) => {
                self.slots.joined(link, name.clone());
                self.files.joined(link, name, address);
            }
            None => self.directory.retire(holder),
        }
        self.changes += 1;
        let link = link?;
        self.welcome(link);
        self.check_invariants();
        Some(Joined { link, replaces })
    }

    /// A link has ended: the node's holdings and leases end with it. Unknown and former links are
    /// ignored, here and in [`Coordinator::heard`].
    pub fn left(&mut self, now: Now, link: NodeLinkId) {
        if self.drop_link(Some(now), link) {
            self.files.left(now, link);
            self.changes += 1;
        }
        self.check_invariants();
    }

    /// Becomes active in `epoch`, or a standby. Leases end with the term; the next term does not
    /// know the fills in progress, and may grant them again.
    pub fn set_stage(&mut self, active_in: Option<u64>) {
        let epoch = active_in.unwrap_or(self.epoch);
        if (self.is_active, self.epoch) == (active_in.is_some(), epoch) {
            return;
        }
        self.is_active = active_in.is_some();
        self.epoch = epoch;
        self.leases.begin_term(epoch);
        self.slots.set_active(self.is_active);
        self.changes += 1;
        self.welcome_all();
        self.outbox.extend(self.slots.grants());
        self.check_invariants();
    }

    /// Advances the time; to be called every 100 ms or so.
    pub fn tick(&mut self, now: Now) {
        self.settle(now);
        self.welcome_all();
        self.counters.expired += self.leases.expire(now);
        (0..SWEEPS_PER_TICK).for_each(|_| self.directory.sweep());
        self.files.tick(now, SWEEPS_PER_TICK);
        let load_ms_max = self.settings.load_ms_max;
        self.members.iter_mut().for_each(|member| member.age_load(now, load_ms_max));
        self.slots.tick(now);
        self.outbox.extend(self.slots.grants());
        self.check_invariants();
    }

    /// Handles a message from a node.
    pub fn heard(&mut self, now: Now, link: NodeLinkId, message: ToCoordinator) {
        let Some(member) = self.members.get(link) else { return };
        let holder = member.holder;
        match message {
            // Not handled here: the hello was handled by `joined`, purges are handled by `Purger`,
            // and operators' requests and orders elsewhere.
            ToCoordinator::Hello { .. }
            | ToCoordinator::Features(_)
            | ToCoordinator::Explained { .. }
            | ToCoordinator::Purges(_)
            | ToCoordinator::SoftPurges(_)
            | ToCoordinator::Purged { .. }
            | ToCoordinator::Invalidate(_)
            | ToCoordinator::Status { .. }
            | ToCoordinator::ServerOrders(_)
            | ToCoordinator::Relay { .. }
            | ToCoordinator::ServerLoads(_)
            | ToCoordinator::AmInStep { .. } => {}
            ToCoordinator::Inventory { is_first, is_last, held } => {
                self.inventory(link, is_first, is_last, &held);
                self.settle(now);
            }
            ToCoordinator::Delta { added, removed } => {
                added.iter().for_each(|it| self.directory.add(it.name, it.bytes, holder));
                for name in &removed {
                    self.directory.remove(name, holder);
                }
            }
            ToCoordinator::Announce { added, removed, is_complete } => {
                self.files.announced(link, &added, &removed, is_complete);
            }
            ToCoordinator::FindFile { ask, name } => {
                let answer = self.find_file(now, link, &name);
                self.welcome(link);
                self.outbox.push((link, ToNode::FileAnswer { ask, answer }));
            }
            ToCoordinator::Ask { ask, name, bytes } => {
                let answer = self.answer(now, link, name, bytes);
                self.welcome(link);
                self.outbox.push((link, ToNode::Answer { ask, answer }));
            }
            ToCoordinator::Renew { lease } => {
                self.leases.renew(lease, link, now);
            }
            ToCoordinator::Ended { lease, is_held } => self.ended(now, link, lease, is_held),
            ToCoordinator::NotThere { name, holder } => self.not_there(&name, holder),
            ToCoordinator::Tail { names } => self.tail(link, names),
            ToCoordinator::Slots(report) => self.slots.reported(now, link, &report),
            ToCoordinator::Power { capacity_bytes, .. } => {
                if let Some(member) = self.members.get_mut(link) {
                    member.capacity_bytes = capacity_bytes;
                }
            }
        }
        self.outbox.extend(self.slots.grants());
        self.check_invariants();
    }

    /// A load report of a node, in bytes outstanding, received outside its link. Nodes without a
    /// link are ignored.
    pub fn loaded(&mut self, now: Now, name: &Name, bytes_outstanding: u64) {
        let link = self.members.link_of(name);
        if let Some(member) = link.and_then(|link| self.members.get_mut(link)) {
            member.reported = Some((bytes_outstanding, now));
            member.assigned_bytes = 0;
        }
    }

    /// Drains the messages to send, in order.
    pub fn outbox(&mut self) -> std::vec::Drain<'_, (NodeLinkId, ToNode)> {
        self.outbox.drain(..)
    }

    /// Whether it is active, and the epoch of its current or last term.
    pub fn stage(&self) -> (bool, u64) {
        (self.is_active, self.epoch)
    }

    /// Counters and gauges. Sums up the sizes of all tables, so not to be called for every request.
    pub fn counters(&self) -> CoordinatorCounters {
        CoordinatorCounters {
            forgotten: self.directory.forgotten(),
            leases: self.leases.len() as u64,
            entries: self.directory.entries() as u64,
            holdings: self.directory.holdings() as u64,
            memory_bytes: (self.directory.memory_bytes() + self.files.memory_bytes()) as u64,
            files: self.files.files() as u64,
            files_refused: self.files.refused(),
            nodes_unsure: self.files.nodes_unsure() as u64,
            ..self.counters
        }
    }

    /// The linked nodes.
    pub fn members(&self) -> impl Iterator<Item = CacheMemberView> {
        self.members.iter().map(|member| {
            let account = self.directory.account(member.holder);
            CacheMemberView {
                id: member.link.member,
                name: member.name.clone(),
                address: member.address,
                capacity_bytes: member.capacity_bytes,
                held_bytes: account.bytes,
                shared_bytes: account.shared_bytes,
                segments: account.segments,
                is_complete: member.is_complete,
            }
        })
    }

    /// The nodes that may be named as holders of a segment.
    pub fn holders(&self, name: &SegmentName) -> impl Iterator<Item = MemberId> {
        let members = self.directory.holders(name).filter_map(|it| self.members.of_holder(it));
        members.filter(|member| member.is_complete).map(|member| member.link.member)
    }

    /// The node that fills a segment under a lease.
    pub fn leader(&self, now: Now, name: &SegmentName) -> Option<(NodeLinkId, LeaseId)> {
        self.leases.of(name, now).map(|lease| (lease.leader, lease.id))
    }

    fn drop_link(&mut self, now: Option<Now>, link: NodeLinkId) -> bool {
        let Some(member) = self.members.remove(link) else { return false };
        self.directory.retire(member.holder);
        self.leases.left(link);
        self.slots.left(now, link);
        // The recipient is gone.
        self.outbox.retain(|(to, _)| *to != link);
        true
    }

    /// Ends the start phase of a coordinator when all nodes have sent their inventories, or after
    /// [`SETTLE_MS`]. Returns how long it has run, in milliseconds.
    fn settle(&mut self, now: Now) -> u64 {
        let runs_ms = now.since_ms(*self.started_at.get_or_insert(now));
        let complete = self.members.iter().filter(|member| member.is_complete).count();
        if !self.is_settled && (complete >= self.settings.nodes || runs_ms >= SETTLE_MS) {
            self.is_settled = true;
            self.changes += 1;
            self.welcome_all();
        }
        runs_ms
    }

    fn welcome_all(&mut self) {
        let links: Vec<_> = self.members.iter().map(|member| member.link).collect();
        links.into_iter().for_each(|link| self.welcome(link));
    }

    /// Sends a node the list of members, unless it has the current one. Changes of the list are not
    /// sent to all nodes at once, which would be quadratic: each node receives them before the next
    /// message that names a member, or at the next tick.
    fn welcome(&mut self, link: NodeLinkId) {
        let Some(member) = self.members.get_mut(link) else { return };
        if std::mem::replace(&mut member.told, self.changes) == self.changes {
            return;
        }
        // Until then any other active coordinator knows more: epoch 0 ranks this one last.
        let epoch = if self.is_settled { self.epoch } else { 0 };
        let members = self.members.told();
        let welcome = ToNode::Welcome { is_active: self.is_active, epoch, members };
        self.outbox.push((link, welcome));
    }

    fn inventory(&mut self, link: NodeLinkId, is_first: bool, is_last: bool, held: &[Held]) {
        if is_first {
            let holder = self.directory.new_holder();
            if let Some(before) = self.members.renumber(link, holder) {
                self.directory.retire(before);
            }
        }
        let Some(member) = self.members.get_mut(link) else { return };
        member.is_complete = is_last || (member.is_complete && !is_first);
        let holder = member.holder;
        held.iter().for_each(|it| self.directory.add(it.name, it.bytes, holder));
    }

    fn answer(
        &mut self,
        now: Now,
        link: NodeLinkId,
        name: SegmentName,
        bytes: u32,
    ) -> CoordinatorAnswer {
        if let Some(asker) = self.members.get(link) {
            // A node that asks for a segment does not hold it any more.
            self.directory.remove(&name, asker.holder);
        }
        if !self.is_active {
            self.counters.refused += 1;
            return CoordinatorAnswer::Refused;
        }
        let holders = self.choose_holders(&name);
        if let Some(&first) = holders.first() {
            self.counters.have += 1;
            self.assign(first, bytes);
            return CoordinatorAnswer::Have { holders };
        }
        if !self.is_settled {
            self.counters.later += 1;
            return CoordinatorAnswer::Later;
        }
        self.lease(now, link, name, bytes)
    }

    fn find_file(&mut self, now: Now, link: NodeLinkId, name: &SegmentName) -> FileAnswer {
        // A node that asks for a file does not have it any more.
        self.files.remove(name, link);
        if !self.is_active {
            self.counters.refused += 1;
            return FileAnswer::Refused;
        }
        match self.files.find(name, link) {
            FoundFile::At(links) => {
                self.counters.have += 1;
                let holders = self.choose(links.into_iter().map(NodeLinkId::member).collect());
                FileAnswer::Have { holders }
            }
            FoundFile::Perhaps { nodes, are_all } => {
                let are_all = are_all && !self.awaits_nodes(now);
                if nodes.is_empty() && are_all {
                    self.counters.nobody += 1;
                    return FileAnswer::Nobody;
                }
                self.counters.unsure += 1;
                FileAnswer::Unsure { nodes, are_all }
            }
        }
    }

    /// Whether it has just started, and nodes that have files may not have linked yet.
    fn awaits_nodes(&mut self, now: Now) -> bool {
        self.settle(now) < self.settings.lost_node_ms && self.files.nodes() < self.settings.nodes
    }

    fn choose_holders(&mut self, name: &SegmentName) -> Vec<MemberId> {
        let mut candidates = std::mem::take(&mut self.candidates);
        candidates.clear();
        candidates.extend(self.holders(name));
        self.choose(candidates)
    }

    /// Two of the candidates, chosen at random, the less loaded one first (Mitzenmacher, "The power
    /// of two choices", 2001).
    fn choose(&mut self, mut candidates: Vec<MemberId>) -> Vec<MemberId> {
        let mut chosen = Vec::new();
        while !candidates.is_empty() && chosen.len() < skep_wire::limits::HOLDERS_TOLD_MAX {
            let at = self.rng.below(candidates.len() as u64) as usize;
            chosen.push(candidates.swap_remove(at));
        }
        self.candidates = candidates;
        chosen.sort_by_key(|&id| self.members.at(id).map(Linked::bytes_outstanding));
        chosen
    }

    fn assign(&mut self, id: MemberId, bytes: u32) {
        if let Some(member) = self.members.at_mut(id) {
            member.assigned_bytes += u64::from(bytes);
        }
    }

    /// No node holds it: returns the leader of the fill in progress, or grants a lease.
    fn lease(
        &mut self,
        now: Now,
        link: NodeLinkId,
        name: SegmentName,
        bytes: u32,
    ) -> CoordinatorAnswer {
        let lease = self.leases.of(&name, now).copied();
        if let Some(lease) = lease.filter(|lease| lease.leader != link) {
            self.counters.busy += 1;
            let leader = lease.leader.member;
            self.assign(leader, bytes);
            return CoordinatorAnswer::Busy { leader };
        }
        // The leader asks again because the fill failed or the answer was late: it gets a new
        // lease, so that its reports about the old one have no effect.
        let is_expired = self.leases.remove(&name).is_some() && lease.is_none();
        self.counters.expired += u64::from(is_expired);
        if self.leases.len() >= self.settings.leases_max {
            self.counters.refused += 1;
            return CoordinatorAnswer::Refused;
        }
        self.counters.grant += 1;
        let lease = self.leases.grant(name, bytes, link, now);
        CoordinatorAnswer::Grant { lease }
    }

    fn ended(&mut self, now: Now, link: NodeLinkId, lease: LeaseId, is_held: bool) {
        let Some((name, lease)) = self.leases.end(lease, link, now) else { return };
        if let Some(leader) = self.members.get(link).filter(|_| is_held) {
            self.directory.add(name, lease.bytes, leader.holder);
        }
    }

    fn not_there(&mut self, name: &SegmentName, holder: MemberId) {
        let Some(member) = self.members.at(holder) else { return };
        let link = member.link;
        let (was_held, was_led) =
            (self.directory.remove(name, member.holder), self.leases.remove_of(name, link));
        let was_announced = self.files.remove(name, link);
        self.counters.directory_errors += u64::from(was_held || was_announced);
        self.counters.broken += u64::from(was_led);
    }
}
