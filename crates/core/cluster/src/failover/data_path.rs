//! Whether clients could be served by way of this dispatcher, as far as it hears nodes.

use skep_units::Now;

use super::lasting::Lasting;
use crate::limits::DATA_PATH_LOST_MS;

/// The path from this dispatcher to the nodes. It works until the contrary is seen.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct DataPath {
    has_worked: bool,
    /// No node is heard.
    deaf: Option<Lasting>,
}

impl DataPath {
    /// A node was heard. A pause may come before the next look.
    pub(super) fn has_heard(&mut self) {
        self.has_worked = true;
    }

    /// Whether any node is heard at this moment.
    pub(super) fn see(&mut self, listened: Now, hears_nodes: bool) {
        self.has_worked |= hears_nodes;
        self.deaf = Lasting::look(self.deaf, !hears_nodes, listened, DATA_PATH_LOST_MS);
    }

    /// Whether nodes were heard before, and none is now: others may be active unheard, too.
    pub(super) fn is_broken(&self) -> bool {
        self.has_worked && self.deaf.is_some()
    }

    /// Whether no node has been heard for so long that others should serve.
    pub(super) fn is_lost(&self) -> bool {
        self.deaf.is_some_and(|it| it.is_long)
    }
}
