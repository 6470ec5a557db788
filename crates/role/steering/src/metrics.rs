//! Metrics of packet steering.

use std::sync::Arc;

use skep_telemetry::{Registry, register_datagrams, register_packets};
use skep_wire::message::Name;

use crate::direct::Direct;
use crate::status::SteeringStatus;

/// Registers metrics of this process's direct dispatch.
pub fn register_direct(registry: &Registry, direct: &Arc<Direct>) {
    let own = Arc::clone(direct);
    register_packets(registry, move || own.counters());
    let own = Arc::clone(direct);
    register_datagrams(registry, move |reason| own.datagrams().refused(reason));
    let own = Arc::clone(direct);
    let help = "Packets steered to a node, since the packet program was loaded.";
    registry.register_samples(
        "skep_direct_node_packets_total",
        help,
        Box::new(move || {
            let counters = own.counters();
            let count = |(index, name): (u16, String)| {
                let count = counters.nodes.get(usize::from(index)).copied().unwrap_or_default();
                (vec![("node".to_owned(), name)], count.packets as f64)
            };
            own.node_names().into_iter().map(count).collect()
        }),
    );
    let gauge = |name, help, read: fn(&SteeringStatus) -> u64| {
        let own = Arc::clone(direct);
        registry.register(name, &[], help, Box::new(move || read(&own.status()) as f64));
    };
    gauge("skep_direct_active", "1 if this dispatcher is the active one, else 0.", |status| {
        u64::from(status.stage == "active")
    });
    gauge(
        "skep_direct_addresses_held",
        "1 if this machine has all virtual addresses, else 0.",
        |it| u64::from(it.has_addresses),
    );
    gauge("skep_direct_complaints", "Current problems of direct dispatch.", |status| {
        status.complaints.len() as u64
    });
    let help = "1 if this standby has all flows of the active dispatcher, else 0.";
    gauge("skep_direct_flows_synced", help, |status| u64::from(status.flows_synced));
    let help = "Epoch of the active dispatcher, as known to this process.";
    gauge("skep_direct_epoch", help, |status| status.epoch);
    register_tables(registry, direct);
    register_heartbeats(registry, direct);
}

fn register_tables(registry: &Registry, direct: &Arc<Direct>) {
    let own = Arc::clone(direct);
    let help = "Generation of the table that the active dispatcher publishes, and of the one applied here.";
    let read = move || {
        let status = own.status();
        let states =
            [("published", status.published_generation), ("applied", status.table_generation)];
        let sample = |(state, generation): (&str, u64)| {
            (vec![("state".to_owned(), state.to_owned())], generation as f64)
        };
        states.into_iter().map(sample).collect()
    };
    registry.register_samples("skep_direct_table_generation", help, Box::new(read));
    let own = Arc::clone(direct);
    let help = "Tables of this term that the node has not applied yet.";
    let read = move || {
        let sample = |(node, behind): &(Name, u64)| {
            (vec![("node".to_owned(), node.to_string())], *behind as f64)
        };
        own.status().nodes_behind.iter().map(sample).collect()
    };
    registry.register_samples("skep_direct_node_tables_behind", help, Box::new(read));
}

fn register_heartbeats(registry: &Registry, direct: &Arc<Direct>) {
    let own = Arc::clone(direct);
    let help = "Longest interval between two received heartbeats of a peer process.";
    let read = move || {
        let sample = |(peer, gap_ms): &(Name, u64)| {
            (vec![("peer".to_owned(), peer.to_string())], *gap_ms as f64 / 1_000.0)
        };
        own.status().heartbeat_gaps.iter().map(sample).collect()
    };
    registry.register_samples("skep_direct_heartbeat_gap_seconds_max", help, Box::new(read));
}

/// Registers metrics of the store that dispatchers share.
pub fn register_store(registry: &Registry, direct: &Arc<Direct>) {
    let own = Arc::clone(direct);
    let help = "Responding endpoints of the shared store.";
    let read = move || own.status().store_answering.unwrap_or(0) as f64;
    registry.register("skep_direct_store_endpoints_answering", &[], help, Box::new(read));
}
