//! `maglev-address`, `maglev-connection`, `maglev-url`: each key sticks to a node.
//!
//! Maglev hashing: a table that every machine with the same nodes and weights
//! builds alike, in which each node owns its share of the entries and few
//! entries change hands when a node comes or goes.
//!
//! The table depends on the set of nodes and their weights only. A node that
//! is down, excluded or warming leaves it unchanged: its keys probe forward to
//! the next entry whose node takes them, and all other keys stay where they
//! are. (Sozu's rule; otherwise every flap of a check would reshuffle flows.)

use std::net::IpAddr;

use skep_units::{NodeId, stable_hash};

use crate::limits::{MAGLEV_ENTRIES, NODES_MAX};
use crate::permutation::{self, Claim};
use crate::{ClusterView, Decision, NodeView, Policy, RequestKey};

/// What of a request sticks.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Key {
    Address,
    Connection,
    Url,
}

pub(crate) struct Maglev {
    name: &'static str,
    key: Key,
    version: Option<u64>,
    /// Positions in the view; empty or `MAGLEV_ENTRIES` long.
    table: Vec<u16>,
}

impl Maglev {
    pub(crate) fn new(name: &'static str, key: Key) -> Self {
        Self { name, key, version: None, table: Vec::new() }
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

    /// A warming node takes those of its keys whose threshold its share has
    /// passed: as the share grows, each key moves to it once and stays.
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
        let (before, from_start) = self.table.split_at(start);
        from_start
            .iter()
            .chain(before)
            .map(|&position| &view.nodes[usize::from(position)])
            .find(|node| node.is_candidate(exclude) && threshold < node.share_permille())
            // With extreme weights a node may own no entry at all.
            .or_else(|| view.candidates(exclude).next())
            .map(|node| node.id)
            .into()
    }
}

impl Key {
    fn hash(self, request: &RequestKey<'_>) -> u64 {
        match self {
            Self::Address => address_hash(request.client),
            Self::Connection => {
                stable_hash(&request.client_port.to_le_bytes(), address_hash(request.client))
            }
            Self::Url => {
                // Each part is hashed under the hash of those before it, so
                // a byte that moves over a boundary changes the result.
                let site = stable_hash(request.path, stable_hash(request.host, 0));
                request.query.map_or(site, |query| stable_hash(query, site))
            }
        }
    }
}

fn address_hash(address: IpAddr) -> u64 {
    match address.to_canonical() {
        IpAddr::V4(address) => stable_hash(&address.octets(), 0),
        IpAddr::V6(address) => stable_hash(&address.octets(), 0),
    }
}

/// The table of these nodes.
fn fill(table: &mut Vec<u16>, nodes: &[NodeView]) {
    assert!(nodes.len() <= NODES_MAX, "a view holds at most NODES_MAX nodes");
    let claims: Vec<Claim> = nodes
        .iter()
        .map(|node| Claim { name_hash: node.name_hash, weight: node.weight_at_least_one() })
        .collect();
    permutation::fill(table, &claims, 0, |_, _| true);
}

/// The table that these nodes give.
#[cfg(test)]
pub(crate) fn table_of(nodes: &[NodeView]) -> Vec<u16> {
    let mut table = Vec::new();
    fill(&mut table, nodes);
    table
}
