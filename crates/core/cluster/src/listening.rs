//! Time spent listening: silence counts only while the process could have received heartbeats.
//!
//! A process that was not scheduled for seconds finds old deadlines expired, while the heartbeats
//! that disprove them are in its socket's queue (keepalived#2066). In listening time a pause counts
//! as one step at most, so only observed silence counts.

use skep_units::Now;

/// Converts the process's time into listening time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Listening {
    last: Option<Now>,
    listened: Now,
    /// In listening time.
    paused_at: Option<Now>,
    /// Longest step between two calls that counts in full, in milliseconds.
    step_ms_max: u64,
}

impl Listening {
    pub(crate) fn new(step_ms_max: u64) -> Self {
        Self { last: None, listened: Now(0), paused_at: None, step_ms_max }
    }

    /// Listening time up to the last call, in milliseconds.
    pub(crate) fn total_ms(&self) -> u64 {
        self.listened.0
    }

    /// Advances the listening time to `now`, by at most the longest step, and returns it.
    pub(crate) fn at(&mut self, now: Now) -> Now {
        let last = self.last.map_or(now, |last| last.max(now));
        let step_ms = self.last.map_or(0, |last| now.since_ms(last));
        self.last = Some(last);
        self.listened = self.listened.plus_ms(step_ms.min(self.step_ms_max));
        if step_ms > self.step_ms_max {
            self.paused_at = Some(self.listened);
        }
        self.listened
    }

    /// The listening time at which something arrived that is handled now. All time since then
    /// counts: it may have been in the socket's queue while the process was paused.
    pub(crate) fn of(&self, arrived: Now) -> Now {
        let ago_ms = self.last.map_or(0, |last| last.since_ms(arrived));
        Now(self.listened.0.saturating_sub(ago_ms))
    }

    /// The listening time, if no heartbeat could have been received since the last call.
    pub(crate) fn deaf_at(&mut self, now: Now) -> Now {
        self.last = Some(self.last.map_or(now, |last| last.max(now)));
        self.paused_at = Some(self.listened);
        self.listened
    }

    /// Whether there was no pause within the last two steps: a heartbeat of every live machine
    /// would have arrived since. Silence from before a pause may have ended during it.
    pub(crate) fn is_awake(&self) -> bool {
        self.paused_at.is_none_or(|at| self.listened.since_ms(at) >= 2 * self.step_ms_max)
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

    #[test]
    fn what_was_in_the_queue_in_a_pause_is_as_old_as_it_is() {
        let mut listening = Listening::new(50);
        let listened = [1_000, 1_400, 6_000].map(|now| listening.at(Now(now)));
        assert_eq!(listened, [0, 50, 100].map(Now));
        assert_eq!(
            [6_000, 5_970, 5_000, 0].map(|at| listening.of(Now(at))),
            [100, 70, 0, 0].map(Now)
        );
    }

    #[test]
    fn time_in_which_nothing_could_be_heard_does_not_count() {
        let mut listening = Listening::new(50);
        assert_eq!([0, 40].map(|now| listening.at(Now(now))), [Now(0), Now(40)]);
        assert_eq!([60, 900].map(|now| listening.deaf_at(Now(now))), [Now(40), Now(40)]);
        assert_eq!(listening.at(Now(910)), Now(50));
    }

    #[test]
    fn who_wakes_up_listens_first() {
        let mut listening = Listening::new(50);
        for (now, is_awake) in
            [(0, true), (50, true), (101, false), (150, false), (200, false), (201, true)]
        {
            listening.at(Now(now));
            assert_eq!(listening.is_awake(), is_awake, "{now}");
        }
    }
}
