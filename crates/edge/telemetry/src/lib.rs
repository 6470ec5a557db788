//! Metrics of a process: counters and latencies, one set per worker thread, summed on reading;
//! Prometheus text; and the access log, formatted and written by one thread off the hot path.
//!
//! Invariants: counting takes no lock and no atomic read-modify-write; logging never blocks a worker; nothing
//! grows without bound.

#![forbid(unsafe_code)]

mod access_log;
mod cluster_metrics;
mod counters;
mod latency;
mod limits;
mod registry;
mod series;
mod single_writer;

pub use access_log::{
    AccessLog, AccessLogError, CacheResult, Format, LogHandle, LogRecord, LogTarget, WorkerLog,
};
pub use cluster_metrics::{register_datagrams, register_netguard_messages, register_packets};
pub use counters::{CoreCounters, CoreGauge, Counter, Totals};
pub use latency::{Histogram, LatencySummary};
pub use registry::{Labels, METRICS_CONTENT_TYPE, MetricSample, Registry, Snapshot};
pub use series::{Series, SeriesPoint, SeriesStep};
