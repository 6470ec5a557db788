//! `maglev-address`, `maglev-connection`, `maglev-url`, `bounded-maglev-url`: each key is mapped to
//! a node.
//!
//! Maglev hashing: all machines with the same nodes and weights build the same
//! table, in which each node owns its share of the entries and few
//! entries move when a node is added or removed.
//!
//! The table depends only on the set of nodes and their weights. A node that is down, excluded or
//! in slow start leaves it unchanged: its keys probe forward to the next entry whose node accepts
//! them, and all other keys keep their nodes. (Sozu's rule; otherwise every flap of a check would
//! reshuffle flows.)
//!
//! **Bounded loads** (Mirrokni, Thorup, Zadimoghaddam, "Consistent hashing with bounded loads",
//! SODA 2018): a node with more than 1.25 times its share of the unanswered requests is skipped
//! like one that is down, so a hot key spreads over as many nodes as it needs.

use std::net::IpAddr;

use skep_units::{NodeId, stable_hash};

use crate::limits::{BOUND_FLOOR_REQUESTS, BOUND_PERCENT, MAGLEV_ENTRIES, NODES_MAX};
use crate::permutation::{self, WeightedNode};
use crate::{ClusterView, Decision, NodeView, Policy, RequestKey};

/// The part of a request that determines its node.
#[derive(Clone, Copy, Debug)]
pub(crate) enum HashKey {
    Address,
    Connection,
    Url,
}

pub(crate) struct Maglev {
    name: &'static str,
    key: HashKey,
    is_bounded: bool,
    version: Option<u64>,
    /// Indexes in the view; empty or of length `MAGLEV_ENTRIES`.
    table: Vec<u16>,
}

impl Maglev {
    pub(crate) fn new(name: &'static str, key: HashKey) -> Self {
        Self { name, key, is_bounded: false, version: None, table: Vec::new() }
    }

    /// The same, with bounded loads.
    pub(crate) fn bounded(name: &'static str, key: HashKey) -> Self {
        Self { is_bounded: true, ..Self::new(name, key) }
    }

    fn refresh(&mut self, view: &ClusterView) {
        if self.version != Some(view.version) {
            self.version = Some(view.version);
            fill(&mut self.table, &view.nodes);
        }
    }
}

impl Policy for Maglev {
    fn name(&self) -> &'static str {
        self.name
    }

    /// A warming node accepts those of its keys whose threshold is below its share: as the share
    /// grows, each key moves to it once and stays.
    fn pick(
        &mut self,
        request: &RequestKey<'_>,
        view: &ClusterView,
        exclude: &[NodeId],
    ) -> Decision {
        self.refresh(view);
        let Some(warmest) = view.warmest_permille(exclude) else { return Decision::None };
        let hash = self.key.hash(request);
        let start = (hash % MAGLEV_ENTRIES as u64) as usize;
        let threshold = (hash >> 32) % warmest;
        let bound = self.is_bounded.then(|| Bound::of(view, exclude));
        let has_room = |node: &NodeView| bound.as_ref().is_none_or(|bound| bound.leaves_room(node));
        let (before, from_start) = self.table.split_at(start);
        from_start
            .iter()
            .chain(before)
            .map(|&position| &view.nodes[usize::from(position)])
            .find(|node| {
                node.is_candidate(exclude) && threshold < node.share_permille() && has_room(node)
            })
            // With extreme weights a node may own no entry at all; then the candidate with the
            // fewest unanswered requests is picked.
            .or_else(|| view.candidates(exclude).min_by_key(|node| node.outstanding_requests))
            .map(|node| node.id)
            .into()
    }
}

/// The bound on unanswered requests per node.
struct Bound {
    /// Unanswered requests of all candidates, including the new one.
    requests: u64,
    /// Sum of the candidates' shares.
    capacity: u64,
}

impl Bound {
    fn of(view: &ClusterView, exclude: &[NodeId]) -> Self {
        let bound = Self { requests: 1, capacity: 0 };
        view.candidates(exclude).fold(bound, |sum, node| Self {
            requests: sum.requests + u64::from(node.outstanding_requests),
            capacity: sum.capacity + capacity(node),
        })
    }

    fn leaves_room(&self, node: &NodeView) -> bool {
        let outstanding = u64::from(node.outstanding_requests);
        let share =
            u128::from(self.requests) * u128::from(capacity(node)) * u128::from(BOUND_PERCENT);
        outstanding < BOUND_FLOOR_REQUESTS
            || u128::from(outstanding) * u128::from(self.capacity) * 100 < share
    }
}

/// The capacity of a node: its weight, reduced while it is warming.
fn capacity(node: &NodeView) -> u64 {
    node.weight_at_least_one() * node.share_permille()
}

impl HashKey {
    pub(crate) fn hash(self, request: &RequestKey<'_>) -> u64 {
        match self {
            Self::Address => address_hash(request.client),
            Self::Connection => {
                stable_hash(&request.client_port.to_le_bytes(), address_hash(request.client))
            }
            Self::Url => request.url_hash(),
        }
    }
}

fn address_hash(address: IpAddr) -> u64 {
    match address.to_canonical() {
        IpAddr::V4(address) => stable_hash(&address.octets(), 0),
        IpAddr::V6(address) => stable_hash(&address.octets(), 0),
    }
}

/// Builds the table of these nodes.
fn fill(table: &mut Vec<u16>, nodes: &[NodeView]) {
    assert!(nodes.len() <= NODES_MAX, "a view holds at most NODES_MAX nodes");
    let claims: Vec<WeightedNode> = nodes
        .iter()
        .map(|node| WeightedNode { name_hash: node.name_hash, weight: node.weight_at_least_one() })
        .collect();
    permutation::fill(table, &claims, 0, |_, _| true);
}

/// The table of these nodes.
#[cfg(test)]
pub(crate) fn table_of(nodes: &[NodeView]) -> Vec<u16> {
    let mut table = Vec::new();
    fill(&mut table, nodes);
    table
}
