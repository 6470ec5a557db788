//! The objects of SURGE, as Doh and Noh had them: 10,000 files, 187 MB, from 74 bytes to 1.4 MB; every
//! fifth request is for the most popular one.
//!
//! Sizes are those of SURGE's model (Barford and Crovella, 1998): a lognormal body and a Pareto tail, at
//! even quantiles, scaled to the published sum. Popularity is Zipf's, with the exponent that gives the
//! most popular file its published share; which file that is, is drawn.

use skep_units::Rng;

use crate::experiments::origin::Object;

const FILES: usize = 10_000;
const BYTES: f64 = 187e6;
const BYTES_MIN: f64 = 74.0;
const BYTES_MAX: f64 = 1.4e6;

/// Requests for the most popular file, of all requests.
const MOST: f64 = 100_000.0 / 490_000.0;

/// The body: share of the files, mean and deviation of the logarithm. The tail: where it begins, its exponent.
const BODY: (f64, f64, f64) = (0.93, 9.357, 1.318);
const TAIL: (f64, f64) = (133_000.0, 1.1);

/// Seeds of sizes and of orders.
const SEED: u64 = 2004;

/// Files and how often they are asked for.
pub(super) struct Surge {
    pub(super) objects: Vec<Object>,
    /// By rank, the sum of shares up to there.
    sums: Vec<f64>,
}

impl Surge {
    /// A part of the files, with the same mean.
    pub(super) fn new(scale: f64) -> Self {
        let files = ((FILES as f64 * scale) as usize).max(100);
        let mut sizes = sizes(files, BYTES * files as f64 / FILES as f64);
        let mut rng = Rng::new(SEED);
        for end in (1..sizes.len()).rev() {
            sizes.swap(end, rng.below(end as u64 + 1) as usize);
        }
        let object = |(bytes, id)| Object { id, bytes, period_ms: 0 };
        let objects = sizes.into_iter().zip(1..).map(object).collect();
        Self { objects, sums: shares(files) }
    }

    pub(super) fn bytes(&self) -> u64 {
        self.objects.iter().map(|object| object.bytes).sum()
    }

    /// So many requests, as places of objects, which stand in the order of their ranks.
    pub(super) fn order(&self, requests: usize) -> Vec<u32> {
        let mut rng = Rng::new(SEED + 1);
        let last = self.objects.len() - 1;
        let draw = |_| {
            let at = rng.unit();
            self.sums.partition_point(|&sum| sum <= at).min(last) as u32
        };
        (0..requests).map(draw).collect()
    }

    /// Bytes of the mean reply.
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

/// The sizes of so many files that have so many bytes together.
fn sizes(files: usize, bytes: f64) -> Vec<u64> {
    let raw: Vec<f64> = (0..files).map(|at| quantile((at as f64 + 0.5) / files as f64)).collect();
    let of = |factor: f64| raw.iter().map(move |size| (size * factor).clamp(BYTES_MIN, BYTES_MAX));
    let (mut low, mut high) = (0.0, 16.0);
    for _ in 0..60 {
        let middle = (low + high) / 2.0;
        if of(middle).sum::<f64>() < bytes { low = middle } else { high = middle }
    }
    of(low).map(|size| size as u64).collect()
}

/// The size that this share of the files does not exceed.
fn quantile(share: f64) -> f64 {
    let (body, mean, deviation) = BODY;
    if share < body {
        return (mean + deviation * normal(share / body)).exp();
    }
    let (begin, exponent) = TAIL;
    begin / (1.0 - (share - body) / (1.0 - body)).powf(1.0 / exponent)
}

/// The normal distribution's inverse, by halving.
fn normal(share: f64) -> f64 {
    let (mut low, mut high) = (-8.0, 8.0);
    for _ in 0..50 {
        let middle = (low + high) / 2.0;
        if normal_share(middle) < share { low = middle } else { high = middle }
    }
    low
}

/// Abramowitz and Stegun, 26.2.17: to 8 digits.
fn normal_share(x: f64) -> f64 {
    const B: [f64; 5] = [0.319381530, -0.356563782, 1.781477937, -1.821255978, 1.330274429];
    let t = 1.0 / (1.0 + 0.2316419 * x.abs());
    let polynomial = B.iter().rev().fold(0.0, |sum, b| (sum + b) * t);
    let tail = (-x * x / 2.0).exp() / (2.0 * std::f64::consts::PI).sqrt() * polynomial;
    if x < 0.0 { tail } else { 1.0 - tail }
}

/// Sums of Zipf's shares, whose first is that of the most popular file.
fn shares(files: usize) -> Vec<f64> {
    let sum = |exponent: f64| (1..=files).map(|rank| (rank as f64).powf(-exponent)).sum::<f64>();
    let (mut low, mut high) = (0.1, 4.0);
    for _ in 0..50 {
        let middle = (low + high) / 2.0;
        if 1.0 / sum(middle) < MOST { low = middle } else { high = middle }
    }
    let (all, mut reached) = (sum(low), 0.0);
    let share = |rank: usize| {
        reached += (rank as f64).powf(-low) / all;
        reached
    };
    (1..=files).map(share).collect()
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

    #[test]
    fn the_normal_distribution_is_inverted() {
        for (share, x) in [(0.5, 0.0), (0.975, 1.959964), (0.001, -3.090232)] {
            assert!((normal(share) - x).abs() < 1e-4, "{share}: {}", normal(share));
        }
    }
}
