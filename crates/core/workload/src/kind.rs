//! The workloads by name: their files, their popularity, their clients.

use skep_units::{Rng, stable_hash};

use crate::elastic_ramp::{self, ClientRamp};
use crate::limits::{FILES_MAX, FILES_PER_FOLDER, SCALE_MAX};
use crate::pattern::Pattern;
use crate::popularity::Popularity;
use crate::sizes::SizeStatistics;
use crate::{surge, webbench};

/// A synthetic workload from the literature.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkloadKind {
    /// The mix of WebBench: ten classes, all files equally popular.
    WebBench,
    /// SURGE: lognormal sizes with a Pareto tail, one very popular file.
    Surge,
    /// World Cup 1998: many small files.
    WorldCup,
    /// Some hundred files, half of them large, up to 2 GB.
    DataIntensive,
    /// The elastic ramp, with requests mostly for a few large files.
    ElasticRamp,
    /// The same files, with requests mostly for the many small ones.
    ElasticRampUnfriendly,
}

/// The behaviour of a workload's clients, as published where available.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientHabits {
    /// Clients of the closed loop.
    pub clients: u32,
    /// One request per connection, in HTTP/1.0.
    pub is_http10: bool,
    /// How clients arrive and leave; `None` if all are present from the start.
    pub ramp: Option<ClientRamp>,
}

/// A workload at a scale.
#[derive(Clone, Debug)]
pub struct Workload {
    kind: WorkloadKind,
    seed: u64,
    sizes: Vec<u64>,
    popularity: Popularity,
}

/// Why a workload cannot be created.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum WorkloadError {
    /// The scale is not a number above zero, or is too large.
    #[error("expected a scale above 0 and up to {SCALE_MAX}, found {0}")]
    Scale(f64),
    /// More files than [`FILES_MAX`].
    #[error(
        "{kind} at scale {scale} has {files} files: expected at most {FILES_MAX}, so a smaller scale"
    )]
    TooManyFiles {
        /// Name of the workload.
        kind: &'static str,
        /// As passed by the caller.
        scale: f64,
        /// The resulting number.
        files: usize,
    },
}

const WORLD_CUP: SizeStatistics =
    SizeStatistics { files: 17_332, min: 64, median: 3_714, mean: 11_786.0, max: 3_100_000 };

const DATA_INTENSIVE: SizeStatistics =
    SizeStatistics { files: 532, min: 50, median: 106_779, mean: 85.96e6, max: 2_027_000_000 };

/// Zipf exponent of web servers, for sites without a published one.
const ZIPF_EXPONENT: f64 = 0.8;

impl WorkloadKind {
    /// All workloads.
    pub const ALL: [Self; 6] = [
        Self::WebBench,
        Self::Surge,
        Self::WorldCup,
        Self::DataIntensive,
        Self::ElasticRamp,
        Self::ElasticRampUnfriendly,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::WebBench => "webbench",
            Self::Surge => "surge",
            Self::WorldCup => "world-cup",
            Self::DataIntensive => "data-intensive",
            Self::ElasticRamp => "elastic-ramp",
            Self::ElasticRampUnfriendly => "elastic-ramp-unfriendly",
        }
    }

    /// Sizes of its files; the scale multiplies their number.
    pub fn sizes(self, scale: f64) -> Vec<u64> {
        let scaled = |site: SizeStatistics| {
            site.sizes_of((site.files as f64 * scale).round().max(3.0) as usize)
        };
        match self {
            Self::WebBench => webbench::sizes(scale),
            Self::Surge => surge::surge_sizes(self.files(scale)),
            Self::WorldCup => scaled(WORLD_CUP),
            Self::DataIntensive => scaled(DATA_INTENSIVE),
            Self::ElasticRamp | Self::ElasticRampUnfriendly => elastic_ramp::sizes(scale),
        }
    }

    /// The behaviour of its clients.
    pub fn habits(self) -> ClientHabits {
        let usual = ClientHabits { clients: 32, is_http10: false, ramp: None };
        match self {
            // 11 clients with 10 threads each.
            Self::WebBench => ClientHabits { clients: 110, ..usual },
            Self::Surge => ClientHabits { clients: 200, is_http10: true, ..usual },
            Self::WorldCup | Self::DataIntensive => usual,
            Self::ElasticRamp | Self::ElasticRampUnfriendly => {
                ClientHabits { clients: 48, ramp: Some(ClientRamp::PUBLISHED), ..usual }
            }
        }
    }

    /// The approximate number of files.
    fn files(self, scale: f64) -> usize {
        let files = match self {
            Self::WebBench => 192_600.0,
            Self::Surge => surge::FILES as f64,
            Self::WorldCup => WORLD_CUP.files as f64,
            Self::DataIntensive => DATA_INTENSIVE.files as f64,
            Self::ElasticRamp | Self::ElasticRampUnfriendly => 2_000.0,
        };
        let least = if self == Self::Surge { surge::FILES_MIN } else { 1 };
        ((files * scale) as usize).max(least)
    }

    /// The folder of its files; the two elastic ramps share one.
    fn folder(self) -> &'static str {
        match self {
            Self::ElasticRampUnfriendly => Self::ElasticRamp.name(),
            _ => self.name(),
        }
    }
}

impl Workload {
    /// The workload at a scale; `seed` determines which files are popular, and their contents.
    ///
    /// # Errors
    /// The scale is out of bounds.
    pub fn new(kind: WorkloadKind, scale: f64, seed: u64) -> Result<Self, WorkloadError> {
        if !(scale > 0.0 && scale <= SCALE_MAX) {
            return Err(WorkloadError::Scale(scale));
        }
        let files = kind.files(scale);
        if files > FILES_MAX {
            return Err(WorkloadError::TooManyFiles { kind: kind.name(), scale, files });
        }
        let mut sizes = kind.sizes(scale);
        // At too small a scale, every class of WebBench is rounded to no files.
        if sizes.is_empty() {
            return Err(WorkloadError::Scale(scale));
        }
        let mut rng = Rng::new(seed);
        let popularity = match kind {
            WorkloadKind::WebBench => Popularity::zipf(sizes.len(), 0.0, &mut rng),
            WorkloadKind::Surge => {
                shuffle(&mut sizes, &mut rng);
                Popularity::weighted(surge::surge_shares(sizes.len()))
            }
            WorkloadKind::WorldCup | WorkloadKind::DataIntensive => {
                Popularity::zipf(sizes.len(), ZIPF_EXPONENT, &mut rng)
            }
            WorkloadKind::ElasticRamp => {
                Popularity::weighted(elastic_ramp::weights(sizes.len(), true))
            }
            WorkloadKind::ElasticRampUnfriendly => {
                Popularity::weighted(elastic_ramp::weights(sizes.len(), false))
            }
        };
        Ok(Self { kind, seed, sizes, popularity })
    }

    /// The kind of workload.
    pub fn kind(&self) -> WorkloadKind {
        self.kind
    }

    /// Sizes of its files in bytes, by number.
    pub fn sizes(&self) -> &[u64] {
        &self.sizes
    }

    /// The selection of the next file.
    pub fn popularity(&self) -> &Popularity {
        &self.popularity
    }

    /// The path of a file below the root of the site.
    pub fn path(&self, file: usize) -> String {
        format!("/{}/{:03}/{file}.bin", self.kind.folder(), file / FILES_PER_FOLDER)
    }

    /// The contents of a file.
    pub fn pattern(&self, file: usize) -> Pattern {
        let name = [self.seed.to_le_bytes(), (file as u64).to_le_bytes()].concat();
        let kind = stable_hash(self.kind.folder().as_bytes(), 0);
        // Offsets change only the lower half: files have no word in common.
        Pattern { seed: stable_hash(&name, kind) & !u64::from(u32::MAX) }
    }
}

fn shuffle(sizes: &mut [u64], rng: &mut Rng) {
    for end in (1..sizes.len()).rev() {
        sizes.swap(end, rng.below(end as u64 + 1) as usize);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn workloads_have_their_published_numbers() {
        for (kind, files, bytes, median, most) in [
            (WorkloadKind::WebBench, 192_600, 1.2e9, 2_895, 541_761),
            (WorkloadKind::Surge, 10_000, 187e6, 0, 1_400_000),
            (WorkloadKind::WorldCup, 17_332, 204.3e6, 3_714, 3_100_000),
            (WorkloadKind::DataIntensive, 532, 45.73e9, 106_779, 2_027_000_000),
        ] {
            let workload = Workload::new(kind, 1.0, 1).unwrap();
            let mut sizes = workload.sizes().to_vec();
            sizes.sort_unstable();
            let (name, sum) = (kind.name(), sizes.iter().sum::<u64>() as f64);
            assert!((sizes.len() as f64 / f64::from(files) - 1.0).abs() < 0.002, "{name}");
            assert!((sum / bytes - 1.0).abs() < 0.001, "{name}: {sum}");
            assert!(median == 0 || sizes[sizes.len() / 2] == median, "{name}");
            assert_eq!(sizes.last(), Some(&most), "{name}");
        }
    }

    #[test]
    fn a_fifth_of_surges_requests_is_for_one_file() {
        let workload = Workload::new(WorkloadKind::Surge, 1.0, 3).unwrap();
        let most = workload.popularity().shares().iter().copied().fold(0.0, f64::max);
        assert!((most - 100.0 / 490.0).abs() < 1e-6, "{most}");
    }

    #[test]
    fn contents_follow_from_seed_and_number_and_ramps_share_theirs() {
        let workload = |kind, seed| Workload::new(kind, 0.01, seed).unwrap();
        let one = workload(WorkloadKind::WorldCup, 1);
        assert_eq!(one.pattern(3), workload(WorkloadKind::WorldCup, 1).pattern(3));
        assert_ne!(one.pattern(3), one.pattern(4));
        assert_ne!(one.pattern(3), workload(WorkloadKind::WorldCup, 2).pattern(3));
        assert_ne!(one.pattern(3), workload(WorkloadKind::Surge, 1).pattern(3));
        let (ramp, other) = (WorkloadKind::ElasticRamp, WorkloadKind::ElasticRampUnfriendly);
        assert_eq!(workload(ramp, 1).pattern(3), workload(other, 1).pattern(3));
        assert_eq!(workload(ramp, 1).path(1_003), "/elastic-ramp/001/1003.bin");
        assert_eq!(workload(ramp, 1).sizes(), workload(other, 1).sizes());
    }

    #[test]
    fn scales_out_of_bounds_are_refused() {
        for scale in [0.0, -1.0, f64::NAN, f64::INFINITY, 1e-9, 1_001.0] {
            let error = Workload::new(WorkloadKind::WebBench, scale, 1).unwrap_err();
            assert!(matches!(error, WorkloadError::Scale(_)), "{error}");
        }
        let error = Workload::new(WorkloadKind::WebBench, 1_000.0, 1).unwrap_err().to_string();
        assert!(error.contains("expected at most 10000000"), "{error}");
    }
}
