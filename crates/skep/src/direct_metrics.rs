//! Metrics of direct dispatch.

use std::sync::Arc;

use skep_agent::Agent;
use skep_guard::Guard;
use skep_steering::{Direct, SteeringStatus};
use skep_telemetry::Registry;
use skep_wire::guard::PacketCounters;
use skep_wire::message::Name;
use skep_wire::seal::OpenError;
use skep_wire::steer::{Count, Verdict};

const COMPLAINTS: &str = "Problems of direct dispatch at present.";

pub(crate) fn register_agent(registry: &Registry, agent: &Arc<Agent>) {
    let own = Arc::clone(agent);
    let read = move || own.status().complaints.len() as f64;
    registry.register("skep_direct_complaints", &[], COMPLAINTS, Box::new(read));
    let own = Arc::clone(agent);
    register_packets(registry, move || own.counters());
    let own = Arc::clone(agent);
    register_datagrams(registry, move |reason| own.datagrams().refused(reason));
}

pub(crate) fn register_guard(registry: &Registry, guard: &Arc<Guard>) {
    let guard = Arc::clone(guard);
    let help =
        "Messages that netguard did not log, as nobody took earlier ones from its standard error.";
    let read = move || guard.messages_dropped() as f64;
    registry.register("skep_netguard_messages_dropped_total", &[], help, Box::new(read));
}

pub(crate) fn register_direct(registry: &Registry, direct: &Arc<Direct>) {
    let own = Arc::clone(direct);
    register_packets(registry, move || own.counters());
    let own = Arc::clone(direct);
    register_datagrams(registry, move |reason| own.datagrams().refused(reason));
    let own = Arc::clone(direct);
    let help = "Packets steered to a node since the program was loaded.";
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
    gauge("skep_direct_active", "Whether this dispatcher is the active one.", |status| {
        u64::from(status.stage == "active")
    });
    gauge("skep_direct_addresses_held", "Whether this machine has the virtual addresses.", |it| {
        u64::from(it.has_addresses)
    });
    gauge("skep_direct_complaints", COMPLAINTS, |status| status.complaints.len() as u64);
    let help = "Whether a standby has all flows of the active dispatcher.";
    gauge("skep_direct_flows_synced", help, |status| u64::from(status.flows_synced));
    let help = "Epoch of the active dispatcher, as far as it is known here.";
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
    let help = "Tables of this term that a node has not applied yet.";
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

pub(crate) fn register_store(registry: &Registry, direct: &Arc<Direct>) {
    let own = Arc::clone(direct);
    let help = "Responding endpoints of the shared store.";
    let read = move || own.status().store_answering.unwrap_or(0) as f64;
    registry.register("skep_direct_store_endpoints_answering", &[], help, Box::new(read));
}

fn register_packets(
    registry: &Registry,
    counters: impl Fn() -> Arc<PacketCounters> + Send + Sync + 'static,
) {
    let help = "Packets by what became of them since the program was loaded.";
    let sample = |(verdict, count): &(Verdict, Count)| {
        (vec![("verdict".to_owned(), verdict.name().to_owned())], count.packets as f64)
    };
    let read = move || counters().verdicts.iter().map(sample).collect();
    registry.register_samples("skep_direct_packets_total", help, Box::new(read));
}

/// UDP datagrams that were refused.
pub(crate) fn register_datagrams(
    registry: &Registry,
    refused: impl Fn(OpenError) -> u64 + Send + Sync + 'static,
) {
    let help = "Datagrams of the cluster refused, by reason.";
    let read = move || {
        let sample = |&reason: &OpenError| {
            (vec![("reason".to_owned(), reason.name().to_owned())], refused(reason) as f64)
        };
        OpenError::ALL.iter().map(sample).collect()
    };
    registry.register_samples("skep_datagrams_refused_total", help, Box::new(read));
}
