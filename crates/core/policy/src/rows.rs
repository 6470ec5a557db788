//! The rows of direct dispatch: the nodes that may own a flow, determined by its hash alone.
//!
//! Candidate 0 of all rows is a weighted Maglev table; each further candidate is another table, in
//! which a node is not assigned to a row that already contains it. The candidates are followed by
//! the nodes that were candidates under earlier memberships, newest first: they may still have
//! connections. So dispatchers and nodes that know the same memberships compute the same rows, and
//! find the owner of each flow without per-flow state. (An extension of GLB's primary and
//! secondary, with weights and with policies that select.)

use skep_wire::steer::{CHOICES_MAX, NO_NODE, NodeIndex, ROW_NODES, ROWS, Row, ServiceMember};

use crate::limits::MAGLEV_ENTRIES;
use crate::permutation::{self, FREE, WeightedNode};

const _: () = assert!(ROWS == MAGLEV_ENTRIES);

/// The rows of a service. `memberships` are its members that take new flows, the current ones
/// first, then those of earlier tables; each membership adds up to `choices` nodes to a row.
pub fn rows(choices: usize, memberships: &[Vec<ServiceMember>]) -> Vec<Row> {
    assert!((1..=CHOICES_MAX).contains(&choices), "a row has 1 to {CHOICES_MAX} candidates");
    let mut rows = vec![Row([NO_NODE; ROW_NODES]); ROWS];
    for members in memberships {
        let candidates = candidates(choices, members);
        for (row, candidates) in rows.iter_mut().zip(&candidates) {
            for &index in candidates.iter().filter(|&&index| index != NO_NODE) {
                append(row, index);
            }
        }
    }
    rows
}

/// Appends a node, unless the row contains it or is full.
fn append(row: &mut Row, index: NodeIndex) {
    let place = row.0.iter_mut().find(|place| **place == NO_NODE || **place == index);
    if let Some(place) = place {
        *place = index;
    }
}

/// The candidates of each row under one membership.
fn candidates(choices: usize, members: &[ServiceMember]) -> Vec<[NodeIndex; CHOICES_MAX]> {
    let mut members = members.to_vec();
    // By name, since the order determines leftovers, and machines may order members differently.
    members.sort_by_key(|member| member.name_hash);
    let claims: Vec<WeightedNode> = members
        .iter()
        .map(|member| WeightedNode {
            name_hash: member.name_hash,
            weight: u64::from(member.weight.max(1)),
        })
        .collect();
    let mut candidates = vec![[NO_NODE; CHOICES_MAX]; ROWS];
    let mut table = Vec::new();
    for choice in 0..choices.min(members.len()) {
        let is_new = |row: usize, position: u16| {
            !candidates[row][..choice].contains(&members[usize::from(position)].index)
        };
        permutation::fill(&mut table, &claims, choice as u64, is_new);
        for (row, &position) in table.iter().enumerate() {
            candidates[row][choice] = match position {
                // The nodes that could own it have used up their turns.
                FREE => leftover(&candidates[row][..choice], &members, row),
                position => members[usize::from(position)].index,
            };
        }
    }
    candidates
}

/// A member that is not in `taken`; there is one, since `taken` is shorter.
fn leftover(taken: &[NodeIndex], members: &[ServiceMember], row: usize) -> NodeIndex {
    let (before, from_here) = members.split_at(row % members.len());
    let mut indexes = from_here.iter().chain(before).map(|member| member.index);
    indexes.find(|index| !taken.contains(index)).unwrap_or(NO_NODE)
}
