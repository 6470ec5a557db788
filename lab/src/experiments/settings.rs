//! The scale of the experiments, the same for all rows.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::origin::Speed;

/// The settings of every cell of a run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Settings {
    /// The Skep binary.
    #[serde(skip)]
    pub(crate) skep: PathBuf,
    /// TCP congestion control on all machines; `None`: the host's default.
    pub(crate) congestion: Option<String>,
    /// Rate of each node's link in both directions, in bits per second.
    pub(crate) node_rate_bits_s: u64,
    /// The speed of the origin during the measurement.
    pub(crate) origin: Speed,
    /// Infinite: without a quota.
    pub(crate) node_cpu_cores: f64,
    pub(crate) dispatcher_cpu_cores: f64,
    pub(crate) origin_cpu_cores: f64,
    /// Number of clients, each with a connection.
    pub(crate) clients: usize,
    /// Requests per connection.
    pub(crate) per_connection: u64,
    /// How often each object is requested on average before the measurement, with a fast origin and fast
    /// links.
    pub(crate) warm_up_rounds: f64,
    /// Time for settling at the measured speeds after that, in milliseconds.
    pub(crate) settle_ms: u64,
    /// Length of a measurement, in milliseconds.
    pub(crate) window_ms: u64,
}

impl Settings {
    /// Small enough that links and origin, rather than the processor, are the bottleneck on two cores.
    pub(crate) fn new(skep: PathBuf, is_quick: bool) -> Self {
        Self {
            skep,
            // The kernel's default; paced algorithms vary from run to run on few cores.
            congestion: Some("cubic".to_owned()),
            node_rate_bits_s: 25_000_000,
            origin: Speed { delay_ms: 10, rate_bits_s: 10_000_000 },
            node_cpu_cores: 0.5,
            dispatcher_cpu_cores: 1.0,
            origin_cpu_cores: 0.5,
            clients: 64,
            per_connection: 16,
            warm_up_rounds: if is_quick { 3.0 } else { 4.0 },
            settle_ms: if is_quick { 500 } else { 1_000 },
            window_ms: if is_quick { 2_000 } else { 5_000 },
        }
    }
}
