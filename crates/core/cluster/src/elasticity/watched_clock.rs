//! A clock that counts only the time in which elasticity was ticked.

use skep_units::Now;

/// Sums the time between ticks, each limited to a bound: a paused process, or a clock that jumped
/// forward, adds at most that, and a clock that goes back adds nothing.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct WatchedClock {
    watched_ms: u64,
    looked: Option<Now>,
}

impl WatchedClock {
    /// Advances the clock to `now`, by at most `step_ms_max`.
    pub(super) fn advance(&mut self, now: Now, step_ms_max: u64) {
        let passed_ms = self.looked.map_or(0, |looked| now.since_ms(looked));
        self.watched_ms += passed_ms.min(step_ms_max);
        self.looked = Some(now);
    }

    /// The time of the last tick.
    pub(super) fn now_ms(&self) -> u64 {
        self.watched_ms
    }
}
