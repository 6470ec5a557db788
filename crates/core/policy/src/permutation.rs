//! Filling of a Maglev table: nodes take turns, each following its own permutation.
//!
//! Eisenbud et al., NSDI 2016, section 3.4; weighted as in Envoy: a node of weight `w` takes a turn
//! every `w_max / w` rounds. The result depends only on names and weights, not on the order or the
//! ids of the nodes.

use skep_units::stable_hash;

use crate::limits::MAGLEV_ENTRIES;

/// An entry without a node.
pub(crate) const FREE: u16 = u16::MAX;

/// A participating node.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WeightedNode {
    /// `stable_hash` of its name.
    pub(crate) name_hash: u64,
    /// Its weight relative to the others', at least 1.
    pub(crate) weight: u64,
}

/// Fills a table with indexes into `claims`. `round` makes the permutations of several tables over
/// the same nodes differ; `may_take(entry, position)` is whether a node may have an entry. Entries
/// that no node may have, or could reach, are [`FREE`].
///
/// O(entries * log entries), about a millisecond.
pub(crate) fn fill(
    table: &mut Vec<u16>,
    claims: &[WeightedNode],
    round: u64,
    may_take: impl Fn(usize, u16) -> bool,
) {
    table.clear();
    let Some(weight_max) = claims.iter().map(|claim| claim.weight).max() else { return };
    let mut claimants: Vec<Claimant> = claims
        .iter()
        .enumerate()
        .map(|(position, claim)| Claimant::new(position as u16, claim, round))
        .collect();
    // By name: machines may number and order the same nodes differently.
    claimants.sort_by_key(|claimant| claims[usize::from(claimant.position)].name_hash);
    table.resize(MAGLEV_ENTRIES, FREE);
    let (mut free, mut turn) = (MAGLEV_ENTRIES, 1);
    while !claimants.is_empty() {
        let (mut has_asked, mut has_ended) = (false, false);
        for claimant in &mut claimants {
            if turn * claimant.weight < claimant.due {
                continue;
            }
            claimant.due += weight_max;
            let position = claimant.position;
            if let Some(entry) = claimant.next(|e| table[e] == FREE && may_take(e, position)) {
                table[entry] = position;
                free -= 1;
            }
            if free == 0 {
                return;
            }
            has_asked = true;
            has_ended |= claimant.left == 0;
        }
        if has_ended {
            claimants.retain(|claimant| claimant.left > 0);
        }
        // Where the heavier ones are done, a light one is not asked for many turns.
        let next = |claimant: &Claimant| claimant.due.div_ceil(claimant.weight);
        let idle_until = if has_asked { None } else { claimants.iter().map(next).min() };
        turn = idle_until.unwrap_or(turn + 1);
    }
}

/// A node's traversal of the table.
struct Claimant {
    position: u16,
    weight: u64,
    entry: usize,
    skip: usize,
    /// Entries of its permutation that it has not tried.
    left: usize,
    /// It takes its turn in turn `t` when `t * weight` has reached this.
    due: u64,
}

impl Claimant {
    fn new(position: u16, claim: &WeightedNode, round: u64) -> Self {
        let name = claim.name_hash.to_le_bytes();
        let below = |bound: usize, seed| (stable_hash(&name, seed) % bound as u64) as usize;
        Self {
            position,
            weight: claim.weight,
            entry: below(MAGLEV_ENTRIES, 2 * round + 1),
            skip: below(MAGLEV_ENTRIES - 1, 2 * round + 2) + 1,
            left: MAGLEV_ENTRIES,
            due: 0,
        }
    }

    /// The next entry of its permutation that it may take. Skipped entries never become free:
    /// entries are only filled.
    fn next(&mut self, may_have: impl Fn(usize) -> bool) -> Option<usize> {
        while self.left > 0 {
            let entry = self.entry;
            self.left -= 1;
            self.entry += self.skip;
            if self.entry >= MAGLEV_ENTRIES {
                self.entry -= MAGLEV_ENTRIES;
            }
            if may_have(entry) {
                return Some(entry);
            }
        }
        None
    }
}
