//! Counts over time: the last hour with a fine step, the last 30 hours with a coarse one, in bounded memory.
//!
//! ```text
//!   add(from, counts) -> fine: 360 x 10 s | coarse: 1,800 x 1 min
//! ```
//! A step in which nothing was added is absent: its counts are unknown, not zero.

use std::collections::VecDeque;

use crate::limits::{
    SERIES_COARSE_POINTS, SERIES_COARSE_STEP_S, SERIES_FINE_POINTS, SERIES_FINE_STEP_S,
};

/// The step with which a [`Series`] is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SeriesStep {
    /// 10 s, for an hour.
    Fine,
    /// 1 min, for 30 hours.
    Coarse,
}

/// What was counted in one step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SeriesPoint<const N: usize> {
    /// The beginning of the step, in seconds since 1970: a multiple of its length.
    pub at_unix_s: u64,
    pub counts: [u64; N],
}

#[derive(Debug)]
pub struct Series<const N: usize> {
    fine: Steps<N>,
    coarse: Steps<N>,
}

#[derive(Debug)]
struct Steps<const N: usize> {
    step_s: u64,
    points_max: usize,
    points: VecDeque<SeriesPoint<N>>,
}

impl SeriesStep {
    pub const ALL: [Self; 2] = [Self::Fine, Self::Coarse];

    /// The length of the step in seconds.
    pub const fn seconds(self) -> u64 {
        match self {
            Self::Fine => SERIES_FINE_STEP_S,
            Self::Coarse => SERIES_COARSE_STEP_S,
        }
    }

    /// The maximum number of steps kept.
    pub const fn points_max(self) -> usize {
        match self {
            Self::Fine => SERIES_FINE_POINTS,
            Self::Coarse => SERIES_COARSE_POINTS,
        }
    }
}

impl<const N: usize> Default for Series<N> {
    fn default() -> Self {
        Self { fine: Steps::new(SeriesStep::Fine), coarse: Steps::new(SeriesStep::Coarse) }
    }
}

impl<const N: usize> Series<N> {
    /// Adds what was counted since `from_unix_s`, within one fine step. If that is earlier than the last
    /// step, the counts are added to the last step.
    pub fn add(&mut self, from_unix_s: u64, counts: [u64; N]) {
        self.fine.add(from_unix_s, counts);
        self.coarse.add(from_unix_s, counts);
    }

    /// The steps that are complete at `now_unix_s`, the oldest first.
    pub fn points(
        &self,
        step: SeriesStep,
        now_unix_s: u64,
    ) -> impl Iterator<Item = SeriesPoint<N>> + '_ {
        let ring = match step {
            SeriesStep::Fine => &self.fine,
            SeriesStep::Coarse => &self.coarse,
        };
        let is_over = move |it: &SeriesPoint<N>| it.at_unix_s + ring.step_s <= now_unix_s;
        ring.points.iter().copied().filter(is_over)
    }
}

impl<const N: usize> Steps<N> {
    fn new(step: SeriesStep) -> Self {
        Self { step_s: step.seconds(), points_max: step.points_max(), points: VecDeque::new() }
    }

    fn add(&mut self, from_unix_s: u64, counts: [u64; N]) {
        let at_unix_s = from_unix_s - from_unix_s % self.step_s;
        if let Some(last) = self.points.back_mut().filter(|it| it.at_unix_s >= at_unix_s) {
            for (sum, count) in last.counts.iter_mut().zip(counts) {
                *sum = sum.saturating_add(count);
            }
            return;
        }
        if self.points.len() >= self.points_max {
            self.points.pop_front();
        }
        self.points.push_back(SeriesPoint { at_unix_s, counts });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(series: &Series<2>, step: SeriesStep, now: u64) -> Vec<(u64, [u64; 2])> {
        series.points(step, now).map(|it| (it.at_unix_s, it.counts)).collect()
    }

    #[test]
    fn counts_are_summed_by_steps_and_gaps_stay_gaps() {
        let mut series = Series::<2>::default();
        for (from, counts) in [(1_000, [1, 2]), (1_010, [3, 4]), (1_017, [5, 6]), (1_080, [7, 8])] {
            series.add(from, counts);
        }
        let fine = [(1_000, [1, 2]), (1_010, [8, 10]), (1_080, [7, 8])];
        assert_eq!(read(&series, SeriesStep::Fine, 1_090), fine);
        assert_eq!(read(&series, SeriesStep::Fine, 1_089), fine[..2], "the last is not over");
        let coarse = [(960, [9, 12]), (1_080, [7, 8])];
        assert_eq!(read(&series, SeriesStep::Coarse, 1_140), coarse, "nothing is made up");
        // A clock that was set back.
        series.add(500, [1, 1]);
        assert_eq!(read(&series, SeriesStep::Fine, 1_090).last(), Some(&(1_080, [8, 9])));
    }

    #[test]
    fn thirty_hours_are_kept_and_no_more() {
        let mut series = Series::<2>::default();
        let (hours_31, hours_30) = (31 * 3_600, 30 * 3_600);
        (0..hours_31).step_by(10).for_each(|from| series.add(from, [1, 0]));
        let coarse = read(&series, SeriesStep::Coarse, hours_31);
        assert_eq!(coarse.len(), 1_800);
        assert_eq!(coarse[0], (hours_31 - hours_30, [6, 0]));
        let fine = read(&series, SeriesStep::Fine, hours_31);
        assert_eq!((fine.len(), fine[0].0), (360, hours_31 - 3_600));
    }
}
