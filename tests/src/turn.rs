//! How many tests of a process have a test bed at a time: few, since they would take the
//! processor from each other; one alone, where it takes all there is.

use std::sync::{Condvar, Mutex, PoisonError};

/// Beds at a time. Most tests wait for timers of the product.
const TURNS: usize = 4;

static FREE: Mutex<usize> = Mutex::new(TURNS);
static FREED: Condvar = Condvar::new();

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
