//! What a node has evicted and passes on to other nodes.

use std::collections::VecDeque;

/// A segment that leaves its last node.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EvictedSegment {
    pub(crate) segment: u32,
    pub(crate) bytes: u64,
    /// How often it may be passed on after this time.
    pub(crate) chances: u8,
}

/// What a node has evicted and passes on.
#[derive(Debug, Default)]
pub(crate) struct PassOnQueue {
    pub(crate) waiting: VecDeque<EvictedSegment>,
    pub(crate) waiting_bytes: u64,
    /// The segment that is on its way, and the node that it goes to.
    pub(crate) moving: Option<(EvictedSegment, u32)>,
}
