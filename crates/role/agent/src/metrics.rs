//! Metrics of the agent and of the recorder.

use std::sync::Arc;

use skep_telemetry::{Registry, register_datagrams, register_packets};

use crate::Agent;
use crate::recorder::{RECORDER_FAULTS, RecorderCounts};

/// Registers metrics of this process's agent in direct dispatch.
pub fn register_agent(registry: &Registry, agent: &Arc<Agent>) {
    let own = Arc::clone(agent);
    let help = "Current problems of direct dispatch.";
    let read = move || own.status().complaints.len() as f64;
    registry.register("skep_direct_complaints", &[], help, Box::new(read));
    let own = Arc::clone(agent);
    register_packets(registry, move || own.counters());
    let own = Arc::clone(agent);
    register_datagrams(registry, move |reason| own.datagrams().refused(reason));
}

/// Registers the outcomes for the recorder's samples.
pub fn register_recorder(registry: &Registry, counts: &Arc<RecorderCounts>) {
    let name = "skep_recorder_samples_total";
    let help = "Samples of the recorder, by fate.";
    for (fate, read) in [
        ("stored", RecorderCounts::stored as fn(&RecorderCounts) -> u64),
        ("dropped", RecorderCounts::dropped),
    ] {
        let counts = Arc::clone(counts);
        registry.register(name, &[("fate", fate)], help, Box::new(move || read(&counts) as f64));
    }
    let waiting = Arc::clone(counts);
    let help = "Samples of the recorder that wait to be stored.";
    let read = move || waiting.waiting() as f64;
    registry.register("skep_recorder_samples_waiting", &[], help, Box::new(read));
    let help = "Failed attempts of the recorder to store samples, by the fault of its file.";
    for &fault in RECORDER_FAULTS {
        let counts = Arc::clone(counts);
        let read = move || counts.faults(fault) as f64;
        registry.register("skep_recorder_faults_total", &[("kind", fault)], help, Box::new(read));
    }
}
