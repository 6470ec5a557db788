//! `maglev-address` and `maglev-url`: each key sticks to a node.
//!
//! Maglev hashing (Eisenbud et al., NSDI 2016, section 3.4), weighted as in
//! Envoy: a table that every machine with the same nodes and weights builds
//! alike, in which each node owns its share of the entries and few entries
//! change hands when a node comes or goes.
//!
//! The table depends on the set of nodes and their weights only. A node that
//! is down, excluded or warming leaves it unchanged: its keys probe forward to
//! the next entry whose node takes them, and all other keys stay where they
//! are. (Sozu's rule; otherwise every flap of a check would reshuffle flows.)

use std::net::IpAddr;

use skep_units::{NodeId, stable_hash};

use crate::limits::{MAGLEV_ENTRIES, NODES_MAX};
use crate::{ClusterView, Decision, NodeView, Policy, RequestKey};

/// What of a request sticks.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Key {
    Address,
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
            Self::Address => match request.client.to_canonical() {
                IpAddr::V4(address) => stable_hash(&address.octets(), 0),
                IpAddr::V6(address) => stable_hash(&address.octets(), 0),
            },
            Self::Url => {
                // Each part is hashed under the hash of those before it, so
                // a byte that moves over a boundary changes the result.
                let site = stable_hash(request.path, stable_hash(request.host, 0));
                request.query.map_or(site, |query| stable_hash(query, site))
            }
        }
    }
}

/// A node's walk over the table while it is filled.
struct Claimant {
    position: u16,
    weight: u64,
    entry: usize,
    skip: usize,
    /// Takes its turn in round `r` when `r * weight` has come this far.
    due: u64,
}

impl Claimant {
    fn new(position: usize, node: &NodeView) -> Self {
        let name = node.name_hash.to_le_bytes();
        let below = |bound: usize, seed| (stable_hash(&name, seed) % bound as u64) as usize;
        Self {
            position: position as u16,
            weight: node.weight_at_least_one(),
            entry: below(MAGLEV_ENTRIES, 1),
            skip: below(MAGLEV_ENTRIES - 1, 2) + 1,
            due: 0,
        }
    }
}

/// Fills the table: in turns, each node claims the next free entry of its own
/// permutation; a node of weight `w` takes a turn every `w_max / w` rounds.
/// O(entries * log entries), about a millisecond, unless weights lie far apart:
/// the lighter nodes are asked in each round of the heaviest.
fn fill(table: &mut Vec<u16>, nodes: &[NodeView]) {
    const FREE: u16 = u16::MAX;
    assert!(nodes.len() <= NODES_MAX, "a view holds at most NODES_MAX nodes");
    table.clear();
    let mut claimants: Vec<Claimant> =
        nodes.iter().enumerate().map(|(position, node)| Claimant::new(position, node)).collect();
    let Some(weight_max) = claimants.iter().map(|claimant| claimant.weight).max() else { return };
    // By name: machines may number and order the same nodes differently.
    claimants.sort_by_key(|claimant| nodes[usize::from(claimant.position)].name_hash);
    table.resize(MAGLEV_ENTRIES, FREE);
    let mut free = MAGLEV_ENTRIES;
    for round in 1.. {
        for claimant in &mut claimants {
            if round * claimant.weight < claimant.due {
                continue;
            }
            claimant.due += weight_max;
            while table[claimant.entry] != FREE {
                claimant.entry += claimant.skip;
                if claimant.entry >= MAGLEV_ENTRIES {
                    claimant.entry -= MAGLEV_ENTRIES;
                }
            }
            table[claimant.entry] = claimant.position;
            free -= 1;
            if free == 0 {
                return;
            }
        }
    }
}

/// The table that these nodes give.
#[cfg(test)]
pub(crate) fn table_of(nodes: &[NodeView]) -> Vec<u16> {
    let mut table = Vec::new();
    fill(&mut table, nodes);
    table
}
