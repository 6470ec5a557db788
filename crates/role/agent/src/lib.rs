//! The agent of a node: reports the node's load to dispatchers. In direct dispatch ([`Agent`])
//! heartbeats carry the load, and the agent applies the active dispatcher's table to the node's
//! packet program; elsewhere ([`Reporter`]) it only reports.
//!
//! ```text
//!   dispatchers <--NodeHeartbeat, Load-- Report (own thread, high priority)
//!   dispatchers --Table-----------> Report --tables--> TableApplier --orders--> netguard
//! ```
//!
//! The [`Recorder`] of each process writes samples of the process and its machine to a file.
//!
//! Invariants: the table with the latest version is used, whichever dispatcher sent it. The reporting thread
//! waits only for datagrams.

#![forbid(unsafe_code)]

mod limits;
mod metrics;
mod recorder;
mod report;
mod reporter;
mod steered;
mod table_applier;

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::{ArcSwap, ArcSwapOption};
use skep_cluster::failover::WitnessState;
use skep_cluster::failure_detector::silence_ms;
use skep_cluster::table_distribution::RecentTables;
use skep_config::{Config, NodeConfig};
use skep_guard::{Guard, GuardError};
use skep_peer::{
    BindError, Counts, RealtimeWork, Socket, SocketSettings, Waker, Watchdog, spawn_realtime_thread,
};
use skep_policy::ServedLog;
use skep_serve::boottime_ms;
use skep_units::Now;
use skep_wire::guard::{AttachedProgram, Order, OrderReply, PacketCounters, ProgramSettings, Side};
use skep_wire::message::{ArmsInForce, LoadDigest, Name, NameTooLong, ServedObjects};
use skep_wire::seal::{Key, PeerId};
use skep_wire::steer::{NO_NODE, service_hash};
use skep_wire::table::{Table, TableVersion};

use limits::{TABLE_STALL_S_MAX, TABLES_WAITING_MAX};
pub use metrics::{register_agent, register_recorder};
pub use recorder::{
    CacheBytes, Recorder, RecorderCounts, RecorderParts, ServerCounters, ServerFigures,
    ServerGauges,
};
use report::Report;
pub use report::{NodeReport, ReportSource};
pub use reporter::{Reporter, ReporterParts};
use steered::Steered;
use table_applier::{AgentCallbacks, ServiceAddresses, TableApplier};

/// What an agent needs to start.
pub struct AgentParts {
    /// Name of the node.
    pub name: String,
    pub key: Key,
    /// The connection to netguard.
    pub guard: Arc<Guard>,
    /// The source of the node's reports.
    pub source: ReportSource,
    /// Called when the dispatchers drain this node, and when they resume it.
    pub on_drained: Box<dyn Fn(bool) + Send>,
    /// Called when netguard has ended, without which nothing can be changed: the process must exit, so that
    /// its supervisor restarts both.
    pub on_guard_gone: Box<dyn Fn() + Send>,
    /// Watches the threads.
    pub watchdog: Arc<Watchdog>,
}

/// The agent cannot start.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// The config has no such node.
    #[error("the config has no node {0:?}")]
    NoSuchNode(String),
    /// A name is too long for the wire.
    #[error(transparent)]
    Name(#[from] NameTooLong),
    #[error(transparent)]
    Bind(#[from] BindError),
    #[error(transparent)]
    Guard(#[from] GuardError),
    #[error("cannot start a thread: {0}")]
    Thread(io::Error),
}

/// The displayed state of an agent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AgentStatus {
    /// Generation of the table that the node uses; 0: none yet.
    pub table_generation: u64,
    /// Faults of this machine, as text.
    pub complaints: Vec<String>,
}

/// The agent of one node. Ends when dropped.
pub struct Agent {
    opened: AttachedProgram,
    counts: Arc<Counts>,
    shared: Arc<Shared>,
    stop: Arc<AtomicBool>,
    waker: Waker,
}

/// The state that the agent's threads share.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    pub(crate) is_leaving: AtomicBool,
    pub(crate) status: Mutex<AgentStatus>,
    /// The table that the packet program uses.
    applied: Mutex<TableVersion>,
    /// MAC address of the active dispatcher, once its heartbeat was received.
    active_mac: Mutex<Option<[u8; 6]>>,
    pub(crate) counters: ArcSwap<PacketCounters>,
    /// The table with that version.
    table: Arc<ArcSwap<Table>>,
    digest: Arc<ArcSwap<(Now, LoadDigest)>>,
    served: Arc<ArcSwap<ServedLog>>,
    arms: Arc<ArcSwap<ArmsInForce>>,
    active: Arc<ArcSwapOption<PeerId>>,
}

impl Shared {
    pub(crate) fn applied(&self) -> TableVersion {
        *self.applied.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn active_mac(&self) -> Option<[u8; 6]> {
        *self.active_mac.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records objects that a node has served.
    pub(crate) fn note_served(&self, served: &Arc<ServedObjects>) {
        self.served.rcu(|log| log.with(Arc::clone(served)));
    }

    pub(crate) fn set_active_mac(&self, mac: [u8; 6]) {
        *self.active_mac.lock().unwrap_or_else(PoisonError::into_inner) = Some(mac);
    }

    pub(crate) fn set_applied(&self, version: TableVersion, table: &Arc<Table>) {
        *self.applied.lock().unwrap_or_else(PoisonError::into_inner) = version;
        self.table.store(Arc::clone(table));
    }
}

impl Agent {
    /// Adds the virtual addresses to the node, so that it can listen on them. Call it before
    /// [`Agent::start`].
    pub fn hold_addresses(guard: &Guard) -> Result<(), GuardError> {
        guard.ask(&Order::Hold).map(drop)
    }

    /// Attaches the node's packet program, and starts to report.
    pub fn start(config: &Config, parts: AgentParts) -> Result<Self, AgentError> {
        let AgentParts { name, key, guard, source, on_drained, on_guard_gone, watchdog } = parts;
        let node = config.node(&name).ok_or_else(|| AgentError::NoSuchNode(name.clone()))?;
        let (socket, dispatchers) = conversation(config, node, &key)?;
        let opened = match guard.ask(&Order::Open(Side::Node))? {
            OrderReply::Opened(opened) => opened,
            _ => return Err(GuardError::Foreign.into()),
        };
        let direct = &config.direct;
        let (settings, services) = (settings(config, &key), ServiceAddresses::of(config, &name));
        guard.ask(&Order::Settings(Side::Node, settings))?;

        let (tables, to_apply) = sync_channel(TABLES_WAITING_MAX);
        let shared = Arc::new(Shared::default());
        let (waker, counts) = (socket.waker(), socket.counts());
        let protocol = Steered {
            name: Name::new(&name)?,
            address: node.address.ip(),
            opened: opened.clone(),
            services: services.own.iter().map(|&address| service_hash(address)).collect(),
            tables,
            waiting: None,
            table: Arc::default(),
            recent: RecentTables::default(),
            answered: BTreeMap::new(),
            witness: WitnessState::default(),
            takeover_ms: silence_ms(direct.heartbeat_ms, direct.heartbeats_missed_max),
            shared: Arc::clone(&shared),
        };
        let (interval_ms, stop) = (config.report_interval_ms(), Arc::default());
        let report =
            Report { socket, dispatchers, interval_ms, source, protocol, stop: Arc::clone(&stop) };
        let callbacks = AgentCallbacks { on_drained, on_guard_gone };
        let table_applier = TableApplier::new(
            &guard,
            &name,
            &opened,
            (settings, services),
            callbacks,
            Arc::clone(&shared),
        );
        let pulse = watchdog.watch("skep-report", report.stall_s_max());
        spawn_realtime_thread("skep-report", RealtimeWork::Heartbeats, move |priority| {
            tracing::info!("heartbeats have {priority}");
            report.run(&pulse);
        })
        .map_err(AgentError::Thread)?;
        let pulse = watchdog.watch("skep-table", TABLE_STALL_S_MAX);
        let applying = std::thread::Builder::new().name("skep-table".into());
        applying.spawn(move || table_applier.run(&to_apply, &pulse)).map_err(AgentError::Thread)?;
        Ok(Self { opened, counts, shared, stop, waker })
    }

    /// How the node's program is attached.
    pub fn opened(&self) -> &AttachedProgram {
        &self.opened
    }

    pub fn status(&self) -> AgentStatus {
        let mut status = self.shared.status.lock().unwrap_or_else(PoisonError::into_inner).clone();
        status.table_generation = self.shared.applied().generation;
        status
    }

    /// Packets by outcome.
    pub fn counters(&self) -> Arc<PacketCounters> {
        self.shared.counters.load_full()
    }

    /// Datagrams received, sent and refused.
    pub fn datagrams(&self) -> &Counts {
        &self.counts
    }

    /// The latest table that the packet program uses: connections must be moved by this table, to the nodes
    /// to which their packets are then forwarded.
    pub fn table(&self) -> &Arc<ArcSwap<Table>> {
        &self.shared.table
    }

    /// The load of all nodes, as last sent by the active dispatcher, and its time of receipt by [`now`].
    pub fn digest(&self) -> &Arc<ArcSwap<(Now, LoadDigest)>> {
        &self.shared.digest
    }

    /// Objects that nodes have served recently, as reported by them and by the active dispatcher.
    pub fn served(&self) -> &Arc<ArcSwap<ServedLog>> {
        &self.shared.served
    }

    /// The A/B tests whose arms nodes determine, as last sent by the active dispatcher.
    pub fn arms(&self) -> &Arc<ArcSwap<ArmsInForce>> {
        &self.shared.arms
    }

    /// The active dispatcher, while its heartbeats are received.
    pub fn active(&self) -> &Arc<ArcSwapOption<PeerId>> {
        &self.shared.active
    }

    /// Reports that the node is about to stop and must get no new flows.
    pub fn leave(&self) {
        self.shared.is_leaving.store(true, Ordering::Relaxed);
        self.waker.wake();
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.waker.wake();
    }
}

/// The node's socket, and the dispatchers to which it sends: all that have an address, except one in the same
/// process under the node's name.
pub(crate) fn conversation(
    config: &Config,
    node: &NodeConfig,
    key: &Key,
) -> Result<(Socket, Vec<PeerId>), AgentError> {
    let mut socket = Socket::bind(&SocketSettings {
        address: node.agent_address(),
        key: key.clone(),
        cluster: config.cluster.clone(),
        name: node.name.clone(),
        clock: now,
    })?;
    let mut dispatchers = Vec::new();
    for dispatcher in config.dispatchers.iter().filter(|it| it.name != node.name) {
        let Some(address) = dispatcher.address else { continue };
        socket.set_peer(&dispatcher.name, address);
        dispatchers.push(Name::new(&dispatcher.name)?.peer());
    }
    Ok((socket, dispatchers))
}

fn settings(config: &Config, key: &Key) -> ProgramSettings {
    ProgramSettings {
        hash_seed: key.hash_seed(),
        // The node's program stores no flows.
        new_flows_max: config.direct.new_flows_per_s_max,
        new_flows_per_source_max: config.direct.new_flows_per_client_per_s_max,
        stream: false,
        own_node: NO_NODE,
    }
}

/// The clock of this process; it continues while the machine is suspended, so that others' silence is
/// measured.
pub fn now() -> Now {
    Now(boottime_ms())
}
