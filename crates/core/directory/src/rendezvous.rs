//! The owner of a segment while no coordinator answers: rendezvous hashing.
//!
//! Owners are ordered by highest random weight (Thaler, Ravishankar, 1998), with bounded loads
//! (Mirrokni, Thorup, Zadimoghaddam, SODA 2018): load beyond an owner's bound spreads over all
//! others, not over one neighbour.
//!
//! Invariants: all machines with the same names compute the same order, whatever
//! the nodes' numbers; all nodes own equal shares; adding or removing a node moves only the
//! segments that it owns.

use skep_units::stable_hash;
use skep_wire::cache::SegmentName;
use skep_wire::message::Name;

use crate::limits::{BOUND_PERCENT, OWNER_LOAD_FLOOR_BYTES};

/// Assigns each segment an owner among the members, by rendezvous hashing (highest random weight)
/// with bounded loads. `P` is the caller's identifier of a member.
#[derive(Clone, Debug)]
pub struct RendezvousHash<P> {
    members: Vec<Owner<P>>,
}

#[derive(Clone, Debug)]
struct Owner<P> {
    id: P,
    name: Name,
    seed: u64,
}

impl<P: Copy> RendezvousHash<P> {
    /// The hash over these members.
    pub fn new(members: impl IntoIterator<Item = (P, Name)>) -> Self {
        let owner = |(id, name): (P, Name)| {
            let seed = stable_hash(name.as_str().as_bytes(), 0);
            Owner { id, name, seed }
        };
        Self { members: members.into_iter().map(owner).collect() }
    }

    /// The owner of `name`: the first candidate whose load, in bytes outstanding, is
    /// within the bound. `None` if there are no members.
    pub fn owner(&self, name: &SegmentName, load: impl Fn(P) -> u64) -> Option<P> {
        let loads = || self.members.iter().map(|it| load(it.id));
        let total = loads().fold(skep_units::SEGMENT_BYTES, u64::saturating_add);
        let within = |it: &&&Owner<P>| {
            let bound = (u128::from(total) * u128::from(BOUND_PERCENT))
                .div_ceil(self.members.len() as u128 * 100);
            let load = load(it.id);
            load <= OWNER_LOAD_FLOOR_BYTES || u128::from(load) < bound
        };
        // Usually the first one is within the bound.
        let first = self.members.iter().max_by(|a, b| a.rank(name).cmp(&b.rank(name)))?;
        if within(&&first) {
            return Some(first.id);
        }
        let order = self.order(name);
        order.iter().find(within).or(order.first()).map(|it| it.id)
    }

    /// All members in the order in which they own `name`.
    #[cfg(test)]
    pub(crate) fn candidates(&self, name: &SegmentName) -> Vec<P> {
        self.order(name).into_iter().map(|it| it.id).collect()
    }

    fn order(&self, name: &SegmentName) -> Vec<&Owner<P>> {
        let mut order: Vec<_> = self.members.iter().collect();
        order.sort_by(|a, b| b.rank(name).cmp(&a.rank(name)));
        order
    }
}

impl<P> Owner<P> {
    /// Pseudo-random; ties are broken by name.
    fn rank(&self, name: &SegmentName) -> (u64, &str) {
        (stable_hash(&name.0, self.seed), self.name.as_str())
    }
}
