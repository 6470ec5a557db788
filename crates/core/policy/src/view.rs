//! The input of a policy: the request's key and the present state of the cluster.

use std::net::IpAddr;

use skep_units::{NodeId, Now, Rng, stable_hash};

use crate::Work;
use crate::limits::SLOW_START_PERMILLE_FULL;

/// The parts of a request that a policy may look at. Borrowed from the
/// connection's buffer; nothing is copied.
#[derive(Clone, Copy, Debug)]
pub struct RequestKey<'a> {
    pub client: IpAddr,
    /// The client's port, which tells its connections apart.
    pub client_port: u16,
    /// Host name: lower case, without the port.
    pub host: &'a [u8],
    /// Normalised path, the same that routing and cache use.
    pub path: &'a [u8],
    /// Query without the `?`.
    pub query: Option<&'a [u8]>,
}

/// The cluster at the moment of a pick.
///
/// The owner keeps one and refreshes the loads in place.
#[derive(Clone, Debug, Default)]
pub struct ClusterView {
    /// At most `NODES_MAX`. Positions are stable while `version` is.
    pub nodes: Vec<NodeView>,
    /// Changes if and only if the set of nodes, their order or a weight
    /// changes; not when loads or health do.
    pub version: u64,
    /// Time of the view.
    pub now: Now,
    /// Whether nodes fetch from each other's memory what they do not have.
    pub has_cluster_cache: bool,
}

/// One node as a policy sees it.
#[derive(Clone, Copy, Debug)]
pub struct NodeView {
    pub id: NodeId,
    /// `stable_hash` of its name: the same on every machine, whatever its id.
    pub name_hash: u64,
    /// Share of the work relative to other nodes; 0 counts as 1.
    pub weight: u32,
    /// Healthy and not draining: may get new requests.
    pub eligible: bool,
    /// Thousandths of its share that it takes now, `1..=1000`; 1000 when warm.
    pub slow_start_permille: u16,
    /// Connections in use.
    pub connections: u32,
    /// Requests that it has not yet answered in full.
    pub outstanding_requests: u32,
    /// Bytes of replies that it still has to send.
    pub outstanding_bytes: u64,
    /// Bytes a second that its link takes; 0: not known.
    pub link_bytes_per_s: u64,
    /// Bytes a second at which it brings in what no node has in memory; 0: not known.
    pub fetch_bytes_per_s: u64,
    /// Bytes of memory for the objects of requests that this instance sends there; 0: not known.
    pub memory_bytes: u64,
}

impl RequestKey<'_> {
    /// The hash of host, path and query: the same on all machines.
    pub fn url_hash(&self) -> u64 {
        url_hash(self.host, self.path, self.query)
    }
}

/// The hash of host, path and query: the same on all machines.
pub fn url_hash(host: &[u8], path: &[u8], query: Option<&[u8]>) -> u64 {
    // Each part is hashed under the hash of those before it, so a byte that moves over a boundary changes the result.
    let site = stable_hash(path, stable_hash(host, 0));
    query.map_or(site, |query| stable_hash(query, site))
}

impl ClusterView {
    /// The node with this number.
    pub(crate) fn node(&self, id: NodeId) -> Option<&NodeView> {
        self.nodes.iter().find(|node| node.id == id)
    }

    /// The candidate with the fewest unanswered requests; of several the one that an object with this hash prefers, on
    /// all machines.
    pub(crate) fn idlest(&self, url_hash: u64, exclude: &[NodeId]) -> Option<NodeId> {
        let preference = |node: &NodeView| stable_hash(&node.name_hash.to_le_bytes(), url_hash);
        let candidates = self.candidates(exclude);
        candidates.min_by_key(|node| (node.warm_requests(), preference(node))).map(|node| node.id)
    }

    /// The positions of two different random candidates; twice the same where there is one, `None` where there is none.
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

    /// The nodes that may be picked.
    pub(crate) fn candidates<'a>(
        &'a self,
        exclude: &'a [NodeId],
    ) -> impl Iterator<Item = &'a NodeView> + Clone {
        self.nodes.iter().filter(move |node| node.is_candidate(exclude))
    }

    /// The largest share (permille) among the candidates, against which the
    /// shares of the others count. `None` without candidates.
    pub(crate) fn warmest_permille(&self, exclude: &[NodeId]) -> Option<u64> {
        self.candidates(exclude).map(NodeView::share_permille).max()
    }
}

impl NodeView {
    /// A node without load that takes requests, is warm, and of whose link and memory nothing is known.
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

    /// Its unanswered requests as if it were warm: one that is not counts as if it had a part of one more, and does
    /// not win against an idle warm one.
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
