//! The thread that applies tables, keeps the node's packet path in the expected state, and checks the
//! machine.

use std::net::SocketAddr;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use skep_cluster::reconciler::{Reconciler, Step, Wants};
use skep_config::Config;
use skep_guard::{Applier, CheckFindings, Complaints, Guard, GuardError};
use skep_peer::Pulse;
use skep_policy::policies;
use skep_wire::guard::{
    AttachedProgram, Expectations, ExpectedPeer, Order, OrderReply, ProgramSettings, Side,
};
use skep_wire::steer::{ForwardingState, NO_NODE, NodeIndex};
use skep_wire::table::Table;

use crate::limits::{CHECK_MS, COUNTERS_MS};
use crate::{Shared, now};

/// Callbacks of the agent.
pub(crate) struct AgentCallbacks {
    pub(crate) on_drained: Box<dyn Fn(bool) + Send>,
    pub(crate) on_guard_gone: Box<dyn Fn() + Send>,
}

/// Addresses of services in direct dispatch, in the config with which this process started.
pub(crate) struct ServiceAddresses {
    /// Addresses of the services of this node, on which it listens.
    pub(crate) own: Vec<SocketAddr>,
    /// All addresses; netguard accepts no others.
    pub(crate) all: Vec<SocketAddr>,
}

pub(crate) struct TableApplier {
    guard: Arc<Guard>,
    own_mac: [u8; 6],
    applier: Applier,
    reconciler: Reconciler,
    name: String,
    settings: ProgramSettings,
    services: ServiceAddresses,
    callbacks: AgentCallbacks,
    is_drained: bool,
    shared: Arc<Shared>,
    /// From the last table: the hosts expected on the segment.
    expectations: Expectations,
    /// Errors between this process and netguard.
    complaints: Complaints,
    findings: CheckFindings,
}

impl TableApplier {
    pub(crate) fn new(
        guard: &Arc<Guard>,
        name: &str,
        opened: &AttachedProgram,
        (settings, services): (ProgramSettings, ServiceAddresses),
        callbacks: AgentCallbacks,
        shared: Arc<Shared>,
    ) -> Self {
        Self {
            guard: Arc::clone(guard),
            own_mac: opened.mac,
            applier: applier(guard, opened.mac),
            // It affects no client before a dispatcher steers to it.
            reconciler: Reconciler::new(0),
            name: name.to_owned(),
            settings,
            services,
            callbacks,
            is_drained: false,
            shared,
            expectations: Expectations::default(),
            complaints: Complaints::default(),
            findings: CheckFindings::default(),
        }
    }

    /// Runs until the senders of tables are dropped.
    pub(crate) fn run(mut self, tables: &Receiver<Arc<Table>>, pulse: &Pulse) {
        let mut check_at = Instant::now() + Duration::from_millis(COUNTERS_MS);
        let mut look_at = Instant::now();
        let mut table = None;
        loop {
            pulse.tick();
            match tables.recv_timeout(Duration::from_millis(COUNTERS_MS)) {
                // Earlier tables in the queue are superseded.
                Ok(first) => table = Some(tables.try_iter().last().unwrap_or(first)),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            if Instant::now() >= look_at {
                look_at = Instant::now() + Duration::from_millis(COUNTERS_MS);
                let looked = self.look();
                self.note("look", &looked);
                let counted = self.count();
                self.note("counters", &counted);
            }
            self.reconcile(table.as_ref(), pulse);
            if Instant::now() >= check_at {
                check_at = Instant::now() + Duration::from_millis(CHECK_MS);
                let checked = self.check();
                self.note("check", &checked);
            }
            self.show();
        }
    }

    /// Executes the steps that are due: applies the table, and repairs what others have changed.
    fn reconcile(&mut self, table: Option<&Arc<Table>>, pulse: &Pulse) {
        let (at, addresses) = (now(), Some(true));
        self.reconciler.want(Wants { at, addresses, table: table.cloned(), announcements: 0 });
        while let Some(step) = self.reconciler.next(now()) {
            pulse.tick();
            let done = self.execute(&step);
            let result = done.as_ref().map(drop).map_err(ToString::to_string);
            self.reconciler.done(now(), &step, result);
            self.see_to(&done);
        }
        let failures = self.reconciler.failures().map(str::to_owned).collect();
        self.complaints.set("path", failures);
    }

    fn execute(&mut self, step: &Step) -> Result<(), GuardError> {
        match step {
            Step::Attach => self.attach(),
            Step::SetUp => self.set_up(),
            Step::Apply(table) => self.apply(table),
            Step::Claim => self.guard.ask(&Order::Hold).map(drop),
            // A node never announces, and keeps the addresses while it runs.
            Step::Announce | Step::Release => Ok(()),
        }
    }

    fn attach(&mut self) -> Result<(), GuardError> {
        skep_guard::open_again(&self.guard, Side::Node, self.own_mac)?;
        self.applier = applier(&self.guard, self.own_mac);
        self.set_up()
    }

    fn set_up(&self) -> Result<(), GuardError> {
        self.guard.ask(&Order::Settings(Side::Node, self.settings)).map(drop)
    }

    fn look(&mut self) -> Result<(), GuardError> {
        let order = Order::Look { side: Side::Node, probe: false };
        let OrderReply::Machine(looked) = self.guard.ask(&order)? else { return Ok(()) };
        looked.changed_maps.iter().for_each(|changed| self.applier.forget(changed.map));
        for drift in self.reconciler.found(&looked) {
            self.complaints.repaired(Instant::now(), drift.to_string());
        }
        Ok(())
    }

    fn apply(&mut self, table: &Arc<Table>) -> Result<(), GuardError> {
        let own = table.node(&self.name);
        let own_node = own.map_or(NO_NODE, |node| node.index);
        if own_node != self.settings.own_node {
            let settings = ProgramSettings { own_node, ..self.settings };
            self.guard.ask(&Order::Settings(Side::Node, settings))?;
            self.settings = settings;
        }
        self.applier.apply(&self.services.part_of(table, own_node))?;
        self.shared.set_applied(self.applier.version(), table);
        let is_drained = own.is_some_and(|node| node.state == ForwardingState::Draining);
        if is_drained != self.is_drained {
            self.is_drained = is_drained;
            (self.callbacks.on_drained)(is_drained);
        }
        self.expectations.peers = peers(table, &self.name);
        Ok(())
    }

    fn count(&self) -> Result<(), GuardError> {
        if let OrderReply::Counters(counters) = self.guard.ask(&Order::Counters(Side::Node))? {
            self.shared.counters.store(Arc::new(counters));
        }
        Ok(())
    }

    fn check(&mut self) -> Result<(), GuardError> {
        let active = self.shared.active_mac();
        let expectations = Expectations { active, ..self.expectations.clone() };
        let order = Order::Check(Side::Node, expectations);
        if let OrderReply::Checked { wrong, doubtful } = self.guard.ask(&order)? {
            self.findings.replace(wrong, doubtful);
        }
        Ok(())
    }

    fn note(&mut self, kind: &'static str, done: &Result<(), GuardError>) {
        self.complaints.note(kind, done);
        self.see_to(done);
    }

    fn see_to(&self, done: &Result<(), GuardError>) {
        if done.as_ref().is_err_and(GuardError::is_fatal) {
            (self.callbacks.on_guard_gone)();
        }
    }

    /// Publishes faults of orders and of this machine.
    fn show(&self) {
        let mut status = self.shared.status.lock().unwrap_or_else(PoisonError::into_inner);
        status.complaints = self.complaints.sentences(Instant::now());
        status.complaints.extend(self.findings.wrong().iter().cloned());
    }
}

fn applier(guard: &Arc<Guard>, own_mac: [u8; 6]) -> Applier {
    Applier::new(Arc::clone(guard), Side::Node, own_mac, is_weighted)
}

impl ServiceAddresses {
    /// The addresses of `config`, for the node of this name.
    pub(crate) fn of(config: &Config, name: &str) -> Self {
        let own = config.steered_services_of(name).flat_map(|service| service.listen.clone());
        let all = config.steered_services().flat_map(|(_, service)| service.listen.clone());
        Self { own: own.collect(), all: all.collect() }
    }

    /// The part of the table with the services that concern this node: those on whose addresses it listens,
    /// even before it is in their rows, and those whose rows name it, since it hands on their packets.
    /// Other services would only cost time and memory.
    fn part_of(&self, table: &Table, own: NodeIndex) -> Table {
        let mut part = table.clone();
        part.services.retain(|service| {
            let address = &service.service.address;
            self.own.contains(address)
                || self.all.contains(address) && table.is_in_rows(service, own)
        });
        part
    }
}

fn peers(table: &Table, own: &str) -> Vec<ExpectedPeer> {
    let others = table.nodes.iter().filter(|node| {
        node.name.as_str() != own && node.state != ForwardingState::Down && node.mac != [0; 6]
    });
    let peer = |node: &skep_wire::table::TableNode| ExpectedPeer {
        name: node.name.to_string(),
        address: node.address.ip(),
        mac: node.mac,
        mtu: node.mtu,
    };
    others.map(peer).collect()
}

fn is_weighted(policy: &str) -> bool {
    policies().iter().any(|info| info.name == policy && info.weighted)
}
