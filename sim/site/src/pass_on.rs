//! Nodes pass on what they evict and no other node has (N-chance forwarding): to the node with most room, one segment after
//! the other, over their links. Unlike in live nodes, no node finds a segment while it is being moved, and no transfer times out.

use std::collections::VecDeque;

use crate::limits::LEAVING_BYTES_MAX;
use crate::pass_on_queue::EvictedSegment;
use crate::world::{Transfer, World};

impl World<'_> {
    /// Takes what nodes have just evicted.
    pub(crate) fn pass_on_evicted(&mut self, now: u64) {
        while let Some((node, leaving)) = self.memories.next_evicted() {
            let queue = &mut self.pass_on_queues[node as usize];
            if queue.waiting_bytes + leaving.bytes <= LEAVING_BYTES_MAX {
                queue.waiting_bytes += leaving.bytes;
                queue.waiting.push_back(leaving);
            }
            self.pass_on_next(now, node);
        }
    }

    /// A segment has reached the node that it was passed on to.
    pub(crate) fn passed_on(&mut self, now: u64, node: u32) {
        let Some((leaving, to)) = self.pass_on_queues[node as usize].moving.take() else { return };
        let EvictedSegment { segment, bytes, chances } = leaving;
        self.fetches.peer_bytes[node as usize] -= bytes;
        self.outcome.totals.peer_bytes += bytes;
        if self.memories.holders(segment).is_empty() {
            self.keep(now, to, segment, bytes);
            self.memories.set_chances(to, segment, chances);
        }
        self.pass_on_next(now, node);
    }

    /// Begins with the next segment that a node has room for; drops all if none has.
    fn pass_on_next(&mut self, now: u64, node: u32) {
        let nodes = self.run.cluster.nodes.len() as u32;
        while self.pass_on_queues[node as usize].moving.is_none() {
            let queue = &mut self.pass_on_queues[node as usize];
            let Some(leaving) = queue.waiting.pop_front() else { return };
            queue.waiting_bytes -= leaving.bytes;
            if !self.memories.holders(leaving.segment).is_empty() {
                continue;
            }
            let others = (0..nodes).filter(|other| *other != node);
            let charged = self.memories.charged_bytes(leaving.bytes);
            let Some(to) = self.memories.roomiest(others, charged) else {
                (queue.waiting_bytes, queue.waiting) = (0, VecDeque::new());
                return;
            };
            queue.moving = Some((leaving, to));
            self.fetches.peer_bytes[node as usize] += leaving.bytes;
            self.transfer(now, node as usize, leaving.bytes, Transfer::PassOn(node));
        }
    }
}
