//! What clients request: the objects of a site and their popularity.

use std::net::{IpAddr, Ipv4Addr};

use skep_policy::RequestKey;
use skep_units::{Rng, SEGMENT_BYTES};
use skep_workload::{Popularity, WorkloadKind};

use crate::part::ObjectPart;
use crate::timed_request::TimedRequest;

/// A kind of site, with the statistics of a published one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SiteKind {
    /// World Cup 1998: many small files.
    WorldCup,
    /// Some hundred files, half of them large, up to 2 GB.
    DataIntensive,
    /// The mix of WebBench, with equally popular files.
    WebBench,
}

/// The objects of a site, as the simulator needs them.
#[derive(Clone, Debug)]
pub struct SiteWorkload {
    pub(crate) objects: Vec<SiteObject>,
    pub(crate) popularity: Popularity,
    /// The number of segments of all objects.
    pub(crate) segments: u32,
    /// What a log says was asked for, or was given; nothing of other sites.
    pub(crate) logged: Vec<TimedRequest>,
}

/// An object. Its segments are numbered consecutively with those of the others.
#[derive(Clone, Debug)]
pub(crate) struct SiteObject {
    pub(crate) path: Box<[u8]>,
    pub(crate) url_hash: u64,
    pub(crate) bytes: u64,
    pub(crate) segment_first: u32,
    /// Processor time for producing it, if it is computed rather than read.
    pub(crate) compute_ns: u64,
}

impl SiteKind {
    /// Finds a kind by its name.
    pub fn named(name: &str) -> Option<Self> {
        [Self::WorldCup, Self::DataIntensive, Self::WebBench]
            .into_iter()
            .find(|kind| kind.name() == name)
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::WorldCup => "world-cup",
            Self::DataIntensive => "data-intensive",
            Self::WebBench => "webbench",
        }
    }

    /// Zipf's exponent by default: that of Web servers; WebBench requests all files equally often.
    pub fn zipf_exponent(self) -> f64 {
        match self {
            Self::WorldCup | Self::DataIntensive => 0.8,
            Self::WebBench => 0.0,
        }
    }

    /// The site with `scale` times as many files, of the same sizes.
    pub fn workload(self, scale: f64, zipf_exponent: f64, seed: u64) -> SiteWorkload {
        let kind = match self {
            Self::WorldCup => WorkloadKind::WorldCup,
            Self::DataIntensive => WorkloadKind::DataIntensive,
            Self::WebBench => WorkloadKind::WebBench,
        };
        let sizes = kind.sizes(scale);
        let popularity = Popularity::zipf(sizes.len(), zipf_exponent, &mut Rng::new(seed));
        SiteWorkload::new(&sizes, popularity)
    }
}

impl SiteWorkload {
    /// Creates a site of objects with these sizes, in bytes, none of which is 0.
    pub fn new(sizes: &[u64], popularity: Popularity) -> Self {
        assert_eq!(sizes.len(), popularity.shares().len(), "each object has a share");
        let mut segments = 0;
        let object = |(number, &bytes): (usize, &u64)| {
            assert!(bytes > 0, "objects are not empty");
            let segment_first = segments;
            segments += bytes.div_ceil(SEGMENT_BYTES) as u32;
            SiteObject::new(number, bytes, segment_first)
        };
        let objects = sizes.iter().enumerate().map(object).collect();
        Self { objects, popularity, segments, logged: Vec::new() }
    }

    /// The sum of the objects' sizes, in bytes.
    pub fn bytes(&self) -> u64 {
        self.objects.iter().map(|object| object.bytes).sum()
    }

    /// The mean size of a response by popularity, in bytes.
    pub fn mean_bytes(&self) -> f64 {
        let shares = self.popularity.shares();
        self.objects.iter().zip(shares).map(|(object, share)| object.bytes as f64 * share).sum()
    }
}

/// The key of a client's request of a path.
pub(crate) fn request_key(client: u32, path: &[u8]) -> RequestKey<'_> {
    RequestKey {
        client: IpAddr::V4(Ipv4Addr::from_bits(0x0a00_0000 + client)),
        client_port: 1024 + (client % 60_000) as u16,
        host: b"site.example",
        path,
        query: None,
    }
}

impl SiteObject {
    fn new(number: usize, bytes: u64, segment_first: u32) -> Self {
        Self::at_path(format!("/{number}").into_bytes().into(), bytes, segment_first)
    }

    pub(crate) fn at_path(path: Box<[u8]>, bytes: u64, segment_first: u32) -> Self {
        let url_hash = request_key(0, &path).url_hash();
        Self { path, url_hash, bytes, segment_first, compute_ns: 0 }
    }

    /// The whole object.
    pub(crate) fn whole(&self) -> ObjectPart {
        ObjectPart { from: 0, end: self.bytes }
    }

    /// The number of bytes of one of its segments, the last of which may be short.
    pub(crate) fn segment_bytes(&self, segment: u32) -> u64 {
        self.whole().bytes_of(segment..segment + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sites_have_their_published_numbers() {
        for (kind, files, bytes) in [
            (SiteKind::WorldCup, 17_332, 204.3e6),
            (SiteKind::DataIntensive, 532, 45.73e9),
            (SiteKind::WebBench, 192_600, 1.2e9),
        ] {
            let site = kind.workload(1.0, kind.zipf_exponent(), 1);
            let name = kind.name();
            assert!((site.objects.len() as f64 / f64::from(files) - 1.0).abs() < 0.002, "{name}");
            assert!((site.bytes() as f64 / bytes - 1.0).abs() < 0.001, "{name} {}", site.bytes());
        }
    }
}
