//! Times of one thread as a log-linear histogram, and quantiles of the merged histograms of all threads.
//!
//! Below 16 us each microsecond has its own bucket; above, each power of two is divided into 16 buckets (the
//! layout of HdrHistogram, Gil Tene 2012). A value is read back as the middle of its bucket, with an error of
//! at most 1/32 (3.2 %).

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::single_writer::bump;

/// log2 of the number of buckets per power of two.
const SUB_BITS: u32 = 4;
const SUB: usize = 1 << SUB_BITS;
/// Values are clamped to this: 2^32 us are 71 minutes, longer than any request lasts.
const VALUE_BITS: u32 = 32;
const VALUE_US_MAX: u64 = (1 << VALUE_BITS) - 1;
const BUCKETS: usize = SUB + (VALUE_BITS - SUB_BITS) as usize * SUB;

/// Upper bounds of the Prometheus buckets: seconds as text, and microseconds.
pub(crate) const LE: [(&str, u64); 14] = [
    ("0.0001", 100),
    ("0.00025", 250),
    ("0.0005", 500),
    ("0.001", 1_000),
    ("0.0025", 2_500),
    ("0.005", 5_000),
    ("0.01", 10_000),
    ("0.025", 25_000),
    ("0.05", 50_000),
    ("0.1", 100_000),
    ("0.25", 250_000),
    ("1", 1_000_000),
    ("5", 5_000_000),
    ("30", 30_000_000),
];

/// Finer bounds, for a [`Histogram`]: the times that it counts are around ten microseconds.
pub(crate) const LE_FINE: [(&str, u64); 28] = [
    ("0.000002", 2),
    ("0.000004", 4),
    ("0.000006", 6),
    ("0.000008", 8),
    ("0.00001", 10),
    ("0.000015", 15),
    ("0.00002", 20),
    ("0.00003", 30),
    ("0.00004", 40),
    ("0.00005", 50),
    ("0.00006", 60),
    ("0.00007", 70),
    ("0.00008", 80),
    ("0.0001", 100),
    ("0.00012", 120),
    ("0.00015", 150),
    ("0.0002", 200),
    ("0.0003", 300),
    ("0.0005", 500),
    ("0.001", 1_000),
    ("0.0025", 2_500),
    ("0.005", 5_000),
    ("0.01", 10_000),
    ("0.025", 25_000),
    ("0.05", 50_000),
    ("0.1", 100_000),
    ("0.25", 250_000),
    ("1", 1_000_000),
];

/// The request times that `status` shows, in microseconds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LatencySummary {
    /// Requests timed.
    pub count: u64,
    /// Sum of their times.
    pub sum_us: u64,
    /// Half of the requests took at most this.
    pub p50_us: u64,
    /// 95 % of the requests took at most this.
    pub p95_us: u64,
    /// 99 % of the requests took at most this.
    pub p99_us: u64,
}

/// Times of short steps, for a registry: written by one thread only, readable by any.
#[derive(Debug, Default)]
pub struct Histogram(Latency);

impl Histogram {
    /// Counts one time, rounded to the nearest microsecond.
    pub fn record(&self, took: Duration) {
        let value_us = (took + Duration::from_nanos(500)).as_micros();
        self.0.record(u64::try_from(value_us).unwrap_or(VALUE_US_MAX));
    }

    /// A copy of its present values.
    pub(crate) fn merged(&self) -> Merged {
        let mut merged = Merged::new();
        merged.absorb(&self.0);
        merged
    }
}

/// One thread's histogram: written by that thread only, readable by any.
#[derive(Debug)]
pub(crate) struct Latency {
    buckets: [AtomicU64; BUCKETS],
    sum_us: AtomicU64,
}

impl Default for Latency {
    fn default() -> Self {
        Self { buckets: [const { AtomicU64::new(0) }; BUCKETS], sum_us: AtomicU64::new(0) }
    }
}

impl Latency {
    /// Counts one value; values above [`VALUE_US_MAX`] are clamped.
    pub(crate) fn record(&self, value_us: u64) {
        let value_us = value_us.min(VALUE_US_MAX);
        bump(&self.buckets[index_of(value_us)], 1);
        bump(&self.sum_us, value_us);
    }

    /// Adds all values of `other`.
    pub(crate) fn absorb(&self, other: &Self) {
        for (mine, theirs) in self.buckets.iter().zip(&other.buckets) {
            bump(mine, theirs.load(Relaxed));
        }
        bump(&self.sum_us, other.sum_us.load(Relaxed));
    }
}

/// The sum of several threads' histograms at one moment.
#[derive(Debug)]
pub(crate) struct Merged {
    buckets: Vec<u64>,
    sum_us: u64,
}

impl Merged {
    pub(crate) fn new() -> Self {
        Self { buckets: vec![0; BUCKETS], sum_us: 0 }
    }

    pub(crate) fn absorb(&mut self, latency: &Latency) {
        for (mine, theirs) in self.buckets.iter_mut().zip(&latency.buckets) {
            *mine = mine.wrapping_add(theirs.load(Relaxed));
        }
        self.sum_us = self.sum_us.wrapping_add(latency.sum_us.load(Relaxed));
    }

    pub(crate) fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    pub(crate) fn sum_us(&self) -> u64 {
        self.sum_us
    }

    pub(crate) fn summary(&self) -> LatencySummary {
        LatencySummary {
            count: self.count(),
            sum_us: self.sum_us,
            p50_us: self.quantile_us(0.50),
            p95_us: self.quantile_us(0.95),
            p99_us: self.quantile_us(0.99),
        }
    }

    /// The value that a share `q` (0 to 1) of all values doesn't exceed; 0 if there are none.
    fn quantile_us(&self, q: f64) -> u64 {
        let rank = ((self.count() as f64 * q).ceil() as u64).max(1);
        let mut seen = 0;
        for (index, &count) in self.buckets.iter().enumerate() {
            seen += count;
            if seen >= rank {
                let (low, width) = bounds_of(index);
                return low + width / 2;
            }
        }
        0
    }

    /// The number of values of at most `le_us`. A bucket that extends beyond it isn't counted, so the error
    /// is at most one bucket's width (1/16).
    pub(crate) fn count_le(&self, le_us: u64) -> u64 {
        let whole = |index: usize| {
            let (low, width) = bounds_of(index);
            low + width - 1 <= le_us
        };
        self.buckets.iter().enumerate().take_while(|&(i, _)| whole(i)).map(|(_, n)| n).sum()
    }
}

/// Returns the bucket of a value of at most [`VALUE_US_MAX`].
fn index_of(value_us: u64) -> usize {
    if value_us < SUB as u64 {
        return value_us as usize;
    }
    let shift = value_us.ilog2() - SUB_BITS;
    // The top SUB_BITS + 1 bits are SUB..2*SUB; the first octave (shift 0) starts at SUB, right after the
    // linear buckets.
    shift as usize * SUB + (value_us >> shift) as usize
}

/// Returns the lowest value and the width of a bucket.
fn bounds_of(index: usize) -> (u64, u64) {
    if index < SUB {
        return (index as u64, 1);
    }
    let shift = (index / SUB - 1) as u32;
    let low = (index - shift as usize * SUB) as u64;
    (low << shift, 1 << shift)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn merged(values: impl IntoIterator<Item = u64>) -> Merged {
        let latency = Latency::default();
        values.into_iter().for_each(|v| latency.record(v));
        let mut merged = Merged::new();
        merged.absorb(&latency);
        merged
    }

    #[test]
    fn buckets_follow_each_other_without_gap_or_overlap() {
        let mut next = 0;
        for index in 0..BUCKETS {
            let (low, width) = bounds_of(index);
            assert_eq!(low, next);
            assert_eq!((index_of(low), index_of(low + width - 1)), (index, index));
            next = low + width;
        }
        assert_eq!(next, VALUE_US_MAX + 1);
    }

    #[test]
    fn a_value_comes_back_within_five_percent() {
        let mut value = 1u64;
        while value <= VALUE_US_MAX {
            let read = merged([value]).summary().p50_us;
            assert!(read.abs_diff(value) * 20 <= value, "{value} read as {read}");
            value += value / 7 + 1;
        }
    }

    #[test]
    fn quantiles_of_a_ramp() {
        let summary = merged(1..=10_000).summary();
        assert_eq!((summary.count, summary.sum_us), (10_000, 50_005_000));
        for (read, exact) in
            [(summary.p50_us, 5_000u64), (summary.p95_us, 9_500), (summary.p99_us, 9_900)]
        {
            assert!(read.abs_diff(exact) * 20 <= exact, "{exact} read as {read}");
        }
    }

    #[test]
    fn nothing_recorded_reads_as_zero() {
        assert_eq!(Merged::new().summary(), LatencySummary::default());
    }

    #[test]
    fn too_long_times_are_cut_not_lost() {
        let merged = merged([u64::MAX, VALUE_US_MAX]);
        assert_eq!((merged.count(), merged.sum_us()), (2, 2 * VALUE_US_MAX));
        assert_eq!(merged.count_le(LE[13].1), 0);
    }

    #[test]
    fn le_counts_never_fall_and_hold_only_smaller_values() {
        let merged = merged((0..40_000).map(|i| i * 1_000));
        let counts: Vec<u64> = LE.iter().map(|&(_, us)| merged.count_le(us)).collect();
        assert!(counts.is_sorted(), "{counts:?}");
        for (&count, &(text, us)) in counts.iter().zip(&LE) {
            let exact = us / 1_000 + 1;
            assert!(count <= exact, "{count} above {exact} at {us}");
            assert!(count * 17 + 17 >= exact * 16, "{count} far below {exact} at {us}");
            let seconds: f64 = text.parse().unwrap_or(f64::NAN);
            assert_eq!((seconds * 1e6).round() as u64, us);
        }
    }

    #[test]
    fn merging_is_adding() {
        let (a, b) = (Latency::default(), Latency::default());
        a.record(10);
        b.record(1_000);
        b.record(1_000);
        a.absorb(&b);
        let mut merged = Merged::new();
        merged.absorb(&a);
        assert_eq!((merged.count(), merged.sum_us()), (3, 2_010));
        assert_eq!(merged.count_le(100), 1);
    }
}
