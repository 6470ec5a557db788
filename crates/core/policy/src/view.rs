//! The input of a policy: the request's key and the current state of the cluster.

use std::net::IpAddr;

use skep_units::{NodeId, Now, Rng, stable_hash};

use crate::Work;
use crate::limits::SLOW_START_PERMILLE_FULL;

/// The parts of a request that a policy may use. Borrowed from the connection's buffer; nothing is
/// copied.
#[derive(Clone, Copy, Debug)]
pub struct RequestKey<'a> {
    pub client: IpAddr,
    /// The client's port, which distinguishes its connections.
    pub client_port: u16,
    /// Host name in lower case, without the port.
    pub host: &'a [u8],
    /// Normalised path, the same as for routing and caching.
    pub path: &'a [u8],
    /// Query without the `?`.
    pub query: Option<&'a [u8]>,
}

/// The cluster at the moment of a pick.
///
/// The owner keeps one view and refreshes the loads in place.
#[derive(Clone, Debug, Default)]
pub struct ClusterView {
    /// At most `NODES_MAX`. Indexes are stable while `version` is.
    pub nodes: Vec<NodeView>,
    /// Changes if and only if the set of nodes, their order or a weight changes, not when loads or
    /// health do.
    pub version: u64,
    /// Time of the view.
    pub now: Now,
    /// Whether nodes fetch objects from each other's memory.
    pub has_cluster_cache: bool,
}

/// A node as policies see it.
#[derive(Clone, Copy, Debug)]
pub struct NodeView {
    pub id: NodeId,
    /// `stable_hash` of its name: equal on every machine, unlike its id.
    pub name_hash: u64,
    /// Share of the work relative to other nodes; 0 is treated as 1.
    pub weight: u32,
    /// Healthy and not draining: may receive new requests.
    pub eligible: bool,
    /// Current fraction of its share, in thousandths, `1..=1000`; 1000 if warm.
    pub slow_start_permille: u16,
    /// Connections in use.
    pub connections: u32,
    /// Requests that it has not answered completely.
    pub outstanding_requests: u32,
    /// Bytes of replies that it still has to send.
    pub outstanding_bytes: u64,
    /// Bandwidth of its link, in bytes per second; 0 if unknown.
    pub link_bytes_per_s: u64,
    /// Rate at which it fetches objects that no node has in memory, in bytes per second; 0 if
    /// unknown.
    pub fetch_bytes_per_s: u64,
    /// Bytes of memory for the objects that this instance sends requests for; 0 if unknown.
    pub memory_bytes: u64,
}

impl RequestKey<'_> {
    /// The hash of host, path and query, equal on all machines.
    pub fn url_hash(&self) -> u64 {
        url_hash(self.host, self.path, self.query)
    }
}

/// The hash of host, path and query, equal on all machines.
pub fn url_hash(host: &[u8], path: &[u8], query: Option<&[u8]>) -> u64 {
    // Each part is hashed with the hash of the parts before it as the seed, so moving a byte over a
    // boundary changes the result.
    let site = stable_hash(path, stable_hash(host, 0));
    query.map_or(site, |query| stable_hash(query, site))
}

impl ClusterView {
    /// The node with this id.
    pub(crate) fn node(&self, id: NodeId) -> Option<&NodeView> {
        self.nodes.iter().find(|node| node.id == id)
    }

    /// The candidate with the fewest unanswered requests; of several the one that the hash prefers,
    /// equal on all machines.
    pub(crate) fn idlest(&self, url_hash: u64, exclude: &[NodeId]) -> Option<NodeId> {
        let preference = |node: &NodeView| stable_hash(&node.name_hash.to_le_bytes(), url_hash);
        let candidates = self.candidates(exclude);
        candidates.min_by_key(|node| (node.warm_requests(), preference(node))).map(|node| node.id)
    }

    /// The indexes of two different random candidates; the same index twice if there is only one,
    /// `None` if there is none.
    pub(crate) fn two_random(&self, rng: &mut Rng, exclude: &[NodeId]) -> Option<[usize; 2]> {
        let nodes = self.nodes.iter().enumerate();
        let candidates = nodes.filter(|(_, node)| node.is_candidate(exclude)).map(|(at, _)| at);
        let count = candidates.clone().count() as u64;
        let nth = |n: u64| candidates.clone().nth((n % count) as usize);
        if count < 2 {
            return candidates.clone().next().map(|only| [only, only]);
        }
        let one = rng.below(count);
        let other = one + 1 + rng.below(count - 1);
        Some([nth(one)?, nth(other)?])
    }

    /// The candidates: nodes that may be picked.
    pub(crate) fn candidates<'a>(
        &'a self,
        exclude: &'a [NodeId],
    ) -> impl Iterator<Item = &'a NodeView> + Clone {
        self.nodes.iter().filter(move |node| node.is_candidate(exclude))
    }

    /// The largest slow-start share (permille) among the candidates, to which the shares of the
    /// others are relative. `None` without candidates.
    pub(crate) fn warmest_permille(&self, exclude: &[NodeId]) -> Option<u64> {
        self.candidates(exclude).map(NodeView::share_permille).max()
    }
}

impl NodeView {
    /// An eligible, warm node without load, whose link and memory are unknown.
    pub fn idle(id: NodeId, name_hash: u64, weight: u32) -> Self {
        Self {
            id,
            name_hash,
            weight,
            eligible: true,
            slow_start_permille: SLOW_START_PERMILLE_FULL,
            connections: 0,
            outstanding_requests: 0,
            outstanding_bytes: 0,
            link_bytes_per_s: 0,
            fetch_bytes_per_s: 0,
            memory_bytes: 0,
        }
    }

    /// Whether it may be picked.
    pub(crate) fn is_candidate(&self, exclude: &[NodeId]) -> bool {
        self.eligible && !exclude.contains(&self.id)
    }

    /// Its slow-start share, `1..=1000`.
    pub(crate) fn share_permille(&self) -> u64 {
        u64::from(self.slow_start_permille.clamp(1, SLOW_START_PERMILLE_FULL))
    }

    /// Its unanswered requests relative to its share: a warming node counts as if it had a fraction
    /// of another request, so it does not win against an idle warm one.
    pub(crate) fn warm_requests(&self) -> u64 {
        let (full, share) = (u64::from(SLOW_START_PERMILLE_FULL), self.share_permille());
        (u64::from(self.outstanding_requests) * full + full - share).div_ceil(share)
    }

    /// Its outstanding work.
    pub(crate) fn work(&self) -> Work {
        Work { requests: self.outstanding_requests.into(), bytes: self.outstanding_bytes }
    }

    /// Its weight, at least 1.
    pub(crate) fn weight_at_least_one(&self) -> u64 {
        u64::from(self.weight.max(1))
    }
}
