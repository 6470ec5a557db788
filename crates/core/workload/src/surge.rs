//! The files of SURGE, with the parameters of Doh and Noh: 10,000 files, 187 MB, from 74 bytes to
//! 1.4 MB; every fifth request is for the most popular one.
//!
//! Sizes follow SURGE's model (Barford and Crovella, 1998): a lognormal body and a Pareto tail, at
//! even quantiles, scaled to the published sum. Popularity is Zipf's, with the exponent that gives
//! the most popular file its published share; the caller selects which file that is.

pub(crate) const FILES: usize = 10_000;
const BYTES: f64 = 187e6;
const BYTES_MIN: f64 = 74.0;
const BYTES_MAX: f64 = 1.4e6;

/// Fewest files for which the model is used: with fewer, its tail has one file or none.
pub(crate) const FILES_MIN: usize = 100;

/// Share of the most popular file in all requests.
const MOST: f64 = 100_000.0 / 490_000.0;

/// The body: share of the files, mean and deviation of the logarithm. The tail: where it begins,
/// and its exponent.
const BODY: (f64, f64, f64) = (0.93, 9.357, 1.318);
const TAIL: (f64, f64) = (133_000.0, 1.1);

/// Sizes of `files` files with the published mean, in no particular order.
pub fn surge_sizes(files: usize) -> Vec<u64> {
    let bytes = BYTES * files as f64 / FILES as f64;
    let raw: Vec<f64> = (0..files).map(|at| quantile((at as f64 + 0.5) / files as f64)).collect();
    let of = |factor: f64| raw.iter().map(move |size| (size * factor).clamp(BYTES_MIN, BYTES_MAX));
    let (mut low, mut high) = (0.0, 16.0);
    for _ in 0..60 {
        let middle = (low + high) / 2.0;
        if of(middle).sum::<f64>() < bytes { low = middle } else { high = middle }
    }
    of(low).map(|size| size as u64).collect()
}

/// The size that this fraction of the files does not exceed.
fn quantile(share: f64) -> f64 {
    let (body, mean, deviation) = BODY;
    if share < body {
        return (mean + deviation * normal(share / body)).exp();
    }
    let (begin, exponent) = TAIL;
    begin / (1.0 - (share - body) / (1.0 - body)).powf(1.0 / exponent)
}

/// The inverse of the normal distribution, by bisection.
fn normal(share: f64) -> f64 {
    let (mut low, mut high) = (-8.0, 8.0);
    for _ in 0..50 {
        let middle = (low + high) / 2.0;
        if normal_share(middle) < share { low = middle } else { high = middle }
    }
    low
}

/// Abramowitz and Stegun, 26.2.17: accurate to 8 digits.
fn normal_share(x: f64) -> f64 {
    const B: [f64; 5] = [0.319381530, -0.356563782, 1.781477937, -1.821255978, 1.330274429];
    let t = 1.0 / (1.0 + 0.2316419 * x.abs());
    let polynomial = B.iter().rev().fold(0.0, |sum, b| (sum + b) * t);
    let tail = (-x * x / 2.0).exp() / (2.0 * std::f64::consts::PI).sqrt() * polynomial;
    if x < 0.0 { tail } else { 1.0 - tail }
}

/// Shares of requests by rank, the most popular file first.
pub fn surge_shares(files: usize) -> Vec<f64> {
    let sum = |exponent: f64| (1..=files).map(|rank| (rank as f64).powf(-exponent)).sum::<f64>();
    let (mut low, mut high) = (0.1, 4.0);
    for _ in 0..50 {
        let middle = (low + high) / 2.0;
        if 1.0 / sum(middle) < MOST { low = middle } else { high = middle }
    }
    let all = sum(low);
    (1..=files).map(|rank| (rank as f64).powf(-low) / all).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_those_of_the_paper() {
        let sizes = surge_sizes(FILES);
        let bytes: u64 = sizes.iter().sum();
        assert!((186_900_000..187_100_000).contains(&bytes), "{bytes}");
        assert!(sizes.iter().max() == Some(&1_400_000));
        assert!(sizes.iter().min().is_some_and(|min| (74..400).contains(min)));
        let shares = surge_shares(FILES);
        assert!((shares[0] - 100.0 / 490.0).abs() < 1e-6, "{}", shares[0]);
        assert!((shares.iter().sum::<f64>() - 1.0).abs() < 1e-9);
    }

    #[test]
    fn fewer_files_have_the_same_mean() {
        for files in [FILES_MIN, 1_000] {
            let mean = surge_sizes(files).iter().sum::<u64>() as f64 / files as f64;
            assert!((mean / 18_700.0 - 1.0).abs() < 0.001, "{mean}");
        }
    }

    #[test]
    fn the_normal_distribution_is_inverted() {
        for (share, x) in [(0.5, 0.0), (0.975, 1.959964), (0.001, -3.090232)] {
            assert!((normal(share) - x).abs() < 1e-4, "{share}: {}", normal(share));
        }
    }
}
