//! What nodes have evicted and pass on.

use std::collections::VecDeque;

/// A segment that leaves its last node.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LeavingSegment {
    pub(crate) segment: u32,
    pub(crate) bytes: u64,
    /// How often it may be passed on after this time.
    pub(crate) chances: u8,
}

/// What a node has evicted and passes on.
#[derive(Debug, Default)]
pub(crate) struct LeavingQueue {
    pub(crate) waiting: VecDeque<LeavingSegment>,
    pub(crate) waiting_bytes: u64,
    /// The segment that is on its way, and the node that it goes to.
    pub(crate) moving: Option<(LeavingSegment, u32)>,
}
