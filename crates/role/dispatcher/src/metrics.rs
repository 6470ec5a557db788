//! Each node's numbers as Prometheus metrics.

use std::sync::{Arc, Weak};

use skep_telemetry::{Labels, Registry};

use crate::dispatcher::Dispatcher;
use crate::loads::{NodeLoads, NodeReport};
use crate::status::NodeStatus;

type Value = fn(&NodeStatus) -> f64;

const METRICS: &[(&str, &str, Value)] = &[
    ("skep_node_up", "Whether a node may get new requests.", |n| f64::from(n.share_permille > 0)),
    (
        "skep_node_share",
        "Fraction of its full share that a node gets; below 1 in slow start.",
        |n| f64::from(n.share_permille) / 1000.0,
    ),
    ("skep_node_weight", "Weight of a node.", |n| f64::from(n.weight)),
    ("skep_node_outstanding_requests", "Requests of a node not yet answered in full.", |n| {
        f64::from(n.outstanding_requests)
    }),
    ("skep_node_outstanding_bytes", "Bytes of announced replies that have not arrived.", |n| {
        n.outstanding_bytes as f64
    }),
    ("skep_node_tunnels", "Upgraded connections to a node.", |n| f64::from(n.tunnels)),
    ("skep_node_requests_total", "Requests sent to a node since it was added.", |n| {
        n.requests as f64
    }),
    (
        "skep_node_failures_total",
        "Requests to a node without a whole reply, since it was added.",
        |n| n.failures as f64,
    ),
    ("skep_node_bytes_total", "Bytes of a node's reply bodies since it was added.", |n| {
        n.bytes as f64
    }),
    ("skep_node_latency_seconds", "Moving average of a node's time to answer.", |n| {
        n.latency_us as f64 / 1e6
    }),
];

/// Registers the metrics of the nodes of all `dispatchers` of this process, each
/// with the labels `service` and `node`. Call it once, with all of them: a
/// second call replaces the first.
pub fn register_metrics(registry: &Registry, dispatchers: &[Arc<Dispatcher>]) {
    let dispatchers: Arc<[Weak<Dispatcher>]> = dispatchers.iter().map(Arc::downgrade).collect();
    for &(name, help, value) in METRICS {
        let dispatchers = Arc::clone(&dispatchers);
        registry.register_samples(name, help, Box::new(move || samples(&dispatchers, value)));
    }
}

type Said = fn(&NodeReport) -> f64;

/// What nodes say of themselves.
const REPORTS: &[(&str, &str, Said)] = &[
    ("skep_report_age_seconds", "Age of a node's last load report.", |it| it.age_ms as f64 / 1e3),
    (
        "skep_report_cpu_ratio",
        "Use of a node's processors by its process, by its load report.",
        |it| f64::from(it.load.cpu_permille) / 1e3,
    ),
    ("skep_report_memory_bytes", "Memory of a node's process, by its load report.", |it| {
        it.load.memory_bytes as f64
    }),
    ("skep_report_connections", "Connections of a node's clients, by its load report.", |it| {
        it.load.connections as f64
    }),
    (
        "skep_report_requests_in_flight",
        "Requests that a node is answering, by its load report.",
        |it| it.load.requests_in_flight as f64,
    ),
    ("skep_report_bytes_outstanding", "Bytes that a node has to send, by its load report.", |it| {
        it.load.bytes_outstanding as f64
    }),
    ("skep_report_sent_bytes_per_second", "Bytes that a node sends, by its load report.", |it| {
        it.load.sent_bytes_s as f64
    }),
    (
        "skep_report_filled_bytes_per_second",
        "Bytes that come from origins, by its load report.",
        |it| it.load.filled_bytes_s as f64,
    ),
    (
        "skep_report_hit_ratio",
        "Requests that a node's memory answered, by its load report.",
        |it| f64::from(it.load.hit_permille) / 1e3,
    ),
];

/// Registers the metrics of what nodes say of themselves, each with the label
/// `node`, and what became of their reports.
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
    let help = "Load reports of nodes, by what became of them.";
    registry.register_samples("skep_load_reports_total", help, Box::new(read));
}

fn samples(dispatchers: &[Weak<Dispatcher>], value: Value) -> Vec<(Labels, f64)> {
    let mut samples = Vec::new();
    for status in dispatchers.iter().filter_map(Weak::upgrade).map(|d| d.status()) {
        for node in status.nodes {
            let labels = vec![
                ("service".to_owned(), status.name.clone()),
                ("node".to_owned(), node.name.clone()),
            ];
            samples.push((labels, value(&node)));
        }
    }
    samples
}
