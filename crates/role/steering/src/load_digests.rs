//! The loads of other nodes that are sent to nodes which decide on handoffs.

use std::sync::Arc;

use arc_swap::ArcSwap;
use skep_cluster::failure_detector::FailureDetector;
use skep_policy::ServedLog;
use skep_units::Now;
use skep_wire::message::{
    ArmsInForce, LoadDigest, Message, NodeHeartbeat, NodeWork, ServedObjects,
};
use skep_wire::table::{Table, TableNode};

use crate::limits::{ARMS_MS, DIGEST_ENTRIES_PER_S_MAX, DIGEST_MS_MIN, RELAYS_PER_S_MAX};

/// Schedules the digests.
#[derive(Debug)]
pub(crate) struct LoadDigests {
    /// The view of this dispatcher, which gets the same data, if nodes need digests.
    own: Option<OwnView>,
    due_at: Now,
    arms_due_at: Now,
    /// The beginning of the current second, and the datagrams relayed since then.
    relayed: (Now, u64),
}

/// The data by which this dispatcher decides on handoffs.
#[derive(Debug)]
pub(crate) struct OwnView {
    pub(crate) table: Arc<ArcSwap<Table>>,
    pub(crate) digest: Arc<ArcSwap<(Now, LoadDigest)>>,
    pub(crate) served: Arc<ArcSwap<ServedLog>>,
    pub(crate) arms: Arc<ArcSwap<ArmsInForce>>,
}

impl LoadDigests {
    /// No digests are sent unless nodes hand off.
    pub(crate) fn new(own: Option<OwnView>) -> Self {
        Self { own, due_at: Now(0), arms_due_at: Now(0), relayed: (Now(0), 0) }
    }

    /// The A/B tests for all nodes, if they are due: every second, and at once after a change.
    pub(crate) fn next_arms(
        &mut self,
        now: Now,
        in_force: impl FnOnce() -> ArmsInForce,
    ) -> Option<Message> {
        let own = self.own.as_ref()?;
        let arms = in_force();
        let is_other = arms != **own.arms.load();
        if is_other {
            own.arms.store(Arc::new(arms.clone()));
        }
        if !is_other && now < self.arms_due_at {
            return None;
        }
        self.arms_due_at = now.plus_ms(ARMS_MS);
        Some(Message::Arms(arms))
    }

    /// Whether a node's report of objects may be relayed to `datagrams` other nodes now. Clients determine
    /// the amount of reports, and heartbeats use the same socket. A report that was not relayed is repeated
    /// only when the object is requested again.
    pub(crate) fn may_relay(&mut self, now: Now, datagrams: u64) -> bool {
        if now.since_ms(self.relayed.0) >= 1_000 {
            self.relayed = (now, 0);
        }
        let relayed = self.relayed.1.saturating_add(datagrams);
        let may = self.own.is_some() && relayed <= RELAYS_PER_S_MAX;
        if may {
            self.relayed.1 = relayed;
        }
        may
    }

    /// Records objects that a node has served.
    pub(crate) fn note_served(&self, served: ServedObjects) {
        if let Some(own) = &self.own {
            let served = Arc::new(served);
            own.served.rcu(|log| log.with(Arc::clone(&served)));
        }
    }

    /// The digest for all nodes, if it is due.
    pub(crate) fn next(
        &mut self,
        now: Now,
        table: &Arc<Table>,
        detector: &FailureDetector,
    ) -> Option<Message> {
        let own = self.own.as_ref().filter(|_| now >= self.due_at)?;
        let heard =
            table.nodes.iter().filter_map(|node| Some((node, detector.heartbeat(&node.name)?)));
        let nodes: Vec<NodeWork> = heard.map(work).collect();
        let interval_ms = interval_ms(nodes.len());
        self.due_at = now.plus_ms(interval_ms);
        let interval_ms = u32::try_from(interval_ms).unwrap_or(u32::MAX);
        let digest = LoadDigest { interval_ms, nodes };
        own.table.store(Arc::clone(table));
        own.digest.store(Arc::new((now, digest.clone())));
        Some(Message::Loads(digest))
    }
}

fn work((node, heartbeat): (&TableNode, &NodeHeartbeat)) -> NodeWork {
    let short = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
    NodeWork {
        node: node.index,
        connections: short(heartbeat.load.connections),
        requests: short(heartbeat.load.requests_in_flight),
        bytes: heartbeat.load.bytes_outstanding,
    }
}

/// Each node gets the loads of all nodes: less often in a large cluster.
fn interval_ms(nodes: usize) -> u64 {
    let entries = (nodes as u64).saturating_pow(2);
    (entries * 1000).div_ceil(DIGEST_ENTRIES_PER_S_MAX).max(DIGEST_MS_MIN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn relays_are_bounded_in_each_second_and_none_go_where_nobody_hands_off() {
        assert!(!LoadDigests::new(None).may_relay(Now(0), 1));
        let own = OwnView {
            table: Arc::default(),
            digest: Arc::default(),
            served: Arc::default(),
            arms: Arc::default(),
        };
        let mut digests = LoadDigests::new(Some(own));
        assert!(digests.may_relay(Now(0), RELAYS_PER_S_MAX - 1));
        assert!(!digests.may_relay(Now(999), 2) && digests.may_relay(Now(999), 1));
        assert!(!digests.may_relay(Now(999), 1) && digests.may_relay(Now(1_000), 1));
    }

    #[test]
    fn a_large_cluster_is_told_less_often() {
        for (nodes, expected_ms) in [(0, 50), (4, 50), (223, 50), (316, 100), (1024, 1049)] {
            assert_eq!(interval_ms(nodes), expected_ms, "{nodes} nodes");
        }
    }
}
