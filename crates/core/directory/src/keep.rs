//! Which segments a node keeps and which it evicts, given the replicas of other nodes.
//!
//! Pure decisions, the same in a node and in a simulator. The order of eviction is that of
//! `core/cache`; this module adds the rules of the cluster.
//!
//! ```text
//!   to evict:  redundant replicas --> primary and sole ones, in the order of S3-FIFO
//!                                       | offered to the successor of a primary one, to the
//!                                       | roomiest node, CHANCES times
//!                                       v
//!                                     dropped
//! ```
//!
//! A large segment that would only evict others is filled remotely, by a node that has room
//! ([`prefers_remote_fill`]).

use std::ops::Range;

use skep_wire::cache::ReplicaStatus;

use crate::limits::{CHANCES, READ_AHEAD, REMOTE_FILL_BYTES_MIN, SEQUENTIAL_RUN};

/// Whether to offer a segment that is being evicted to another node, and with how many chances
/// left: if it is the sole or the primary replica, and was not passed on too often since its last
/// request (N-chance forwarding: Dahlin et al., OSDI '94).
pub fn offer(replica_status: ReplicaStatus, chances: u8) -> Option<u8> {
    let left = chances.min(CHANCES).checked_sub(1);
    left.filter(|_| replica_status != ReplicaStatus::Redundant)
}

/// Room in a node's memory for segments of other nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Room {
    /// Free bytes.
    pub free_bytes: u64,
    /// Bytes of redundant replicas, which are evicted first.
    pub redundant_bytes: u64,
}

/// Whether to take an offered replica of `bytes`: into free memory, or in place of redundant
/// replicas, but never in place of a sole one, which would only begin a chain of offers.
pub fn accepts(room: Room, bytes: u32) -> bool {
    room.free_bytes.saturating_add(room.redundant_bytes) >= u64::from(bytes)
}

/// Whether a node with this `room` prefers a remote fill for a segment of `bytes`: the node with
/// most room fills it, and this one reads along. A local fill would soon be evicted, or evict
/// segments that must then be passed on over the link that also carries clients' traffic.
pub fn prefers_remote_fill(room: Room, bytes: u32) -> bool {
    bytes >= REMOTE_FILL_BYTES_MIN && !accepts(room, bytes)
}

/// The access pattern of one object, by one client or by all concurrent ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reader {
    /// The next segment if read sequentially, and how many were read in a row.
    next: u32,
    run: u32,
}

impl Reader {
    /// Records a read of segment `index`.
    pub fn reads(&mut self, index: u32) {
        // Repeating the last segment neither extends nor ends the run.
        if index == self.next {
            self.run += 1;
        } else if index.checked_add(1) != Some(self.next) {
            self.run = 1;
        }
        self.next = index.saturating_add(1);
    }

    /// Whether segments are read one after the other.
    pub fn is_sequential(&self) -> bool {
        self.run >= SEQUENTIAL_RUN
    }
}

/// The segments to read ahead when a reply has reached segment `at`: within what the reply needs,
/// up to `last`, and for a sequential reader up to `object_last`, the last segment of the object.
pub fn prefetch(at: u32, last: u32, object_last: u32, reader: Reader) -> Range<u32> {
    let end = if reader.is_sequential() { object_last } else { last.min(object_last) };
    let from = at.saturating_add(1);
    from..at.saturating_add(READ_AHEAD).min(end).saturating_add(1).max(from)
}
