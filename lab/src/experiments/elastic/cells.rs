//! The cells of the experiment, each a mix, a configuration and a number of workers; and the constant loads
//! of the sweep.

use skep_site_sim::{
    ElasticMix, ElasticitySettings, LoadTargets, OfferedLoad, SimulatedCluster,
    SimulatedElasticity, SimulatedNode, SimulatedRamp, SiteWorkload,
};

/// Maximum number of workers; the minimum is one.
pub(super) const WORKERS_MAX: usize = 8;

/// The paper's ramp.
pub(super) const RAMP: SimulatedRamp =
    SimulatedRamp { clients: 48, batch_clients: 3, batch_interval_ms: 5_000, client_ms: 100_000 };

/// Target of outstanding requests per worker: three quarters of those that fill its link.
const TARGET_REQUESTS: u64 = 3;

/// The share of a worker's link that one client uses: 48 clients more than fill eight links.
const CLIENT_SHARE: f64 = 0.25;

/// A worker's memory, in bytes: room for the site, or next to nothing.
const MEMORY_BYTES: u64 = 128_000_000;
const NO_MEMORY_BYTES: u64 = 1;

/// The configurations of the paper.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Configuration {
    Standard,
    NoElasticity,
    NoCache,
}

pub(super) const CONFIGURATIONS: [Configuration; 3] =
    [Configuration::Standard, Configuration::NoElasticity, Configuration::NoCache];

pub(super) const MIXES: [ElasticMix; 2] = [ElasticMix::CacheFriendly, ElasticMix::CacheUnfriendly];

impl Configuration {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Standard => "standard",
            Self::NoElasticity => "no elasticity",
            Self::NoCache => "no cache",
        }
    }

    /// The key in names of files.
    pub(super) fn key(self) -> &'static str {
        match self {
            Self::Standard => "standard",
            Self::NoElasticity => "always-on",
            Self::NoCache => "no-cache",
        }
    }
}

/// The scale of a mix's rates, so that runs with small files do not take longer than others.
pub(super) fn scale(mix: ElasticMix) -> f64 {
    match mix {
        ElasticMix::CacheFriendly => 0.5,
        ElasticMix::CacheUnfriendly => 0.05,
    }
}

pub(super) fn cluster(
    mix: ElasticMix,
    configuration: Configuration,
    workers: usize,
) -> SimulatedCluster {
    let memory_bytes = match configuration {
        Configuration::NoCache => NO_MEMORY_BYTES,
        Configuration::Standard | Configuration::NoElasticity => MEMORY_BYTES,
    };
    let node = SimulatedNode::usual(memory_bytes);
    let mut cluster = SimulatedCluster::weighted(&vec![1; workers], node, scale(mix));
    cluster.has_cluster_cache = configuration != Configuration::NoCache;
    let link = node.link_bytes_per_s as f64 * scale(mix);
    cluster.client_bytes_per_s = Some((link * CLIENT_SHARE) as u64);
    let is_elastic = configuration != Configuration::NoElasticity;
    cluster.elasticity = is_elastic.then(|| elasticity(workers, true));
    cluster
}

/// Elasticity with `workers` workers; without hysteresis it has one threshold and no window, as in the paper.
fn elasticity(workers: usize, has_hysteresis: bool) -> SimulatedElasticity {
    SimulatedElasticity {
        settings: ElasticitySettings {
            nodes_min: 1,
            nodes_max: workers,
            targets: LoadTargets { requests: TARGET_REQUESTS, bytes: 0 },
            tolerance_permille: if has_hysteresis { 100 } else { 0 },
            interval_ms: 1_000,
            scale_out_window_ms: if has_hysteresis { 2_000 } else { 0 },
            // Three steps of the ramp.
            scale_in_window_ms: if has_hysteresis { 15_000 } else { 0 },
            step_out_nodes_max: 4,
            step_in_nodes_max: 1,
            start_timeout_ms: 10_000,
            attempts_max: 3,
            retry_pause_ms: 1_000,
            failed_hold_ms: 60_000,
            drain_timeout_ms: 60_000,
            stop_timeout_ms: 10_000,
        },
        on_first: 1,
        start_ms: 1_000,
        slow_start_ms: 1_000,
    }
}

/// The maximum speed-up: how many times the requests of one worker this many can answer, as clients come and
/// go.
pub(super) fn speed_up_max(workers: usize) -> f64 {
    let busy = |workers: f64| -> f64 {
        let of_second = |second: u64| {
            let is_there = |client: &u32| {
                let began = u64::from(client / RAMP.batch_clients) * RAMP.batch_interval_ms;
                (began..began + RAMP.client_ms).contains(&(second * 1_000))
            };
            let clients = (0..RAMP.clients).filter(is_there).count();
            (clients as f64 * CLIENT_SHARE).min(workers)
        };
        (0..RAMP.ends_ms() / 1_000).map(of_second).sum()
    };
    busy(workers as f64) / busy(1.0)
}

/// The cluster of the sweep: eight workers, half of which are on at first.
pub(super) fn sweep_cluster(mix: ElasticMix, has_hysteresis: bool) -> SimulatedCluster {
    let mut cluster = cluster(mix, Configuration::Standard, WORKERS_MAX);
    let all = elasticity(WORKERS_MAX, has_hysteresis);
    cluster.elasticity = Some(SimulatedElasticity { on_first: WORKERS_MAX / 2, ..all });
    cluster
}

/// An open loop that keeps this many workers at their target; each request takes as long as its client needs
/// to receive it.
pub(super) fn constant_load(workers_worth: f64) -> OfferedLoad {
    let requests_at_a_time = workers_worth * TARGET_REQUESTS as f64;
    OfferedLoad::Open { link_share: requests_at_a_time * CLIENT_SHARE / WORKERS_MAX as f64 }
}

/// The number of requests of such a loop in `seconds`.
pub(super) fn requests_of(
    mix: ElasticMix,
    site: &SiteWorkload,
    workers_worth: f64,
    seconds: f64,
) -> u64 {
    let OfferedLoad::Open { link_share } = constant_load(workers_worth) else { return 0 };
    let bytes_per_s = cluster(mix, Configuration::Standard, WORKERS_MAX).link_bytes_per_s() as f64;
    (bytes_per_s * link_share * seconds / site.mean_bytes()) as u64
}
