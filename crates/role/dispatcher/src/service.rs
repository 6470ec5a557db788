//! A service's dispatcher: the group of its nodes, and how clients reach one of them.

use std::net::SocketAddr;
use std::sync::{Arc, Weak};

use arc_swap::ArcSwap;
use skep_cluster::elasticity::LifecycleState;
use skep_cluster::{HealthSettings, MembershipSettings};
use skep_comparison::ArmSpec;
use skep_config::{
    ArmConfig, Config, DIRECT_POLICY_NAMES, DispatchMode, HealthConfig, POLICY_NAMES, ServiceConfig,
};
use skep_proxy::{
    CheckSettings, Group, GroupControlError, GroupSettings, GroupSpec, GroupWords, Groups,
    LoadMeasure, MemberMetric, MemberProtocol, MemberSpec, MemberStatus, QueueSettings, SizeSource,
    register_members, retry_budget,
};
use skep_serve::{WorkerHandle, Workers};
use skep_telemetry::Registry;
use skep_upstream::PoolLimits;
use skep_wire::message::{Name, ServiceArms, ToldArm};
use skep_wire::seal::PeerId;

use crate::arm_metrics::register_arms;
use crate::elastic::{self, ServiceElasticity};
use crate::limits::TUNNEL_IDLE_MS;
use crate::power::NodePowers;

/// The terms used to operators for a service and its members.
static WORDS: GroupWords = GroupWords { group: "service", member: "node" };

const METRICS: &[MemberMetric] = &[
    ("skep_node_up", "1 while the node is eligible for new requests, else 0.", |n| {
        f64::from(n.share_permille > 0)
    }),
    (
        "skep_node_share",
        "Fraction of its full share that a node gets; below 1 during slow start.",
        |n| f64::from(n.share_permille) / 1000.0,
    ),
    ("skep_node_weight", "Weight of a node.", |n| f64::from(n.weight)),
    ("skep_node_outstanding_requests", "Requests at a node without a complete reply.", |n| {
        f64::from(n.outstanding_requests)
    }),
    ("skep_node_outstanding_bytes", "Announced reply bytes that have not arrived yet.", |n| {
        n.outstanding_bytes as f64
    }),
    ("skep_node_tunnels", "Upgraded connections to a node.", |n| f64::from(n.tunnels)),
    ("skep_node_requests_total", "Requests sent to a node since it was added.", |n| {
        n.requests as f64
    }),
    (
        "skep_node_failures_total",
        "Requests to a node without a complete reply, since it was added.",
        |n| n.failures as f64,
    ),
    ("skep_node_bytes_total", "Bytes of a node's reply bodies since it was added.", |n| {
        n.bytes as f64
    }),
    ("skep_node_latency_seconds", "Moving average of the response time of a node.", |n| {
        n.latency_us as f64 / 1e6
    }),
];

/// The config has no service with this name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the config has no service \"{0}\"")]
pub struct NoSuchService(pub String);

/// Sends a service's requests to its nodes. Shared by all threads.
pub struct Dispatcher {
    group: Arc<Group>,
    elasticity: Arc<ServiceElasticity>,
    settings: Arc<ArcSwap<DispatchSettings>>,
}

/// How clients reach nodes; replaced as a whole on a reload.
#[derive(Clone, Debug)]
pub(crate) struct DispatchSettings {
    listen: Vec<SocketAddr>,
    pub(crate) dispatch: DispatchMode,
    pub(crate) redirect_status: u16,
    pub(crate) trust_forwarded: bool,
}

/// The state of a service at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceStatus {
    pub name: String,
    /// Where it listens.
    pub listen: Vec<SocketAddr>,
    /// `proxy` or `redirect`.
    pub dispatch: String,
    /// Name of the policy in force.
    pub policy: String,
    /// The arms of its A/B test; empty: no test.
    pub arms: Vec<ArmSpec>,
    /// Its nodes, the oldest first.
    pub nodes: Vec<MemberStatus>,
}

impl Dispatcher {
    /// Creates the dispatcher of the service `name` of `config`. No node gets requests before its first
    /// successful check: see [`Group::start_checks`]. `seed` initialises policies and the spread of checks;
    /// it differs between dispatchers.
    ///
    /// # Errors
    /// [`NoSuchService`].
    pub fn new(config: &Config, name: &str, seed: u64) -> Result<Arc<Self>, NoSuchService> {
        let service = find(config, name).ok_or_else(|| NoSuchService(name.to_owned()))?;
        let settings = Arc::new(ArcSwap::from_pointee(DispatchSettings::of(service)));
        let group = Group::new(name, &WORDS, spec(config, service), seed);
        let elasticity = Arc::new(ServiceElasticity::new(&service.elastic));
        Ok(Arc::new(Self { group, elasticity, settings }))
    }

    pub fn group(&self) -> &Arc<Group> {
        &self.group
    }

    pub fn name(&self) -> &str {
        self.group.name()
    }

    /// Applies the settings, nodes and weights of this service in a new config: see [`Group::reload`]. A
    /// config without this service changes nothing: services are added and removed by a restart.
    pub fn reload(&self, config: &Config) {
        let Some(service) = find(config, self.name()) else {
            tracing::warn!(
                "service {}: not in the new config, unchanged until restart",
                self.name()
            );
            return;
        };
        self.group.reload(spec(config, service));
        self.settings.store(Arc::new(DispatchSettings::of(service)));
        self.elasticity.reload(&service.elastic);
    }

    /// Starts to watch the nodes, and to drain and resume them by load if configured, on `worker`. Call it
    /// once. False: the worker is gone.
    pub fn watch_nodes(&self, worker: &WorkerHandle) -> bool {
        self.group.start_checks(worker) && elastic::start(&self.elasticity, &self.group, worker)
    }

    /// Sets `powers`, which switches nodes off and on from now on. Call it once.
    pub fn switch_by(&self, powers: &Arc<NodePowers>) {
        self.elasticity.switch_by(powers);
    }

    /// Drains a node for an operator: elasticity does not resume it.
    ///
    /// # Errors
    /// The name is unknown.
    pub fn drain(&self, node: &str) -> Result<(), GroupControlError> {
        self.elasticity.hold(node);
        self.group.drain(node)
    }

    /// The current state of the service.
    pub fn status(&self) -> ServiceStatus {
        let settings = self.settings.load();
        let comparison = self.group.comparison();
        ServiceStatus {
            arms: comparison.map_or_else(Vec::new, |it| it.arms().list().to_vec()),
            name: self.name().to_owned(),
            listen: settings.listen.clone(),
            dispatch: settings.dispatch.word().to_owned(),
            policy: self.group.policy(),
            nodes: self.nodes(),
        }
    }

    /// The nodes, with their states in elasticity as reasons.
    fn nodes(&self) -> Vec<MemberStatus> {
        let mut nodes = self.group.members();
        for node in &mut nodes {
            let Some(state) = self.elasticity.state_of(&node.name) else { continue };
            let failed = if self.elasticity.is_failed(&node.name) { ", failed" } else { "" };
            // A node resumed by hand is up before elasticity has noticed.
            let is_up = node.state == "up" || state == LifecycleState::Active;
            if !is_up || !failed.is_empty() {
                let word = state.word();
                let more = [self.elasticity.power_text(&node.name), node.reason.take()];
                let more: String = more.iter().flatten().map(|text| format!("; {text}")).collect();
                node.reason = Some(format!("elasticity: {word}{failed}{more}"));
            }
        }
        nodes
    }

    /// The A/B test in which its nodes determine the arms, if there is one. Takes no lock.
    pub(crate) fn arms_of_nodes(&self) -> Option<ServiceArms> {
        let settings = self.settings.load();
        let comparison = self.group.comparison()?;
        let arm = |arm: &ArmSpec| {
            let nodes = arm.nodes.iter().map(|node| PeerId::of(node)).collect();
            Some(ToldArm { policy: Name::new(&arm.policy).ok()?, weight: arm.weight, nodes })
        };
        let arms = comparison.arms();
        (settings.dispatch == DispatchMode::Handoff).then(|| ServiceArms {
            addresses: settings.listen.clone(),
            test: arms.id(),
            arms: arms.list().iter().filter_map(arm).collect(),
        })
    }

    pub(crate) fn settings(&self) -> &Arc<ArcSwap<DispatchSettings>> {
        &self.settings
    }
}

/// Registers the metrics of the nodes of all `dispatchers` of this process, with the labels `service` and
/// `node`. Call it once, with all of them: a second call replaces the first.
pub fn register_metrics(registry: &Registry, dispatchers: &[Arc<Dispatcher>]) {
    let groups: Vec<Weak<Group>> =
        dispatchers.iter().map(|dispatcher| Arc::downgrade(dispatcher.group())).collect();
    register_arms(registry, &groups);
    let groups: Groups = Arc::new(move || groups.iter().filter_map(Weak::upgrade).collect());
    register_members(registry, METRICS, ["service", "node"], &groups);
    register_elasticity(registry, dispatchers);
}

fn register_elasticity(registry: &Registry, dispatchers: &[Arc<Dispatcher>]) {
    let labels = |service: &str, (name, value): (&str, &str)| {
        [("service", service), (name, value)]
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .to_vec()
    };
    let all: Vec<_> = dispatchers
        .iter()
        .map(|dispatcher| (dispatcher.name().to_owned(), Arc::clone(&dispatcher.elasticity)))
        .collect();
    let own = all.clone();
    let read = move || {
        let of = |(service, elastic): &(String, Arc<ServiceElasticity>)| {
            LifecycleState::ALL.map(|state| {
                (labels(service, ("state", state.word())), elastic.nodes_in(state) as f64)
            })
        };
        own.iter().flat_map(of).collect()
    };
    let help = "Nodes of a service, by state of elasticity; 0 where it is off.";
    registry.register_samples("skep_elastic_nodes", help, Box::new(read));
    let read = move || {
        let of = |(service, elastic): &(String, Arc<ServiceElasticity>)| {
            let counts = elastic.counts();
            [("start", counts.starts), ("drain", counts.drains), ("trouble", counts.troubles)]
                .map(|(kind, count)| (labels(service, ("kind", kind)), count as f64))
        };
        all.iter().flat_map(of).collect()
    };
    let help = "Events of elasticity, by kind: nodes started, nodes drained, and trouble that an operator should look at.";
    registry.register_samples("skep_elastic_events_total", help, Box::new(read));
}

impl DispatchSettings {
    fn of(service: &ServiceConfig) -> Self {
        Self {
            listen: service.listen.clone(),
            dispatch: service.dispatch,
            redirect_status: service.redirect_status,
            trust_forwarded: service.trust_forwarded,
        }
    }
}

fn find<'a>(config: &'a Config, name: &str) -> Option<&'a ServiceConfig> {
    config.services.iter().find(|service| service.name == name)
}

/// The specification of the nodes of `service` in `config`.
pub(crate) fn spec(config: &Config, service: &ServiceConfig) -> GroupSpec {
    let member = |node: &skep_config::NodeConfig| MemberSpec {
        name: node.name.clone(),
        address: node.address.into(),
        weight: node.weight,
        authority: node.client_authority(),
        requests_max: u32::MAX,
        slots: Some(u32::MAX),
    };
    let members = config.nodes_of(service).map(|(_, node)| member(node)).collect();
    GroupSpec { settings: settings(config, service), members }
}

fn settings(config: &Config, service: &ServiceConfig) -> GroupSettings {
    let is_direct = service.dispatch == DispatchMode::Direct;
    let sizes = match service.dispatch {
        DispatchMode::Redirect => SizeSource::Told,
        _ => SizeSource::Responses,
    };
    let retry_after_s = config.limits.retry_after_s;
    GroupSettings {
        protocol: MemberProtocol::Http,
        policy: service.policy.clone(),
        policies: match is_direct {
            true => {
                (DIRECT_POLICY_NAMES, "since it is direct, where nobody reads requests or replies")
            }
            false => (POLICY_NAMES, ""),
        },
        arms: service.arms.iter().map(arm).collect(),
        no_comparison: match service.dispatch {
            DispatchMode::Proxy | DispatchMode::Redirect | DispatchMode::Handoff => None,
            DispatchMode::Direct => {
                Some("since it is direct, where packet programs choose the node")
            }
        },
        arms_by_hash: service.dispatch == DispatchMode::Handoff,
        // All nodes of a cluster have the same settings, and each worker of a dispatcher sends them its share
        // of the requests.
        memory_bytes: match sizes {
            SizeSource::Responses => {
                config.cache.size_bytes_max / Workers::count(config.machine.threads) as u64
            }
            // Each worker gets the reports on all requests.
            SizeSource::Told => config.cache.size_bytes_max,
        },
        // With a key they have a cluster cache.
        have_cluster_cache: config.key_file.is_some(),
        sizes,
        loads: if service.dispatch.is_steered() {
            LoadMeasure::Reported
        } else {
            LoadMeasure::Counted
        },
        // Nodes that cancel requests at pool servers must be informed of a disconnect; otherwise the client
        // may still read.
        gives_up: !config.pools.is_empty(),
        // Nodes have no slots that could run out.
        buffering: None,
        names_member: service.node_header,
        retries_max: service.retries_max,
        retry_budget: retry_budget(service.retry_budget_percent),
        response_timeout_ms: service.response_timeout_ms,
        stall_timeout_ms: service.response_timeout_ms,
        tunnel_idle_ms: TUNNEL_IDLE_MS,
        connections: PoolLimits {
            connections_max: service.upstream_connections_max as usize,
            idle_ms: service.upstream_idle_ms,
            connect_timeout_ms: service.connect_timeout_ms,
        },
        // Nodes have no bound for the whole process, so there is nothing to wait for.
        queue: QueueSettings { requests_max: 0, timeout_ms: 0 },
        sticky: None,
        membership: membership(&service.health),
        check: CheckSettings {
            path: Some(service.health.path.clone()),
            host: None,
            status: service.health.expect_status,
        },
        report_interval_ms: config.report_interval_ms(),
        retry_after_line: format!("Retry-After: {retry_after_s}\r\n").into_bytes().into(),
    }
}

fn arm(arm: &ArmConfig) -> ArmSpec {
    ArmSpec {
        name: arm.name.clone(),
        policy: arm.policy.clone(),
        weight: arm.weight,
        nodes: arm.nodes.clone(),
    }
}

fn membership(health: &HealthConfig) -> MembershipSettings {
    MembershipSettings {
        health: HealthSettings {
            interval_ms: health.interval_ms,
            timeout_ms: health.timeout_ms,
            rise: health.rise,
            fall: health.fall,
            passive_failures_max: health.passive_failures_max,
            slow_start_ms: health.slow_start_ms,
        },
        fail_open: false,
        ejected_percent_max: health.ejected_max_percent,
    }
}
