//! The thread that applies tables to the node's packet program, and checks the machine.

use std::net::SocketAddr;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use skep_config::Config;
use skep_guard::{Applier, Guard, GuardError};
use skep_peer::Pulse;
use skep_policy::policies;
use skep_wire::guard::{
    AttachedProgram, Expectations, ExpectedPeer, Order, OrderReply, ProgramSettings, Side,
};
use skep_wire::steer::{ForwardingState, NO_NODE, NodeIndex};
use skep_wire::table::Table;

use crate::Shared;
use crate::limits::{CHECK_MS, COUNTERS_MS};

/// Callbacks of the agent.
pub(crate) struct Told {
    pub(crate) on_drained: Box<dyn Fn(bool) + Send>,
    pub(crate) on_guard_gone: Box<dyn Fn() + Send>,
}

/// Addresses of services in direct dispatch, in the config that this process started with.
pub(crate) struct ServiceAddresses {
    /// Of those that this node is behind: it listens there.
    pub(crate) own: Vec<SocketAddr>,
    /// Of all: netguard knows no others.
    pub(crate) all: Vec<SocketAddr>,
}

/// See the module.
pub(crate) struct Obey {
    guard: Arc<Guard>,
    applier: Applier,
    name: String,
    settings: ProgramSettings,
    services: ServiceAddresses,
    told: Told,
    is_drained: bool,
    shared: Arc<Shared>,
    /// From the last table: the hosts expected on the segment.
    expectations: Expectations,
    /// The faults that were logged last.
    complaint: Option<String>,
    /// Uncertain results of the last check.
    doubts: Vec<String>,
}

impl Obey {
    pub(crate) fn new(
        guard: &Arc<Guard>,
        name: &str,
        opened: &AttachedProgram,
        (settings, services): (ProgramSettings, ServiceAddresses),
        told: Told,
        shared: Arc<Shared>,
    ) -> Self {
        Self {
            guard: Arc::clone(guard),
            applier: Applier::new(Arc::clone(guard), Side::Node, opened.mac, is_weighted),
            name: name.to_owned(),
            settings,
            services,
            told,
            is_drained: false,
            shared,
            expectations: Expectations::default(),
            complaint: None,
            doubts: Vec::new(),
        }
    }

    /// Runs until the senders of tables are dropped.
    pub(crate) fn run(mut self, tables: &Receiver<Arc<Table>>, pulse: &Pulse) {
        let mut check_at = Instant::now() + Duration::from_millis(COUNTERS_MS);
        loop {
            pulse.beat();
            match tables.recv_timeout(Duration::from_millis(COUNTERS_MS)) {
                Ok(first) => {
                    // Those in between were overtaken.
                    let table = tables.try_iter().last().unwrap_or(first);
                    let applied = self.apply(&table);
                    self.note(applied);
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            let counted = self.count();
            self.note(counted);
            if Instant::now() >= check_at {
                check_at = Instant::now() + Duration::from_millis(CHECK_MS);
                let checked = self.check();
                self.note(checked);
            }
        }
    }

    fn apply(&mut self, table: &Table) -> Result<(), GuardError> {
        let own = table.node(&self.name);
        let own_node = own.map_or(NO_NODE, |node| node.index);
        if own_node != self.settings.own_node {
            self.settings.own_node = own_node;
            self.guard.ask(&Order::Settings(Side::Node, self.settings))?;
        }
        self.applier.apply(&self.services.part_of(table, own_node))?;
        self.shared.set_applied(self.applier.version());
        let is_drained = own.is_some_and(|node| node.state == ForwardingState::Draining);
        if is_drained != self.is_drained {
            self.is_drained = is_drained;
            (self.told.on_drained)(is_drained);
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
            let mut status = self.shared.status.lock().unwrap_or_else(PoisonError::into_inner);
            for complaint in wrong.iter().filter(|it| !status.complaints.contains(it)) {
                tracing::warn!("{complaint}");
            }
            status.complaints = wrong;
            drop(status);
            for doubt in doubtful.iter().filter(|it| !self.doubts.contains(it)) {
                tracing::info!("self-check inconclusive: {doubt}");
            }
            self.doubts = doubtful;
        }
        Ok(())
    }

    /// Logs an error, unless it repeats the last one.
    fn note(&mut self, done: Result<(), GuardError>) {
        match done {
            Ok(()) => self.complaint = None,
            Err(error) => {
                let sentence = error.to_string();
                if self.complaint.as_ref() != Some(&sentence) {
                    tracing::error!("direct dispatch: {sentence}");
                    self.complaint = Some(sentence);
                    if matches!(error, GuardError::Gone(_)) {
                        (self.told.on_guard_gone)();
                    }
                }
            }
        }
    }
}

impl ServiceAddresses {
    /// Those of `config`, for the node of this name.
    pub(crate) fn of(config: &Config, name: &str) -> Self {
        let own = config.direct_services_of(name).flat_map(|service| service.listen.clone());
        let all = config.direct_services().flat_map(|(_, service)| service.listen.clone());
        Self { own: own.collect(), all: all.collect() }
    }

    /// The table with the services that concern this node: those at whose addresses it listens,
    /// also before it is in their rows, and those whose rows name it, since it hands on their
    /// packets. Rows of all others would only take time and memory.
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
