//! The composition root: makes a running process from a config.
//!
//! Read from top to bottom, it is the table of contents of the system. Everything else is a part; no part by
//! itself starts threads, opens listeners or decides which parts are connected.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use arc_swap::ArcSwap;
use skep_agent::Recorder;
use skep_cli::{SignalAction, Signals, announce};
use skep_config::Config;
use skep_console::ConsoleHandle;
use skep_dispatcher::{Dispatcher, DispatcherHandler};
use skep_distributor::Distributing;
use skep_engine::{Context, Engine};
use skep_node::Node;
use skep_peer::Watchdog;
use skep_serve::{
    Admission, ConnectionHandler, ListenerGroup, Worker, WorkerHandle, Workers, accept_loop, bind,
};
use skep_telemetry::{AccessLog, Registry};
use skep_wire::seal::Key;

use crate::cluster_cache::ClusterCache;
use crate::control::{bind_console, start_console};
use crate::demotion::demote;
use crate::direct::{DirectDispatch, cluster_key, config_of_node};
use crate::failure;
use crate::logging::{self, MessageQueue};
use crate::power::{NodeSwitches, PowerRunner};
use crate::recording;
use crate::reporting::Reporting;
use crate::roles::Roles;
use crate::running::{ProcessParts, Running, Shared};
use crate::seed::seed;
use crate::settings::{Admissions, engine_settings, log_format, log_target};
use crate::supervisor;

/// Interval at which a draining process checks whether it is done, in milliseconds.
const DRAIN_POLL_MS: u64 = 20;

/// Time after which a drain logs what it waits for, in milliseconds, doubled each time: shorter drains need
/// no message.
const DRAIN_WORDS_MS: u64 = 1_000;

/// The handler of a listener.
#[derive(Clone)]
enum Responder {
    Node(Arc<Node>),
    /// For other nodes.
    Peers(Arc<Node>),
    Service(Arc<Dispatcher>),
}

/// The kind of clients of a listener.
#[derive(Clone, Copy)]
enum Door {
    Node,
    /// Clients of a service, given by its index in the config.
    Service(usize),
}

/// A process whose addresses are not bound yet.
struct Begun {
    config: Config,
    roles: Roles,
    file: Option<PathBuf>,
    key: Option<Key>,
    direct_dispatch: DirectDispatch,
}

/// A process from start to end.
pub(crate) struct Process {
    running: Arc<Running>,
    workers: Workers,
    access_log: AccessLog,
    recorder: Option<Recorder>,
    /// Kept until the very end, since it shows the drain.
    _console: Option<ConsoleHandle>,
    /// Dropped last, since it writes the messages of all others.
    _messages: MessageQueue,
}

impl Process {
    /// Starts everything that `config` specifies for `roles`. All sockets are bound before anything is
    /// served, so a failed start has served nothing. A reload reads `file` again.
    pub(crate) fn start(
        config: Config,
        roles: Roles,
        file: Option<PathBuf>,
    ) -> anyhow::Result<Self> {
        skep_serve::raise_descriptor_limit();
        supervisor::find();
        let key = cluster_key(&config)?;
        // Before anything listens, since it adds virtual addresses to this machine.
        let direct_dispatch =
            DirectDispatch::prepare(&config, &roles, file.as_deref(), key.as_ref())?;
        let undo = direct_dispatch.undo();
        let begun = Begun { config, roles, file, key, direct_dispatch };
        Self::start_prepared(begun).inspect_err(|_| undo.run())
    }

    fn start_prepared(begun: Begun) -> anyhow::Result<Self> {
        let Begun { config, roles, file, key, direct_dispatch } = begun;
        let threads = Workers::count(config.machine.threads);
        let doors = doors(&config, &roles, &direct_dispatch, threads)?;
        let (mut cluster_cache, peers) =
            ClusterCache::prepare(&config, &roles, threads, key.as_ref())?;
        let console = bind_console(&config, &roles, file.is_some())?;
        let power_runner = PowerRunner::start(&config, &roles, file.as_deref())?;
        // Everything that needs privileges is done, and no other thread exists yet.
        demote(&config, &roles, file.as_deref())?;
        let messages = logging::queue();

        let registry = Arc::new(Registry::new());
        messages.register(&registry);
        let access_log =
            AccessLog::start(log_target(&config), log_format(&config), registry.core())
                .context("cannot start the access log")?;
        let shared = shared(&config, &roles, &registry, &access_log);

        let start =
            |_| Node::start(&config_of_node(&config, &roles), seed(), key.as_ref().cloned());
        let node = roles.node.as_ref().map(start);
        let node = node.transpose()?;
        let dispatchers = dispatchers(&config, &roles)?;
        let responders = responders(doors, peers, node.as_ref(), &dispatchers);
        let on_term = cluster_cache.coordinate(&config, &roles, seed(), &registry)?;
        let watchdog = Arc::new(Watchdog::default());
        let mut reporting = Reporting::new(&config, &roles, &dispatchers, Arc::clone(&watchdog));
        cluster_cache.follow_loads(reporting.new_reports())?;
        let reports = reporting.with_heartbeats(&roles, node.as_ref(), &registry, on_term)?;
        let mut direct_dispatch =
            direct_dispatch.start(&config, &roles, &dispatchers, &registry, reports)?;
        let clients = (&shared.admissions.clients, threads);
        let for_mover = (&watchdog, reporting.arm_counters());
        direct_dispatch.start_handoffs(&config, &roles, clients, for_mover)?;
        if let Some(handoffs) = direct_dispatch.handoffs() {
            handoffs.register(&registry);
        }
        reporting.start(&config, &roles, node.as_ref(), &registry, key.as_ref())?;
        if let Some(node) = &node {
            cluster_cache.join(&config, &roles, node)?;
        }
        failure::watch(watchdog).context("cannot start a thread")?;
        cluster_cache.show_streams(&registry, node.as_deref());
        let workers = Workers::start(threads)?;
        register_tasks(&registry, &workers);
        let switches =
            NodeSwitches::start(&config, power_runner, cluster_cache.coordination(), &dispatchers)?;
        switches.register(&registry, &roles);
        watch_members(node.as_ref(), &dispatchers, &workers, &registry);
        let recorder = recording::start(&config, &roles, node.as_ref(), &registry)?;
        let parts =
            ProcessParts { node, dispatchers, switches, direct_dispatch, cluster_cache, reporting };
        let addresses = addresses(&responders);
        let running = Arc::new(Running::new(config, roles, file, addresses, parts, shared));
        let _ = running.workers.set(workers.handles().to_vec());
        running.count_traffic(&workers.handles()[0]);
        let console = start_console(console, &running)?;
        serve(&running, &workers, responders);
        Ok(Self { running, workers, access_log, recorder, _console: console, _messages: messages })
    }

    /// The handle for other threads (the management API).
    pub(crate) fn running(&self) -> &Arc<Running> {
        &self.running
    }

    /// Prints that it is `ready`, and runs until stopped.
    pub(crate) fn run(self, ready: &str) -> anyhow::Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let mut signals = Signals::listen()?;
            announce(ready)?;
            supervisor::notify_ready();
            let action = loop {
                match signals.next().await {
                    SignalAction::Reload => drop(self.running.reload()),
                    action => break action,
                }
            };
            failure::expect_end();
            supervisor::notify_stopping();
            if action == SignalAction::Drain {
                self.leave_quietly(&mut signals).await;
            } else {
                self.running.leave();
            }
            self.drain(&mut signals).await;
            anyhow::Ok(())
        })?;
        self.workers.stop();
        self.access_log.shutdown();
        if let Some(recorder) = self.recorder {
            recorder.end();
        }
        failure::outcome()
    }

    /// A node of a cluster first reports to dispatchers that it drains, and serves until they have noticed:
    /// closing an idle connection could otherwise cross a request in flight.
    async fn leave_quietly(&self, signals: &mut Signals) {
        let grace = self.running.leave();
        tokio::select! {
            () = tokio::time::sleep(grace) => {}
            _ = signals.next() => {}
        }
    }

    /// Completes the work in progress, within the configured time; a second signal ends the wait at once.
    async fn drain(&self, signals: &mut Signals) {
        let admissions = &self.running.shared.admissions;
        let limit = self.running.drain_time();
        tracing::info!(connections = admissions.open(), "draining");
        self.workers.drain();
        let began = Instant::now();
        let done = async {
            let mut words_after = Duration::from_millis(DRAIN_WORDS_MS);
            while admissions.open() > 0 {
                if began.elapsed() >= words_after {
                    words_after *= 2;
                    let left = limit.saturating_sub(began.elapsed());
                    tracing::info!("draining: {}", admissions.waited_for(left));
                }
                tokio::time::sleep(Duration::from_millis(DRAIN_POLL_MS)).await;
            }
        };
        let told_again = async { while signals.next().await == SignalAction::Reload {} };
        tokio::select! {
            () = done => tracing::info!("drained"),
            () = tokio::time::sleep(limit) => {
                let waited_for = admissions.waited_for(Duration::ZERO);
                tracing::warn!("drain time is over: {waited_for}");
            }
            () = told_again => tracing::warn!("second signal: stopping now"),
        }
    }
}

/// The state that all workers share.
fn shared(
    config: &Config,
    roles: &Roles,
    registry: &Arc<Registry>,
    access_log: &AccessLog,
) -> Shared {
    let threads = Workers::count(config.machine.threads);
    Shared {
        settings: Arc::new(ArcSwap::from_pointee(engine_settings(config, threads))),
        admissions: Admissions::new(config, roles.node.is_some()),
        registry: Arc::clone(registry),
        log: access_log.handle(),
    }
}

/// Starts the checks of nodes and of pool servers.
fn watch_members(
    node: Option<&Arc<Node>>,
    dispatchers: &[Arc<Dispatcher>],
    workers: &Workers,
    registry: &Registry,
) {
    for dispatcher in dispatchers {
        dispatcher.watch_nodes(&workers.handles()[0]);
    }
    if let Some(node) = node {
        node.start_checks(&workers.handles()[0]);
        skep_node::register_pools(registry, node);
    }
    skep_dispatcher::register_metrics(registry, dispatchers);
}

/// Binds the addresses at which this process answers clients and dispatchers.
fn doors(
    config: &Config,
    roles: &Roles,
    direct_dispatch: &DirectDispatch,
    threads: usize,
) -> anyhow::Result<Vec<(Door, ListenerGroup)>> {
    let of_node =
        node_addresses(config, roles, direct_dispatch).into_iter().map(|it| (Door::Node, it));
    let services = config.services.iter().enumerate().filter(|_| roles.services);
    // Steered packets do not pass through listeners of this process.
    let own = services.filter(|(_, service)| !service.dispatch.is_steered());
    let of_services = own.flat_map(|(index, service)| {
        service.listen.iter().map(move |&address| (Door::Service(index), address))
    });
    of_node.chain(of_services).map(|(door, it)| Ok((door, bind(it, threads)?))).collect()
}

/// The dispatchers of the services, if this process has that role.
fn dispatchers(config: &Config, roles: &Roles) -> anyhow::Result<Vec<Arc<Dispatcher>>> {
    let services = config.services.iter().filter(|_| roles.services);
    services.map(|service| Ok(Dispatcher::new(config, &service.name, seed())?)).collect()
}

/// The handlers of the listeners.
fn responders(
    doors: Vec<(Door, ListenerGroup)>,
    peers: Option<ListenerGroup>,
    node: Option<&Arc<Node>>,
    dispatchers: &[Arc<Dispatcher>],
) -> Vec<(Responder, ListenerGroup)> {
    let behind = |door| match door {
        Door::Node => node.cloned().map(Responder::Node),
        Door::Service(index) => dispatchers.get(index).cloned().map(Responder::Service),
    };
    let own = doors.into_iter().filter_map(|(door, group)| Some((behind(door)?, group)));
    let peers =
        peers.into_iter().zip(node).map(|(group, node)| (Responder::Peers(node.clone()), group));
    own.chain(peers).collect()
}

/// Registers a gauge of tasks, which shows those that have not ended when all clients are gone.
fn register_tasks(registry: &Registry, workers: &Workers) {
    let handles = workers.handles().to_vec();
    let tasks = move || handles.iter().map(WorkerHandle::tasks).sum::<usize>() as f64;
    let help = "Tasks of all workers: one per connection, plus background tasks.";
    registry.register("skep_tasks", &[], help, Box::new(tasks));
}

/// Gives every worker its socket of every listener, with its handler.
fn serve(running: &Running, workers: &Workers, responders: Vec<(Responder, ListenerGroup)>) {
    let mut per_worker: Vec<Vec<(Responder, std::net::TcpListener)>> = Vec::new();
    per_worker.resize_with(workers.handles().len(), Vec::new);
    for (responder, group) in responders {
        for (own, socket) in per_worker.iter_mut().zip(group.into_sockets()) {
            own.push((responder.clone(), socket));
        }
    }
    for (handle, own) in workers.handles().iter().zip(per_worker) {
        let Shared { settings, admissions, registry, log } = running.shared.clone();
        let handoffs = running.parts.direct_dispatch.handoffs().cloned();
        let has_dispatchers = !running.config().dispatchers.is_empty();
        handle.run(move |worker| {
            let context = Context::new(worker, settings, registry.core(), &log);
            let Admissions { clients, peers, .. } = admissions;
            // A process is at most one node.
            let (mut handler, mut engine) = (None, None);
            for (responder, socket) in own {
                match responder {
                    Responder::Node(node) => {
                        let handler = handler.get_or_insert_with(|| node.handler(&context));
                        let engine = engine.get_or_insert_with(|| {
                            let distributor =
                                handoffs.as_ref().map(|it| it.distributor(seed(), worker));
                            let handler = Distributing::new(Rc::clone(handler), distributor);
                            match has_dispatchers {
                                true => Engine::behind_a_hop(Rc::clone(&context), handler),
                                false => Engine::new(Rc::clone(&context), handler),
                            }
                        });
                        listen_for(worker, socket, Rc::clone(engine), &clients);
                    }
                    Responder::Peers(node) => {
                        let handler = handler.get_or_insert_with(|| node.handler(&context));
                        if let Some(service) = node.peer_service(handler, &context, &registry) {
                            listen_for(worker, socket, service, &peers);
                        }
                    }
                    Responder::Service(dispatcher) => {
                        let handler = DispatcherHandler::new(&dispatcher, &context);
                        let engine = Engine::new(Rc::clone(&context), handler);
                        listen_for(worker, socket, engine, &clients);
                    }
                }
            }
            if let (Some(handoffs), Some(engine)) = (&handoffs, engine)
                && let Some(arrivals) = handoffs.arrivals(worker.index())
            {
                tokio::task::spawn_local(arrivals.serve(Rc::clone(worker), engine));
            }
        });
    }
}

fn listen_for<S: ConnectionHandler>(
    worker: &Rc<Worker>,
    socket: std::net::TcpListener,
    service: Rc<S>,
    admission: &Arc<Admission>,
) {
    match tokio::net::TcpListener::from_std(socket) {
        Ok(listener) => {
            let (worker, admission) = (Rc::clone(worker), Arc::clone(admission));
            tokio::task::spawn_local(accept_loop(worker, listener, service, admission));
        }
        Err(error) => tracing::error!(%error, "a worker cannot accept connections"),
    }
}

/// The addresses at which the node of this process serves clients and dispatchers.
fn node_addresses(
    config: &Config,
    roles: &Roles,
    direct_dispatch: &DirectDispatch,
) -> Vec<SocketAddr> {
    let own = roles.own_node(config);
    let virtual_ones = direct_dispatch.node_addresses().iter().copied();
    own.map(|node| node.address).into_iter().chain(virtual_ones).collect()
}

/// Addresses of services first, since clients use them.
fn addresses(responders: &[(Responder, ListenerGroup)]) -> Vec<SocketAddr> {
    let is_node = |responder: &Responder| matches!(responder, Responder::Node(_));
    let services = responders.iter().filter(|(it, _)| matches!(it, Responder::Service(_)));
    let nodes = responders.iter().filter(|(it, _)| is_node(it));
    services.chain(nodes).map(|(_, group)| group.address()).collect()
}
