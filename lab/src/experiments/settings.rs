//! The scale of the experiments, one for all rows.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::origin::Speed;

/// What holds for every cell of a run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Settings {
    /// The Skep binary.
    #[serde(skip)]
    pub(crate) skep: PathBuf,
    /// TCP's congestion control on all machines; `None` is what the host has.
    pub(crate) congestion: Option<String>,
    /// Rate of each node's link, either way, in bits per second.
    pub(crate) node_rate_bits_s: u64,
    /// The origin while it is measured.
    pub(crate) origin: Speed,
    /// Infinite: without a quota.
    pub(crate) node_cpu_cores: f64,
    pub(crate) dispatcher_cpu_cores: f64,
    pub(crate) origin_cpu_cores: f64,
    /// Clients, each with a connection.
    pub(crate) clients: usize,
    /// Requests on one connection.
    pub(crate) per_connection: u64,
    /// Objects of the data set are asked for so often, on the mean, before it
    /// is measured: with a fast origin and fast links.
    pub(crate) warm_up_rounds: f64,
    /// Then so long with the speeds of the measurement, in milliseconds.
    pub(crate) settle_ms: u64,
    /// Length of a measurement, in milliseconds.
    pub(crate) window_ms: u64,
}

impl Settings {
    /// Small enough that links and origin are the bound on two cores, and not
    /// the processor.
    pub(crate) fn new(skep: PathBuf, is_quick: bool) -> Self {
        Self {
            skep,
            // What a kernel has by default; paced ones differ from run to run on few cores.
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
