//! The nodes' loads as received by this process: in datagrams of their agents
//! ([`LoadReceiver`](crate::LoadReceiver), or the heartbeats of direct dispatch), or from the node in
//! the same process.
//!
//! ```text
//!   LoadReceiver, DirectLoop, own node --> NodeLoads <-- Dispatchers: input of policies
//!                                             ^  ^---- coordinator of the caches
//!                                             |
//!                                          status, metrics
//! ```
//!
//! Invariants: the latest report of a node is used, in whatever order they arrive; one that arrives
//! while another is being written is dropped. The cost of a report does not depend on the number of
//! services, and its writer never waits.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Weak};

use skep_config::Config;
use skep_policy::is_stale;
use skep_proxy::NodeReports;
use skep_serve::monotonic_ms;
use skep_units::Now;
use skep_wire::message::{ArmCounts, ArmsInForce, Name, NodeLoad, ServedObjects, TransferRates};
use skep_wire::seal::{PeerId, Stamp};

use crate::service::Dispatcher;

/// All methods may be called from any thread.
pub struct NodeLoads {
    interval_ms: u64,
    reports: Arc<NodeReports>,
    /// They read the loads here, and the counts of nodes are for their A/B tests.
    services: Vec<Weak<Dispatcher>>,
    taken: AtomicU64,
    late: AtomicU64,
    unknown_node: AtomicU64,
}

/// A node's last report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeReport {
    pub name: Name,
    /// Its age, in milliseconds.
    pub age_ms: u64,
    /// Whether it is too old to be used.
    pub is_stale: bool,
    /// The reported load.
    pub load: NodeLoad,
    /// The rates of its link and of its backends, as last reported.
    pub rates: TransferRates,
}

/// The reports received since the last call of [`Self::take`].
pub struct NewReports {
    loads: Arc<NodeLoads>,
    /// Versions of the reports that were returned.
    given: HashMap<Name, u64>,
}

impl NodeLoads {
    /// Creates it empty. `dispatchers` read the loads here from now on.
    pub fn new(config: &Config, dispatchers: &[Arc<Dispatcher>]) -> Arc<Self> {
        let reports = Arc::<NodeReports>::default();
        reports.reload(&names(config));
        dispatchers.iter().for_each(|dispatcher| dispatcher.group().follow_reports(&reports));
        Arc::new(Self {
            interval_ms: config.report_interval_ms(),
            reports,
            services: dispatchers.iter().map(Arc::downgrade).collect(),
            taken: AtomicU64::new(0),
            late: AtomicU64::new(0),
            unknown_node: AtomicU64::new(0),
        })
    }

    /// Records a node's report from an authentic datagram that is not a replay; one that arrives
    /// after a later one of the same node is ignored. A report without a stamp is from the node of
    /// this process.
    pub fn hear(&self, name: &Name, stamp: Option<Stamp>, load: NodeLoad) {
        let outcome = match self.reports.hear(now(), name, stamp, &load) {
            true => &self.taken,
            false => &self.late,
        };
        outcome.fetch_add(1, Relaxed);
    }

    /// Records objects that a node has served, for services whose responses this process does not
    /// see.
    pub fn hear_served(&self, served: ServedObjects) {
        self.reports.hear_served(&Arc::new(served));
    }

    /// Records the rates that a node reports.
    pub fn hear_rates(&self, name: &Name, rates: TransferRates) {
        self.reports.hear_rates(now(), name, rates);
    }

    /// Records a node's counts of an arm.
    pub fn hear_arm_counts(&self, node: PeerId, counts: &ArmCounts) {
        let services = self.services.iter().filter_map(Weak::upgrade);
        let mut tests = services.filter_map(|it| it.group().comparison());
        if !tests.any(|test| test.hear_counts(now(), node, counts)) {
            self.ignore();
        }
    }

    /// The A/B tests in which nodes determine the arms.
    pub fn arms_of_nodes(&self) -> ArmsInForce {
        let services = self.services.iter().filter_map(Weak::upgrade);
        ArmsInForce { services: services.filter_map(|it| it.arms_of_nodes()).collect() }
    }

    /// Records that a node's heartbeats stopped: all services mark it as down the next time they
    /// update, without waiting for checks.
    pub fn miss(&self, name: &Name) {
        self.reports.miss(name);
    }

    /// The last report of each node, ordered by name.
    pub fn reports(&self) -> Vec<NodeReport> {
        let now = now();
        let listed = self.reports.listed().into_iter().map(|(name, _, heard)| {
            let age_ms = now.since_ms(heard.at);
            let is_stale = is_stale(age_ms, self.interval_ms);
            NodeReport { name, age_ms, is_stale, load: heard.load, rates: heard.rates }
        });
        let mut reports: Vec<NodeReport> = listed.collect();
        reports.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        reports
    }

    /// Returns a reader of new reports.
    pub fn follow(self: &Arc<Self>) -> NewReports {
        NewReports { loads: Arc::clone(self), given: HashMap::new() }
    }

    /// Counts a datagram that is not a load, or whose sender is not a node.
    pub fn ignore(&self) {
        self.unknown_node.fetch_add(1, Relaxed);
    }

    /// Number of reports by outcome: recorded, late (they arrived after a later one), and ignored.
    pub fn counts(&self) -> [(&'static str, u64); 3] {
        let of = |counter: &AtomicU64| counter.load(Relaxed);
        [
            ("taken", of(&self.taken)),
            ("late", of(&self.late)),
            ("unknown_node", of(&self.unknown_node)),
        ]
    }

    /// Removes the nodes that a new config does not contain.
    pub fn reload(&self, config: &Config) {
        self.reports.reload(&names(config));
    }
}

impl NewReports {
    /// The reports since the last call: the latest of each node.
    pub fn take(&mut self) -> Vec<(Name, NodeLoad)> {
        let given = std::mem::take(&mut self.given);
        let mut new = Vec::new();
        for (name, version, heard) in self.loads.reports.listed() {
            if given.get(&name) != Some(&version) {
                new.push((name.clone(), heard.load));
            }
            self.given.insert(name, version);
        }
        new
    }
}

fn names(config: &Config) -> Vec<Name> {
    config.nodes.iter().filter_map(|node| Name::new(&node.name).ok()).collect()
}

fn now() -> Now {
    Now(monotonic_ms())
}
