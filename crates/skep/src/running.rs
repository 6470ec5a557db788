//! The shared handle to a running process, for signals and the management API.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use anyhow::Context as _;
use arc_swap::ArcSwap;
use skep_cli::load_config;
use skep_config::Config;
use skep_console::{PoolServerTotals, TrafficHistory};
use skep_dispatcher::Dispatcher;
use skep_engine::EngineSettings;
use skep_node::{Node, register_node};
use skep_serve::{WorkerHandle, Workers};
use skep_telemetry::{CoreCounters, Counter, LogHandle, Registry};

use crate::cluster_cache::ClusterCache;
use crate::demotion::check_sites;
use crate::direct::{DirectDispatch, config_of_node};
use crate::power::NodeSwitches;
use crate::reporting::Reporting;
use crate::roles::Roles;
use crate::settings::{Admissions, engine_settings};

/// The parts from which the composition root makes a process; empty where the config has none.
pub(crate) struct ProcessParts {
    pub(crate) node: Option<Arc<Node>>,
    pub(crate) dispatchers: Vec<Arc<Dispatcher>>,
    /// What switches nodes for elasticity.
    pub(crate) switches: NodeSwitches,
    pub(crate) direct_dispatch: DirectDispatch,
    pub(crate) cluster_cache: ClusterCache,
    pub(crate) reporting: Reporting,
}

/// The state that all workers share.
#[derive(Clone)]
pub(crate) struct Shared {
    pub(crate) settings: Arc<ArcSwap<EngineSettings>>,
    pub(crate) admissions: Admissions,
    pub(crate) registry: Arc<Registry>,
    pub(crate) log: LogHandle,
}

/// A running process. All methods may be called from any thread.
pub(crate) struct Running {
    pub(crate) roles: Roles,
    pub(crate) addresses: Vec<SocketAddr>,
    pub(crate) parts: ProcessParts,
    pub(crate) shared: Shared,
    pub(crate) started: Instant,
    pub(crate) started_at: SystemTime,
    pub(crate) series: Arc<TrafficHistory>,
    /// Set once the workers serve.
    pub(crate) workers: OnceLock<Vec<WorkerHandle>>,
    file: Option<PathBuf>,
    leaving: AtomicBool,
    config: Mutex<Arc<Config>>,
    generation: AtomicU64,
    reloads: Mutex<Arc<CoreCounters>>,
}

impl Running {
    /// Creates a process that serves at `addresses` from now on; a reload reads `file` again.
    pub(crate) fn new(
        config: Config,
        roles: Roles,
        file: Option<PathBuf>,
        addresses: Vec<SocketAddr>,
        parts: ProcessParts,
        shared: Shared,
    ) -> Self {
        if let Some(node) = &parts.node {
            register_node(&shared.registry, node);
        }
        Self {
            roles,
            addresses,
            started: Instant::now(),
            started_at: SystemTime::now(),
            series: Arc::new(TrafficHistory::new()),
            workers: OnceLock::new(),
            file,
            leaving: AtomicBool::new(false),
            config: Mutex::new(Arc::new(config)),
            generation: AtomicU64::new(1),
            reloads: Mutex::new(shared.registry.core()),
            parts,
            shared,
        }
    }

    /// The config in force.
    pub(crate) fn config(&self) -> Arc<Config> {
        Arc::clone(&lock(&self.config))
    }

    /// The number of configs that have been in force, from 1.
    pub(crate) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Relaxed)
    }

    /// Counts requests over time on `worker`, for the life of this process.
    pub(crate) fn count_traffic(&self, worker: &WorkerHandle) {
        let (history, registry) = (Arc::downgrade(&self.series), Arc::clone(&self.shared.registry));
        let node = self.parts.node.clone();
        let servers = move || node.as_deref().map(pool_servers).unwrap_or_default();
        worker.run(move |_| {
            tokio::task::spawn_local(TrafficHistory::count(history, registry, servers));
        });
    }

    /// Whether there is a config file, which makes this a daemon.
    pub(crate) fn has_file(&self) -> bool {
        self.file.is_some()
    }

    /// Whether it was ordered to stop.
    pub(crate) fn is_leaving(&self) -> bool {
        self.leaving.load(Ordering::Relaxed)
    }

    /// The maximum duration of a drain.
    pub(crate) fn drain_time(&self) -> Duration {
        Duration::from_millis(self.config().timeouts.drain_ms)
    }

    /// Reports to dispatchers that this process drains; returns how long they may take to notice: two rounds
    /// of checks.
    pub(crate) fn leave(&self) -> Duration {
        self.leaving.store(true, Ordering::Relaxed);
        self.parts.direct_dispatch.leave();
        let (Some(node), config) = (&self.parts.node, self.config()) else { return Duration::ZERO };
        node.leave();
        let rounds_ms = config.services.iter().map(|service| 2 * service.health.interval_ms).max();
        let others = !self.roles.services;
        Duration::from_millis(rounds_ms.filter(|_| others).unwrap_or(0)).min(self.drain_time())
    }

    /// Reopens the log, reads the config file again and applies all settings that can be changed. A config
    /// with an error is refused as a whole; the old one stays in force. Returns the changed settings that
    /// take effect only at the next restart.
    pub(crate) fn reload(&self) -> anyhow::Result<Vec<String>> {
        self.shared.log.reopen();
        let Some(file) = &self.file else { return Ok(Vec::new()) };
        let result = load_config(file).and_then(|config| self.apply(config));
        if let Some(node) = &self.parts.node {
            // The new config may contain servers for which orders were given before.
            node.retry_orders();
        }
        let counter = match &result {
            Ok(_) => {
                tracing::info!(file = %file.display(), "reloaded");
                Counter::ReloadsOk
            }
            Err(error) => {
                tracing::error!("reload refused, the old config stays: {error:#}");
                Counter::ReloadsRefused
            }
        };
        lock(&self.reloads).inc(counter);
        result
    }

    fn apply(&self, config: Config) -> anyhow::Result<Vec<String>> {
        let mut in_force = lock(&self.config);
        let (roles, parts, shared) = (&self.roles, &self.parts, &self.shared);
        if let Some(name) = &roles.node {
            config.node(name).with_context(|| format!("the new config has no node {name:?}"))?;
        }
        check_sites(&config, roles)?;
        if let Some(node) = &parts.node {
            node.reload(&config_of_node(&config, roles))?;
        }
        let for_restart = skep_config::changes_needing_restart(&in_force, &config);
        for setting in &for_restart {
            tracing::warn!("{setting} changed; it takes effect at the next restart");
        }
        parts.switches.reload(&config);
        for dispatcher in &parts.dispatchers {
            dispatcher.reload(&config);
        }
        parts.direct_dispatch.reload(&config, roles)?;
        parts.reporting.reload(&config);
        let workers = Workers::count(in_force.machine.threads);
        shared.settings.store(Arc::new(engine_settings(&config, workers)));
        shared.admissions.set_limits(&config);
        *in_force = Arc::new(config);
        self.generation.fetch_add(1, Ordering::Relaxed);
        Ok(for_restart.into_iter().map(String::from).collect())
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The servers of all pools, with their numbers of requests.
fn pool_servers(node: &Node) -> Vec<PoolServerTotals> {
    let pools = node.pools();
    let servers = pools.iter().flat_map(|pool| {
        pool.members().into_iter().map(|member| PoolServerTotals {
            pool: pool.name().to_owned(),
            server: member.name,
            requests: member.requests,
            failures: member.failures,
        })
    });
    servers.collect()
}
