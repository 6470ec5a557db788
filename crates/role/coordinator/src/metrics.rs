//! Metrics of the coordinator, and of the streams of the cluster cache.

use std::sync::Arc;

use skep_directory::CoordinatorCounters;
use skep_peer::stream::{StreamCount, StreamCounts};
use skep_telemetry::{Labels, Registry};
use skep_wire::cache::Reason;

use crate::coordination::{CacheView, Coordination};

/// Registers metrics of this process's coordinator.
pub fn register_coordinator(registry: &Registry, coordination: &Arc<Coordination>) {
    let gauge = |name: &str, help: &str, read: fn(&CacheView) -> f64| {
        let own = Arc::clone(coordination);
        registry.register(name, &[], help, Box::new(move || read(&own.view())));
    };
    gauge("skep_coordinator_active", "1 if this coordinator is active, else 0.", |view| {
        f64::from(u8::from(view.is_active))
    });
    gauge("skep_coordinator_segments", "Segments with at least one holder.", |view| {
        view.counters.entries as f64
    });
    gauge(
        "skep_coordinator_replicas",
        "Replicas: the sum of the holders of all segments.",
        |view| view.counters.holdings as f64,
    );
    gauge(
        "skep_coordinator_files",
        "Files and folders of partitioned folders that nodes have announced.",
        |view| view.counters.files as f64,
    );
    gauge(
        "skep_coordinator_nodes_unsure",
        "Nodes that have not announced all their files, and nodes that were lost recently.",
        |view| view.counters.nodes_unsure as f64,
    );
    gauge("skep_coordinator_leases", "Fills in progress.", |view| view.counters.leases as f64);
    gauge("skep_coordinator_memory_bytes", "Memory of the directory.", |view| {
        view.counters.memory_bytes as f64
    });
    gauge("skep_coordinator_nodes", "Linked nodes.", |view| view.members.len() as f64);
    let own = Arc::clone(coordination);
    let read = move || {
        let (complete, incomplete) = own.purge_counts().totals();
        let sample = |(outcome, purges)| (labels([("outcome", outcome)]), purges as f64);
        [("complete", complete), ("incomplete", incomplete)].map(sample).to_vec()
    };
    let help = "Purges, by whether all nodes acknowledged them in time.";
    registry.register_samples("skep_coordinator_purges_total", help, Box::new(read));
    let own = Arc::clone(coordination);
    registry.register(
        "skep_coordinator_purge_seconds_max",
        &[],
        "The longest time until all linked nodes had acknowledged a purge.",
        Box::new(move || own.purge_counts().slowest_us() as f64 / 1e6),
    );
    let own = Arc::clone(coordination);
    let read = move || {
        let sample = |(kind, answers): (_, u64)| (labels([("kind", kind)]), answers as f64);
        answers(&own.view().counters).map(sample).to_vec()
    };
    let help = "Coordinator answers and errors, by kind.";
    registry.register_samples("skep_coordinator_answers_total", help, Box::new(read));
}

/// Registers metrics of streams; `all`: those of a coordinator's links and those of a node; a
/// process may have both.
pub fn register_streams(registry: &Registry, all: Vec<Arc<StreamCounts>>) {
    let counts = all.clone();
    let read = move || {
        let sample = |what: StreamCount| {
            let sum: u64 = counts.iter().map(|it| it.of(what)).sum();
            (labels([("kind", what.name())]), sum as f64)
        };
        StreamCount::ALL.map(sample).to_vec()
    };
    let help = "Events on streams between machines, by kind.";
    registry.register_samples("skep_stream_events_total", help, Box::new(read));
    let read = move || {
        let samples = |reason: Reason| {
            let here: u64 = all.iter().map(|it| it.refused_here(reason)).sum();
            let there: u64 = all.iter().map(|it| it.refused_there(reason)).sum();
            let sample = |(by, streams): (_, u64)| {
                (labels([("by", by), ("reason", reason.name())]), streams as f64)
            };
            [("here", here), ("there", there)].map(sample)
        };
        Reason::ALL.into_iter().flat_map(samples).collect()
    };
    let help = "Refused streams, by the side that refused and by reason.";
    registry.register_samples("skep_streams_refused_total", help, Box::new(read));
}

/// Answers and errors, by kind.
pub fn answers(counters: &CoordinatorCounters) -> [(&'static str, u64); 12] {
    [
        ("have", counters.have),
        ("busy", counters.busy),
        ("grant", counters.grant),
        ("later", counters.later),
        ("refused", counters.refused),
        ("expired", counters.expired),
        ("broken", counters.broken),
        ("directory_error", counters.directory_errors),
        ("forgotten", counters.forgotten),
        ("file_nobody", counters.nobody),
        ("file_unsure", counters.unsure),
        ("file_forgotten", counters.files_refused),
    ]
}

fn labels<const N: usize>(labels: [(&str, &str); N]) -> Labels {
    labels.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec()
}
