//! Direct dispatch of one process, from start to end: the socket, the packet program and the
//! threads.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use skep_cluster::failover::{Failover, FailoverAction, FailoverSettings};
use skep_cluster::failure_detector::FailureDetectorSettings;
use skep_cluster::flows::FlowSink;
use skep_cluster::handover::Handover;
use skep_cluster::lease_observer::LeaseObserver;
use skep_cluster::table_distribution::TableDistributor;
use skep_cluster::table_publisher::TablePublisher;
use skep_config::Config;
use skep_dispatcher::{Dispatcher, NodeLoads};
use skep_guard::{Guard, GuardError};
use skep_peer::{
    BindError, Counts, RealtimeWork, Socket, SocketSettings, Waker, Watchdog, spawn_realtime_thread,
};
use skep_serve::unix_ms;
use skep_store::{Store, StoreError};
use skep_units::Rng;
use skep_wire::guard::{AttachedProgram, Order, OrderReply, ProgramSettings, Side};
use skep_wire::message::{Name, NameTooLong, Stage};
use skep_wire::seal::{Key, PeerId};

use crate::clock::now;
use crate::epoch_writer::EpochWriter;
use crate::event_loop::{DirectLoop, Other};
use crate::flow_streams::FlowStreams;
use crate::heartbeats::HeartbeatTurns;
use crate::lccp_server::{LccpServer, LccpServerParts};
use crate::limits::{
    EXECUTOR_STALL_S_MAX, JOBS_MAX, LCCP_STALL_S_MAX, LOOP_STALL_S_MAX, NEWS_MAX, ORDER_MS,
    ORDER_POLL_MS, PLANNER_STALL_S_MAX,
};
use crate::load_digests::LoadDigests;
use crate::netguard_executor::NetguardExecutor;
use crate::node_observations::NodeObservations;
use crate::packet_path::{Desired, PacketPath, PathState, PathWishes, Setup};
use crate::plan::{Plans, networks};
use crate::planner::Planner;
use crate::queue::Queue;
use crate::shared_store::EtcdStore;
use crate::status::{OnTerm, Shared, SteeringStatus};
use crate::table_queue::TableQueue;

/// What direct dispatch needs to start.
pub struct DirectParts {
    /// Name of this dispatcher.
    pub name: String,
    pub key: Key,
    /// The connection to netguard.
    pub guard: Arc<Guard>,
    /// The services' states; only those in direct dispatch are used.
    pub dispatchers: Vec<Arc<Dispatcher>>,
    /// The last epoch that was stored, as far as known; otherwise 0.
    pub last_epoch: u64,
    /// The store of this machine, which persists the epochs that this dispatcher may use.
    pub local_store: Store,
    /// Called when netguard has ended, without which nothing can be changed: the process must exit,
    /// so that its supervisor restarts both.
    pub on_guard_gone: Box<dyn Fn() + Send>,
    /// Watches the threads.
    pub watchdog: Arc<Watchdog>,
    /// Receives the nodes' loads.
    pub loads: Arc<NodeLoads>,
    /// Receives the epoch in which this dispatcher is active.
    pub on_term: OnTerm,
    /// A store that several dispatchers share, if there is one.
    pub shared_store: Option<Store>,
    /// For services whose nodes hand connections off.
    pub handoffs: Option<LccpServerParts>,
}

/// Direct dispatch cannot be started.
#[derive(Debug, thiserror::Error)]
pub enum DirectError {
    /// The config has no such dispatcher, or none with an address.
    #[error("the config has no dispatcher {0:?} with an `address`")]
    NoSuchDispatcher(String),
    /// A name is too long for the wire.
    #[error(transparent)]
    Name(#[from] NameTooLong),
    #[error(transparent)]
    Bind(#[from] BindError),
    #[error(transparent)]
    Guard(#[from] GuardError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("cannot start a thread: {0}")]
    Thread(io::Error),
}

/// Direct dispatch of one process. Ends when it is dropped: another dispatcher may then take over
/// at once; packets are still steered by the last table.
pub struct Direct {
    shared: Arc<Shared>,
    counts: Arc<Counts>,
    guard: Arc<Guard>,
    desired: Arc<Desired>,
    stop: Arc<AtomicBool>,
    has_failed: Arc<AtomicBool>,
    waker: Waker,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl Direct {
    /// Attaches the packet program, then listens, then takes part in failover.
    pub fn start(config: &Config, parts: DirectParts) -> Result<Self, DirectError> {
        let DirectParts { name, key, guard, dispatchers, last_epoch, local_store, .. } = parts;
        let place = config.dispatchers.iter().position(|it| it.name == name);
        let place = place.ok_or_else(|| DirectError::NoSuchDispatcher(name.clone()))?;
        let (socket, others) = conversation(config, place, &key)?;
        let (opened, desired) = open(&guard, setup(config, &key))?;
        let ttl_s = config.etcd.lease_ms.div_ceil(1000);
        let shared_store =
            parts.shared_store.map(|store| EtcdStore::new(store, &name, ttl_s)).transpose()?;
        let started = now();
        let settings = failover_settings(config, place, &opened)?;
        let random = Rng::new(unix_ms()).next_u64();
        let (failover, first) = Failover::new(settings, started, last_epoch, random);
        let publisher = TablePublisher::new(detector_settings(config));
        let (jobs, news) = (Arc::new(Queue::new(JOBS_MAX)), Arc::new(Queue::new(NEWS_MAX)));
        let (planner, plans) = Planner::new(Plans::new(config, &dispatchers));
        let shared = Arc::new(Shared::new(opened.clone(), parts.on_term));
        let (stop, has_failed) = (Arc::<AtomicBool>::default(), Arc::<AtomicBool>::default());
        let (waker, counts) = (socket.waker(), socket.counts());
        let handoffs = parts.handoffs.map(|it| (it, agents(config)));
        let own_view = handoffs.as_ref().map(|(it, _)| it.own_view());
        let server = handoffs.map(|(it, agents)| {
            let jobs = Arc::clone(&jobs);
            LccpServer::new(it, agents, Arc::clone(&shared), jobs, Arc::clone(&stop))
        });
        let direct_loop = DirectLoop {
            socket,
            failover,
            heartbeats: HeartbeatTurns::default(),
            publisher,
            distributor: TableDistributor::new(config.direct.node_heartbeat_ms),
            plans,
            others,
            agents: agents(config),
            own_mac: opened.mac,
            started,
            jobs: Arc::clone(&jobs),
            backlog: VecDeque::new(),
            news: Arc::clone(&news),
            shared: Arc::clone(&shared),
            loads: parts.loads,
            loads_due_at: started,
            load_digests: LoadDigests::new(own_view),
            stop: Arc::clone(&stop),
            has_failed: Arc::clone(&has_failed),
            told: Arc::default(),
            wishes: PathWishes::new(Arc::clone(&desired)),
            path: PathState::default(),
            table_queue: TableQueue::default(),
            node_observations: NodeObservations::default(),
            followed: None,
            sink: FlowSink::default(),
            streams: FlowStreams::new(unix_ms()),
            handover: Handover::default(),
            last_table: None,
            epoch_writer: EpochWriter::new(local_store),
            lease_observer: shared_store.map(|store| LeaseObserver::new(store, PeerId::of(&name))),
        };
        let executor = NetguardExecutor {
            guard: Arc::clone(&guard),
            path: PacketPath::new(&guard, opened.mac, addresses(config), &desired),
            on_guard_gone: parts.on_guard_gone,
            shared: Arc::clone(&shared),
            jobs,
            news,
        };
        spawn_lccp_server(server, &parts.watchdog)?;
        let threads = Mutex::new(spawn(direct_loop, first, executor, planner, &parts.watchdog)?);
        Ok(Self { shared, counts, guard, desired, stop, has_failed, waker, threads })
    }

    pub fn status(&self) -> SteeringStatus {
        self.shared.status()
    }

    /// Packets by outcome, by service and by node.
    pub fn counters(&self) -> Arc<skep_wire::guard::PacketCounters> {
        self.shared.counters()
    }

    /// Waits until no new connections are steered to the node `name`, which was drained. Returns
    /// true at once if this dispatcher is not the active one; false if it takes too long.
    pub fn await_drained(&self, name: &str) -> bool {
        let begun = now();
        // The first table in which it is drained: tables may be published faster than they are
        // applied.
        let mut drained_in = None;
        loop {
            let view = self.shared.view();
            drained_in = drained_in.or_else(|| view.drained_in(name));
            if view.stage != Stage::Active || drained_in.is_some_and(|it| view.applied >= it) {
                return true;
            }
            if now().since_ms(begun) >= ORDER_MS {
                return false;
            }
            std::thread::sleep(Duration::from_millis(ORDER_POLL_MS));
        }
    }

    /// The names of the nodes, by their index in the counters.
    pub fn node_names(&self) -> Vec<(u16, String)> {
        let view = self.shared.view();
        view.table.nodes.iter().map(|node| (node.index, node.name.to_string())).collect()
    }

    /// Datagrams received, sent and refused.
    pub fn datagrams(&self) -> &Counts {
        &self.counts
    }

    /// Applies the packet settings of a new config; nodes and policies are taken from the services'
    /// states.
    pub fn reload(&self, config: &Config, key: &Key) -> Result<(), GuardError> {
        self.desired.set_up(&self.guard, setup(config, key))
    }

    /// Lets another dispatcher take over at once; returns when this one has stepped down. A
    /// dispatcher that `has_failed` keeps the virtual addresses if there is no other: packets are
    /// steered by the last table until its supervisor has restarted it.
    pub fn leave(&self, has_failed: bool) {
        self.has_failed.store(has_failed, Ordering::Relaxed);
        self.stop.store(true, Ordering::Relaxed);
        self.waker.wake();
        // The other threads end with the event loop; the executor ends once the packet path is in
        // the desired state.
        let threads = std::mem::take(&mut *lock(&self.threads));
        for thread in threads {
            let _ = thread.join();
        }
    }
}

impl Drop for Direct {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.waker.wake();
    }
}

/// The socket, with the addresses of the other dispatchers.
fn conversation(
    config: &Config,
    place: usize,
    key: &Key,
) -> Result<(Socket, BTreeMap<PeerId, Other>), DirectError> {
    let own = &config.dispatchers[place];
    let no_address = || DirectError::NoSuchDispatcher(own.name.clone());
    let mut socket = Socket::bind(&SocketSettings {
        address: own.address.ok_or_else(no_address)?,
        key: key.clone(),
        cluster: config.cluster.clone(),
        name: own.name.clone(),
        clock: now,
    })?;
    let mut others = BTreeMap::new();
    for other in &config.dispatchers {
        let Some(address) = other.address.filter(|_| other.name != own.name) else { continue };
        socket.set_peer(&other.name, address);
        let (name, address) = (Name::new(&other.name)?, address.ip());
        others.insert(name.peer(), Other { name, address, heartbeat: None });
    }
    Ok((socket, others))
}

fn failover_settings(
    config: &Config,
    place: usize,
    opened: &AttachedProgram,
) -> Result<FailoverSettings, NameTooLong> {
    let (own, direct) = (&config.dispatchers[place], &config.direct);
    Ok(FailoverSettings {
        name: Name::new(&own.name)?,
        priority: own.priority,
        mac: opened.mac,
        interval_ms: direct.heartbeat_ms,
        missed_max: direct.heartbeats_missed_max,
        preempt: direct.preempt,
        lease_patience_ms: 3 * config.etcd.lease_ms,
    })
}

fn detector_settings(config: &Config) -> FailureDetectorSettings {
    FailureDetectorSettings {
        interval_ms: config.direct.node_heartbeat_ms,
        missed_max: config.direct.node_heartbeats_missed_max,
    }
}

/// Addresses of all services in direct dispatch.
fn addresses(config: &Config) -> Vec<SocketAddr> {
    config.steered_services().flat_map(|(_, service)| service.listen.clone()).collect()
}

fn agents(config: &Config) -> BTreeMap<Name, SocketAddr> {
    let agent =
        |node: &skep_config::NodeConfig| Some((Name::new(&node.name).ok()?, node.agent_address()));
    config.nodes.iter().filter_map(agent).collect()
}

fn spawn(
    direct_loop: DirectLoop,
    first: Vec<FailoverAction>,
    executor: NetguardExecutor,
    planner: Planner,
    watchdog: &Watchdog,
) -> Result<Vec<JoinHandle<()>>, DirectError> {
    let pulse = watchdog.watch("skep-direct", LOOP_STALL_S_MAX);
    let direct_loop =
        spawn_realtime_thread("skep-direct", RealtimeWork::Heartbeats, move |priority| {
            tracing::info!("heartbeats have {priority}");
            direct_loop.run(first, &pulse);
        })
        .map_err(DirectError::Thread)?;
    let pulse = watchdog.watch("skep-guard-exec", EXECUTOR_STALL_S_MAX);
    let executor = spawn_thread("skep-guard-exec", move || executor.run(&pulse))?;
    let pulse = watchdog.watch("skep-planner", PLANNER_STALL_S_MAX);
    let planner = spawn_thread("skep-planner", move || planner.run(&pulse))?;
    Ok(vec![direct_loop, executor, planner])
}

fn spawn_lccp_server(server: Option<LccpServer>, watchdog: &Watchdog) -> Result<(), DirectError> {
    let Some(server) = server else { return Ok(()) };
    let pulse = watchdog.watch("skep-lccp", LCCP_STALL_S_MAX);
    spawn_thread("skep-lccp", move || server.run(&pulse)).map(drop)
}

fn spawn_thread(
    name: &str,
    body: impl FnOnce() + Send + 'static,
) -> Result<JoinHandle<()>, DirectError> {
    let thread = std::thread::Builder::new().name(name.to_owned());
    thread.spawn(body).map_err(DirectError::Thread)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Attaches the packet program and configures it.
fn open(guard: &Guard, setup: Setup) -> Result<(AttachedProgram, Arc<Desired>), GuardError> {
    let OrderReply::Opened(opened) = guard.ask(&Order::Open(Side::Dispatch))? else {
        return Err(GuardError::Foreign);
    };
    setup.tell(guard)?;
    Ok((opened, Arc::new(Desired::new(setup))))
}

fn setup(config: &Config, key: &Key) -> Setup {
    let settings = ProgramSettings {
        hash_seed: key.hash_seed(),
        new_flows_max: config.direct.new_flows_per_s_max,
        new_flows_per_source_max: config.direct.new_flows_per_client_per_s_max,
        stream: config.dispatchers.len() > 1,
        own_node: skep_wire::steer::NO_NODE,
    };
    let (allow, deny) = (&config.direct.allow, &config.direct.deny);
    Setup { settings, allow: networks(allow), deny: networks(deny) }
}
