//! The cells of the experiment, each a site, a cluster and a load.

use skep_site_sim::{Experiment, OfferedLoad, SimulatedCluster, SimulatedNode, SiteKind};

const NODES: usize = 8;

/// Shares of the rate that all links can carry.
const LIGHT: f64 = 0.3;
const HEAVY: f64 = 0.8;

/// The rate of a disk that is slower than a link of 1 Gbit/s, in bytes per second.
const SLOW_DISK: u64 = 31_000_000;

/// A cell: all policies are measured in it, with the same requests.
pub(super) struct Cell {
    /// The name on the page.
    pub(super) name: &'static str,
    site: SiteKind,
    link_share: f64,
    /// Every other node has three times as many resources.
    is_unequal: bool,
    has_cluster_cache: bool,
    /// A node's memory, as a share of the site.
    memory: f64,
    disk_bytes_per_s: Option<u64>,
    /// Number of workers that choose nodes.
    workers: usize,
    tells_rates: bool,
    /// Name of its plot, if it has one.
    plot: Option<&'static str>,
}

/// How the page shows a cell.
#[derive(Clone, Copy)]
pub(super) struct Shown {
    /// Whether response times are in milliseconds; otherwise in seconds.
    pub(super) is_in_ms: bool,
    /// Name of the plot.
    pub(super) plot: Option<&'static str>,
}

const USUAL: Cell = Cell {
    name: "",
    site: SiteKind::DataIntensive,
    link_share: HEAVY,
    is_unequal: false,
    has_cluster_cache: true,
    memory: 0.175,
    disk_bytes_per_s: None,
    workers: 1,
    tells_rates: false,
    plot: None,
};

const fn of(name: &'static str, site: SiteKind, link_share: f64, is_unequal: bool) -> Cell {
    Cell { name, site, link_share, is_unequal, ..USUAL }
}

const fn alone(name: &'static str, link_share: f64, tells_rates: bool) -> Cell {
    Cell { name, link_share, has_cluster_cache: false, tells_rates, ..USUAL }
}

pub(super) const CELLS: &[Cell] = &[
    Cell {
        plot: Some("data-light"),
        ..of("data-intensive, light", SiteKind::DataIntensive, LIGHT, false)
    },
    Cell {
        plot: Some("data-heavy"),
        ..of("data-intensive, heavy", SiteKind::DataIntensive, HEAVY, false)
    },
    of("data-intensive, unequal, light", SiteKind::DataIntensive, LIGHT, true),
    of("data-intensive, unequal, heavy", SiteKind::DataIntensive, HEAVY, true),
    Cell {
        plot: Some("world-cup-light"),
        ..of("World Cup, light", SiteKind::WorldCup, LIGHT, false)
    },
    Cell {
        plot: Some("world-cup-heavy"),
        ..of("World Cup, heavy", SiteKind::WorldCup, HEAVY, false)
    },
    of("World Cup, unequal, light", SiteKind::WorldCup, LIGHT, true),
    of("World Cup, unequal, heavy", SiteKind::WorldCup, HEAVY, true),
    of("WebBench, light", SiteKind::WebBench, LIGHT, false),
    of("WebBench, heavy", SiteKind::WebBench, HEAVY, false),
    of("WebBench, unequal, light", SiteKind::WebBench, LIGHT, true),
    of("WebBench, unequal, heavy", SiteKind::WebBench, HEAVY, true),
    Cell { name: "8 workers, heavy", workers: 8, ..USUAL },
    Cell { name: "memory 3 %, heavy", memory: 0.03, ..USUAL },
    Cell {
        name: "memory 5 %, slow disks, heavy",
        memory: 0.05,
        disk_bytes_per_s: Some(SLOW_DISK),
        ..USUAL
    },
    alone("no cluster cache, light", LIGHT, false),
    alone("no cluster cache, heavy", HEAVY, false),
    alone("no cluster cache, rates told, heavy", HEAVY, true),
];

impl Cell {
    pub(super) fn shown(&self) -> Shown {
        let is_of_small_files = !matches!(self.site, SiteKind::DataIntensive);
        Shown { is_in_ms: is_of_small_files, plot: self.plot }
    }

    pub(super) fn experiment(&self, is_quick: bool) -> Experiment {
        let zipf_exponent = self.site.zipf_exponent();
        let bytes = self.site.workload(1.0, zipf_exponent, 1).bytes();
        let usual = SimulatedNode::usual((bytes as f64 * self.memory) as u64);
        let disk_bytes_per_s = self.disk_bytes_per_s.unwrap_or(usual.disk_bytes_per_s);
        let node = SimulatedNode { disk_bytes_per_s, ..usual };
        let weight = |node| if self.is_unequal && node % 2 == 0 { 3 } else { 1 };
        let weights: Vec<u32> = (0..NODES).map(weight).collect();
        let mut cluster = SimulatedCluster::weighted(&weights, node, 1.0);
        cluster.has_cluster_cache = self.has_cluster_cache;
        cluster.workers = self.workers;
        cluster.tells_rates = self.tells_rates;
        let (requests, warm_up_share, seeds) = match self.site {
            _ if is_quick => (2_000, 0.5, 2),
            SiteKind::DataIntensive => (30_000, 0.5, 8),
            // Enough that nearly all objects have been requested before.
            SiteKind::WorldCup | SiteKind::WebBench => (200_000, 0.6, 4),
        };
        Experiment {
            site: self.site,
            scale: 1.0,
            zipf_exponent,
            cluster,
            load: OfferedLoad::Open { link_share: self.link_share },
            requests,
            warm_up_share,
            seeds,
        }
    }
}
