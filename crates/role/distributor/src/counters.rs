//! What the mover has done so far, for metrics and operators.

use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use skep_handoff::{DonorCounters, MovedCounters, ReceiverCounters};

/// See the module.
#[derive(Debug, Default)]
pub struct HandoffCounters {
    latest: Mutex<HandoffCounts>,
    malformed: AtomicU64,
    move_us_sum: AtomicU64,
    move_us_max: AtomicU64,
}

/// The counters of both state machines.
#[derive(Clone, Debug, Default)]
pub struct HandoffCounts {
    pub donor: DonorCounters,
    pub receiver: ReceiverCounters,
    pub moved: MovedCounters,
}

impl HandoffCounters {
    pub fn counts(&self) -> HandoffCounts {
        self.latest.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Authentic messages that are none.
    pub fn malformed_messages(&self) -> u64 {
        self.malformed.load(Relaxed)
    }

    /// Time of all moves, and of the longest, in microseconds.
    pub fn move_us(&self) -> (u64, u64) {
        (self.move_us_sum.load(Relaxed), self.move_us_max.load(Relaxed))
    }

    pub(crate) fn take(
        &self,
        donor: &DonorCounters,
        receiver: &ReceiverCounters,
        moved: MovedCounters,
    ) {
        let counts = HandoffCounts { donor: donor.clone(), receiver: receiver.clone(), moved };
        *self.latest.lock().unwrap_or_else(PoisonError::into_inner) = counts;
    }

    pub(crate) fn malformed(&self) {
        self.malformed.fetch_add(1, Relaxed);
    }

    pub(crate) fn moved_in(&self, took: Duration) {
        let took_us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        self.move_us_sum.fetch_add(took_us, Relaxed);
        self.move_us_max.fetch_max(took_us, Relaxed);
    }
}
