//! The nodes' load reports as Prometheus metrics.

use std::sync::Arc;

use skep_telemetry::Registry;

use crate::loads::node_loads::{NodeLoads, NodeReport};

type NodeValue = fn(&NodeReport) -> f64;

/// The metrics of the nodes' load reports.
const REPORTS: &[(&str, &str, NodeValue)] = &[
    ("skep_report_age_seconds", "Age of a node's last load report.", |it| it.age_ms as f64 / 1e3),
    (
        "skep_report_cpu_ratio",
        "Use of a node's processors by its process, by its load report.",
        |it| f64::from(it.load.cpu_permille) / 1e3,
    ),
    ("skep_report_memory_bytes", "Memory of a node's process, by its load report.", |it| {
        it.load.memory_bytes as f64
    }),
    ("skep_report_connections", "Client connections of a node, by its load report.", |it| {
        it.load.connections as f64
    }),
    ("skep_report_requests_in_flight", "In-flight requests of a node, by its load report.", |it| {
        it.load.requests_in_flight as f64
    }),
    (
        "skep_report_bytes_outstanding",
        "Bytes that a node has yet to send, by its load report.",
        |it| it.load.bytes_outstanding as f64,
    ),
    ("skep_report_sent_bytes_per_second", "Bytes sent by a node, by its load report.", |it| {
        it.load.sent_bytes_s as f64
    }),
    (
        "skep_report_filled_bytes_per_second",
        "Bytes filled from origins and disks by a node, by its load report.",
        |it| it.load.filled_bytes_s as f64,
    ),
    (
        "skep_report_fetch_bytes_per_second",
        "Rate of a node's reads from disk and origins while it reads, by its report; 0: unknown.",
        |it| it.rates.fetch_bytes_per_s as f64,
    ),
    ("skep_report_hit_ratio", "Hit ratio of the memory of a node, by its load report.", |it| {
        f64::from(it.load.hit_permille) / 1e3
    }),
];

/// Registers the metrics of the nodes' load reports, each with the label `node`, and the counters
/// of reports by outcome.
pub fn register_reports(registry: &Registry, loads: &Arc<NodeLoads>) {
    for &(name, help, said) in REPORTS {
        let loads = Arc::clone(loads);
        let sample = move |report: NodeReport| {
            (vec![("node".to_owned(), report.name.to_string())], said(&report))
        };
        let read = move || loads.reports().into_iter().map(sample).collect();
        registry.register_samples(name, help, Box::new(read));
    }
    let loads = Arc::clone(loads);
    let read = move || {
        let sample = |(outcome, reports): (&str, u64)| {
            (vec![("outcome".to_owned(), outcome.to_owned())], reports as f64)
        };
        loads.counts().map(sample).to_vec()
    };
    let help = "Load reports received, by outcome.";
    registry.register_samples("skep_load_reports_total", help, Box::new(read));
}
