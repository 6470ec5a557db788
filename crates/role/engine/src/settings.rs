//! The connection settings of an operator; replaced as a whole on a reload.

use skep_http::{BodyLimits, HeadLimits};
use skep_serve::Pace;

/// Bounds and timeouts of one process's connections. Milliseconds throughout.
#[derive(Clone, Debug)]
pub struct EngineSettings {
    /// Bounds of a request head.
    pub head: HeadLimits,
    /// Bounds of a request body.
    pub body: BodyLimits,
    /// From the first byte of a head to its last.
    pub head_ms: u64,
    /// Between two requests.
    pub idle_ms: u64,
    /// The minimum rate at which clients must take replies.
    pub pace: Pace,
    /// The same where a client may be a proxy of the cluster, which applies `pace` to its own
    /// clients.
    pub pace_behind_proxy: Pace,
    /// Age after which a connection takes no further request; 0 is no bound.
    pub lifetime_ms: u64,
    /// Time before the rate of a request body counts.
    pub body_grace_ms: u64,
    /// Averaging time of the least rate of a request body.
    pub body_average_ms: u64,
    /// Least rate of a request body, in bytes per second; 0 is no bound.
    pub body_min_bytes_per_s: u64,
    /// Requests that one connection may carry; 0 is no bound.
    pub requests_per_connection_max: u64,
    /// Bytes of replies that a connection gathers before it must send them.
    pub connection_bytes_max: u64,
    /// Requests in work at once on one worker; beyond it: 503.
    pub slow_requests_max: usize,
    /// `Retry-After` of refusals, in seconds.
    pub retry_after_s: u32,
}

impl Default for EngineSettings {
    fn default() -> Self {
        let pace = Pace { stall_ms: 20_000, bytes_per_s_min: 1024, average_ms: 120_000 };
        Self {
            head: HeadLimits::default(),
            body: BodyLimits::default(),
            head_ms: 10_000,
            idle_ms: 60_000,
            pace,
            pace_behind_proxy: pace,
            lifetime_ms: 3_600_000,
            body_grace_ms: 5_000,
            body_average_ms: 120_000,
            body_min_bytes_per_s: 1024,
            requests_per_connection_max: 0,
            connection_bytes_max: 64 * 1024,
            slow_requests_max: 16_384,
            retry_after_s: 1,
        }
    }
}
