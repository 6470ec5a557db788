//! Which segments stay in a node's memory and which are evicted, given the replicas of other nodes.
//!
//! Pure decisions; a node and a simulator make the same ones. The order of eviction
//! is that of `core/cache`; this module adds the rules of the cluster.
//!
//! ```text
//!   to evict:  redundant replicas --> primary and sole ones, in the order of S3-FIFO
//!                                       | offered to the successor of a primary one, to the
//!                                       | roomiest node, CHANCES times
//!                                       v
//!                                     dropped
//! ```
//!
//! An object in large pieces that would only evict others is filled remotely: on a node
//! that has room from the start ([`prefers_remote_fill`]).

use std::ops::Range;

use skep_wire::cache::ReplicaStatus;

use crate::limits::{CHANCES, READ_AHEAD, REMOTE_FILL_BYTES_MIN, SEQUENTIAL_RUN};

/// Whether another node is offered a segment that leaves, and with how many chances
/// left: if it is the sole replica, or the primary one, and was asked for since it was
/// passed on so often (N-chance forwarding: Dahlin et al., OSDI '94).
pub fn offer(replica_status: ReplicaStatus, chances: u8) -> Option<u8> {
    let left = chances.min(CHANCES).checked_sub(1);
    left.filter(|_| replica_status != ReplicaStatus::Redundant)
}

/// A node's memory, for one that looks for room in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Room {
    /// Bytes that are free.
    pub free_bytes: u64,
    /// Bytes of segments that others keep, and that leave before all else.
    pub redundant_bytes: u64,
}

/// Whether a replica of `bytes` that was offered is taken: into free memory, or instead
/// of redundant ones. Never instead of a sole one: that would only begin a chain of
/// offers.
pub fn accepts(room: Room, bytes: u32) -> bool {
    room.free_bytes.saturating_add(room.redundant_bytes) >= u64::from(bytes)
}

/// Whether a node with this `room` that has to fill a segment of `bytes` prefers a remote
/// fill: the node with most room fills it, and this one reads along. What comes here would
/// leave soon, or push out what must then be passed on, by the link that clients wait for.
pub fn prefers_remote_fill(room: Room, bytes: u32) -> bool {
    bytes >= REMOTE_FILL_BYTES_MIN && !accepts(room, bytes)
}

/// How one object is read, by one client or by all who do at a time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reader {
    /// The segment that would come next, and how many came in a row.
    next: u32,
    run: u32,
}

impl Reader {
    /// It reads segment `index`.
    pub fn reads(&mut self, index: u32) {
        // The same one again is neither.
        if index == self.next {
            self.run += 1;
        } else if index.checked_add(1) != Some(self.next) {
            self.run = 1;
        }
        self.next = index.saturating_add(1);
    }

    /// Whether it reads one segment after the other.
    pub fn is_sequential(&self) -> bool {
        self.run >= SEQUENTIAL_RUN
    }
}

/// Which segments to read ahead when a reply has come to segment `at`: of those
/// that the reply needs up to `last`, and, for a sequential reader, of those up
/// to the object's last one, `object_last`.
pub fn prefetch(at: u32, last: u32, object_last: u32, reader: Reader) -> Range<u32> {
    let end = if reader.is_sequential() { object_last } else { last.min(object_last) };
    let from = at.saturating_add(1);
    from..at.saturating_add(READ_AHEAD).min(end).saturating_add(1).max(from)
}
