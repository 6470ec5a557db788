//! The coordinator of this process and its thread: commands to it and its displayed state.
//!
//! In direct dispatch the active dispatcher coordinates, in its epoch. Otherwise the coordinators of all
//! dispatchers answer, and nodes use the first one in the config with which they are linked: it has the
//! highest rank.

use std::collections::{BTreeSet, HashMap};
use std::net::{IpAddr, TcpListener};
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use arc_swap::{ArcSwap, ArcSwapOption};
use skep_directory::{
    CacheMemberView, Coordinator, CoordinatorCounters, CoordinatorSettings, Hello, NodeLinkId,
    PurgeOrder, PurgeReport,
};
use skep_peer::stream::{
    CommandSender, LinkEvent, LinkId, LinkServer, LinkSettings, Outbox, StreamCounts,
};
use skep_policy::REPORTS_MISSED_MAX;
use skep_serve::monotonic_ms;
use skep_units::Now;
use skep_wire::cache::{
    ExplainRequest, Explanation, Identity, NodeFeatures, NodeQuestion, PurgeKind, PurgeWhat,
    ToCoordinator, ToNode,
};
use skep_wire::message::Name;

use crate::limits::{
    ANSWERS_MARGIN_MS, COORDINATOR_TICK_MS, COORDINATOR_VIEW_TICKS, PURGE_LOOK_MS, PURGE_MARGIN_MS,
    RELAY_MS_MAX,
};
use crate::operators::Operators;
use crate::power::{NodePower, PowerStages};
use crate::purging::{PurgeCounts, Purging};
use crate::questions::{Asker, NodeAnswers, Questions};
use crate::server_loads::ServerLoads;

/// The displayed state of a coordinator.
#[derive(Clone, Debug, Default)]
pub struct CacheView {
    /// Whether it answers.
    pub is_active: bool,
    /// In direct dispatch the epoch of its term; otherwise made from its rank and number.
    pub epoch: u64,
    /// Nodes that are linked.
    pub members: Vec<CacheMemberView>,
    pub counters: CoordinatorCounters,
}

/// A coordinator; its links are closed when this is dropped.
pub struct Coordination {
    server: LinkServer<CoordinatorCommand>,
    commands: CommandSender<CoordinatorCommand>,
    stage: CoordinatorStage,
    view: Arc<ArcSwap<CacheView>>,
    purge_counts: PurgeCounts,
    power_stages: Arc<ArcSwap<PowerStages>>,
}

/// The coordinator's thread has ended, or its queue is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the coordinator of the caches does not answer")]
pub struct NoCoordinator;

/// A command to the link thread.
pub(crate) enum CoordinatorCommand {
    /// The [`CoordinatorStage`] has changed.
    Stage,
    /// Reads the nodes' loads from this reader from now on.
    Loads(NodeLoadReader),
    /// Purges, and reports the result.
    Purge(PurgeOrder, SyncSender<PurgeReport>),
    /// Sets the nodes that serve clients.
    Serving(Vec<Name>),
    /// Asks all nodes to explain their caching for `limit_ms`, and reports their answers.
    Explain {
        request: ExplainRequest,
        limit_ms: u64,
        asker: SyncSender<NodeAnswers<Option<Box<Explanation>>>>,
    },
    /// The same for questions and orders of operators.
    AskNodes { question: NodeQuestion, limit_ms: u64, asker: SyncSender<NodeAnswers<Vec<u8>>> },
    /// Switches these nodes off, and all others on.
    WantOff(BTreeSet<Name>),
}

/// Sets whether a coordinator is active.
#[derive(Clone)]
pub struct CoordinatorStage {
    wanted: Arc<ArcSwapOption<u64>>,
    commands: CommandSender<CoordinatorCommand>,
}

impl CoordinatorStage {
    /// Activates the coordinator in an epoch, or puts it on standby.
    pub fn set(&self, stage: Option<u64>) {
        self.wanted.store(stage.map(Arc::new));
        // If its queue is full, the thread reads the stage at its next tick.
        drop(self.commands.tell(CoordinatorCommand::Stage));
    }
}

/// Returns the nodes that have reported since the last call, with the bytes that each has to send.
pub type NodeLoadReader = Box<dyn FnMut() -> Vec<(Name, u64)> + Send>;

impl Coordination {
    /// Accepts links of nodes at `listener`; on standby until activated. Nodes report their load every
    /// `report_ms`; `nodes` are the addresses of configured nodes. `number` is unique among the dispatchers
    /// of the cluster.
    ///
    /// # Errors
    /// The thread could not be started.
    pub fn start(
        identity: Identity,
        listener: TcpListener,
        seed: u64,
        report_ms: u64,
        nodes: Vec<IpAddr>,
        number: u16,
    ) -> std::io::Result<Self> {
        let load_ms_max = report_ms * REPORTS_MISSED_MAX + COORDINATOR_TICK_MS;
        let view = Arc::<ArcSwap<CacheView>>::default();
        let power_stages = Arc::<ArcSwap<PowerStages>>::default();
        let settings = CoordinatorSettings {
            load_ms_max,
            nodes: nodes.len(),
            ..CoordinatorSettings::default()
        };
        let wanted = Arc::<ArcSwapOption<u64>>::default();
        let mut coordinator_server = CoordinatorServer {
            wanted: Arc::clone(&wanted),
            stage: None,
            coordinator: Coordinator::new(settings, seed),
            purging: Purging::new(number),
            explanations: Questions::default(),
            features: HashMap::new(),
            operators: Operators::new(number),
            server_loads: ServerLoads::default(),
            power: NodePower::new(&power_stages),
            links: HashMap::new(),
            members: HashMap::new(),
            loads: None,
            shown: Arc::clone(&view),
            ticks: 0,
        };
        let usual = LinkSettings::new(identity, COORDINATOR_TICK_MS);
        let settings = LinkSettings { members: nodes, ..usual };
        let handle = move |event: LinkEvent<ToCoordinator, CoordinatorCommand>,
                           outbox: &mut Outbox<ToNode>| {
            coordinator_server.handle(event, outbox);
        };
        let server = LinkServer::start(&settings, listener, handle)?;
        let commands = server.teller();
        let stage = CoordinatorStage { wanted, commands: commands.clone() };
        let purge_counts = PurgeCounts::default();
        Ok(Self { server, commands, stage, view, purge_counts, power_stages })
    }

    /// Purges, and waits at most `limit_ms` until all nodes that are linked, or that serve clients according
    /// to `serving`, have applied it. A report without nodes: none is linked, and nothing was done.
    ///
    /// # Errors
    /// The link thread does not answer.
    pub fn purge(
        &self,
        (kind, what): (PurgeKind, Vec<PurgeWhat>),
        limit_ms: u64,
        serving: impl Fn() -> Vec<Name>,
    ) -> Result<PurgeReport, NoCoordinator> {
        let limit = Duration::from_millis(limit_ms + PURGE_MARGIN_MS);
        let (sender, reports) = sync_channel(1);
        let began = Instant::now();
        let order = PurgeOrder { kind, what, limit_ms, serving: serving() };
        self.commands.tell(CoordinatorCommand::Purge(order, sender)).map_err(|_| NoCoordinator)?;
        while began.elapsed() < limit {
            match reports.recv_timeout(Duration::from_millis(PURGE_LOOK_MS)) {
                Ok(report) => {
                    self.purge_counts.count(&report, began.elapsed());
                    return Ok(report);
                }
                Err(RecvTimeoutError::Timeout) => {
                    // Nodes that are found to be down meanwhile are not waited for.
                    self.commands
                        .tell(CoordinatorCommand::Serving(serving()))
                        .map_err(|_| NoCoordinator)?;
                }
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        Err(NoCoordinator)
    }

    /// Asks all linked nodes whether and why they cache the response to `request`, and waits at most
    /// `limit_ms` for them. A node that cannot interpret the request answers `None`.
    ///
    /// # Errors
    /// The link thread does not answer.
    pub fn explain(
        &self,
        request: ExplainRequest,
        limit_ms: u64,
    ) -> Result<NodeAnswers<Option<Box<Explanation>>>, NoCoordinator> {
        self.ask(limit_ms, |asker| CoordinatorCommand::Explain { request, limit_ms, asker })
    }

    /// Asks all linked nodes, and waits at most `limit_ms` for them. They answer in JSON. An order gets its
    /// stamp here.
    ///
    /// # Errors
    /// The link thread does not answer.
    pub fn ask_nodes(
        &self,
        question: NodeQuestion,
        limit_ms: u64,
    ) -> Result<NodeAnswers<Vec<u8>>, NoCoordinator> {
        self.ask(limit_ms, |asker| CoordinatorCommand::AskNodes { question, limit_ms, asker })
    }

    fn ask<A>(
        &self,
        limit_ms: u64,
        command: impl FnOnce(SyncSender<NodeAnswers<A>>) -> CoordinatorCommand,
    ) -> Result<NodeAnswers<A>, NoCoordinator> {
        let (asker, answers) = sync_channel(1);
        self.commands.tell(command(asker)).map_err(|_| NoCoordinator)?;
        let limit = Duration::from_millis(limit_ms + ANSWERS_MARGIN_MS);
        answers.recv_timeout(limit).map_err(|_| NoCoordinator)
    }

    /// The results of purges.
    pub fn purge_counts(&self) -> &PurgeCounts {
        &self.purge_counts
    }

    /// The handle that activates it or puts it on standby.
    pub fn stage(&self) -> CoordinatorStage {
        self.stage.clone()
    }

    /// Reads the nodes' loads from `source` from now on, at each tick.
    ///
    /// # Errors
    /// The thread has ended, or its queue is full.
    pub fn follow_loads(&self, source: NodeLoadReader) -> Result<(), NoCoordinator> {
        self.commands.tell(CoordinatorCommand::Loads(source)).map_err(|_| NoCoordinator)
    }

    /// Counts of its links.
    pub fn stream_counts(&self) -> Arc<StreamCounts> {
        self.server.counts()
    }

    /// Switches these nodes off, as far as all coordinators agree, and all others on.
    ///
    /// # Errors
    /// The thread has ended, or its queue is full.
    pub fn want_off(&self, nodes: BTreeSet<Name>) -> Result<(), NoCoordinator> {
        self.commands.tell(CoordinatorCommand::WantOff(nodes)).map_err(|_| NoCoordinator)
    }

    /// The power stages of the linked nodes that can be switched off.
    pub fn power_stages(&self) -> Arc<PowerStages> {
        self.power_stages.load_full()
    }

    /// Its displayed state, half a second old at most.
    pub fn view(&self) -> Arc<CacheView> {
        self.view.load_full()
    }
}

/// Serves the links of nodes in the link thread: passes their messages to the coordinator and to purges, and
/// sends the answers of both.
struct CoordinatorServer {
    wanted: Arc<ArcSwapOption<u64>>,
    /// The value of `wanted` when it was last read.
    stage: Option<u64>,
    coordinator: Coordinator,
    purging: Purging,
    explanations: Questions<Option<Box<Explanation>>>,
    operators: Operators,
    server_loads: ServerLoads,
    power: NodePower,
    /// Features of nodes that have not sent their hello yet.
    features: HashMap<LinkId, NodeFeatures>,
    /// Links on which a hello was received.
    links: HashMap<LinkId, NodeLinkId>,
    members: HashMap<NodeLinkId, LinkId>,
    loads: Option<NodeLoadReader>,
    shown: Arc<ArcSwap<CacheView>>,
    ticks: u32,
}

impl CoordinatorServer {
    fn handle(
        &mut self,
        event: LinkEvent<ToCoordinator, CoordinatorCommand>,
        outbox: &mut Outbox<ToNode>,
    ) {
        let now = Now(monotonic_ms());
        match event {
            LinkEvent::Up { .. } | LinkEvent::Missed { .. } => {}
            LinkEvent::Received { link, message } => self.received(now, link, message, outbox),
            LinkEvent::Down { link, peer, why } => {
                self.features.remove(&link);
                self.purging.left(link);
                self.explanations.left(link);
                self.operators.left(link);
                self.server_loads.left(link);
                self.power.left(link);
                if let Some(member) = self.links.remove(&link) {
                    self.members.remove(&member);
                    self.coordinator.left(now, member);
                    tracing::info!("cache: link of node {peer} lost: {why}");
                }
            }
            LinkEvent::Told(CoordinatorCommand::Stage) => self.follow_stage(),
            LinkEvent::Told(CoordinatorCommand::Loads(source)) => self.loads = Some(source),
            LinkEvent::Told(CoordinatorCommand::Serving(nodes)) => self.purging.set_serving(&nodes),
            LinkEvent::Told(CoordinatorCommand::Explain { request, limit_ms, asker }) => {
                let knows_it = NodeFeatures::has_explain;
                let nodes = self.purging.nodes().map(|(link, name, it)| (link, name, knows_it(it)));
                let message = |question| ToNode::Explain { question, request };
                let (ends, asker) = (now.plus_ms(limit_ms), Asker::Here(asker));
                self.explanations.ask(ends, nodes, message, asker, outbox);
            }
            LinkEvent::Told(CoordinatorCommand::AskNodes { question, limit_ms, asker }) => {
                let (ends, asker) = (now.plus_ms(limit_ms), Asker::Here(asker));
                self.operators.ask(ends, self.purging.nodes(), question, asker, outbox);
            }
            LinkEvent::Told(CoordinatorCommand::WantOff(nodes)) => {
                self.power.want_off(nodes, outbox)
            }
            LinkEvent::Told(CoordinatorCommand::Purge(order, teller)) => {
                self.purging.begin(order, teller, outbox);
            }
            LinkEvent::Tick => {
                self.follow_stage();
                self.read_loads(now);
                self.coordinator.tick(now);
                self.server_loads.tell(outbox);
                self.ticks += 1;
                if self.ticks.is_multiple_of(COORDINATOR_VIEW_TICKS) {
                    self.show();
                }
            }
        }
        self.purging.report();
        // Only operators of this process ask these questions.
        let _ = self.explanations.report(now);
        self.operators.report(now, outbox);
        for (member, message) in self.coordinator.outbox() {
            if let Some(&link) = self.members.get(&member) {
                // A link whose queue is full is closed, which is reported.
                let _ = outbox.send(link, &message);
            }
        }
    }

    fn read_loads(&mut self, now: Now) {
        let reports = self.loads.as_mut().map(|read| read()).unwrap_or_default();
        for (name, bytes) in reports {
            self.coordinator.loaded(now, &name, bytes);
        }
    }

    fn follow_stage(&mut self) {
        let wanted = self.wanted.load().as_deref().copied();
        if wanted != self.stage {
            self.stage = wanted;
            self.coordinator.set_stage(wanted);
            self.show();
        }
    }

    fn received(
        &mut self,
        now: Now,
        link: LinkId,
        message: ToCoordinator,
        outbox: &mut Outbox<ToNode>,
    ) {
        match (self.links.get(&link), message) {
            (None, ToCoordinator::Features(features)) => {
                self.features.insert(link, features);
            }
            (None, ToCoordinator::Hello { name, address, capacity_bytes }) => {
                let hello = Hello { name: name.clone(), address, capacity_bytes };
                let Some(joined) = self.coordinator.joined(hello) else {
                    tracing::warn!("cache: node {name} refused: too many nodes");
                    return outbox.close(link);
                };
                if let Some(old) = joined.replaces.and_then(|old| self.members.remove(&old)) {
                    self.links.remove(&old);
                    outbox.close(old);
                }
                let features = self.features.remove(&link).unwrap_or_default();
                self.purging.joined(link, (name.clone(), features), outbox);
                self.operators.joined(link, features, outbox);
                self.server_loads.joined(link, features);
                self.power.joined(link, (name.clone(), features), outbox);
                self.links.insert(link, joined.link);
                self.members.insert(joined.link, link);
                tracing::info!("cache: node {name} linked, fetches at {address}");
            }
            (Some(_), ToCoordinator::Explained { question, explanation }) => {
                self.explanations.answered(link, question, explanation);
            }
            (Some(_), ToCoordinator::Invalidate(what)) => self.purging.invalidate(what, outbox),
            (Some(_), ToCoordinator::Purges(news)) => {
                self.purging.learn(link, (PurgeKind::Hard, &news), outbox);
            }
            (Some(_), ToCoordinator::SoftPurges(news)) => {
                self.purging.learn(link, (PurgeKind::Soft, &news), outbox);
            }
            (Some(_), ToCoordinator::Purged { stamp, newest }) => {
                self.purging.acknowledged(link, (stamp, newest), outbox);
            }
            (Some(_), ToCoordinator::Status { question, json }) => {
                self.operators.answered(link, question, json);
            }
            (Some(_), ToCoordinator::ServerOrders(orders)) => {
                self.operators.learn(link, orders, self.purging.nodes(), outbox);
            }
            (Some(_), ToCoordinator::Relay { ask, question, limit_ms }) => {
                let ends = now.plus_ms(limit_ms.min(RELAY_MS_MAX));
                let asker = Asker::Node(link, ask);
                self.operators.ask(ends, self.purging.nodes(), question, asker, outbox);
            }
            (Some(_), ToCoordinator::ServerLoads(loads)) => self.server_loads.loaded(link, loads),
            (Some(_), ToCoordinator::AmInStep { question }) => {
                // Sent after all purges. If the link's queue is full it is closed.
                let _ = outbox.send(link, &ToNode::InStep { question });
            }
            (Some(&member), message) => {
                if let ToCoordinator::Power { stage, .. } = message {
                    self.power.heard(link, stage);
                }
                self.coordinator.heard(now, member, message);
            }
            (None, _) => outbox.close(link),
        }
    }

    fn show(&self) {
        let (is_active, epoch) = self.coordinator.stage();
        self.shown.store(Arc::new(CacheView {
            is_active,
            epoch,
            members: self.coordinator.members().collect(),
            counters: self.coordinator.counters(),
        }));
    }
}
