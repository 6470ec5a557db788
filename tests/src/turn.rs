//! How many tests of a process have a test bed at a time: few, since they would take the
//! processor from each other; one alone, where it takes all there is.

use std::sync::{Condvar, Mutex, PoisonError};

/// Beds at a time. Most tests wait for timers of the product.
const TURNS: usize = 4;

/// Heartbeats of clusters that share the machine with others, whose threads run up to 150 ms late.
const HEARTBEATS: &str = "heartbeat_ms = \"50ms\"\nheartbeats_missed_max = 6\n";

static FREE: Mutex<usize> = Mutex::new(TURNS);
static FREED: Condvar = Condvar::new();

/// Lines of `[direct]`: the product's own heartbeats where the cluster is alone.
pub(crate) fn heartbeats(alone: bool) -> &'static str {
    if alone { "" } else { HEARTBEATS }
}

/// Leave to have a bed; given back when dropped.
pub(crate) struct Turn {
    taken: usize,
}

impl Turn {
    /// Waits for its turn; `alone`, until nobody else has one.
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
