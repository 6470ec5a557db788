//! The cells: a site, a cluster and a load each, and what clients ask for in them. Test bed and simulator are given
//! the same.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use skep_lab::load::MixObject;
use skep_units::Rng;
use skep_workload::{Popularity, WorkloadKind};

use super::super::origin::{Object, Speed};
use super::limits::{FILE_BYTES_MAX, PAYLOAD_SHARE};

pub(super) const NODES: usize = 4;

/// Zipf's exponent: that of the simulated sites.
const ZIPF_EXPONENT: f64 = 0.8;

/// Of what all links carry.
const LIGHT: f64 = 0.3;
const HEAVY: f64 = 0.8;

/// A cell: all policies are measured in it, on the same requests.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct BedCell {
    pub(super) site: BedSite,
    /// What is asked for, as a share of what all links carry.
    pub(super) link_share: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum BedSite {
    /// That of few, large files, without the largest.
    DataIntensive,
    /// That of many small files.
    WorldCup,
}

/// What a site is served with.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct SiteScale {
    /// One file in so many of the site's.
    pub(super) file_stride: usize,
    /// Rate of each node's link, either way.
    pub(super) link_bits_s: u64,
    /// Frames that a stream sends at once, and that wait for the link: so few that streams share it.
    pub(super) frames_queued: u64,
    /// What a node fetches from.
    pub(super) source: Speed,
    /// A node's memory, as a share of the site.
    pub(super) memory_share: f64,
    /// How long requests come before they are measured, and then.
    pub(super) warm_up_ms: u64,
    pub(super) measured_ms: u64,
}

/// What is asked for in a cell, by a seed.
pub(super) struct Trace {
    pub(super) objects: Vec<Object>,
    /// Microseconds since the beginning, and the place in `objects`.
    pub(super) requests: Arc<[(u64, u32)]>,
    /// So many of the requests come before it is measured.
    pub(super) warm_up: usize,
}

pub(super) const CELLS: [BedCell; 4] = [
    BedCell { site: BedSite::DataIntensive, link_share: LIGHT },
    BedCell { site: BedSite::DataIntensive, link_share: HEAVY },
    BedCell { site: BedSite::WorldCup, link_share: LIGHT },
    BedCell { site: BedSite::WorldCup, link_share: HEAVY },
];

impl BedSite {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::DataIntensive => "data-intensive",
            Self::WorldCup => "World Cup",
        }
    }

    pub(super) fn scale(self) -> SiteScale {
        match self {
            Self::DataIntensive => SiteScale {
                file_stride: 6,
                link_bits_s: 80_000_000,
                frames_queued: 8,
                source: Speed { delay_ms: 5, rate_bits_s: 40_000_000 },
                memory_share: 0.35,
                warm_up_ms: 4_000,
                measured_ms: 7_000,
            },
            Self::WorldCup => SiteScale {
                file_stride: 20,
                link_bits_s: 30_000_000,
                frames_queued: 1,
                source: Speed { delay_ms: 5, rate_bits_s: 15_000_000 },
                memory_share: 0.7,
                warm_up_ms: 3_000,
                measured_ms: 4_000,
            },
        }
    }

    /// Bytes of its files, from the smallest.
    pub(super) fn sizes(self) -> Vec<u64> {
        let all = match self {
            Self::DataIntensive => WorkloadKind::DataIntensive.sizes(1.0),
            Self::WorldCup => WorkloadKind::WorldCup.sizes(1.0),
        };
        let part = self.scale().file_stride;
        let kept: Vec<u64> = all.into_iter().filter(|bytes| *bytes <= FILE_BYTES_MAX).collect();
        kept.into_iter().skip(part / 2).step_by(part).collect()
    }

    /// Bytes of a node's memory.
    pub(super) fn memory_bytes(self) -> u64 {
        (self.sizes().iter().sum::<u64>() as f64 * self.scale().memory_share) as u64
    }
}

impl SiteScale {
    /// What a link carries of bodies.
    pub(super) fn link_bytes_per_s(&self) -> u64 {
        (self.link_bits_s as f64 / 8.0 * PAYLOAD_SHARE) as u64
    }

    /// In so many parts of the time.
    fn shortened(self, part: u64) -> Self {
        let Self { warm_up_ms, measured_ms, .. } = self;
        Self { warm_up_ms: warm_up_ms / part, measured_ms: measured_ms / part, ..self }
    }
}

impl BedCell {
    pub(super) fn name(&self) -> String {
        let load = if self.link_share == LIGHT { "light" } else { "heavy" };
        format!("{}, {load}", self.site.name())
    }

    /// What is asked for by a seed; in so many parts of the time.
    pub(super) fn trace(&self, seed: u64, part: u64) -> Trace {
        let (sizes, scale) = (self.site.sizes(), self.site.scale().shortened(part));
        let popularity = Popularity::zipf(sizes.len(), ZIPF_EXPONENT, &mut Rng::new(seed));
        let shares = sizes.iter().zip(popularity.shares());
        let mean_bytes: f64 = shares.map(|(bytes, share)| *bytes as f64 * share).sum();
        let bytes_per_s = (scale.link_bytes_per_s() * NODES as u64) as f64 * self.link_share;
        let gap_us = mean_bytes / bytes_per_s * 1e6;
        let (mut at_us, mut rng) = (0.0, Rng::new(seed ^ 0x5eed));
        let next = || {
            at_us += -(1.0 - rng.unit()).ln() * gap_us;
            (at_us as u64, popularity.draw(&mut rng) as u32)
        };
        let end_us = (scale.warm_up_ms + scale.measured_ms) * 1_000;
        let requests: Arc<[(u64, u32)]> =
            std::iter::repeat_with(next).take_while(|(at_us, _)| *at_us < end_us).collect();
        let warm_up = requests.partition_point(|(at_us, _)| *at_us < scale.warm_up_ms * 1_000);
        let object = |(bytes, id)| Object { id, bytes, period_ms: 0 };
        let objects = sizes.into_iter().zip(0..).map(object).collect();
        Trace { objects, requests, warm_up }
    }
}

impl Trace {
    /// For clients.
    pub(super) fn mix_objects(&self) -> Arc<[MixObject]> {
        self.objects.iter().map(|object| object.for_mix()).collect()
    }

    /// Those that are measured.
    pub(super) fn measured(&self) -> &[(u64, u32)] {
        &self.requests[self.warm_up..]
    }

    /// Bytes that they ask for.
    pub(super) fn measured_bytes(&self) -> u64 {
        self.measured().iter().map(|(_, object)| self.objects[*object as usize].bytes).sum()
    }
}
