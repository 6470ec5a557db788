//! Arrivals of the heartbeats of one machine: the last one, and the longest interval between two.

use skep_units::Now;
use skep_wire::seal::Stamp;

/// The last heartbeat, and the longest interval.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrivals {
    pub(crate) stamp: Stamp,
    /// By the receiving process's clock.
    pub(crate) at: Now,
    /// Longest interval between two heartbeats of the same process, in milliseconds: a restart does
    /// not count.
    pub(crate) gap_ms_max: u64,
}

impl Arrivals {
    /// Records a heartbeat; `None` if a later one was received before.
    pub(crate) fn next(before: Option<Self>, stamp: Stamp, at: Now) -> Option<Self> {
        let Some(before) = before else { return Some(Self { stamp, at, gap_ms_max: 0 }) };
        let is_restart = stamp.incarnation != before.stamp.incarnation;
        let gap_ms = if is_restart { 0 } else { at.since_ms(before.at) };
        let gap_ms_max = before.gap_ms_max.max(gap_ms);
        (stamp > before.stamp).then_some(Self { stamp, at, gap_ms_max })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_gap_is_within_one_process() {
        let mut last = None;
        for (incarnation, sequence, at, gap_ms_max) in [
            (1, 1, 1_000, Some(0)),
            (1, 2, 1_050, Some(50)),
            // Overtaken by the previous one.
            (1, 1, 1_060, None),
            (1, 4, 1_170, Some(120)),
            (1, 5, 1_200, Some(120)),
            // A restart.
            (2, 1, 9_000, Some(120)),
            (2, 2, 9_130, Some(130)),
        ] {
            let next = Arrivals::next(last, Stamp { incarnation, sequence }, Now(at));
            assert_eq!(next.map(|it| it.gap_ms_max), gap_ms_max, "{incarnation} {sequence}");
            last = next.or(last);
        }
    }
}
