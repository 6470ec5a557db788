//! What all workers know of a node: a few atomics.
//!
//! Writers are the workers (loads, totals) and, under its lock, the dispatcher
//! (share). Everything is `Relaxed`: the numbers steer, they decide nothing.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU32, AtomicU64, Ordering::Relaxed};

use skep_policy::NodeView;
use skep_units::{NodeId, stable_hash};

use crate::limits::LATENCY_SMOOTHING;

/// One node, shared by all workers. On cache lines of its own.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct Node {
    pub(crate) id: NodeId,
    pub(crate) name: Arc<str>,
    pub(crate) name_hash: u64,
    pub(crate) address: SocketAddr,
    /// Thousandths of its share that it takes now; 0: no new requests.
    share_permille: AtomicU16,
    /// A request failed there lately: the next good one is to be reported.
    suspect: AtomicBool,
    pub(crate) load: Load,
    pub(crate) totals: Totals,
}

/// What a node does now.
#[derive(Debug, Default)]
pub(crate) struct Load {
    /// Requests sent and not yet answered in full.
    pub(crate) requests: AtomicU32,
    /// Upgraded connections.
    pub(crate) tunnels: AtomicU32,
    /// Bytes of announced reply bodies that did not come yet.
    pub(crate) bytes: AtomicU64,
}

/// What a node did since the dispatcher knows it.
#[derive(Debug, Default)]
pub(crate) struct Totals {
    pub(crate) requests: AtomicU64,
    pub(crate) failures: AtomicU64,
    /// Bytes of reply bodies.
    pub(crate) bytes: AtomicU64,
    /// Moving average of the time to answer, in microseconds.
    latency_us: AtomicU64,
}

impl Node {
    pub(crate) fn new(id: NodeId, name: Arc<str>, address: SocketAddr) -> Self {
        Self {
            id,
            // As `core/cluster` has it: the same on every machine.
            name_hash: stable_hash(name.as_bytes(), 0),
            name,
            address,
            share_permille: AtomicU16::new(0),
            suspect: AtomicBool::new(false),
            load: Load::default(),
            totals: Totals::default(),
        }
    }

    /// Thousandths of its share that it takes now; 0: no new requests.
    pub(crate) fn share_permille(&self) -> u16 {
        self.share_permille.load(Relaxed)
    }

    pub(crate) fn set_share_permille(&self, share: u16) {
        self.share_permille.store(share, Relaxed);
    }

    /// Whether a good request would be news.
    pub(crate) fn is_suspect(&self) -> bool {
        self.suspect.load(Relaxed)
    }

    pub(crate) fn set_suspect(&self, suspect: bool) {
        self.suspect.store(suspect, Relaxed);
    }

    /// Requests and tunnels: what a drain waits for.
    pub(crate) fn in_use(&self) -> u32 {
        self.load.requests.load(Relaxed).saturating_add(self.load.tunnels.load(Relaxed))
    }

    /// Moving average of the time to answer, in microseconds; 0: no answer yet.
    pub(crate) fn latency_us(&self) -> u64 {
        self.totals.latency_us.load(Relaxed)
    }

    /// Adds one answer to the average. Two workers may overwrite each other's;
    /// an average does not mind.
    pub(crate) fn record_latency_us(&self, latency_us: u64) {
        let average = match self.latency_us() {
            0 => latency_us,
            old => (old * (LATENCY_SMOOTHING - 1) + latency_us) / LATENCY_SMOOTHING,
        };
        // 0 means "none": an answer within a microsecond took one.
        self.totals.latency_us.store(average.max(1), Relaxed);
    }

    /// Brings what changes from request to request into `view`.
    pub(crate) fn refresh(&self, view: &mut NodeView) {
        let share = self.share_permille();
        view.eligible = share > 0;
        view.slow_start_permille = share.max(1);
        view.outstanding_requests = self.load.requests.load(Relaxed);
        view.connections =
            view.outstanding_requests.saturating_add(self.load.tunnels.load(Relaxed));
        view.outstanding_bytes = self.load.bytes.load(Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_average_begins_at_the_first_answer_and_follows() {
        let node = Node::new(NodeId(0), "n".into(), ([127, 0, 0, 1], 1).into());
        assert_eq!(node.latency_us(), 0);
        node.record_latency_us(1_000);
        assert_eq!(node.latency_us(), 1_000);
        for _ in 0..200 {
            node.record_latency_us(2_000);
        }
        assert!((1_900..=2_000).contains(&node.latency_us()), "{}", node.latency_us());
        node.record_latency_us(0);
        assert!(node.latency_us() > 0);
    }
}
