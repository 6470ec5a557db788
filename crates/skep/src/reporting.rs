//! Load reports from nodes to dispatchers: this process's node sends them, this process's dispatchers receive
//! them. In direct dispatch heartbeats carry them ([`crate::direct`]); otherwise they are separate datagrams.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use anyhow::Context;
use skep_agent::{ReportSource, Reporter, ReporterParts};
use skep_config::Config;
use skep_console::NodeReport;
use skep_dispatcher::{Dispatcher, LoadReceiver, NewReports, NodeLoads, register_reports};
use skep_distributor::ArmCounters;
use skep_node::{LoadMeter, Node};
use skep_peer::Watchdog;
use skep_steering::OnTerm;
use skep_telemetry::{Registry, register_datagrams};
use skep_wire::message::{Name, TransferRates};
use skep_wire::seal::Key;

use crate::direct::Reports;
use crate::roles::Roles;

pub(crate) struct Reporting {
    /// The loads that this process received.
    loads: Arc<NodeLoads>,
    /// They read the loads; the state of their A/B tests is sent to other dispatchers.
    dispatchers: Vec<Arc<Dispatcher>>,
    receiver: Option<Arc<LoadReceiver>>,
    reporter: Option<Arc<Reporter>>,
    /// Watches the threads of heartbeats and reports.
    watchdog: Arc<Watchdog>,
    /// What the node of this process counts for A/B tests.
    arm_counters: Arc<ArmCounters>,
    roles: Roles,
    /// Rate of the link of this process's node; 0: unknown.
    link_bytes_per_s: Arc<AtomicU64>,
}

impl Reporting {
    /// Creates an instance without loads; `dispatchers` read the loads.
    pub(crate) fn new(
        config: &Config,
        roles: &Roles,
        dispatchers: &[Arc<Dispatcher>],
        watchdog: Arc<Watchdog>,
    ) -> Self {
        let loads = NodeLoads::new(config, dispatchers);
        Self {
            loads,
            dispatchers: dispatchers.to_vec(),
            receiver: None,
            reporter: None,
            watchdog,
            arm_counters: Arc::default(),
            roles: roles.clone(),
            link_bytes_per_s: Arc::new(AtomicU64::new(link_bytes_per_s(config, roles))),
        }
    }

    /// What the node of this process counts for A/B tests.
    pub(crate) fn arm_counters(&self) -> &Arc<ArmCounters> {
        &self.arm_counters
    }

    /// The reports received from now on.
    pub(crate) fn new_reports(&self) -> NewReports {
        self.loads.follow()
    }

    /// The content of heartbeats, and the receivers of their content.
    pub(crate) fn with_heartbeats(
        &self,
        roles: &Roles,
        node: Option<&Arc<Node>>,
        registry: &Arc<Registry>,
        on_term: OnTerm,
    ) -> anyhow::Result<Reports> {
        let source = node.map(|node| self.source(roles, node, registry)).transpose()?;
        let (loads, watchdog) = (Arc::clone(&self.loads), Arc::clone(&self.watchdog));
        Ok(Reports { source, loads, on_term, watchdog })
    }

    /// Provides the load of `node`, which this process also records if it dispatches, since no process sends
    /// datagrams to itself.
    fn source(
        &self,
        roles: &Roles,
        node: &Arc<Node>,
        registry: &Arc<Registry>,
    ) -> anyhow::Result<ReportSource> {
        let mut meter = LoadMeter::new(node, registry);
        let (name, node) = (Name::new(&roles.name)?, Arc::clone(node));
        let arm_counters = Arc::clone(&self.arm_counters);
        let link_bytes_per_s = Arc::clone(&self.link_bytes_per_s);
        let own = roles.services.then(|| Arc::clone(&self.loads));
        Ok(Box::new(move || {
            let load = meter.read();
            let rates = TransferRates {
                link_bytes_per_s: link_bytes_per_s.load(Relaxed),
                fetch_bytes_per_s: meter.fetch_bytes_per_s(),
            };
            let served = node.take_served(name.peer());
            let arm_counts = arm_counters.tell(skep_agent::now());
            if let Some(own) = &own {
                own.hear(&name, None, load);
                own.hear_rates(&name, rates);
                served.iter().for_each(|served| own.hear_served(served.clone()));
                let of = name.peer();
                arm_counts.iter().for_each(|counts| own.hear_arm_counts(of, counts));
            }
            skep_agent::NodeReport { load, rates, served, arm_counts }
        }))
    }

    /// Starts sending and receiving reports, unless heartbeats carry them.
    pub(crate) fn start(
        &mut self,
        config: &Config,
        roles: &Roles,
        node: Option<&Arc<Node>>,
        registry: &Arc<Registry>,
        key: Option<&Key>,
    ) -> anyhow::Result<()> {
        if roles.services {
            register_reports(registry, &self.loads);
        }
        let is_told = config.reports_load() && config.steered_services().next().is_none();
        let Some(key) = key.filter(|_| is_told) else { return Ok(()) };
        let own = roles.own_dispatcher(config).filter(|it| it.address.is_some());
        if let Some(dispatcher) = own {
            let receiver =
                LoadReceiver::start(config, &dispatcher.name, key, &self.loads, &self.dispatchers);
            self.receiver = Some(Arc::new(receiver.context("cannot receive nodes' load reports")?));
        }
        if let (Some(node), Some(name)) = (node, &roles.node) {
            let source = self.source(roles, node, registry)?;
            let (name, watchdog) = (name.clone(), Arc::clone(&self.watchdog));
            let parts = ReporterParts { name, key: key.clone(), source, watchdog };
            let reporter = Reporter::start(config, parts).context("cannot tell of this load")?;
            self.reporter = Some(Arc::new(reporter));
        }
        let (receiver, reporter) = (self.receiver.clone(), self.reporter.clone());
        register_datagrams(registry, move |reason| {
            let heard = receiver.iter().map(|receiver| receiver.datagrams().refused(reason));
            let told = reporter.iter().map(|reporter| reporter.datagrams().refused(reason));
            heard.chain(told).sum()
        });
        Ok(())
    }

    /// Applies a new config.
    pub(crate) fn reload(&self, config: &Config) {
        self.loads.reload(config);
        self.link_bytes_per_s.store(link_bytes_per_s(config, &self.roles), Relaxed);
        if let Some(receiver) = &self.receiver {
            receiver.reload(config);
        }
    }

    /// The state to display.
    pub(crate) fn status(&self) -> Vec<NodeReport> {
        let report = |it: skep_dispatcher::NodeReport| NodeReport {
            name: it.name.to_string(),
            age_ms: it.age_ms,
            is_stale: it.is_stale,
            cpu_permille: it.load.cpu_permille,
            memory_bytes: it.load.memory_bytes,
            connections: it.load.connections,
            requests_in_flight: it.load.requests_in_flight,
            bytes_outstanding: it.load.bytes_outstanding,
            sent_bytes_s: it.load.sent_bytes_s,
            filled_bytes_s: it.load.filled_bytes_s,
            hit_permille: it.load.hit_permille,
        };
        self.loads.reports().into_iter().map(report).collect()
    }
}

/// The configured rate of the link of this process's node; 0: unknown.
fn link_bytes_per_s(config: &Config, roles: &Roles) -> u64 {
    roles.own_node(config).map_or(0, |node| u64::from(node.link_mbit_s) * 1_000_000 / 8)
}
