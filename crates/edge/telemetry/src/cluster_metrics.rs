//! Metrics that nodes and dispatchers have in common: packets of packet programs, refused datagrams,
//! netguard's messages.

use std::sync::Arc;

use skep_wire::guard::PacketCounters;
use skep_wire::seal::OpenError;
use skep_wire::steer::{Count, Verdict};

use crate::Registry;

/// Registers packets by verdict, of the packet program of a node or a dispatcher.
pub fn register_packets(
    registry: &Registry,
    counters: impl Fn() -> Arc<PacketCounters> + Send + Sync + 'static,
) {
    let help = "Packets by verdict, since the packet program was loaded.";
    let sample = |(verdict, count): &(Verdict, Count)| {
        (vec![("verdict".to_owned(), verdict.name().to_owned())], count.packets as f64)
    };
    let read = move || counters().verdicts.iter().map(sample).collect();
    registry.register_samples("skep_direct_packets_total", help, Box::new(read));
}

/// Registers refused UDP datagrams.
pub fn register_datagrams(
    registry: &Registry,
    refused: impl Fn(OpenError) -> u64 + Send + Sync + 'static,
) {
    let help = "Refused datagrams of the cluster, by reason.";
    let read = move || {
        let sample = |&reason: &OpenError| {
            (vec![("reason".to_owned(), reason.name().to_owned())], refused(reason) as f64)
        };
        OpenError::ALL.iter().map(sample).collect()
    };
    registry.register_samples("skep_datagrams_refused_total", help, Box::new(read));
}

/// Registers messages that netguard did not log, as counted by `dropped`.
pub fn register_netguard_messages(
    registry: &Registry,
    dropped: impl Fn() -> u64 + Send + Sync + 'static,
) {
    let help = "Messages of netguard that were not logged because its standard error was not read fast enough.";
    let read = move || dropped() as f64;
    registry.register("skep_netguard_messages_dropped_total", &[], help, Box::new(read));
}
