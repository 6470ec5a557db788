//! The objects of SURGE, as used by Doh and Noh: 10,000 files, 187 MB, from 74 bytes to 1.4 MB; every fifth
//! request is for the most popular one.
//!
//! Sizes and shares are those of `skep_workload`; the ranks of the files are assigned here at random.

use skep_units::Rng;
use skep_workload::{surge_shares, surge_sizes};

use crate::experiments::origin::Object;

const FILES: usize = 10_000;

/// Seed of sizes and of orders.
const SEED: u64 = 2004;

/// Files and their popularity.
pub(super) struct Surge {
    pub(super) objects: Vec<Object>,
    /// Cumulative shares by rank.
    sums: Vec<f64>,
}

impl Surge {
    /// A part of the files, with the same mean size.
    pub(super) fn new(scale: f64) -> Self {
        let files = ((FILES as f64 * scale) as usize).max(100);
        let mut sizes = surge_sizes(files);
        let mut rng = Rng::new(SEED);
        for end in (1..sizes.len()).rev() {
            sizes.swap(end, rng.below(end as u64 + 1) as usize);
        }
        let object = |(bytes, id)| Object { id, bytes, period_ms: 0 };
        let objects = sizes.into_iter().zip(1..).map(object).collect();
        let mut reached = 0.0;
        let sum = |share| {
            reached += share;
            reached
        };
        Self { objects, sums: surge_shares(files).into_iter().map(sum).collect() }
    }

    pub(super) fn bytes(&self) -> u64 {
        self.objects.iter().map(|object| object.bytes).sum()
    }

    /// An order of `requests` requests, as indexes of objects, which are sorted by rank.
    pub(super) fn order(&self, requests: usize) -> Vec<u32> {
        let mut rng = Rng::new(SEED + 1);
        let last = self.objects.len() - 1;
        let draw = |_| {
            let at = rng.unit();
            self.sums.partition_point(|&sum| sum <= at).min(last) as u32
        };
        (0..requests).map(draw).collect()
    }

    /// The mean size of a reply, in bytes.
    pub(super) fn mean_reply(&self) -> f64 {
        let mut before = 0.0;
        let part = |(object, &sum): (&Object, &f64)| {
            let share = sum - before;
            before = sum;
            object.bytes as f64 * share
        };
        self.objects.iter().zip(&self.sums).map(part).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_those_of_the_paper() {
        let surge = Surge::new(1.0);
        let sizes = || surge.objects.iter().map(|object| object.bytes);
        assert_eq!(surge.objects.len(), 10_000);
        assert!((186_900_000..187_100_000).contains(&surge.bytes()), "{}", surge.bytes());
        assert_eq!(sizes().max(), Some(1_400_000));
        assert!(sizes().min().is_some_and(|min| (74..400).contains(&min)), "{:?}", sizes().min());
        assert!((surge.sums[0] - 100.0 / 490.0).abs() < 1e-6, "{}", surge.sums[0]);
        let order = surge.order(49_000);
        let most = order.iter().filter(|&&place| place == 0).count();
        assert!((9_500..10_500).contains(&most), "{most}");
    }
}
