//! Settings of handoffs, the same on all nodes of a cluster.

use crate::limits::{GO_MARGIN_MS, READY_MS, UNDECIDED_MS};

/// Times that both ends rely on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HandoffTimes {
    /// A donor that has not heard READY for so long after its first OFFER keeps the connection; it never
    /// orders the redirect later.
    pub ready_ms: u64,
    /// A receiver that is ready and hears neither GO nor ABORT for so long closes the connection with RST.
    pub undecided_ms: u64,
}

impl HandoffTimes {
    /// How long a donor repeats GO.
    pub(crate) fn go_ms(self) -> u64 {
        self.undecided_ms + GO_MARGIN_MS
    }
}

impl Default for HandoffTimes {
    fn default() -> Self {
        Self { ready_ms: READY_MS, undecided_ms: UNDECIDED_MS }
    }
}
