//! Accounting of one attempt: load while it lasts, totals at its end.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use crate::http::handler::DispatcherHandler;
use crate::http::worker_balancer::PickedNode;
use crate::limits::OWED_BYTES_MAX;

/// An attempt at a node. Counted as load until it is dropped.
pub(super) struct InFlight<'a> {
    handler: &'a DispatcherHandler,
    target: PickedNode,
    began: Instant,
    /// Bytes of the announced body that have not arrived yet.
    owed: u64,
    /// Bytes of the body that have arrived.
    received: u64,
    is_tunnel: bool,
    /// The outcome so far.
    failed: bool,
}

impl<'a> InFlight<'a> {
    pub(super) fn new(handler: &'a DispatcherHandler, target: PickedNode, began: Instant) -> Self {
        target.node().load.requests.rise(1);
        Self { handler, target, began, owed: 0, received: 0, is_tunnel: false, failed: true }
    }

    pub(super) fn target(&self) -> &PickedNode {
        &self.target
    }

    /// The reply will have this many bytes more than arrived with its head.
    pub(super) fn owe(&mut self, bytes: u64) {
        let bytes = bytes.min(OWED_BYTES_MAX);
        self.owed += bytes;
        self.target.node().load.bytes.rise(bytes);
    }

    /// Counts bytes of the body that arrived.
    pub(super) fn receive(&mut self, bytes: u64) {
        self.received += bytes;
        let paid = bytes.min(self.owed);
        if paid > 0 {
            self.owed -= paid;
            self.target.node().load.bytes.fall(paid);
        }
    }

    /// The reply was read to its end, or the fault was not the node's.
    pub(super) fn succeed(&mut self) {
        self.failed = false;
    }

    /// The connection was upgraded.
    pub(super) fn become_tunnel(&mut self) {
        let load = &self.target.node().load;
        load.tunnels.fetch_add(1, Relaxed);
        load.requests.fall(1);
        self.is_tunnel = true;
    }

    /// Counts bytes that a tunnel received from the node.
    pub(super) fn tunnelled(&mut self, bytes: u64) {
        self.received += bytes;
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        let node = self.target.node();
        if self.owed > 0 {
            node.load.bytes.fall(self.owed);
        }
        node.totals.requests.fetch_add(1, Relaxed);
        node.totals.bytes.fetch_add(self.received, Relaxed);
        let latency_us = self.began.elapsed().as_micros() as u64;
        if self.is_tunnel {
            node.load.tunnels.fetch_sub(1, Relaxed);
        } else {
            node.load.requests.fall(1);
        }
        if self.failed {
            node.totals.failures.fetch_add(1, Relaxed);
        } else if !self.is_tunnel {
            // How long a tunnel lives says nothing of how fast a node is.
            node.record_latency_us(latency_us);
        }
        self.handler.balancer().finished(node.id, self.received, latency_us);
    }
}
