//! Repetition of a message, in intervals that double.

use skep_units::Now;

/// When something was said first, and when it is said next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Retry {
    pub(crate) since: Now,
    pub(crate) next: Now,
    interval_ms: u64,
    interval_ms_max: u64,
}

impl Retry {
    /// It is said now.
    pub(crate) fn new(now: Now, interval_ms: u64, interval_ms_max: u64) -> Self {
        Self { since: now, next: now.plus_ms(interval_ms), interval_ms, interval_ms_max }
    }

    /// Whether it is to be said again now; if so, it is.
    pub(crate) fn is_due(&mut self, now: Now) -> bool {
        let is_due = now >= self.next;
        if is_due {
            self.interval_ms = (2 * self.interval_ms).min(self.interval_ms_max);
            self.next = now.plus_ms(self.interval_ms);
        }
        is_due
    }

    /// Since it was said first.
    pub(crate) fn age_ms(&self, now: Now) -> u64 {
        now.since_ms(self.since)
    }
}
