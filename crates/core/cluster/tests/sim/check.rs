//! The invariants, checked at every event.

mod nodes;
mod orders;

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;

use skep_sim::SeedTotals;
use skep_wire::message::{DispatcherHeartbeat, Message, Stage};
use skep_wire::seal::{PeerId, Stamp};
use skep_wire::steer::ForwardingState;
use skep_wire::table::{Table, TableService, TableVersion};

use crate::guard::Mode;
use crate::machine::{
    CLAIM_PATIENCE_MS, COMPARE_ALL_MS, Dispatcher, LEASE_MS, LEASE_PATIENCE_MS, PATH_LOOK_MS,
};
use crate::net::Id;
use crate::scenario::Fault;
use crate::store::STORE_MS_MAX;
use crate::totals::Totals;
use crate::world::World;

/// Silence after which a dispatcher is considered dead, by the fastest clock.
const TAKEOVER_MS_MIN: u64 = 172;
/// By the slowest clock, including its timer steps.
const TAKEOVER_MS_MAX: u64 = 205;
/// How long two dispatchers that reach each other may both be active.
const DOUBLE_MS_MAX: u64 = 2_000;
/// How long a dispatcher that cannot steer may be active while there is a standby.
const HINDERED_MS_MAX: u64 = 2_400;
/// How much longer a dispatcher that stepped down because it cannot steer waits if there is no
/// other.
const HINDERED_WAIT_MS: u64 = 1_000;
/// Most tables of one dispatcher in a second: one per 50 ms, and a burst of eight if nodes die; its
/// clock may be fast.
const TABLES_A_SECOND_MAX: usize = 20 + 8 + 1;
/// Longest time of a repair: a slow netguard may still be executing its last step.
const MENDED_MS_MAX: u64 = 2_000;
/// Interval at which nodes are checked.
const LOOK_MS: u64 = 25;

/// What one dispatcher has received from another.
#[derive(Clone, Copy, Default)]
struct Heard {
    stamp: Stamp,
    /// When it was last received as active, if its last heartbeat still reported that.
    active_at: Option<u64>,
}

/// The invariants, and the state that is needed to check them.
#[derive(Default)]
pub(crate) struct Check {
    disturbed_at: u64,
    vacant_since: Option<u64>,
    pairs: Vec<Vec<Option<u64>>>,
    active_since: Vec<u64>,
    /// When each dispatcher last received nothing.
    deaf_until: Vec<u64>,
    heard: Vec<Vec<Heard>>,
    epoch_heard: Vec<u64>,
    last_claim: Vec<u64>,
    claims: BTreeMap<u64, Id>,
    /// The dispatcher in whose favour each one stepped down, as long as it holds the lease.
    lost_to: Vec<Option<PeerId>>,
    /// Since when each dispatcher has been active while another one has held the lease.
    without_lease_since: Vec<Option<u64>>,
    /// Since when each has held the lease without receiving heartbeats of nodes.
    deaf_leader_since: Vec<Option<u64>>,
    tables: BTreeMap<TableVersion, Arc<Table>>,
    last_table: Vec<Arc<Table>>,
    /// The current table of each process, made or adopted.
    held: Vec<Arc<Table>>,
    /// When each dispatcher made tables within the last second.
    made_at: Vec<VecDeque<u64>>,
    /// The table of a reachable active dispatcher that a node does not have yet, and since when.
    behind: BTreeMap<(Id, Id), (TableVersion, u64)>,
    /// The only active dispatcher, whose table is earlier than the node's, and since when.
    ahead: BTreeMap<usize, (Id, u64)>,
    node_versions: Vec<TableVersion>,
    /// Since when each node's heartbeats could reach each dispatcher, and its checks of the node
    /// passed.
    heard_since: BTreeMap<(Id, Id), u64>,
    /// Since when each could have carried out its wants about addresses and table.
    unreconciled_since: Vec<Option<u64>>,
    /// Since when each could have repaired a map that others have changed.
    changed_since: Vec<Option<u64>>,
    /// Since when each active one has been hindered while others could have taken over.
    hindered_since: Vec<Option<u64>>,
    looked_at: u64,
    most: Totals,
}

impl Check {
    pub(crate) fn new(dispatchers: usize) -> Self {
        Self {
            pairs: vec![vec![None; dispatchers]; dispatchers],
            active_since: vec![0; dispatchers],
            deaf_until: vec![0; dispatchers],
            heard: vec![vec![Heard::default(); dispatchers]; dispatchers],
            epoch_heard: vec![0; dispatchers],
            last_claim: vec![0; dispatchers],
            lost_to: vec![None; dispatchers],
            without_lease_since: vec![None; dispatchers],
            deaf_leader_since: vec![None; dispatchers],
            last_table: vec![Arc::default(); dispatchers],
            held: vec![Arc::default(); dispatchers],
            unreconciled_since: vec![None; dispatchers],
            changed_since: vec![None; dispatchers],
            hindered_since: vec![None; dispatchers],
            made_at: vec![VecDeque::new(); dispatchers],
            ..Self::default()
        }
    }

    /// A dispatcher, its network or the store was disturbed by a fault.
    pub(crate) fn disturbed(&mut self, at: u64, fault: &Fault, dispatchers: usize) {
        let is_of_nodes = match fault {
            Fault::Crash(id) | Fault::Start(id) | Fault::Pause(id, _) => *id >= dispatchers,
            Fault::Leave(_) => true,
            _ => false,
        };
        if !is_of_nodes {
            self.disturbed_at = at;
        }
    }

    /// A dispatcher has restarted, with this epoch on its disk.
    pub(crate) fn restarted(&mut self, id: Id, persisted: u64) {
        if self.last_table[id].version.epoch > persisted {
            // The table is of a term that could not be persisted.
            self.last_table[id] = Arc::default();
        }
        // Epochs that its disk has lost are known only to others.
        self.last_claim[id] = self.last_claim[id].min(persisted);
        self.held[id] = Arc::default();
        self.heard[id].fill(Heard::default());
        self.epoch_heard[id] = 0;
        self.lost_to[id] = None;
        self.made_at[id].clear();
    }

    /// A dispatcher processes another's heartbeat, which arrived at this time.
    pub(crate) fn heard(
        &mut self,
        at: u64,
        id: Id,
        from: Id,
        heartbeat: &DispatcherHeartbeat,
        stamp: Stamp,
    ) {
        let heard = &mut self.heard[id][from];
        if stamp > heard.stamp {
            heard.stamp = stamp;
            heard.active_at = (heartbeat.stage == Stage::Active).then_some(at);
            if heard.active_at.is_some() {
                self.lost_to[id] = None;
            }
            self.epoch_heard[id] = self.epoch_heard[id].max(heartbeat.epoch);
        }
    }

    /// A dispatcher has stepped down because another one holds the lease.
    pub(crate) fn lost_lease(&mut self, world: &World, id: Id) {
        // It may hold the lease itself by now: replies of a slow store are old.
        let own = world.dispatchers[id].body.peer;
        self.lost_to[id] = world.etcd.leader(world.at).filter(|leader| *leader != own);
    }

    /// A dispatcher is about to claim.
    pub(crate) fn claim(&mut self, world: &World, id: Id, epoch: u64) -> Result<(), String> {
        if let Some(other) = self.claims.insert(epoch, id) {
            return Err(format!("d{id} claims epoch {epoch}, as d{other} did"));
        }
        if !world.dispatchers[id].is_active && world.dispatchers[id].is_deaf(world.at) {
            return Err(format!("d{id} claims, although it hears nobody"));
        }
        if self.lost_to[id].is_some() {
            return Err(format!("d{id} claims, although it lost the lease and another has it"));
        }
        let known = self.last_claim[id].max(self.epoch_heard[id]);
        if epoch <= known {
            return Err(format!("d{id} claims epoch {epoch}, but knew {known}"));
        }
        let dispatcher = &world.dispatchers[id];
        let now = dispatcher.body.clock.at(world.at);
        let has_waited = dispatcher.persists_since.is_some_and(|since| now.since_ms(since) >= 240);
        if dispatcher.disk.epoch() < epoch && !dispatcher.fails_to_persist && !has_waited {
            return Err(format!("d{id} claims epoch {epoch} without persisting it"));
        }
        // An unpersisted epoch is lost in a restart, unless another machine has received it.
        if dispatcher.disk.epoch() >= epoch {
            self.last_claim[id] = epoch;
        }
        if world.scenario.preempt || dispatcher.is_active {
            return Ok(());
        }
        self.active_since[id] = world.at;
        let heard =
            |heard: &Heard| heard.active_at.is_some_and(|at| world.at - at < TAKEOVER_MS_MIN);
        if let Some(other) = self.heard[id].iter().position(heard) {
            return Err(format!("d{id} claims, although d{other} is active and heard"));
        }
        // Its own pause is no silence of others, unless they were paused, too. It cannot notice one
        // in which its clock stood still.
        let is_back = world.at - dispatcher.body.knows_since < 100 && world.net.loss_percent == 0;
        let lives = |(other, heard): (Id, &Heard)| {
            let dispatcher = &world.dispatchers[other];
            heard.active_at.is_some()
                && is_active(world, dispatcher)
                && world.at - dispatcher.body.woke_at() >= 100
                && world.net.joins(id, other)
        };
        if is_back && self.heard[id].iter().enumerate().any(lives) {
            return Err(format!("d{id} claims as soon as it runs again"));
        }
        Ok(())
    }

    /// Checks all invariants that must hold now.
    pub(crate) fn now(&mut self, world: &World) -> Result<(), String> {
        self.lease(world)?;
        self.reconciled(world)?;
        self.maps(world)?;
        self.hindered(world)?;
        let running = || world.dispatchers.iter().filter(|it| it.body.runs(world.at));
        let woke_at = running().map(|it| it.body.woke_at()).max().unwrap_or(0);
        let quiet_since = woke_at.max(self.disturbed_at);
        self.doubles(world, quiet_since)?;
        // A dispatcher that has just started waits for its disk.
        match running().filter_map(|it| it.may_claim_since).max() {
            Some(may_claim_since) => self.vacancy(world, quiet_since.max(may_claim_since))?,
            None => self.vacant_since = None,
        }
        self.new_tables(world)?;
        if world.at >= self.looked_at + LOOK_MS {
            self.looked_at = world.at;
            self.dead_nodes(world)?;
            self.applied_tables(world)?;
            self.lags(world)?;
            self.aheads(world)?;
            self.note_heard(world);
        }
        Ok(())
    }

    /// As long as a dispatcher is alive, one is active, except for at most a takeover time.
    fn vacancy(&mut self, world: &World, quiet_since: u64) -> Result<(), String> {
        if world.dispatchers.iter().any(|it| is_active(world, it)) {
            self.vacant_since = None;
            return Ok(());
        }
        let since = (*self.vacant_since.get_or_insert(world.at)).max(quiet_since);
        let turns = world.scenario.dispatchers as u64 + 1;
        // A dispatcher that sees another leader in the store, but does not receive its heartbeats,
        // waits for the lease to expire.
        let of_store = if world.scenario.has_store { LEASE_MS + 500 } else { 0 };
        let running = || world.dispatchers.iter().filter(|it| it.body.runs(world.at));
        let do_all_yield = running().all(|it| it.failover.stage() == Stage::Leaving);
        let of_yielding = if do_all_yield { HINDERED_WAIT_MS } else { 0 };
        let ms = world.at.saturating_sub(since);
        if !world.scenario.has_store && !do_all_yield {
            self.most.vacancy_ms_max = self.most.vacancy_ms_max.max(ms);
        }
        if ms > turns * TAKEOVER_MS_MAX + of_store + of_yielding {
            return Err(format!("nobody is active for {ms} ms"));
        }
        Ok(())
    }

    /// Two dispatchers are active only during a partition, or for a moment after it.
    fn doubles(&mut self, world: &World, quiet_since: u64) -> Result<(), String> {
        let strict = world.net.loss_percent == 0 && !world.scenario.preempt;
        let is_quiet = strict && world.net.is_whole() && world.at > quiet_since + DOUBLE_MS_MAX;
        for (a, first) in world.dispatchers.iter().enumerate() {
            for (b, second) in world.dispatchers.iter().enumerate().skip(a + 1) {
                let both = is_active(world, first) && is_active(world, second);
                if !both || !world.net.joins(a, b) {
                    self.pairs[a][b] = None;
                    continue;
                }
                if is_quiet {
                    return Err(format!("d{a} and d{b} are both active, and nothing was amiss"));
                }
                let since = *self.pairs[a][b].get_or_insert(world.at);
                let since = since.max(first.body.woke_at()).max(second.body.woke_at());
                let ms = world.at - since;
                self.most.double_ms_max = self.most.double_ms_max.max(ms);
                if ms > DOUBLE_MS_MAX {
                    return Err(format!("d{a} and d{b} are both active for {ms} ms"));
                }
            }
        }
        Ok(())
    }

    /// The lease decides which of two stays active, and its holder receives heartbeats of nodes.
    fn lease(&mut self, world: &World) -> Result<(), String> {
        let leader = world.etcd.leader(world.at);
        for (id, dispatcher) in world.dispatchers.iter().enumerate() {
            let (own, sees_store) = (dispatcher.body.peer, dispatcher.reaches_store);
            let is_others = leader.is_some_and(|leader| leader != own);
            // A dispatcher that receives the leader's heartbeats again relies on them.
            let follows = dispatcher.failover.active() == self.lost_to[id];
            let is_same = self.lost_to[id] == leader && !follows;
            if !sees_store || !dispatcher.body.runs(world.at) || !is_same {
                self.lost_to[id] = None;
            }
            let loses = is_active(world, dispatcher) && is_others && sees_store;
            let since = keep(&mut self.without_lease_since[id], loses, world.at);
            let since = since.max(dispatcher.body.woke_at());
            if world.at > since + LEASE_PATIENCE_MS + STORE_MS_MAX {
                return Err(format!("d{id} is active while another has the lease"));
            }
            let hears =
                !dispatcher.publisher.detector().hears_nobody(dispatcher.body.clock.at(world.at));
            let is_deaf = leader == Some(own) && !hears && sees_store;
            let since = keep(&mut self.deaf_leader_since[id], is_deaf, world.at);
            if world.at > since.max(dispatcher.body.woke_at()) + LEASE_MS + STORE_MS_MAX {
                return Err(format!("d{id} has the lease and hears no node"));
            }
        }
        Ok(())
    }

    /// A dispatcher that should hold addresses, release them, or apply a table soon does so.
    fn reconciled(&mut self, world: &World) -> Result<(), String> {
        for (id, dispatcher) in world.dispatchers.iter().enumerate() {
            let (guard, wants) = (&dispatcher.guard, &dispatcher.wants);
            let is_off = wants.addresses.is_some_and(|wanted| wanted != guard.has_addresses)
                || !guard.is_attached
                || wants.table.as_ref().is_some_and(|table| table.version != guard.applied);
            let is_able = dispatcher.body.runs(world.at) && guard.mode == Mode::Fast;
            let since = keep(&mut self.unreconciled_since[id], is_off && is_able, world.at);
            let since = since.max(dispatcher.body.woke_at());
            if world.at > since + CLAIM_PATIENCE_MS + PATH_LOOK_MS + MENDED_MS_MAX {
                return Err(format!("d{id} wants {wants:?} and its machine is {guard:?}"));
            }
        }
        Ok(())
    }

    /// Maps that others have changed are soon repaired.
    fn maps(&mut self, world: &World) -> Result<(), String> {
        for (id, dispatcher) in world.dispatchers.iter().enumerate() {
            let guard = &dispatcher.guard;
            let is_able = dispatcher.body.runs(world.at) && guard.mode == Mode::Fast;
            let is_off = is_able && !guard.has_maps(dispatcher.wants.table.is_some());
            let since = keep(&mut self.changed_since[id], is_off, world.at);
            let since = since.max(dispatcher.body.woke_at());
            if world.at > since + COMPARE_ALL_MS + PATH_LOOK_MS + MENDED_MS_MAX {
                return Err(format!("d{id} leaves its maps as others made them: {guard:?}"));
            }
        }
        Ok(())
    }

    /// A dispatcher that cannot steer leaves it to an available standby.
    fn hindered(&mut self, world: &World) -> Result<(), String> {
        let is_calm = world.net.is_whole() && world.net.loss_percent == 0;
        let is_standby =
            |it: &Dispatcher| it.body.runs(world.at) && it.failover.stage() == Stage::Standby;
        let has_standby = world.dispatchers.iter().any(is_standby);
        for (id, dispatcher) in world.dispatchers.iter().enumerate() {
            let is_hindered = is_active(world, dispatcher) && dispatcher.reconciler.is_hindered();
            let is_so = is_hindered && has_standby && is_calm;
            let since = keep(&mut self.hindered_since[id], is_so, world.at);
            if world.at > since.max(dispatcher.body.woke_at()) + HINDERED_MS_MAX {
                return Err(format!("d{id} cannot steer and stays active"));
            }
        }
        Ok(())
    }

    /// Generations increase within an epoch; there is one table per version. A service keeps its
    /// id, whichever dispatcher makes the next table.
    fn new_tables(&mut self, world: &World) -> Result<(), String> {
        for (id, dispatcher) in world.dispatchers.iter().enumerate() {
            let table = dispatcher.publisher.table();
            let held = std::mem::replace(&mut self.held[id], Arc::clone(table));
            if is_active(world, dispatcher) && !is_with_same_ids(&held, table) {
                return Err(format!("d{id} gives other ids from {held:?} to {table:?}"));
            }
            if !is_active(world, dispatcher) || Arc::ptr_eq(table, &self.last_table[id]) {
                continue;
            }
            let (before, version) = (self.last_table[id].version, table.version);
            if version <= before {
                return Err(format!("d{id} goes from table {before:?} to {version:?}"));
            }
            self.living_nodes(world, id, &held, table)?;
            if version.epoch != dispatcher.failover.epoch() {
                return Err(format!("d{id} makes a table of epoch {}", version.epoch));
            }
            let known = self.tables.insert(version, Arc::clone(table));
            if known.is_some_and(|known| known != *table) {
                return Err(format!("two tables {version:?}"));
            }
            self.last_table[id] = Arc::clone(table);
            self.most.tables += 1;
            if version.generation > 1 {
                self.paced(world.at, id)?;
            }
            if self.tables.len().is_multiple_of(8) {
                let message = Message::Table(Table::clone(table));
                if Message::decode(&message.encode()) != Ok(message) {
                    return Err(format!("table {version:?} does not travel"));
                }
            }
        }
        Ok(())
    }

    /// Many changes result in few tables; only those that begin a term are exempt.
    fn paced(&mut self, at: u64, id: Id) -> Result<(), String> {
        let made_at = &mut self.made_at[id];
        made_at.push_back(at);
        while made_at.front().is_some_and(|before| at - before >= 1_000) {
            made_at.pop_front();
        }
        self.most.tables_a_second_max = self.most.tables_a_second_max.max(made_at.len() as u64);
        if made_at.len() > TABLES_A_SECOND_MAX {
            return Err(format!("d{id} makes {} tables in a second", made_at.len()));
        }
        Ok(())
    }

    /// After all faults are repaired, the cluster must have recovered.
    pub(crate) fn at_the_end(&self, world: &World) -> Result<(), String> {
        let active: Vec<&Dispatcher> =
            world.dispatchers.iter().filter(|it| is_active(world, it)).collect();
        let [active] = active[..] else {
            return Err(format!("{} are active at the end", active.len()));
        };
        let best = world.dispatchers.iter().map(Dispatcher::priority).max();
        // A dispatcher that stepped down because its netguard refused leaves the term to others for
        // a minute.
        let is_held = |it: &Dispatcher| it.failover.stage() == Stage::Leaving;
        let is_any_held = world.dispatchers.iter().any(is_held);
        if world.scenario.preempt && !is_any_held && Some(active.priority()) != best {
            return Err(format!("{} is active, not the one of highest priority", active.body.name));
        }
        if active.disk.epoch() < active.failover.epoch() {
            return Err(format!("{} has not persisted its epoch at the end", active.body.name));
        }
        let table = active.publisher.table();
        for other in &world.dispatchers {
            if other.failover.active() != Some(active.body.peer) {
                return Err(format!("{} follows {:?}", other.body.name, other.failover.active()));
            }
        }
        for other in &world.dispatchers {
            let is_active = other.body.peer == active.body.peer;
            let guard = &other.guard;
            let has_table = guard.applied == table.version && guard.has_maps(true);
            if guard.has_addresses != is_active || !has_table {
                return Err(format!("{} has {guard:?} at the end", other.body.name));
            }
        }
        for node in &world.nodes {
            let name = &node.body.name;
            if table.node(name.as_str()).is_none_or(|node| node.state != ForwardingState::Up) {
                return Err(format!("{name} is not up at the end"));
            }
            if node.version() != table.version {
                return Err(format!("{name} has not the table of the end"));
            }
        }
        let members = table.services.iter().filter_map(|service| table.history(service).next());
        let most = members.map(Vec::len).max();
        if most != Some(world.nodes.len()) {
            return Err(format!("no service has all nodes, but {most:?}"));
        }
        Ok(())
    }

    pub(crate) fn fill(&self, totals: &mut Totals) {
        totals.add(&self.most);
    }
}

/// Since when a condition has held; `at` if it does not.
fn keep(since: &mut Option<u64>, is_so: bool, at: u64) -> u64 {
    *since = is_so.then(|| since.unwrap_or(at));
    since.unwrap_or(at)
}

fn is_active(world: &World, dispatcher: &Dispatcher) -> bool {
    dispatcher.is_active && dispatcher.body.runs(world.at)
}

/// Whether every service of both tables has the same id, and no id belongs to two services.
fn is_with_same_ids(before: &Table, after: &Table) -> bool {
    let service = |service: &TableService| (service.service.id, service.service.address);
    before.services.iter().map(service).all(|(id, address)| {
        let is_same = |after: (u16, SocketAddr)| (after.0 == id) == (after.1 == address);
        after.services.iter().map(service).all(is_same)
    })
}
