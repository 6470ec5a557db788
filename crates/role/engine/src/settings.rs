//! The connection settings of an operator; replaced as a whole on a reload.

use skep_http::{BodyLimits, HeadLimits};
use skep_serve::Pace;

/// Limits and timeouts of one process's connections. All times are in milliseconds.
#[derive(Clone, Debug)]
pub struct EngineSettings {
    /// Bounds of a request head.
    pub head: HeadLimits,
    /// Bounds of a request body.
    pub body: BodyLimits,
    /// Time from the first byte of a head to its last.
    pub head_ms: u64,
    /// Time between two requests.
    pub idle_ms: u64,
    /// The minimum rate at which clients must take replies.
    pub pace: Pace,
    /// The same if a client may be a proxy of the cluster, which applies `pace` to its own clients.
    pub pace_behind_proxy: Pace,
    /// Age from which a connection accepts no further request; 0: no limit.
    pub lifetime_ms: u64,
    /// Time before the rate of a request body is measured.
    pub body_grace_ms: u64,
    /// Averaging time of the minimum rate of a request body.
    pub body_average_ms: u64,
    /// Minimum rate of a request body, in bytes per second; 0: no limit.
    pub body_min_bytes_per_s: u64,
    /// Requests per connection; 0: no limit.
    pub requests_per_connection_max: u64,
    /// Bytes of replies that a connection gathers before it must send them.
    pub connection_bytes_max: u64,
    /// Concurrent slow requests on one worker; further ones get 503.
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
