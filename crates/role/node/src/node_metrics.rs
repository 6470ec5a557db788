//! Metrics of the node: its memory, purges and origins.

use std::sync::Arc;

use skep_telemetry::Registry;

use crate::Node;

/// Registers metrics of the memory cache, purges and origins of this process's node.
pub fn register_node(registry: &Registry, node: &Arc<Node>) {
    let value = |name: &str, help: &str, read: fn(&Node) -> f64| {
        let node = Arc::clone(node);
        registry.register(name, &[], help, Box::new(move || read(&node)));
    };
    value("skep_cache_bytes", "Bytes of cached segments.", |node| {
        node.store_stats().indexed_bytes as f64
    });
    value(
        "skep_cache_redundant_bytes",
        "Bytes of redundant replicas among cached segments.",
        |node| node.store_stats().redundant_bytes as f64,
    );
    value(
        "skep_cache_alive_bytes",
        "Bytes in memory: cached and pinned segments, heads, indexes.",
        |node| node.store_stats().alive_bytes as f64,
    );
    value(
        "skep_cache_pinned_bytes",
        "Bytes of segments that replies and fills hold beyond the cache.",
        |node| node.store_stats().pinned_bytes as f64,
    );
    value("skep_cache_segments", "Cached segments.", |node| node.store_stats().segments as f64);
    value("skep_purges_applied_total", "Purges that this node received and applied.", |node| {
        node.purge_effects().applied as f64
    });
    value("skep_purged_objects_total", "Objects found to be purged on request.", |node| {
        node.purge_effects().dropped as f64
    });
    value(
        "skep_softly_purged_objects_total",
        "Objects found to be softly purged on request.",
        |node| node.purge_effects().softened as f64,
    );
    value("skep_origin_bytes_total", "Body bytes received from origins.", |node| {
        node.origin_totals().body_bytes as f64
    });
    let samples = |name: &str, help: &str, read: fn(&Node) -> Vec<(&'static str, u64)>| {
        let node = Arc::clone(node);
        let label =
            |(kind, value): (&str, u64)| (vec![("kind".to_owned(), kind.to_owned())], value as f64);
        let read = move || read(&node).into_iter().map(label).collect();
        registry.register_samples(name, help, Box::new(read));
    };
    samples("skep_cache_removals_total", "Removals from the cache, by kind.", |node| {
        node.cache_removals()
    });
    samples("skep_origin_requests_total", "Requests to origins, by kind.", |node| {
        node.origin_requests()
    });
    samples("skep_origin_failures_total", "Failures of origins, by kind.", |node| {
        node.origin_failures()
    });
}
