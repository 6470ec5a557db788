//! The machines: the cores of a dispatcher and of a node, with the minimal surrounding logic of a
//! role.

use std::collections::BTreeMap;
use std::sync::Arc;

use skep_cluster::failover::{Failover, FailoverAction, FailoverSettings, WitnessState};
use skep_cluster::failure_detector::{FailureDetectorSettings, silence_ms};
use skep_cluster::handover::{Handover, LastTable};
use skep_cluster::lease_observer::LeaseObserver;
use skep_cluster::reconciler::{Reconciler, Step, Wants};
use skep_cluster::table_distribution::{RecentTables, TableDistributor, TableUpdate};
use skep_cluster::table_publisher::{TablePlan, TablePublisher};
use skep_sim::StateSummary;
use skep_units::{Now, Rng};
use skep_wire::message::{Message, NodeHeartbeat, NodeLoad, Stage};
use skep_wire::seal::PeerId;
use skep_wire::steer::service_hash;
use skep_wire::table::{Table, TableVersion};

use crate::body::Body;
use crate::disk::Disk;
use crate::guard::Guard;
use crate::net::Release;
use crate::plan::{plan, service_address};
use crate::scenario::Scenario;
use crate::store::Client;

pub(crate) const INTERVAL_MS: u64 = 50;
pub(crate) const MISSED_MAX: u32 = 3;
pub(crate) const NODE_INTERVAL_MS: u64 = 50;
pub(crate) const CLAIM_PATIENCE_MS: u64 = 2_000;
/// Interval at which a dispatcher checks its machine.
pub(crate) const PATH_LOOK_MS: u64 = 1_000;
/// Longest time until a changed map is detected; in practice 30 s, for all rows.
pub(crate) const COMPARE_ALL_MS: u64 = 1_500;
pub(crate) const LEASE_MS: u64 = 2_000;
pub(crate) const LEASE_PATIENCE_MS: u64 = LEASE_MS + 1_000;

/// The table in a message, for a machine that runs `release` and has these recent tables.
pub(crate) fn table_in(
    message: &Message,
    release: Release,
    recent: &RecentTables,
) -> Option<Table> {
    match message {
        Message::Table(table) => Some(table.clone()),
        Message::TableDelta(_) if release == Release::WithoutDeltas => None,
        Message::TableDelta(delta) => recent.apply(delta),
        _ => None,
    }
}

pub(crate) struct Dispatcher {
    pub(crate) body: Body,
    settings: FailoverSettings,
    plan: TablePlan,
    pub(crate) failover: Failover,
    pub(crate) publisher: TablePublisher,
    pub(crate) distributor: TableDistributor,
    /// The last table that was published.
    told: Arc<Table>,
    /// The tables that its peers reported in their last heartbeats.
    peers: BTreeMap<PeerId, TableVersion>,
    /// Survives restarts.
    pub(crate) disk: Disk,
    /// Whether its last attempt to persist failed.
    pub(crate) fails_to_persist: bool,
    /// Since when it has been persisting, by its own clock.
    pub(crate) persists_since: Option<Now>,
    /// Since when it has had an epoch to claim in, and received heartbeats of nodes.
    pub(crate) may_claim_since: Option<u64>,
    /// According to its actions.
    pub(crate) is_active: bool,
    /// When it last sent a heartbeat as the active dispatcher.
    pub(crate) said_active_at: u64,
    /// The dispatcher that it follows, and since when.
    pub(crate) follows: Option<(PeerId, u64)>,
    pub(crate) reaches_store: bool,
    pub(crate) store: Client,
    pub(crate) lease_observer: Option<LeaseObserver<Client>>,
    pub(crate) guard: Guard,
    pub(crate) reconciler: Reconciler,
    pub(crate) wants: Wants,
    /// The step that netguard is executing.
    pub(crate) under_way: Option<Step>,
    /// Steps that are executed once the machine is no longer suspended, each with the life of its
    /// process. Lost if the machine restarts instead.
    pub(crate) held_up: Vec<(u64, Step)>,
    looked_at: u64,
    pub(crate) handover: Handover,
    last_table: Option<LastTable>,
    /// When it last merged another dispatcher's table.
    pub(crate) merged_at: u64,
}

impl Dispatcher {
    pub(crate) fn new(
        place: usize,
        scenario: &Scenario,
        rng: &mut Rng,
    ) -> (Self, Vec<FailoverAction>) {
        let body = Body::new(&format!("d{place}"), rng);
        let settings = FailoverSettings {
            name: body.name.clone(),
            priority: 100 + rng.below(3) as u32,
            mac: [2, 0, 0, 0, 0, place as u8],
            interval_ms: INTERVAL_MS,
            missed_max: MISSED_MAX,
            preempt: scenario.preempt,
            lease_patience_ms: LEASE_PATIENCE_MS,
        };
        let plan = plan(scenario, place);
        let (failover, outputs) =
            Failover::new(settings.clone(), body.clock.at(0), 0, rng.next_u64());
        let store = Client::new(body.peer);
        let mut dispatcher = Self {
            body,
            settings,
            publisher: TablePublisher::new(FailureDetectorSettings::default()),
            distributor: TableDistributor::new(FailureDetectorSettings::default().interval_ms),
            told: Arc::default(),
            peers: BTreeMap::new(),
            plan,
            failover,
            disk: Disk::default(),
            fails_to_persist: false,
            persists_since: None,
            may_claim_since: None,
            is_active: false,
            said_active_at: 0,
            follows: None,
            reaches_store: true,
            lease_observer: None,
            store,
            guard: Guard::default(),
            reconciler: Reconciler::new(CLAIM_PATIENCE_MS),
            wants: Wants::default(),
            under_way: None,
            held_up: Vec::new(),
            looked_at: 0,
            handover: Handover::default(),
            last_table: None,
            merged_at: 0,
        };
        dispatcher.observe(scenario.has_store);
        dispatcher.publisher.set_plan(dispatcher.plan.clone());
        (dispatcher, outputs)
    }

    pub(crate) fn restart(&mut self, at: u64, random: u64, of_store: u64) -> Vec<FailoverAction> {
        self.body.restart(at);
        let of_store = if self.reaches_store { of_store } else { 0 };
        let epoch = self.disk.epoch().max(of_store);
        let now = self.body.clock.at(at);
        let (failover, outputs) = Failover::new(self.settings.clone(), now, epoch, random);
        self.failover = failover;
        self.publisher = TablePublisher::new(FailureDetectorSettings::default());
        self.distributor = TableDistributor::new(FailureDetectorSettings::default().interval_ms);
        self.told = Arc::default();
        self.peers.clear();
        self.publisher.set_plan(self.plan.clone());
        self.is_active = false;
        self.follows = None;
        self.store = Client::new(self.body.peer);
        self.observe(self.lease_observer.is_some());
        (self.fails_to_persist, self.persists_since) = (false, None);
        self.may_claim_since = None;
        // As a process does before it participates.
        self.guard.restart();
        (self.reconciler, self.wants) = (Reconciler::new(CLAIM_PATIENCE_MS), Wants::default());
        self.under_way = None;
        self.held_up.clear();
        (self.handover, self.last_table) = (Handover::default(), None);
        outputs
    }

    /// Its state, as printed in the story of a seed.
    pub(crate) fn summary(&self) -> StateSummary {
        let table = |version: TableVersion| (version.epoch, version.generation);
        let Self { body, failover, publisher, reconciler, .. } = self;
        StateSummary::default()
            .with("lives", body.is_alive)
            .with("stage", failover.stage())
            .with("epoch", failover.epoch())
            .with("awake", failover.is_awake())
            .with("active", failover.active())
            .with("wants lease", failover.wants_lease())
            .with("persisted", self.disk.epoch())
            .with("hears nodes", publisher.detector().living().count())
            .with("table", table(publisher.table().version))
            .with("wants addresses", self.wants.addresses)
            .with("has addresses", reconciler.has_addresses())
            .with("applied", reconciler.applied().map(table))
            .with("hindered", reconciler.is_hindered())
    }

    /// Its checks of a node pass or fail.
    pub(crate) fn check(&mut self, node: usize, pass: bool) {
        self.plan.nodes[node].is_open = pass;
        self.publisher.set_plan(self.plan.clone());
    }

    pub(crate) fn passes(&self, node: usize) -> bool {
        self.plan.nodes[node].is_open
    }

    /// Updates the wants by failover's decision.
    pub(crate) fn want(&mut self, at: u64) {
        let now = self.body.clock.at(at);
        self.wants.follow(now, &self.failover);
    }

    /// The next step for netguard, unless one is being executed.
    pub(crate) fn next_step(&mut self, at: u64) -> Option<Step> {
        if self.under_way.is_some() || !self.body.runs(at) {
            return None;
        }
        if at >= self.looked_at + PATH_LOOK_MS {
            self.looked_at = at;
            self.reconciler.found(&self.guard.look(at));
        }
        let table = self.publisher.table();
        self.wants.table = (table.version > TableVersion::default()).then(|| Arc::clone(table));
        self.reconciler.want(self.wants.clone());
        self.under_way = self.reconciler.next(self.body.clock.at(at));
        self.under_way.clone()
    }

    fn observe(&mut self, has_store: bool) {
        let observer = || LeaseObserver::new(self.store.clone(), self.body.peer);
        self.lease_observer = has_store.then(observer);
    }

    /// Polls the lease, as a dispatcher's event loop does at every tick.
    pub(crate) fn observe_lease(&mut self, at: u64) -> Vec<FailoverAction> {
        let now = self.body.clock.at(at);
        let hears_nodes = !self.publisher.detector().hears_nobody(now);
        self.failover.set_hears_nodes(now, hears_nodes);
        let Some(observer) = &mut self.lease_observer else { return Vec::new() };
        self.store.set_time(at);
        let epoch = (self.failover.stage() == Stage::Active).then(|| self.failover.epoch());
        let view = observer.view(now, epoch, self.failover.wants_lease());
        self.failover.lease(now, view)
    }

    /// The messages and their recipients, if there is a new table.
    pub(crate) fn publish(&mut self, at: u64) -> Vec<TableUpdate> {
        let table = self.publisher.table();
        if !self.is_active || Arc::ptr_eq(table, &self.told) {
            return Vec::new();
        }
        self.told = Arc::clone(table);
        let (now, peers) = (self.body.clock.at(at), self.peers.iter().map(|(&id, &has)| (id, has)));
        self.distributor.publish(now, Arc::clone(table), peers)
    }

    /// A peer's heartbeat reports its table: returns the message that it is sent, if any.
    pub(crate) fn acknowledged(
        &mut self,
        at: u64,
        from: PeerId,
        has: TableVersion,
    ) -> Option<Arc<Message>> {
        self.peers.insert(from, has);
        let now = self.body.clock.at(at);
        self.is_active.then(|| self.distributor.heard(now, from, has)).flatten()
    }

    /// A table of another dispatcher is received.
    pub(crate) fn offer(&mut self, at: u64, table: Table) {
        let now = self.body.clock.at(at);
        if self.is_active {
            let present = self.publisher.table().version;
            match self.publisher.merge(now, &table) {
                true => {
                    self.merged_at = at;
                    self.handover.merged(now, table.version, present);
                }
                false => self.handover.known(table.version),
            }
            return;
        }
        if self.last_table.as_mut().is_some_and(|last| !last.yields_to(now, &table)) {
            return;
        }
        if self.publisher.adopt(table) {
            self.last_table = None;
            self.told = Arc::clone(self.publisher.table());
            self.distributor.adopted(Arc::clone(&self.told));
        }
    }

    /// Begins its term.
    pub(crate) fn begin_term(&mut self, epoch: u64) {
        self.is_active = true;
        self.last_table = None;
        self.publisher.begin_term(epoch);
    }

    /// Ends its term.
    pub(crate) fn step_down(&mut self) {
        self.is_active = false;
        self.publisher.step_down();
        self.handover.step_down();
        self.last_table = Some(LastTable::new(Arc::clone(self.publisher.table())));
    }

    /// Its last table, if it must be sent to another dispatcher now.
    pub(crate) fn table_to_hand_over(&mut self, at: u64) -> Option<(PeerId, Arc<Message>)> {
        let to = self.failover.active()?;
        let table = self.last_table.as_mut()?.due(self.body.clock.at(at))?;
        Some((to, Arc::new(Message::Table(table.clone()))))
    }

    /// Announces the addresses if that is due.
    pub(crate) fn want_announcement(&mut self, at: u64) {
        let now = self.body.clock.at(at);
        let applied = self.reconciler.applied().unwrap_or_default();
        let detector = self.publisher.detector();
        let is_due = self.handover.may_announce(now, &self.told, applied, detector);
        self.wants.announcements += u64::from(is_due);
    }

    /// Whether it received nodes' heartbeats in this life, and receives none now.
    pub(crate) fn is_deaf(&self, at: u64) -> bool {
        let detector = self.publisher.detector();
        detector.living().next().is_some() && detector.hears_nobody(self.body.clock.at(at))
    }

    /// Records since when it could claim.
    pub(crate) fn note_epoch(&mut self, at: u64) {
        let since = self.may_claim_since.unwrap_or(at);
        let now = self.body.clock.at(at);
        let may_claim = self.failover.has_epoch(now) && !self.is_deaf(at);
        self.may_claim_since = may_claim.then_some(since);
    }

    pub(crate) fn priority(&self) -> u32 {
        self.settings.priority
    }

    /// Flows are in sync some time after it began to follow a dispatcher.
    pub(crate) fn sync_flows(&mut self, at: u64) {
        let active = self.failover.active().filter(|active| *active != self.body.peer);
        match (active, self.follows) {
            (Some(active), Some((followed, since))) if active == followed => {
                if at - since > 400 {
                    self.failover.set_flows_synced(true);
                }
            }
            _ => {
                self.follows = active.map(|active| (active, at));
                self.failover.set_flows_synced(false);
            }
        }
    }
}

pub(crate) struct Node {
    pub(crate) body: Body,
    pub(crate) witness: WitnessState,
    pub(crate) table: Arc<Table>,
    pub(crate) recent: RecentTables,
    pub(crate) is_leaving: bool,
    /// Since when it is dead.
    pub(crate) dead_since: Option<u64>,
    mac: [u8; 6],
}

impl Node {
    pub(crate) fn new(number: usize, rng: &mut Rng) -> Self {
        Self {
            body: Body::new(&format!("n{number}"), rng),
            witness: WitnessState::default(),
            table: Arc::default(),
            recent: RecentTables::default(),
            is_leaving: false,
            dead_since: None,
            mac: [2, 0, 0, 0, 1, number as u8],
        }
    }

    /// Its process restarts; meanwhile packets were steered by its table.
    pub(crate) fn restart(&mut self, at: u64) {
        self.body.restart(at);
        self.witness = WitnessState::default();
        self.recent = RecentTables::default();
        self.is_leaving = false;
        self.dead_since = None;
    }

    pub(crate) fn heartbeat(&self, at: u64) -> NodeHeartbeat {
        let now = self.body.clock.at(at);
        NodeHeartbeat {
            name: self.body.name.clone(),
            index: self.table.node(self.body.name.as_str()).map(|node| node.index),
            mac: self.mac,
            mtu: 1_500,
            addresses: Vec::new(),
            services: [0, 1, 2].map(|number| service_hash(service_address(number))).to_vec(),
            table: self.table.version,
            hears: self.witness.hears(now, silence_ms(INTERVAL_MS, MISSED_MAX)),
            is_leaving: self.is_leaving,
            load: NodeLoad::default(),
        }
    }

    /// Its state, as printed in the story of a seed.
    pub(crate) fn summary(&self) -> StateSummary {
        let TableVersion { epoch, generation } = self.table.version;
        StateSummary::default()
            .with("lives", self.body.is_alive)
            .with("leaving", self.is_leaving)
            .with("table", (epoch, generation))
    }

    /// Applies a table if it is later than its own.
    pub(crate) fn offer(&mut self, table: Table) {
        if table.version > self.table.version {
            self.table = Arc::new(table);
            self.recent.keep(Arc::clone(&self.table));
        }
    }

    pub(crate) fn version(&self) -> TableVersion {
        self.table.version
    }
}
