//! A clock that counts only time in which elasticity was driven.

use skep_units::Now;

/// Counts the time between looks, each up to a bound: a process that was paused, or a clock that jumped, adds no more than
/// that, and one that goes back adds nothing.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct WatchedClock {
    watched_ms: u64,
    looked: Option<Now>,
}

impl WatchedClock {
    /// Somebody looks.
    pub(super) fn advance(&mut self, now: Now, step_ms_max: u64) {
        let passed_ms = self.looked.map_or(0, |looked| now.since_ms(looked));
        self.watched_ms += passed_ms.min(step_ms_max);
        self.looked = Some(now);
    }

    /// The time of the last look.
    pub(super) fn now_ms(&self) -> u64 {
        self.watched_ms
    }
}
