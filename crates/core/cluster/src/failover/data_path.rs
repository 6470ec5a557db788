//! Whether this dispatcher could serve clients, judged by the nodes that it receives heartbeats
//! from.

use skep_units::Now;

use super::lasting::Lasting;
use crate::limits::DATA_PATH_LOST_MS;

/// The path from this dispatcher to the nodes, assumed to work until proven otherwise.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct DataPath {
    has_worked: bool,
    /// No node's heartbeats are received.
    deaf: Option<Lasting>,
}

impl DataPath {
    /// A node's heartbeat was received. A pause may precede the next check.
    pub(super) fn has_heard(&mut self) {
        self.has_worked = true;
    }

    /// Records whether any node's heartbeats are received at present.
    pub(super) fn see(&mut self, listened: Now, hears_nodes: bool) {
        self.has_worked |= hears_nodes;
        self.deaf = Lasting::look(self.deaf, !hears_nodes, listened, DATA_PATH_LOST_MS);
    }

    /// Whether nodes were reachable before and none is now: other active dispatchers may be
    /// unreachable, too.
    pub(super) fn is_broken(&self) -> bool {
        self.has_worked && self.deaf.is_some()
    }

    /// Whether no heartbeat of a node was received for so long that other dispatchers should serve.
    pub(super) fn is_lost(&self) -> bool {
        self.deaf.is_some_and(|it| it.is_long)
    }
}
