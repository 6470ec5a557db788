//! The management API's access to this process: `Control` over [`Running`], and the addresses of
//! its console.

mod comparison;
mod explain;
mod nodes;
mod operators;
mod pool_sums;
mod pools;
mod purge;
mod requests;
mod series;
mod server_test;
mod servers;
mod sessions;

use std::sync::Arc;
use std::time::UNIX_EPOCH;

use skep_cluster::MembershipError;
use skep_config::{Config, DispatchMode};
use skep_console::{
    ClusterRequests, ClusterSeries, Console, ConsoleConfig, ConsoleError, ConsoleHandle, Control,
    ControlError, Explained, NewArm, NewExplain, NewNode, NewServerTest, NodeLocalStatus,
    NodePools, NodeSource, NodeState, NodeStatus, PolicyComparison, PoolStatus, ProcessStatus,
    Purged, Reloaded, RequestStatus, Role, ServerCommand, ServerOrdered, ServerTest, ServiceStatus,
    Token, Traffic, TrafficSeries,
};
use skep_dispatcher::Dispatcher;
use skep_proxy::{Group, GroupControlError, MemberSource, MemberStatus};
use skep_telemetry::Snapshot;
use skep_wire::cache::PurgeKind;

use crate::roles::Roles;
use crate::running::Running;
use crate::settings::names_socket;

/// Binds the configured addresses of a process's console. A process that runs without a config file, for one
/// user, has no socket.
pub(crate) fn bind_console(
    config: &Config,
    roles: &Roles,
    has_file: bool,
) -> anyhow::Result<Console> {
    let dispatches = roles.services && !config.services.is_empty();
    let listen = config.admin.listen.filter(|_| dispatches);
    let token_file = config.admin.token_file.as_deref().filter(|_| listen.is_some());
    Ok(Console::bind(ConsoleConfig {
        socket: has_file.then(|| config.socket_of(&roles.name)),
        listen,
        token: token_file.map(Token::read).transpose()?,
        // They were validated with the config.
        networks: config.admin.networks.iter().filter_map(|it| it.parse().ok()).collect(),
        metrics_listen: config.metrics.listen,
    })?)
}

/// Starts the console, also on its socket.
pub(crate) fn start_console(
    mut console: Console,
    running: &Arc<Running>,
) -> anyhow::Result<Option<ConsoleHandle>> {
    match console.open_socket() {
        // The default path may be inaccessible to this user, who did not ask for a socket: serving without
        // commands is better than not serving.
        Err(error @ ConsoleError::Socket { .. }) if !names_socket(&running.config()) => {
            tracing::warn!("{error}; continuing without commands on this machine");
        }
        opened => opened?,
    }
    operators::answer_operators(running);
    Ok(console.serve(Arc::new(Management(Arc::clone(running))))?)
}

struct Management(Arc<Running>);

impl Control for Management {
    fn status(&self) -> ProcessStatus {
        let (running, config) = (&self.0, self.0.config());
        let snapshot = running.shared.registry.snapshot();
        let started_at = running.started_at.duration_since(UNIX_EPOCH).unwrap_or_default();
        let is_dispatcher = (!running.parts.dispatchers.is_empty()).then_some(Role::Dispatcher);
        let is_node = running.parts.node.is_some().then_some(Role::Node);
        ProcessStatus {
            cluster: config.cluster.clone(),
            name: running.roles.name.clone(),
            roles: is_dispatcher.into_iter().chain(is_node).collect(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            pid: std::process::id(),
            started_unix_s: started_at.as_secs(),
            uptime_ms: u64::try_from(running.started.elapsed().as_millis()).unwrap_or(u64::MAX),
            draining: running.is_leaving(),
            config_generation: running.generation(),
            traffic: Traffic::from(&snapshot),
            node: local_node(running, &config, &snapshot),
            services: running.parts.dispatchers.iter().map(|it| service_status(it)).collect(),
            direct: running.parts.direct_dispatch.status(),
            cache: running.parts.cluster_cache.status(),
            loads: running.parts.reporting.status(),
            pools: pools::own(running),
        }
    }

    fn drain_node(&self, service: Option<&str>, name: &str) -> Result<(), ControlError> {
        self.each_with(service, name, |dispatcher| dispatcher.drain(name))?;
        // Packets are steered by a copy of the state that has just changed.
        let is_steered = |dispatcher: &Arc<Dispatcher>| {
            let status = dispatcher.status();
            DispatchMode::from_word(&status.dispatch).is_some_and(DispatchMode::is_steered)
                && service.is_none_or(|service| status.name == service)
                && status.nodes.iter().any(|node| node.name == name)
        };
        match self.0.parts.dispatchers.iter().any(is_steered) {
            true => self.0.parts.direct_dispatch.await_drained(name),
            false => Ok(()),
        }
    }

    fn resume_node(&self, service: Option<&str>, name: &str) -> Result<(), ControlError> {
        self.each_with(service, name, |dispatcher| dispatcher.group().resume(name))
    }

    fn add_node(&self, node: &NewNode) -> Result<(), ControlError> {
        let dispatcher = match (&node.service, self.0.parts.dispatchers.as_slice()) {
            (Some(service), _) => self.service(service)?,
            (None, [only]) => only,
            (None, []) => return Err(no_dispatcher()),
            (None, _) => {
                let what = format!("say to which service: {}", self.service_names().join(", "));
                return Err(ControlError::Invalid { what, did_you_mean: None });
            }
        };
        let public_address = node.public_address.as_deref();
        let nodes = dispatcher.group();
        nodes.add(&node.name, node.address, node.weight, public_address).map_err(refusal)
    }

    fn remove_node(
        &self,
        service: Option<&str>,
        name: &str,
        timeout_ms: u64,
    ) -> Result<(), ControlError> {
        self.each_with(service, name, |dispatcher| dispatcher.group().remove(name, timeout_ms))
    }

    fn set_weight(
        &self,
        service: Option<&str>,
        name: &str,
        weight: u32,
    ) -> Result<(), ControlError> {
        self.each_with(service, name, |dispatcher| dispatcher.group().set_weight(name, weight))
    }

    fn set_policy(&self, service: &str, policy: &str) -> Result<(), ControlError> {
        self.service(service)?.group().set_policy(policy).map_err(refusal)
    }

    fn start_comparison(&self, service: &str, arms: &[NewArm]) -> Result<(), ControlError> {
        let arms = arms.iter().map(comparison::spec).collect();
        self.service(service)?.group().start_comparison(arms).map_err(refusal)
    }

    fn stop_comparison(&self, service: &str) -> Result<PolicyComparison, ControlError> {
        let counted = self.service(service)?.group().stop_comparison().map_err(refusal)?;
        Ok(comparison::shown(service, &counted))
    }

    fn comparison(&self, service: &str) -> Result<PolicyComparison, ControlError> {
        let counted = self.service(service)?.group().comparison_status().map_err(refusal)?;
        Ok(comparison::shown(service, &counted))
    }

    fn pools_of_nodes(&self) -> Vec<NodePools> {
        pools::of_nodes(&self.0)
    }

    fn requests(&self) -> Vec<RequestStatus> {
        requests::requests(&self.0)
    }

    fn series(&self, step_s: u64) -> Result<TrafficSeries, ControlError> {
        self.0.series.show(step_s)
    }

    fn pools(&self) -> Vec<PoolStatus> {
        pools::of_cluster(&self.0)
    }

    fn requests_of_nodes(&self) -> ClusterRequests {
        requests::of_cluster(&self.0)
    }

    fn series_of_nodes(&self, step_s: u64) -> Result<ClusterSeries, ControlError> {
        series::of_cluster(&self.0, step_s)
    }

    fn order_server(
        &self,
        pool: &str,
        name: &str,
        command: &ServerCommand,
    ) -> Result<ServerOrdered, ControlError> {
        servers::order(&self.0, pool, name, command)
    }

    fn test_server(
        &self,
        pool: &str,
        name: &str,
        test: &NewServerTest,
    ) -> Result<ServerTest, ControlError> {
        server_test::test(&self.0, &self.pool(pool)?, name, test)
    }

    fn purge(
        &self,
        what: &[String],
        is_soft: bool,
        timeout_ms: u64,
    ) -> Result<Purged, ControlError> {
        let kind = if is_soft { PurgeKind::Soft } else { PurgeKind::Hard };
        purge::purge(&self.0, (kind, what), timeout_ms)
    }

    fn explain(&self, asked: &NewExplain) -> Result<Explained, ControlError> {
        explain::explain(&self.0, asked)
    }

    fn reload(&self) -> Result<Reloaded, ControlError> {
        if !self.0.has_file() {
            let what = "this process was started without a config file".to_owned();
            return Err(ControlError::Unavailable { what });
        }
        match self.0.reload() {
            Ok(restart_needed) => {
                Ok(Reloaded { config_generation: self.0.generation(), restart_needed })
            }
            Err(error) => {
                let what = format!("the old config stays: {error:#}");
                Err(ControlError::Invalid { what, did_you_mean: None })
            }
        }
    }

    fn config_toml(&self) -> String {
        self.0.config().to_toml_full()
    }

    fn metrics_text(&self) -> String {
        self.0.shared.registry.prometheus_text()
    }
}

impl Management {
    /// Changes a node in the named service, or in all services that have it.
    fn each_with(
        &self,
        service: Option<&str>,
        name: &str,
        job: impl Fn(&Dispatcher) -> Result<(), GroupControlError>,
    ) -> Result<(), ControlError> {
        if let Some(service) = service {
            return job(self.service(service)?).map_err(refusal);
        }
        let has_it = |dispatcher: &&Arc<Dispatcher>| {
            dispatcher.status().nodes.iter().any(|node| node.name == name)
        };
        let all = &self.0.parts.dispatchers;
        if !all.iter().any(|dispatcher| has_it(&dispatcher)) {
            // The first service's error states which nodes exist.
            let first = all.first().ok_or_else(no_dispatcher)?;
            return job(first).map_err(refusal);
        }
        all.iter().filter(has_it).try_for_each(|dispatcher| job(dispatcher).map_err(refusal))
    }

    fn service(&self, name: &str) -> Result<&Arc<Dispatcher>, ControlError> {
        let dispatchers = &self.0.parts.dispatchers;
        dispatchers.iter().find(|dispatcher| dispatcher.name() == name).ok_or_else(|| {
            let what = match self.service_names().as_slice() {
                [] => return no_dispatcher(),
                names => format!("no service {name:?}; the services: {}", names.join(", ")),
            };
            ControlError::NotFound { what, did_you_mean: None }
        })
    }

    fn pool(&self, name: &str) -> Result<Arc<Group>, ControlError> {
        match self.0.parts.node.as_ref() {
            Some(node) => servers::pool(node, name),
            None => Err(servers::no_pool([].into_iter(), name)),
        }
    }

    fn service_names(&self) -> Vec<&str> {
        self.0.parts.dispatchers.iter().map(|dispatcher| dispatcher.name()).collect()
    }
}

fn no_dispatcher() -> ControlError {
    let what = "this process is no dispatcher: ask one of the cluster's dispatchers".to_owned();
    ControlError::NotFound { what, did_you_mean: None }
}

pub(crate) fn refusal(error: GroupControlError) -> ControlError {
    let what = error.to_string();
    match error {
        GroupControlError::UnknownMember { did_you_mean, .. } => {
            ControlError::NotFound { what, did_you_mean }
        }
        GroupControlError::Refused(error) => match error {
            MembershipError::DuplicateName(_)
            | MembershipError::DuplicateAddress { .. }
            | MembershipError::TooManyNodes
            | MembershipError::BeingRemoved(_) => ControlError::Conflict { what },
            MembershipError::UnknownNode(_) => ControlError::NotFound { what, did_you_mean: None },
            MembershipError::BadName(_) | MembershipError::BadWeight(_) => {
                ControlError::Invalid { what, did_you_mean: None }
            }
        },
        GroupControlError::UnknownPolicy(unknown) => {
            let did_you_mean = unknown.did_you_mean.map(str::to_owned);
            ControlError::Invalid { what, did_you_mean }
        }
        GroupControlError::NotComparing { .. } => {
            ControlError::NotFound { what, did_you_mean: None }
        }
        GroupControlError::LastMember { .. } => ControlError::Conflict { what },
        GroupControlError::BadPublicAddress(_)
        | GroupControlError::BadAddress(_)
        | GroupControlError::Arms(_)
        | GroupControlError::NoComparison { .. }
        | GroupControlError::UnfitPolicy { .. } => {
            ControlError::Invalid { what, did_you_mean: None }
        }
    }
}

fn local_node(running: &Running, config: &Config, snapshot: &Snapshot) -> Option<NodeLocalStatus> {
    let node = running.parts.node.as_ref()?;
    let stats = node.store_stats();
    let site =
        |site: &skep_config::SiteConfig| site.hosts.first().map_or("*", String::as_str).to_owned();
    Some(NodeLocalStatus {
        // In a process that also dispatches, the services' addresses precede the node's.
        address: *running.addresses.last()?,
        cache_bytes: stats.indexed_bytes,
        cache_bytes_max: config.cache.size_bytes_max,
        cache_segments: stats.segments as u64,
        cache_hits_total: snapshot.totals.cache_hits(),
        cache_lookups_total: snapshot.totals.cache_lookups(),
        sites: config.sites.iter().map(site).collect(),
    })
}

fn source_of(source: MemberSource) -> NodeSource {
    match source {
        MemberSource::Config => NodeSource::Config,
        MemberSource::Api => NodeSource::Api,
    }
}

fn service_status(dispatcher: &Dispatcher) -> ServiceStatus {
    let status = dispatcher.status();
    let name = status.name;
    ServiceStatus {
        listen: status.listen,
        dispatch: status.dispatch,
        policy: status.policy,
        arms: status.arms.into_iter().map(comparison::arm).collect(),
        nodes: status.nodes.into_iter().filter_map(|node| node_status(&name, node)).collect(),
        name,
    }
}

/// Returns `None` for a member without an IP address, which no node is.
fn node_status(service: &str, node: MemberStatus) -> Option<NodeStatus> {
    Some(NodeStatus {
        name: node.name,
        service: service.to_owned(),
        address: node.address.tcp()?,
        public_address: node.public_address,
        // An unknown state is treated as that of a node without requests.
        state: NodeState::from_word(&node.state).unwrap_or(NodeState::Down),
        reason: node.reason,
        since_ms: node.since_ms,
        source: source_of(node.source),
        weight: node.weight,
        share_permille: node.share_permille,
        outstanding_requests: node.outstanding_requests,
        outstanding_bytes: node.outstanding_bytes,
        connections: node.connections,
        tunnels: node.tunnels,
        requests_total: node.requests,
        failures_total: node.failures,
        bytes_total: node.bytes,
        latency_us: node.latency_us,
    })
}
