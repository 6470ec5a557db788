//! The event loop's observations of nodes and of all machines' heartbeats, for operators.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use skep_cluster::failover::Failover;
use skep_cluster::failure_detector::FailureDetector;
use skep_units::Now;
use skep_wire::message::{Name, NodeHeartbeat};
use skep_wire::table::TableVersion;

use crate::limits::{ANSWERING_MS, NODE_LOOK_MS};

#[derive(Debug, Default)]
pub(crate) struct NodeObservations {
    /// Nodes that answer ARP for a virtual address, and the time of their last answer.
    answering: BTreeMap<Name, (IpAddr, Now)>,
    /// By node: the number of tables of this term that it has not applied yet.
    behind: Arc<Vec<(Name, u64)>>,
    heartbeat_gaps: Arc<Vec<(Name, u64)>>,
    look_at: Now,
}

impl NodeObservations {
    /// Records that a node answers ARP for the virtual address `vip`; logged when that begins.
    pub(crate) fn answers(&mut self, now: Now, node: Name, vip: IpAddr) {
        let sentence = sentence(&node, vip);
        if self.answering.insert(node, (vip, now)).is_none() {
            tracing::warn!("{sentence}");
        }
    }

    /// Updates the observations; the dispatcher sends the table `told` to nodes.
    pub(crate) fn tick(
        &mut self,
        now: Now,
        (failover, detector): (&Failover, &FailureDetector),
        told: TableVersion,
    ) {
        self.answering.retain(|_, (_, at)| now.since_ms(*at) < ANSWERING_MS);
        if now < self.look_at {
            return;
        }
        self.look_at = now.plus_ms(NODE_LOOK_MS);
        let behind = |heartbeat: &NodeHeartbeat| {
            let is_same = heartbeat.table.epoch == told.epoch;
            let applied = if is_same { heartbeat.table.generation } else { 0 };
            (heartbeat.name.clone(), told.generation.saturating_sub(applied))
        };
        self.behind = Arc::new(detector.living().map(behind).collect());
        let gaps = failover.heartbeat_gaps().chain(detector.heartbeat_gaps());
        self.heartbeat_gaps = Arc::new(gaps.map(|(name, ms)| (name.clone(), ms)).collect());
    }

    /// By node: the number of tables of this term that it has not applied yet.
    pub(crate) fn behind(&self) -> Arc<Vec<(Name, u64)>> {
        Arc::clone(&self.behind)
    }

    /// By machine: the longest time between two of its heartbeats, in milliseconds.
    pub(crate) fn heartbeat_gaps(&self) -> Arc<Vec<(Name, u64)>> {
        Arc::clone(&self.heartbeat_gaps)
    }

    /// Faults of nodes, as sentences.
    pub(crate) fn trouble(&self) -> impl Iterator<Item = String> {
        self.answering.iter().map(|(node, (vip, _))| sentence(node, *vip))
    }
}

fn sentence(node: &Name, vip: IpAddr) -> String {
    format!(
        "node {node} answers ARP requests for the virtual address {vip}: its settings are repaired \
         within a second unless something resets them again (`arp_ignore`, see its own complaints)"
    )
}
