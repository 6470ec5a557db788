//! The composition root: where a config becomes a running process.
//!
//! Reads from top to bottom as the table of contents of the system. Everything
//! else is a part; nothing else starts threads of its own accord, opens
//! listeners or decides what belongs together.

use std::hash::{BuildHasher, RandomState};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use arc_swap::ArcSwap;
use skep_config::{Config, Dispatch};
use skep_console::ConsoleHandle;
use skep_dispatcher::{Dispatcher, DispatcherHandler};
use skep_engine::{Context, Engine, Handler};
use skep_node::Node;
use skep_serve::{Admission, ListenerGroup, Service, Worker, Workers, accept_loop, bind};
use skep_telemetry::{AccessLog, Registry};

use crate::control::start_console;
use crate::cooperation::Cooperation;
use crate::direct::{Directing, config_of_node};
use crate::reporting::Reporting;
use crate::running::{Roles, Running};
use crate::settings::{Admissions, engine_settings, log_format, log_target, threads};
use crate::signals::{Signals, Wish, announce};

/// How often a draining process looks whether it is done, in milliseconds.
const DRAIN_POLL_MS: u64 = 20;

/// What answers on a listener.
#[derive(Clone)]
enum Part {
    Node(Arc<Node>),
    /// For other nodes.
    Peers(Arc<Node>),
    Service(Arc<Dispatcher>),
}

/// A process, from its start to its end.
pub(crate) struct Process {
    running: Arc<Running>,
    workers: Workers,
    access_log: AccessLog,
    /// Until the very end: it shows the drain.
    _console: Option<ConsoleHandle>,
}

impl Process {
    /// Starts everything that `config` says of `roles`. All sockets are bound
    /// before anything is served, so a start that fails has served nothing.
    /// `file` is what a reload reads again.
    pub(crate) fn start(
        config: Config,
        roles: Roles,
        file: Option<PathBuf>,
    ) -> anyhow::Result<Self> {
        skep_serve::raise_descriptor_limit();
        // Before anything listens: it puts virtual addresses on this machine.
        let directing = Directing::prepare(&config, &roles, file.as_deref())?;
        let undo = directing.undo();
        Self::start_prepared(config, roles, file, directing).inspect_err(|_| undo.run())
    }

    fn start_prepared(
        config: Config,
        roles: Roles,
        file: Option<PathBuf>,
        directing: Directing,
    ) -> anyhow::Result<Self> {
        let threads = threads(&config);
        let registry = Arc::new(Registry::new());
        let admissions = Admissions::new(&config);
        let settings = Arc::new(ArcSwap::from_pointee(engine_settings(&config, threads)));

        let node = roles.node.as_ref().map(|_| Node::start(&config_of_node(&config, &roles)));
        let node = node.transpose()?;
        let mut parts = Vec::new();
        if let Some(node) = &node {
            for address in node_addresses(&config, &roles, &directing) {
                parts.push((Part::Node(Arc::clone(node)), bind(address, threads)?));
            }
        }
        let dispatchers = dispatchers(&config, &roles, threads, &mut parts)?;
        let (mut cooperation, peers) = Cooperation::prepare(&config, &roles, threads)?;
        if let (Some(node), Some(peers)) = (&node, peers) {
            parts.push((Part::Peers(Arc::clone(node)), peers));
        }

        let on_reign = cooperation.coordinate(&config, &roles, seed(), &registry)?;
        let mut reporting = Reporting::new(&config, &dispatchers, cooperation.on_load());
        let reports = reporting.with_beats(&roles, node.as_ref(), &registry, on_reign)?;
        let directing = directing.start(&config, &roles, &dispatchers, &registry, reports)?;
        reporting.start(&config, &roles, node.as_ref(), &registry)?;
        // Threads from here on have none of the privileges of the start.
        let access_log =
            AccessLog::start(log_target(&config), log_format(&config), registry.core())
                .context("cannot start the access log")?;
        if let Some(node) = &node {
            cooperation.join(&config, &roles, node)?;
        }
        cooperation.show_streams(&registry, node.as_deref());
        let workers = Workers::start(threads)?;
        for dispatcher in &dispatchers {
            dispatcher.start_checks(&workers.handles()[0]);
        }
        skep_dispatcher::register_gauges(&registry, &dispatchers);
        let running = Running::new(
            config,
            roles,
            file,
            addresses(&parts),
            settings,
            admissions,
            registry,
            access_log.handle(),
            node,
            dispatchers,
            directing,
            cooperation,
            reporting,
        );
        let running = Arc::new(running);
        let console = start_console(&running)?;
        serve(&running, &workers, parts);
        Ok(Self { running, workers, access_log, _console: console })
    }

    /// What other threads (the management API) may ask and tell.
    pub(crate) fn running(&self) -> &Arc<Running> {
        &self.running
    }

    /// Says that it is `ready`, and runs until told to stop.
    pub(crate) fn run(self, ready: &str) -> anyhow::Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let mut signals = Signals::listen()?;
            announce(ready)?;
            loop {
                match signals.next().await {
                    Wish::Reload => drop(self.running.reload()),
                    Wish::Drain => break self.leave_quietly(&mut signals).await,
                    Wish::Interrupt => {
                        self.running.leave();
                        break;
                    }
                }
            }
            self.drain(&mut signals).await;
            anyhow::Ok(())
        })?;
        self.workers.stop();
        self.access_log.shutdown();
        Ok(())
    }

    /// A node of a cluster first lets dispatchers see that it goes, and serves
    /// on until they have: a connection closed at rest could otherwise meet a
    /// request on its way.
    async fn leave_quietly(&self, signals: &mut Signals) {
        let grace = self.running.leave();
        tokio::select! {
            () = tokio::time::sleep(grace) => {}
            _ = signals.next() => {}
        }
    }

    /// Finishes what is in work, at most for the configured time; a second
    /// signal ends it at once.
    async fn drain(&self, signals: &mut Signals) {
        let admissions = self.running.admissions();
        let limit = self.running.drain_time();
        tracing::info!(connections = admissions.open(), "draining");
        self.workers.drain();
        let done = async {
            while admissions.open() > 0 {
                tokio::time::sleep(Duration::from_millis(DRAIN_POLL_MS)).await;
            }
        };
        let told_again = async { while signals.next().await == Wish::Reload {} };
        tokio::select! {
            () = done => tracing::info!("drained"),
            () = tokio::time::sleep(limit) => {
                tracing::warn!(connections = admissions.open(), "drain time is over");
            }
            () = told_again => tracing::warn!("told again: stopping now"),
        }
    }
}

/// What dispatches the services, if this process does; where they listen goes
/// to `parts`.
fn dispatchers(
    config: &Config,
    roles: &Roles,
    threads: usize,
    parts: &mut Vec<(Part, ListenerGroup)>,
) -> anyhow::Result<Vec<Arc<Dispatcher>>> {
    let mut dispatchers = Vec::new();
    for service in config.services.iter().filter(|_| roles.services) {
        let dispatcher = Dispatcher::new(config, &service.name, seed())?;
        // In direct dispatch packets pass by here without being seen.
        let own = service.listen.iter().filter(|_| service.dispatch != Dispatch::Direct);
        for &address in own {
            let part = Part::Service(Arc::clone(&dispatcher));
            parts.push((part, bind(address, threads)?));
        }
        dispatchers.push(dispatcher);
    }
    Ok(dispatchers)
}

/// Gives every worker its socket of every listener, and the handler behind it.
fn serve(running: &Running, workers: &Workers, parts: Vec<(Part, ListenerGroup)>) {
    let mut per_worker: Vec<Vec<(Part, std::net::TcpListener)>> = Vec::new();
    per_worker.resize_with(workers.handles().len(), Vec::new);
    for (part, group) in parts {
        for (own, socket) in per_worker.iter_mut().zip(group.into_sockets()) {
            own.push((part.clone(), socket));
        }
    }
    for (handle, own) in workers.handles().iter().zip(per_worker) {
        let settings = Arc::clone(running.settings());
        let registry = Arc::clone(running.registry());
        let log = running.log().clone();
        let admissions = running.admissions().clone();
        handle.run(move |worker| {
            let context = Context::new(worker, settings, registry.core(), &log);
            let Admissions { clients, peers } = admissions;
            // A process is one node at most.
            let mut handler = None;
            for (part, socket) in own {
                match part {
                    Part::Node(node) => {
                        let handler = handler.get_or_insert_with(|| node.handler(&context));
                        listen(socket, &context, Rc::clone(handler), &clients);
                    }
                    Part::Peers(node) => {
                        let handler = handler.get_or_insert_with(|| node.handler(&context));
                        if let Some(service) = node.peer_service(handler, &context, &registry) {
                            listen_for(worker, socket, service, &peers);
                        }
                    }
                    Part::Service(dispatcher) => {
                        let handler = DispatcherHandler::new(&dispatcher, &context);
                        listen(socket, &context, handler, &clients);
                    }
                }
            }
        });
    }
}

fn listen<H: Handler>(
    socket: std::net::TcpListener,
    context: &Rc<Context>,
    handler: Rc<H>,
    clients: &Arc<Admission>,
) {
    let engine = Engine::new(Rc::clone(context), handler);
    listen_for(context.worker(), socket, engine, clients);
}

fn listen_for<S: Service>(
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
        Err(error) => tracing::error!(%error, "a worker can't listen"),
    }
}

/// Where the node of this process serves clients and dispatchers.
fn node_addresses(config: &Config, roles: &Roles, directing: &Directing) -> Vec<SocketAddr> {
    let own = roles.node.as_ref().and_then(|name| config.node(name));
    let virtual_ones = directing.node_addresses(config, roles);
    own.map(|node| node.address).into_iter().chain(virtual_ones).collect()
}

/// Services first: that is where clients go.
fn addresses(parts: &[(Part, ListenerGroup)]) -> Vec<SocketAddr> {
    let is_node = |part: &Part| matches!(part, Part::Node(_));
    let services = parts.iter().filter(|(part, _)| matches!(part, Part::Service(_)));
    let nodes = parts.iter().filter(|(part, _)| is_node(part));
    services.chain(nodes).map(|(_, group)| group.address()).collect()
}

/// A number that differs from process to process, out of the standard
/// library's own entropy.
fn seed() -> u64 {
    RandomState::new().hash_one(std::process::id())
}
