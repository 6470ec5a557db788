//! Converts the config to the settings of the parts.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use skep_config::{Config, DispatchMode, LogFormat, ServiceConfig, UnderscoreFields};
use skep_engine::EngineSettings;
use skep_http::{BodyLimits, HeadLimits, Underscores};
use skep_peer::stream::PEER_ADMISSION;
use skep_serve::{Admission, AdmissionLimits, Pace};
use skep_telemetry::{Format, LogTarget};

/// Maximum number of clients that are named when a drain waits for them; others are counted.
const WAITED_FOR_MAX: usize = 8;

/// Whether the config specifies the path of the control socket.
pub(crate) fn names_socket(config: &Config) -> bool {
    config.admin.socket.is_some() || config.state_dir != Config::default().state_dir
}

/// Admission to this process: clients and other nodes are counted separately, so that neither can starve the
/// other.
#[derive(Clone)]
pub(crate) struct Admissions {
    pub(crate) clients: Arc<Admission>,
    pub(crate) peers: Arc<Admission>,
    /// Whether clients can be distinguished from dispatchers.
    knows_clients: bool,
}

impl Admissions {
    /// Creates the admissions of a process, which is a node or not.
    pub(crate) fn new(config: &Config, is_node: bool) -> Self {
        let members = config.dispatcher_addresses().filter(|_| is_node);
        let knows_clients = !is_node || !has_nameless_proxies(config);
        let limits = client_limits(config, knows_clients);
        let clients = Admission::with_members(limits, members.collect());
        let nodes = config.nodes.iter().map(|node| node.agent_address().ip());
        let peers = Admission::with_members(PEER_ADMISSION, nodes.collect());
        Self { clients, peers, knows_clients }
    }

    /// Applies the limits of a changed config; open connections stay.
    pub(crate) fn set_limits(&self, config: &Config) {
        self.clients.set_limits(client_limits(config, self.knows_clients));
    }

    /// What a drain still waits for, naming a limited number of clients.
    pub(crate) fn waited_for(&self, left: Duration) -> String {
        let clients = self.clients.clients();
        let of_clients: usize = clients.iter().map(|(_, count)| count).sum();
        let named = |(client, count): &(IpAddr, usize)| format!("{count} of {client}");
        let mut parts: Vec<_> = clients.iter().take(WAITED_FOR_MAX).map(named).collect();
        let others = clients.len().saturating_sub(WAITED_FOR_MAX);
        if others > 0 {
            parts.push(format!("those of {others} other clients"));
        }
        for (count, whom) in [
            (self.clients.open().saturating_sub(of_clients), "dispatchers"),
            (self.peers.open(), "other nodes"),
        ] {
            if count > 0 {
                parts.push(format!("{count} of {whom}"));
            }
        }
        let until = match left.as_secs_f32().ceil() as u64 {
            0 => String::new(),
            seconds => format!("; at most {seconds} s more (timeouts.drain_ms)"),
        };
        format!("{} connections with a request in work: {}{until}", self.open(), parts.join(", "))
    }

    /// The number of open connections.
    pub(crate) fn open(&self) -> usize {
        self.clients.open() + self.peers.open()
    }
}

/// Whether requests may come from dispatchers that cannot be distinguished from clients.
fn has_nameless_proxies(config: &Config) -> bool {
    let is_proxied = |service: &ServiceConfig| {
        service.dispatch == DispatchMode::Proxy
            && service.listen.iter().any(|it| it.ip().is_unspecified())
    };
    let nameless = config.dispatchers.iter().find(|it| it.address.is_none());
    let Some(nameless) = nameless.filter(|_| config.services.iter().any(is_proxied)) else {
        return false;
    };
    tracing::warn!(
        "dispatcher {}: it has no `address`, so this node can't tell it from a client, and does \
         not bound connections of one address; give it its IP address and a port",
        nameless.name
    );
    true
}

fn client_limits(config: &Config, knows_clients: bool) -> AdmissionLimits {
    let limits = &config.limits;
    AdmissionLimits {
        connections_max: limits.connections_max as usize,
        per_address_max: match knows_clients {
            true => limits.connections_per_address_max as usize,
            false => usize::MAX,
        },
        ipv6_prefix_bits: limits.client_ipv6_prefix_bits as u8,
    }
}

/// The engine's settings; limits per process are divided among `threads`.
pub(crate) fn engine_settings(config: &Config, threads: usize) -> EngineSettings {
    let (limits, timeouts) = (&config.limits, &config.timeouts);
    let pace = Pace {
        stall_ms: timeouts.write_stall_ms,
        bytes_per_s_min: timeouts.send_min_bytes_per_s,
        average_ms: timeouts.send_average_ms,
    };
    EngineSettings {
        head: HeadLimits {
            head_bytes_max: limits.head_bytes_max as usize,
            fields_max: limits.fields_max as usize,
            target_bytes_max: limits.target_bytes_max as usize,
            underscores: match limits.underscore_fields {
                UnderscoreFields::Drop => Underscores::Drop,
                UnderscoreFields::Pass => Underscores::Pass,
                UnderscoreFields::Refuse => Underscores::Refuse,
            },
        },
        body: BodyLimits { body_bytes_max: limits.body_bytes_max, ..BodyLimits::default() },
        head_ms: timeouts.head_ms,
        idle_ms: timeouts.idle_ms,
        pace,
        pace_behind_proxy: if config.is_proxied() { pace.of_proxy() } else { pace },
        lifetime_ms: timeouts.lifetime_ms,
        body_grace_ms: timeouts.body_grace_ms,
        body_average_ms: timeouts.body_average_ms,
        body_min_bytes_per_s: timeouts.body_min_bytes_per_s,
        requests_per_connection_max: u64::from(limits.requests_per_connection_max),
        connection_bytes_max: limits.connection_bytes_max,
        slow_requests_max: (limits.requests_in_flight_max as usize).div_ceil(threads),
        retry_after_s: limits.retry_after_s,
    }
}

pub(crate) fn log_target(config: &Config) -> LogTarget {
    match &config.log.access {
        skep_config::AccessLogTarget::Off => LogTarget::Off,
        skep_config::AccessLogTarget::Stdout => LogTarget::Stdout,
        skep_config::AccessLogTarget::File(path) => LogTarget::Path(path.clone()),
    }
}

pub(crate) fn log_format(config: &Config) -> Format {
    match config.log.format {
        LogFormat::Combined => Format::Combined,
        LogFormat::Json => Format::Json,
    }
}
