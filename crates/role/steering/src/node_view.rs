//! What the event loop sees of nodes, for operators.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use skep_cluster::failure_detector::FailureDetector;
use skep_units::Now;
use skep_wire::message::{Name, NodeBeat};
use skep_wire::table::TableVersion;

use crate::limits::{ANSWERING_MS, NODE_TABLES_MS};

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct NodeView {
    /// Nodes that answer ARP for a virtual address, and when they were seen to.
    answering: BTreeMap<Name, (IpAddr, Now)>,
    /// By node: the tables of this term that it has not applied yet.
    behind: Arc<Vec<(Name, u64)>>,
    compare_at: Now,
}

impl NodeView {
    /// A node answers ARP for the virtual address `vip`; logged when that begins.
    pub(crate) fn answers(&mut self, now: Now, node: Name, vip: IpAddr) {
        let sentence = sentence(&node, vip);
        if self.answering.insert(node, (vip, now)).is_none() {
            tracing::warn!("{sentence}");
        }
    }

    /// Time went on; the dispatcher tells nodes the table `told`.
    pub(crate) fn tick(&mut self, now: Now, detector: &FailureDetector, told: TableVersion) {
        self.answering.retain(|_, (_, at)| now.since_ms(*at) < ANSWERING_MS);
        if now < self.compare_at {
            return;
        }
        self.compare_at = now.plus_ms(NODE_TABLES_MS);
        let behind = |beat: &NodeBeat| {
            let is_same = beat.table.epoch == told.epoch;
            let applied = if is_same { beat.table.generation } else { 0 };
            (beat.name.clone(), told.generation.saturating_sub(applied))
        };
        self.behind = Arc::new(detector.living().map(behind).collect());
    }

    /// By node: the tables of this term that it has not applied yet.
    pub(crate) fn behind(&self) -> Arc<Vec<(Name, u64)>> {
        Arc::clone(&self.behind)
    }

    /// What is wrong with nodes, in sentences.
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
