//! From the words of the config to the settings of the parts.

use std::sync::Arc;

use skep_config::{Config, LogFormat};
use skep_engine::Settings;
use skep_http::{BodyLimits, HeadLimits};
use skep_peer::stream::PEER_ADMISSION;
use skep_serve::{Admission, AdmissionLimits};
use skep_telemetry::{Format, Target};

/// Worker threads: as told, or one per core.
pub(crate) fn threads(config: &Config) -> usize {
    match config.machine.threads {
        0 => std::thread::available_parallelism().map_or(1, usize::from),
        threads => threads as usize,
    }
}

/// Who may connect to this process: clients and other nodes, each counted for
/// themselves, so that neither starves the other.
#[derive(Clone)]
pub(crate) struct Admissions {
    pub(crate) clients: Arc<Admission>,
    pub(crate) peers: Arc<Admission>,
}

impl Admissions {
    pub(crate) fn new(config: &Config) -> Self {
        let clients = Admission::new(client_limits(config));
        Self { clients, peers: Admission::new(PEER_ADMISSION) }
    }

    /// Bounds of a changed config; connections already open stay.
    pub(crate) fn set_limits(&self, config: &Config) {
        self.clients.set_limits(client_limits(config));
    }

    /// Connections open.
    pub(crate) fn open(&self) -> usize {
        self.clients.open() + self.peers.open()
    }
}

fn client_limits(config: &Config) -> AdmissionLimits {
    AdmissionLimits {
        connections_max: config.limits.connections_max as usize,
        per_address_max: config.limits.connections_per_address_max as usize,
    }
}

/// The engine's settings; bounds of a process are shared out to `threads`.
pub(crate) fn engine_settings(config: &Config, threads: usize) -> Settings {
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
        connection_bytes_max: limits.connection_bytes_max,
        slow_requests_max: (limits.requests_in_flight_max as usize).div_ceil(threads),
        retry_after_s: limits.retry_after_s,
    }
}

pub(crate) fn log_target(config: &Config) -> Target {
    match &config.log.access {
        skep_config::AccessLog::Off => Target::Off,
        skep_config::AccessLog::Stdout => Target::Stdout,
        skep_config::AccessLog::File(path) => Target::Path(path.clone()),
    }
}

pub(crate) fn log_format(config: &Config) -> Format {
    match config.log.format {
        LogFormat::Combined => Format::Combined,
        LogFormat::Json => Format::Json,
    }
}
