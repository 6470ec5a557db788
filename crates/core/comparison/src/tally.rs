//! Evaluation of the counts of arms: means, quantiles, and whether two arms differ.
//!
//! The unit assigned to an arm is the client, so the intervals are over clients: intervals over
//! single requests would be too narrow, since requests of one client are alike (Deng, Knoblich, Lu:
//! *Applying the Delta Method in Metric Analytics*, KDD 2018). Clients are hashed to buckets; the
//! mean of an arm is the ratio of two sums over buckets, and its variance that of the ratio,
//! linearised.

use skep_units::student_t_975;

use crate::limits::BUCKETS;
use crate::statistics::{BINS, CELLS, Cell, bin_cell, bucket_cell, middle_of};

/// The counts of one arm, summed over all workers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArmTally {
    cells: Vec<u64>,
}

/// The two measured times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MeasuredTime {
    FirstByte,
    Total,
}

/// An estimate of a time of an arm, in microseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TimeEstimate {
    pub mean: f64,
    /// Half of the 95 % interval of the mean; `None` if all requests were of one client or bucket.
    pub half_width: Option<f64>,
    /// Standard deviation of the times of single requests.
    pub deviation: f64,
    pub p50: f64,
    pub p99: f64,
}

/// The difference of two arms' means, in microseconds, with its 95 % interval by Welch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Difference {
    pub mean: f64,
    pub low: f64,
    pub high: f64,
}

/// A mean, its variance, and the degrees of freedom of the variance.
struct Mean {
    mean: f64,
    variance: f64,
    freedom: f64,
}

impl Default for ArmTally {
    fn default() -> Self {
        Self { cells: vec![0; CELLS] }
    }
}

impl ArmTally {
    /// The number of cells per arm.
    pub const CELLS: usize = CELLS;

    /// Adds `count` to a cell, as returned by [`record`](crate::record).
    pub fn add(&mut self, cell: usize, count: u64) {
        self.cells[cell] = self.cells[cell].saturating_add(count);
    }

    /// Adds all counts of `other`.
    pub fn merge(&mut self, other: &Self) {
        other.cells.iter().enumerate().for_each(|(cell, count)| self.add(cell, *count));
    }

    /// Requests of the arm's clients that were answered or failed.
    pub fn requests(&self) -> u64 {
        self.answered() + self.failures()
    }

    /// Requests with a complete response and a status below 500.
    pub fn answered(&self) -> u64 {
        self.cell(Cell::Answered)
    }

    pub fn failures(&self) -> u64 {
        self.cell(Cell::Failures)
    }

    /// Requests whose clients were redirected to a node.
    pub fn redirected(&self) -> u64 {
        self.cell(Cell::Redirected)
    }

    /// Requests sent to a node outside the arm's group, because none in it was available.
    pub fn strayed(&self) -> u64 {
        self.cell(Cell::Strayed)
    }

    /// Bytes of response bodies.
    pub fn bytes(&self) -> u64 {
        self.cell(Cell::Bytes)
    }

    /// The number of hits, and the number of responses that state whether they were hits.
    pub fn hits(&self) -> (u64, u64) {
        (self.cell(Cell::Hits), self.cell(Cell::Lookups))
    }

    /// The estimate of a time; `None` before the first response.
    pub fn estimate(&self, of: MeasuredTime) -> Option<TimeEstimate> {
        if self.answered() == 0 {
            return None;
        }
        let over_clients = self.mean(of);
        let (n, sum) = self.buckets(of).fold((0, 0), |(n, sum), (m, us)| (n + m, sum + us));
        let bins = || (0..BINS).map(|bin| (middle_of(bin), self.bin(of, bin) as f64));
        let binned_mean = bins().map(|(us, count)| us * count).sum::<f64>() / n as f64;
        let squares = bins().map(|(us, count)| (us - binned_mean).powi(2) * count).sum::<f64>();
        Some(TimeEstimate {
            mean: sum as f64 / n as f64,
            half_width: over_clients.map(|it| it.half_width()),
            deviation: (squares / n as f64).sqrt(),
            p50: self.quantile(of, 0.50),
            p99: self.quantile(of, 0.99),
        })
    }

    /// The difference between this arm's mean and that of `base`; `None` if there are too few
    /// clients.
    pub fn above(&self, base: &Self, of: MeasuredTime) -> Option<Difference> {
        let (own, base) = (self.mean(of)?, base.mean(of)?);
        let mean = own.mean - base.mean;
        let variance = own.variance + base.variance;
        // Welch and Satterthwaite; without any variance there is no uncertainty.
        let part = |it: &Mean| it.variance.powi(2) / it.freedom;
        let freedom = variance.powi(2) / (part(&own) + part(&base));
        let freedom = if freedom.is_finite() { freedom } else { own.freedom + base.freedom };
        let both = Mean { mean, variance, freedom };
        let half = both.half_width();
        Some(Difference { mean, low: mean - half, high: mean + half })
    }

    /// The mean over buckets of clients, if at least two are used.
    fn mean(&self, of: MeasuredTime) -> Option<Mean> {
        let used = || self.buckets(of).filter(|(n, _)| *n > 0);
        let count = used().count() as f64;
        if count < 2.0 {
            return None;
        }
        let n: f64 = used().map(|(n, _)| n as f64).sum();
        let mean = used().map(|(_, us)| us as f64).sum::<f64>() / n;
        let off = |(n, us): (u64, u64)| (us as f64 - mean * n as f64).powi(2);
        let squares = used().map(off).sum::<f64>();
        let variance = count / (count - 1.0) * squares / n.powi(2);
        Some(Mean { mean, variance, freedom: count - 1.0 })
    }

    /// The number of requests and the sum of their times, for each bucket.
    fn buckets(&self, of: MeasuredTime) -> impl Iterator<Item = (u64, u64)> {
        let time = 1 + of as usize;
        (0..BUCKETS).map(move |bucket| {
            (self.cells[bucket_cell(bucket, 0)], self.cells[bucket_cell(bucket, time)])
        })
    }

    fn quantile(&self, of: MeasuredTime, share: f64) -> f64 {
        let count: u64 = (0..BINS).map(|bin| self.bin(of, bin)).sum();
        let rank = ((count as f64 * share).ceil() as u64).max(1);
        let mut below = 0;
        let reaches = |bin: &usize| {
            below += self.bin(of, *bin);
            below >= rank
        };
        (0..BINS).find(reaches).map_or(0.0, middle_of)
    }

    fn bin(&self, of: MeasuredTime, bin: usize) -> u64 {
        self.cells[bin_cell(of as usize, bin)]
    }

    fn cell(&self, cell: Cell) -> u64 {
        self.cells[cell as usize]
    }
}

impl Difference {
    /// Whether the difference is significant at 95 %.
    pub fn is_significant(&self) -> bool {
        self.low > 0.0 || self.high < 0.0
    }
}

impl Mean {
    fn half_width(&self) -> f64 {
        student_t_975(self.freedom.max(1.0) as usize) * self.variance.sqrt()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use skep_units::{Rng, stable_hash};

    use super::*;
    use crate::client::ClientId;
    use crate::statistics::{ArmEvent, ArmSample, record};

    fn answered(tally: &mut ArmTally, client: u64, first_byte_us: u64) {
        let client = ClientId(stable_hash(&client.to_le_bytes(), 3));
        let sample =
            ArmSample { first_byte_us, total_us: 2 * first_byte_us, bytes: 10, is_hit: None };
        record(client, &ArmEvent::Answered(sample), |cell, count| tally.add(cell, count));
    }

    /// `requests` requests for each of these clients: times around the client's mean, which is
    /// around `mean_us`.
    fn arm(seed: u64, clients: u64, requests: u64, mean_us: u64, spread_us: u64) -> ArmTally {
        let (mut rng, mut tally) = (Rng::new(seed), ArmTally::default());
        for client in 0..clients {
            let own = mean_us + rng.below(2 * spread_us + 1) - spread_us;
            for _ in 0..requests {
                answered(&mut tally, (seed << 32) + client, own + rng.below(101) - 50);
            }
        }
        tally
    }

    #[test]
    fn counts_are_of_what_happened() {
        let mut tally = ArmTally::default();
        assert_eq!(tally.estimate(MeasuredTime::Total), None);
        let client = ClientId(1);
        let sample = ArmSample { first_byte_us: 5, total_us: 9, bytes: 70, is_hit: Some(true) };
        for event in [
            ArmEvent::Answered(sample),
            ArmEvent::Answered(ArmSample { is_hit: Some(false), ..sample }),
            ArmEvent::Answered(ArmSample { is_hit: None, ..sample }),
            ArmEvent::Failed,
            ArmEvent::Redirected,
            ArmEvent::Strayed,
        ] {
            record(client, &event, |cell, count| tally.add(cell, count));
        }
        assert_eq!((tally.requests(), tally.answered(), tally.failures()), (4, 3, 1));
        assert_eq!((tally.redirected(), tally.strayed(), tally.bytes()), (1, 1, 210));
        assert_eq!(tally.hits(), (1, 2));
        let first = tally.estimate(MeasuredTime::FirstByte).unwrap();
        assert_eq!((first.mean, first.p50, first.p99, first.deviation), (5.0, 5.0, 5.0, 0.0));
        assert_eq!(first.half_width, None, "one client tells nothing of others");
        assert_eq!(tally.estimate(MeasuredTime::Total).unwrap().mean, 9.0);
    }

    #[test]
    fn a_clear_difference_is_significant_and_none_is_not() {
        let (slow, fast) = (arm(1, 200, 20, 10_000, 1_000), arm(2, 200, 20, 8_000, 1_000));
        let difference = fast.above(&slow, MeasuredTime::FirstByte).unwrap();
        assert!(difference.is_significant(), "{difference:?}");
        assert!(difference.low < -2_000.0 && -2_000.0 < difference.high, "{difference:?}");
        let back = slow.above(&fast, MeasuredTime::FirstByte).unwrap();
        assert_eq!(
            (back.mean, back.low, back.high),
            (-difference.mean, -difference.high, -difference.low)
        );
        let same = arm(3, 200, 20, 10_000, 1_000);
        assert!(!same.above(&slow, MeasuredTime::Total).unwrap().is_significant());
        assert_eq!(fast.above(&ArmTally::default(), MeasuredTime::Total), None);
    }

    #[test]
    fn an_interval_has_the_true_difference_in_about_95_of_100_tests() {
        // Few clients with many requests each, for which an interval over requests would be too
        // narrow.
        let mut covered = 0;
        for seed in 0..200 {
            let (one, other) = (
                arm(2 * seed + 1, 12, 50, 10_000, 3_000),
                arm(2 * seed + 2, 20, 30, 10_000, 3_000),
            );
            let difference = other.above(&one, MeasuredTime::FirstByte).unwrap();
            covered += u32::from(!difference.is_significant());
        }
        assert!((180..=199).contains(&covered), "{covered} of 200");
    }

    #[test]
    fn welch_is_that_of_the_textbook() {
        // Welch's test of 20.0, 22.0, 24.0 against 28.0, 26.0, 36.0, 34.0, one request for each
        // client: a difference of 9, variance 4/3 + 22.67/4, 4.23 degrees of freedom, of which 4
        // are used: t = 2.776.
        let tally = |times: &[u64]| {
            let mut cells = ArmTally::default();
            for (bucket, us) in times.iter().enumerate() {
                cells.add(Cell::Answered as usize, 1);
                cells.add(bucket_cell(bucket, 0), 1);
                cells.add(bucket_cell(bucket, 1), *us);
            }
            cells
        };
        let difference =
            tally(&[28, 26, 36, 34]).above(&tally(&[20, 22, 24]), MeasuredTime::FirstByte).unwrap();
        assert!((difference.mean - 9.0).abs() < 1e-9);
        assert!(
            (difference.high - 9.0 - 2.776 * (4.0_f64 / 3.0 + 68.0 / 12.0).sqrt()).abs() < 1e-6,
            "{difference:?}"
        );
    }

    #[test]
    fn quantiles_are_near_those_of_the_times() {
        let mut tally = ArmTally::default();
        (1..=1_000).for_each(|us| answered(&mut tally, us, us * 10));
        let estimate = tally.estimate(MeasuredTime::FirstByte).unwrap();
        assert!((estimate.p50 / 5_000.0 - 1.0).abs() < 0.04, "{estimate:?}");
        assert!((estimate.p99 / 9_900.0 - 1.0).abs() < 0.04, "{estimate:?}");
        assert!((estimate.deviation / 2_886.0 - 1.0).abs() < 0.02, "{estimate:?}");
        assert_eq!(estimate.mean, 5_005.0);
    }
}
