//! The cells of the experiment, each a site, a number of nodes and a load.

use skep_site_sim::{
    Experiment, OfferedLoad, SimulatedCluster, SimulatedLoss, SimulatedNode, SiteKind,
};

pub(super) const LOADS: [(&str, f64); 2] = [("light", 0.3), ("heavy", 0.8)];

/// The number of nodes among which the published site is divided, and a node's memory as a share of the site.
const NODES_OF_SITE: f64 = 8.0;
const MEMORY_SHARE: f64 = 0.175;

/// A site that grows with the number of nodes.
#[derive(Clone, Copy)]
pub(super) struct GrowingSite {
    pub(super) name: &'static str,
    pub(super) kind: SiteKind,
    /// Multiple of the published site's files and memory per node.
    files_scale: f64,
    /// Multiple of the usual rates.
    pub(super) rate_scale: f64,
    requests_per_node: u64,
    pub(super) window_ms: u64,
}

pub(super) const SITES: [GrowingSite; 2] = [
    GrowingSite {
        name: "World Cup",
        kind: SiteKind::WorldCup,
        files_scale: 0.1,
        rate_scale: 0.02,
        requests_per_node: 3_000,
        window_ms: 250,
    },
    GrowingSite {
        name: "data-intensive",
        kind: SiteKind::DataIntensive,
        files_scale: 1.0,
        rate_scale: 1.0,
        requests_per_node: 250,
        window_ms: 4_000,
    },
];

impl GrowingSite {
    /// The size of a node's memory, in bytes.
    pub(super) fn memory_bytes(&self) -> u64 {
        let bytes = self.kind.workload(1.0, self.kind.zipf_exponent(), 1).bytes();
        (bytes as f64 * MEMORY_SHARE * self.files_scale) as u64
    }

    pub(super) fn experiment(&self, nodes: usize, link_share: f64, seeds: u64) -> Experiment {
        let node = SimulatedNode::usual(self.memory_bytes());
        let mut cluster = SimulatedCluster::weighted(&vec![1; nodes], node, self.rate_scale);
        cluster.has_cluster_cache = true;
        let window_ms = self.window_ms;
        cluster.loss = Some(SimulatedLoss { at_share: 0.6, every: 10, window_ms });
        Experiment {
            site: self.kind,
            scale: nodes as f64 / NODES_OF_SITE * self.files_scale,
            zipf_exponent: self.kind.zipf_exponent(),
            cluster,
            load: OfferedLoad::Open { link_share },
            requests: nodes as u64 * self.requests_per_node,
            warm_up_share: 0.4,
            seeds,
        }
    }
}
