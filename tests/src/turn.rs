//! Limits how many tests of a process have a test bed at a time: only a few, as they compete for the
//! processor, or one alone that needs the whole machine.

use std::sync::{Condvar, Mutex, PoisonError};

/// Maximum number of concurrent beds. Most tests wait for timers of the product.
const TURNS: usize = 6;

/// Heartbeats of clusters that share the machine with others, where threads run up to 150 ms late.
const HEARTBEATS: &str = "heartbeat_ms = \"50ms\"\nheartbeats_missed_max = 6\n";

static FREE: Mutex<usize> = Mutex::new(TURNS);
static FREED: Condvar = Condvar::new();

/// Returns lines of `[direct]`; if the cluster is alone, the product's default heartbeats apply.
pub(crate) fn heartbeats(alone: bool) -> &'static str {
    if alone { "" } else { HEARTBEATS }
}

/// Permission to have a bed; returned when dropped.
pub(crate) struct Turn {
    taken: usize,
}

impl Turn {
    /// Waits for its turn; if `alone`, until no other test has one.
    pub(crate) fn wait(alone: bool) -> Self {
        let taken = if alone { TURNS } else { 1 };
        let free = FREE.lock().unwrap_or_else(PoisonError::into_inner);
        let enough = FREED.wait_while(free, |free| *free < taken);
        *enough.unwrap_or_else(PoisonError::into_inner) -= taken;
        Self { taken }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        *FREE.lock().unwrap_or_else(PoisonError::into_inner) += self.taken;
        FREED.notify_all();
    }
}
