//! Schedules turns: at multiples of the interval, by the monotonic clock.
//!
//! A turn that takes longer than the interval does not shift later ones: the turns that it overlaps
//! are skipped and counted.

use std::time::{Duration, Instant};

/// The turns of a run.
#[derive(Debug)]
pub(crate) struct Schedule {
    begin: Instant,
    interval_ms: u64,
    /// The multiple of the interval that is next.
    slot: u64,
    skipped: u64,
}

impl Schedule {
    pub(crate) fn new(begin: Instant, interval_ms: u64) -> Self {
        assert!(interval_ms > 0, "an interval has a length");
        Self { begin, interval_ms, slot: 0, skipped: 0 }
    }

    /// Time of the next turn.
    pub(crate) fn due(&self) -> Instant {
        self.begin + Duration::from_millis(self.interval_ms.saturating_mul(self.slot))
    }

    /// Records that the turn ended at `now`: the next one is the first that is not in the past.
    pub(crate) fn end_turn(&mut self, now: Instant) {
        let past_ns = now.saturating_duration_since(self.begin).as_nanos();
        let reached = past_ns.div_ceil(u128::from(self.interval_ms) * 1_000_000);
        let reached = u64::try_from(reached).unwrap_or(u64::MAX);
        let next = self.slot + 1;
        self.skipped += reached.saturating_sub(next);
        self.slot = next.max(reached);
    }

    /// Number of turns that were skipped.
    pub(crate) fn skipped(&self) -> u64 {
        self.skipped
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The next due time after turns that end at these milliseconds, and the number of skipped
    /// turns.
    fn after(ends_ms: &[u64]) -> (u64, u64) {
        let begin = Instant::now();
        let mut schedule = Schedule::new(begin, 100);
        for end_ms in ends_ms {
            schedule.end_turn(begin + Duration::from_millis(*end_ms));
        }
        let due_ms = schedule.due().duration_since(begin).as_millis();
        (u64::try_from(due_ms).unwrap_or(u64::MAX), schedule.skipped())
    }

    #[test]
    fn turns_begin_at_multiples_of_the_interval() {
        for (ends_ms, expected) in [
            (&[] as &[u64], (0, 0)),
            (&[0], (100, 0)),
            (&[99], (100, 0)),
            (&[100], (100, 0)),
            (&[10, 150], (200, 0)),
        ] {
            assert_eq!(after(ends_ms), expected, "{ends_ms:?}");
        }
    }

    #[test]
    fn a_slow_turn_skips_those_that_it_covers_and_shifts_none() {
        assert_eq!(after(&[101]), (200, 1));
        assert_eq!(after(&[950]), (1000, 9));
        assert_eq!(after(&[950, 1_010]), (1100, 9));
        assert_eq!(after(&[950, 1_150]), (1200, 10));
    }

    #[test]
    fn a_machine_that_stood_still_for_an_age_skips_at_once() {
        let day_ms = 86_400_000;
        assert_eq!(after(&[400 * day_ms + 1]), (400 * day_ms + 100, 4_000 * day_ms / 1000));
    }
}
