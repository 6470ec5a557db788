//! Time spent listening: silence counts only while somebody could have heard.
//!
//! A process that was not run for seconds finds old deadlines passed, and its
//! socket full of heartbeats that prove them wrong (keepalived#2066). In this
//! time a pause is one step at most, so silence must be listened to.

use skep_units::Now;

/// Turns the process's time into time spent listening.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Listening {
    last: Option<Now>,
    listened: Now,
    /// Longest time between two calls that counts in full, in milliseconds.
    step_ms_max: u64,
}

impl Listening {
    pub(crate) fn new(step_ms_max: u64) -> Self {
        Self { last: None, listened: Now(0), step_ms_max }
    }

    /// Time spent listening up to the last call, in milliseconds.
    pub(crate) fn total_ms(&self) -> u64 {
        self.listened.0
    }

    /// The time now: goes on by what passed since the last call, or by the
    /// longest step if that was more.
    pub(crate) fn at(&mut self, now: Now) -> Now {
        let last = self.last.map_or(now, |last| last.max(now));
        let step_ms = self.last.map_or(0, |last| now.since_ms(last));
        self.last = Some(last);
        self.listened = self.listened.plus_ms(step_ms.min(self.step_ms_max));
        self.listened
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_is_one_step_and_time_never_falls() {
        let mut listening = Listening::new(50);
        for (now, listened) in
            [(1_000, 0), (1_020, 20), (1_020, 20), (6_000, 70), (5_000, 70), (6_010, 80)]
        {
            assert_eq!(listening.at(Now(now)), Now(listened), "{now}");
        }
    }
}
