//! Repetition of a message at intervals that double.

use skep_units::Now;

/// When a message was sent first, and when it is due again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Retry {
    pub(crate) since: Now,
    pub(crate) next: Now,
    interval_ms: u64,
    interval_ms_max: u64,
}

impl Retry {
    /// The message is sent now.
    pub(crate) fn new(now: Now, interval_ms: u64, interval_ms_max: u64) -> Self {
        Self { since: now, next: now.plus_ms(interval_ms), interval_ms, interval_ms_max }
    }

    /// Whether the message is due again; if so, schedules the next repetition.
    pub(crate) fn is_due(&mut self, now: Now) -> bool {
        let is_due = now >= self.next;
        if is_due {
            self.interval_ms = (2 * self.interval_ms).min(self.interval_ms_max);
            self.next = now.plus_ms(self.interval_ms);
        }
        is_due
    }

    /// Time since it was sent first.
    pub(crate) fn age_ms(&self, now: Now) -> u64 {
        now.since_ms(self.since)
    }
}
