//! The composition root: where a config becomes a running process.
//!
//! Reads from top to bottom as the table of contents of the system. Everything
//! else is a part; nothing else starts threads of its own accord, opens
//! listeners or decides what belongs together.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use arc_swap::ArcSwap;
use skep_config::{Config, LogFormat};
use skep_engine::{Context, Engine, Settings};
use skep_http::{BodyLimits, HeadLimits};
use skep_node::Node;
use skep_serve::{Admission, AdmissionLimits, ListenerGroup, Workers, accept_loop, bind};
use skep_telemetry::{AccessLog, Format, Registry, Target};

use crate::commands::load_config;
use crate::signals::{Signals, Wish};

/// How often a draining process looks whether it is done, in milliseconds.
const DRAIN_POLL_MS: u64 = 20;

/// What a process is of its cluster.
#[derive(Clone, Debug)]
pub(crate) struct Roles {
    /// Name of the node it is.
    pub(crate) node: Option<String>,
    /// Whether it dispatches the config's services.
    pub(crate) services: bool,
}

/// A running process.
pub(crate) struct Process {
    config: Config,
    workers: Workers,
    admission: Arc<Admission>,
    settings: Arc<ArcSwap<Settings>>,
    registry: Arc<Registry>,
    access_log: AccessLog,
    node: Option<Arc<Node>>,
    node_address: Option<SocketAddr>,
    threads: usize,
}

impl Process {
    /// Starts everything that `config` says of `roles`. All sockets are bound
    /// before anything is served, so a start that fails has served nothing.
    pub(crate) fn start(config: Config, roles: Roles) -> anyhow::Result<Self> {
        skep_serve::raise_descriptor_limit();
        let threads = threads(&config);
        let registry = Arc::new(Registry::new());
        let access_log = access_log(&config, &registry)?;
        let admission = Admission::new(admission_limits(&config));
        let settings = Arc::new(ArcSwap::from_pointee(engine_settings(&config, threads)));

        let node_config = roles.node.as_ref().and_then(|name| config.node(name));
        let node = node_config.map(|_| Node::start(&config)).transpose()?;
        let node_listeners = node_config.map(|node| bind(node.address, threads)).transpose()?;
        let node_address = node_listeners.as_ref().map(ListenerGroup::address);

        let workers = Workers::start(threads, &admission)?;
        let process = Self {
            config,
            workers,
            admission,
            settings,
            registry,
            access_log,
            node,
            node_address,
            threads,
        };
        process.serve_node(node_listeners);
        process.register_gauges();
        Ok(process)
    }

    /// Where the node listens.
    pub(crate) fn node_address(&self) -> Option<SocketAddr> {
        self.node_address
    }

    /// Where clients reach this process, as URLs.
    pub(crate) fn addresses(&self) -> Vec<String> {
        self.node_address.iter().map(|address| format!("http://{address}")).collect()
    }

    /// Runs until told to stop. With a `file`, SIGHUP reads it again.
    pub(crate) fn run(mut self, file: Option<PathBuf>) -> anyhow::Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let mut signals = Signals::listen()?;
            while signals.next().await == Wish::Reload {
                self.reload(file.as_deref());
            }
            self.drain(&mut signals).await;
            anyhow::Ok(())
        })?;
        self.workers.stop();
        self.access_log.shutdown();
        Ok(())
    }

    /// Finishes what is in work, at most for the configured time; a second
    /// signal ends it at once.
    async fn drain(&self, signals: &mut Signals) {
        let open = self.admission.open();
        let limit = Duration::from_millis(self.config.timeouts.drain_ms);
        tracing::info!(connections = open, "draining");
        self.workers.drain();
        let done = async {
            while self.admission.open() > 0 {
                tokio::time::sleep(Duration::from_millis(DRAIN_POLL_MS)).await;
            }
        };
        let told_again = async { while signals.next().await == Wish::Reload {} };
        tokio::select! {
            () = done => tracing::info!("drained"),
            () = tokio::time::sleep(limit) => {
                tracing::warn!(connections = self.admission.open(), "drain time is over");
            }
            () = told_again => tracing::warn!("told again: stopping now"),
        }
    }

    /// Reads the config again and applies what can be applied; a config with
    /// an error is refused whole and the old one stays.
    fn reload(&mut self, file: Option<&std::path::Path>) {
        self.access_log.handle().reopen();
        let Some(file) = file else { return };
        match load_config(file).and_then(|config| self.apply(config)) {
            Ok(()) => tracing::info!(file = %file.display(), "reloaded"),
            Err(error) => tracing::error!("reload refused, the old config stays: {error:#}"),
        }
    }

    fn apply(&mut self, config: Config) -> anyhow::Result<()> {
        if let Some(node) = &self.node {
            node.reload(&config)?;
        }
        for setting in skep_config::changes_needing_restart(&self.config, &config) {
            tracing::warn!("{setting} changed; it takes effect at the next restart");
        }
        self.settings.store(Arc::new(engine_settings(&config, self.threads)));
        self.admission.set_limits(admission_limits(&config));
        self.config = config;
        Ok(())
    }

    fn serve_node(&self, listeners: Option<ListenerGroup>) {
        let (Some(node), Some(listeners)) = (&self.node, listeners) else { return };
        for (handle, socket) in self.workers.handles().iter().zip(listeners.into_sockets()) {
            let (node, settings) = (Arc::clone(node), Arc::clone(&self.settings));
            let (registry, log) = (Arc::clone(&self.registry), self.access_log.handle());
            handle.run(move |worker| {
                let context = Context::new(worker, settings, registry.core(), &log);
                let engine = Engine::new(Rc::clone(&context), node.handler(&context));
                match tokio::net::TcpListener::from_std(socket) {
                    Ok(listener) => {
                        let worker = Rc::clone(worker);
                        tokio::task::spawn_local(accept_loop(worker, listener, engine));
                    }
                    Err(error) => tracing::error!(%error, "a worker can't listen"),
                }
            });
        }
    }

    fn register_gauges(&self) {
        let Some(node) = &self.node else { return };
        let gauge = |name: &str, help: &str, read: fn(&Node) -> f64| {
            let node = Arc::clone(node);
            self.registry.register_gauge(name, &[], help, Box::new(move || read(&node)));
        };
        gauge("skep_cache_bytes", "Bytes of files that the cache holds.", |node| {
            node.store_stats().indexed_bytes as f64
        });
        gauge(
            "skep_cache_alive_bytes",
            "Bytes of files in memory: held by the cache or pinned by replies.",
            |node| node.store_stats().alive_bytes as f64,
        );
        gauge("skep_cache_segments", "Segments that the cache holds.", |node| {
            node.store_stats().segments as f64
        });
    }
}

fn threads(config: &Config) -> usize {
    match config.machine.threads {
        0 => std::thread::available_parallelism().map_or(1, usize::from),
        threads => threads as usize,
    }
}

fn admission_limits(config: &Config) -> AdmissionLimits {
    AdmissionLimits {
        connections_max: config.limits.connections_max as usize,
        per_address_max: config.limits.connections_per_address_max as usize,
    }
}

fn engine_settings(config: &Config, threads: usize) -> Settings {
    let (limits, timeouts) = (&config.limits, &config.timeouts);
    Settings {
        head: HeadLimits {
            head_bytes_max: limits.head_bytes_max as usize,
            fields_max: limits.fields_max as usize,
            target_bytes_max: limits.target_bytes_max as usize,
            ..HeadLimits::default()
        },
        body: BodyLimits { body_bytes_max: limits.body_bytes_max, ..BodyLimits::default() },
        head_ms: timeouts.head_ms,
        idle_ms: timeouts.idle_ms,
        write_stall_ms: timeouts.write_stall_ms,
        lifetime_ms: timeouts.lifetime_ms,
        body_grace_ms: timeouts.body_grace_ms,
        body_min_bytes_per_s: timeouts.body_min_bytes_per_s,
        requests_per_connection_max: u64::from(limits.requests_per_connection_max),
        slow_requests_max: (limits.requests_in_flight_max as usize).div_ceil(threads),
        retry_after_s: limits.retry_after_s,
    }
}

fn access_log(config: &Config, registry: &Registry) -> anyhow::Result<AccessLog> {
    let target = match &config.log.access {
        skep_config::AccessLog::Off => Target::Off,
        skep_config::AccessLog::Stdout => Target::Stdout,
        skep_config::AccessLog::File(path) => Target::Path(path.clone()),
    };
    let format = match config.log.format {
        LogFormat::Combined => Format::Combined,
        LogFormat::Json => Format::Json,
    };
    AccessLog::start(target, format, registry.core()).context("cannot start the access log")
}
