//! The site of the elastic ramp, after Summers and Thompson, "Awesome Web Server": HTML files, images of
//! several sizes, and three computations on each of three long strings. The paper states no sizes; these are
//! ours.

use skep_workload::Popularity;

use crate::workload::SiteWorkload;

/// The files that are preferred.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ElasticMix {
    /// A few large ones.
    CacheFriendly,
    /// Many small ones.
    CacheUnfriendly,
}

/// Small files: HTML and small images, of 4 to 36 kB.
const SMALL_FILES: usize = 4_000;
const SMALL_BYTES: u64 = 4_000;
const SMALL_STEP_BYTES: u64 = 8;

/// Large images.
const LARGE_BYTES: [u64; 8] =
    [500_000, 750_000, 1_000_000, 1_250_000, 1_500_000, 1_750_000, 2_000_000, 2_250_000];

/// Results of computations: the strings reversed and sorted, and their right halves, of strings of one
/// megabyte.
const COMPUTED_BYTES: [u64; 3] = [1_000_000, 1_000_000, 500_000];
const STRINGS: usize = 3;
/// Processor time of one computation at full speed, in nanoseconds.
const COMPUTE_NS: u64 = 30_000_000;

impl ElasticMix {
    pub fn name(self) -> &'static str {
        match self {
            Self::CacheFriendly => "cache-friendly",
            Self::CacheUnfriendly => "cache-unfriendly",
        }
    }

    /// Share of requests for large files, including computations.
    fn large_share(self) -> f64 {
        match self {
            Self::CacheFriendly => 0.8,
            Self::CacheUnfriendly => 0.0005,
        }
    }

    /// The site with all rates multiplied by `scale`: as many times more small files, and computations that
    /// take proportionally longer.
    pub fn workload(self, scale: f64) -> SiteWorkload {
        let files = (SMALL_FILES as f64 * scale).max(1.0) as usize;
        let step_bytes = (SMALL_STEP_BYTES as f64 / scale) as u64;
        let small = (0..files as u64).map(|number| SMALL_BYTES + number * step_bytes);
        let computed = std::iter::repeat_n(COMPUTED_BYTES, STRINGS).flatten();
        let large: Vec<u64> = LARGE_BYTES.into_iter().chain(computed).collect();
        let large_weight = self.large_share() / large.len() as f64;
        let small_weight = (1.0 - self.large_share()) / files as f64;
        let weights = std::iter::repeat_n(small_weight, files)
            .chain(std::iter::repeat_n(large_weight, large.len()));
        let sizes: Vec<u64> = small.chain(large).collect();
        let mut site = SiteWorkload::new(&sizes, Popularity::weighted(weights.collect()));
        let first_computed = files + LARGE_BYTES.len();
        for object in &mut site.objects[first_computed..] {
            object.compute_ns = (COMPUTE_NS as f64 / scale) as u64;
        }
        site
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mixes_are_of_the_same_files_and_ask_for_others() {
        let sites =
            [ElasticMix::CacheFriendly, ElasticMix::CacheUnfriendly].map(|it| it.workload(1.0));
        assert_eq!(sites[0].bytes(), sites[1].bytes());
        assert_eq!(sites[0].objects.iter().filter(|it| it.compute_ns > 0).count(), 9);
        assert!(sites[0].mean_bytes() > 30.0 * sites[1].mean_bytes());
    }
}
