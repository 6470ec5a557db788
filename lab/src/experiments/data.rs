//! The data set and the order of requests: WebBench's mix, as published in the WhizzBee paper (table 1), at
//! any size.
//!
//! Everything follows from seeds, so the same objects are requested in the same order for every row of a
//! table.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use skep_lab::load::MixObject;
use skep_units::Rng;
use skep_workload::{WEBBENCH_CLASSES, WEBBENCH_PARTS};

use super::origin::Object;

/// Seed of orders.
const SEED: u64 = 2001;

/// How often each object is requested.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum PopularityLaw {
    /// All equally often, so that classes have their published shares.
    Uniform,
    /// The n-th most popular object 1/n as often as the first; ranks are assigned at random, independent of
    /// size.
    Zipf,
}

impl PopularityLaw {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Uniform => "uniform",
            Self::Zipf => "Zipf 1.0",
        }
    }
}

/// Objects of the ten classes, in their published shares.
pub(crate) struct DataSet {
    objects: Vec<Object>,
}

impl DataSet {
    /// A data set of about `bytes` bytes, with at least one object of each class.
    pub(crate) fn of_bytes(bytes: u64) -> Self {
        let mean_parts: u64 = WEBBENCH_CLASSES.iter().map(|(bytes, parts)| bytes * parts).sum();
        let count = bytes * WEBBENCH_PARTS / mean_parts;
        let of_class = |&(bytes, parts): &(u64, u64)| {
            let count = (count * parts).div_ceil(WEBBENCH_PARTS).max(1);
            std::iter::repeat_n(bytes, count as usize)
        };
        let sizes = WEBBENCH_CLASSES.iter().flat_map(of_class);
        let object = |(bytes, id)| Object { id, bytes, period_ms: 0 };
        Self { objects: sizes.zip(0..).map(object).collect() }
    }

    /// These.
    pub(crate) fn of(objects: Vec<Object>) -> Self {
        Self { objects }
    }

    /// The same, where every third object changes, each of `periods_ms` being the
    /// period of as many.
    pub(crate) fn changing(mut self, periods_ms: &[u64]) -> Self {
        let changing = self.objects.iter_mut().step_by(3);
        for (object, &period_ms) in changing.zip(periods_ms.iter().cycle()) {
            object.period_ms = period_ms;
        }
        self
    }

    pub(crate) fn count(&self) -> usize {
        self.objects.len()
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.objects.iter().map(|object| object.bytes).sum()
    }

    /// The path of an object.
    pub(crate) fn first_path(&self) -> String {
        self.objects.first().map(|object| object.path()).unwrap_or_default()
    }

    /// The objects as clients expect them.
    pub(crate) fn mix_objects(&self) -> Arc<[MixObject]> {
        self.objects.iter().map(|object| object.for_mix()).collect()
    }

    /// An order of `requests` requests, as indexes of objects.
    pub(crate) fn order(&self, popularity: PopularityLaw, requests: usize) -> Arc<[u32]> {
        let mut rng = Rng::new(SEED);
        let count = self.objects.len() as u64;
        if popularity == PopularityLaw::Uniform {
            return (0..requests).map(|_| rng.below(count) as u32).collect();
        }
        let by_rank = shuffled(count, &mut rng);
        let mut sum = 0.0;
        let sums: Vec<f64> = (1..=count)
            .map(|rank| {
                sum += 1.0 / rank as f64;
                sum
            })
            .collect();
        let draw = |_| {
            let at = rng.unit() * sum;
            by_rank[sums.partition_point(|&sum| sum <= at).min(by_rank.len() - 1)]
        };
        (0..requests).map(draw).collect()
    }

    /// The mean size of a reply of an order in bytes, and the share of the object with most bytes.
    pub(crate) fn shape(&self, order: &[u32]) -> (u64, f64) {
        let mut by_object = vec![0; self.objects.len()];
        for &place in order {
            by_object[place as usize] += self.objects[place as usize].bytes;
        }
        let sum: u64 = by_object.iter().sum();
        let most = by_object.into_iter().max().unwrap_or(0);
        (sum / order.len().max(1) as u64, most as f64 / sum.max(1) as f64)
    }
}

/// The numbers below `count` in random order (Fisher and Yates).
fn shuffled(count: u64, rng: &mut Rng) -> Vec<u32> {
    let mut all: Vec<u32> = (0..count as u32).collect();
    for end in (1..all.len()).rev() {
        all.swap(end, rng.below(end as u64 + 1) as usize);
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_data_set_has_the_size_and_the_mix_that_was_asked_for() {
        let data = DataSet::of_bytes(60_000_000);
        assert!((59_000_000..63_000_000).contains(&data.bytes()), "{}", data.bytes());
        let share = |bytes: u64| {
            let of_class = data.objects.iter().filter(|object| object.bytes == bytes).count();
            of_class as f64 / data.count() as f64
        };
        for (bytes, parts) in WEBBENCH_CLASSES {
            assert!(
                (share(bytes) - parts as f64 / WEBBENCH_PARTS as f64).abs() < 0.001,
                "class {bytes}"
            );
        }
    }

    #[test]
    fn orders_are_those_of_their_popularity_and_come_again() {
        let data = DataSet::of_bytes(1_000_000);
        for popularity in [PopularityLaw::Uniform, PopularityLaw::Zipf] {
            let order = data.order(popularity, 50_000);
            assert_eq!(order, data.order(popularity, 50_000));
            let mut by_object = vec![0; data.count()];
            order.iter().for_each(|&place| by_object[place as usize] += 1);
            by_object.sort_unstable();
            let most = by_object[by_object.len() - 1] as f64 / 50_000.0;
            let harmonic: f64 = (1..=data.count()).map(|rank| 1.0 / rank as f64).sum();
            let wanted = match popularity {
                PopularityLaw::Uniform => 1.0 / data.count() as f64,
                PopularityLaw::Zipf => 1.0 / harmonic,
            };
            assert!(most > 0.9 * wanted && most < 2.0 * wanted, "{popularity:?}: {most}");
        }
    }
}
