//! Sizes of files, by a quantile function that matches the published statistics of a site.
//!
//! Below the median, sizes are log-linear from the minimum; above it they are `median * (max /
//! median)^(u^p)` for `u` in 0..=1, with the `p` that yields the mean.

/// Known statistics of the sizes of a site's files, in bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SizeStatistics {
    pub files: usize,
    pub min: u64,
    pub median: u64,
    pub mean: f64,
    pub max: u64,
}

/// Bisection steps on the interval of exponents; 60 are exact to the last bit.
const BISECTIONS: usize = 60;

/// The range of exponents, sufficient for any site.
const EXPONENTS: (f64, f64) = (0.01, 1_000.0);

impl SizeStatistics {
    /// Sizes in ascending order with these statistics; the mean as close as whole bytes allow.
    ///
    /// # Panics
    /// If there are fewer than three files, or the statistics are infeasible.
    pub fn sizes(&self) -> Vec<u64> {
        assert!(self.is_feasible(), "no sizes have these statistics: {self:?}");
        let exponent = self.exponent();
        (0..self.files).map(|rank| self.size(rank, exponent).round() as u64).collect()
    }

    /// Sizes of `files` files of such a site: with the same statistics if that is feasible, else at
    /// even quantiles, so that the few largest files, which contain most of the bytes, may be
    /// missing.
    ///
    /// # Panics
    /// As for [`SizeStatistics::sizes`].
    pub fn sizes_of(&self, files: usize) -> Vec<u64> {
        let scaled = Self { files, ..*self };
        if scaled.is_feasible() {
            return scaled.sizes();
        }
        let all = self.sizes();
        (0..files).map(|at| all[(2 * at + 1) * all.len() / (2 * files)]).collect()
    }

    fn is_feasible(&self) -> bool {
        let (low, high) = EXPONENTS;
        let is_within = || self.mean_with(low) >= self.mean && self.mean_with(high) <= self.mean;
        self.files >= 3 && self.min >= 1 && is_within()
    }

    /// The exponent that yields the mean.
    fn exponent(&self) -> f64 {
        let (mut low, mut high) = EXPONENTS;
        for _ in 0..BISECTIONS {
            let middle = (low * high).sqrt();
            match self.mean_with(middle) > self.mean {
                true => low = middle,
                false => high = middle,
            }
        }
        high
    }

    fn mean_with(&self, exponent: f64) -> f64 {
        let sum: f64 = (0..self.files).map(|rank| self.size(rank, exponent)).sum();
        sum / self.files as f64
    }

    /// The size of the file with this `rank`, counted from the smallest.
    fn size(&self, rank: usize, exponent: f64) -> f64 {
        let (min, median, max) = (self.min as f64, self.median as f64, self.max as f64);
        // With an even number of files, the two in the middle have the median size.
        let (below, above) = ((self.files - 1) / 2, self.files / 2);
        if rank <= below {
            return min * (median / min).powf(rank as f64 / below as f64);
        }
        let u = (rank - above) as f64 / (self.files - 1 - above) as f64;
        median * (max / median).powf(u.powf(exponent))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_the_statistics_that_were_asked_for() {
        let world_cup = SizeStatistics {
            files: 17_332,
            min: 64,
            median: 3_714,
            mean: 11_786.0,
            max: 3_100_000,
        };
        let few = SizeStatistics {
            files: 53,
            mean: 85.96e6,
            median: 106_779,
            max: 2_027_000_000,
            min: 50,
        };
        for wanted in [world_cup, SizeStatistics { files: 532, ..few }, few] {
            let sizes = wanted.sizes();
            assert!(sizes.is_sorted());
            assert_eq!(sizes.len(), wanted.files);
            assert_eq!((sizes[0], sizes[sizes.len() - 1]), (wanted.min, wanted.max));
            let (low, high) = (sizes[(sizes.len() - 1) / 2], sizes[sizes.len() / 2]);
            assert_eq!(((low + high) / 2, low), (wanted.median, wanted.median));
            let mean = sizes.iter().sum::<u64>() as f64 / sizes.len() as f64;
            assert!((mean / wanted.mean - 1.0).abs() < 1e-4, "{mean} for {wanted:?}");
        }
    }

    #[test]
    fn few_files_have_no_more_than_their_part_of_the_bytes() {
        let site = SizeStatistics {
            files: 17_332,
            min: 64,
            median: 3_714,
            mean: 11_786.0,
            max: 3_100_000,
        };
        for files in [17, 173, 1_000] {
            let sizes = site.sizes_of(files);
            let mean = sizes.iter().sum::<u64>() as f64 / files as f64;
            assert_eq!(sizes.len(), files);
            assert!((1_000.0..16_000.0).contains(&mean), "{files}: {mean}");
        }
        let sizes = site.sizes_of(173);
        assert!((3_000..4_500).contains(&sizes[86]), "{}", sizes[86]);
    }
}
