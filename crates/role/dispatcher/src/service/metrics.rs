//! Each node's counters and gauges as Prometheus metrics.

use std::sync::{Arc, Weak};

use skep_telemetry::{Labels, Registry};

use crate::service::dispatcher::Dispatcher;
use crate::service::status::NodeStatus;

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
