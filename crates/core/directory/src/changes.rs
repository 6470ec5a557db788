//! What a node has still to tell the coordinators of what it holds.
//!
//! A delta says "removed" after "added", so a segment that left and came back
//! between two deltas must stand in one of its lists only: the last thing that
//! happened counts. A new link is told all that is held, in an [`Inventory`].

use std::collections::BTreeMap;

use skep_wire::cache::{Held, SegmentName, ToCoordinator};
use skep_wire::limits::HELD_PER_MESSAGE_MAX;

/// Changes since the last delta. Bounded by the number of segments that come
/// and go in that time; drain it often (every 20 ms or so).
#[derive(Clone, Debug, Default)]
pub struct Changes {
    /// The length of what came, nothing for what went.
    by_name: BTreeMap<SegmentName, Option<u32>>,
}

impl Changes {
    /// A segment is held now.
    pub fn added(&mut self, held: Held) {
        self.by_name.insert(held.name, Some(held.bytes));
    }

    /// A segment is not held any more.
    pub fn removed(&mut self, name: SegmentName) {
        self.by_name.insert(name, None);
    }

    /// Names that have changed.
    pub fn len(&self) -> usize {
        self.by_name.len()
    }

    /// Nothing has changed.
    pub fn is_empty(&self) -> bool {
        self.by_name.is_empty()
    }

    /// The deltas that tell all of it, in the order in which to send them.
    pub fn drain(&mut self) -> Vec<ToCoordinator> {
        let changes: Vec<_> = std::mem::take(&mut self.by_name).into_iter().collect();
        let delta = |some: &[(SegmentName, Option<u32>)]| {
            let came = |&(name, bytes): &(_, Option<u32>)| Some(Held { name, bytes: bytes? });
            let went = |&(name, bytes): &(_, Option<u32>)| bytes.is_none().then_some(name);
            ToCoordinator::Delta {
                added: some.iter().filter_map(came).collect(),
                removed: some.iter().filter_map(went).collect(),
            }
        };
        changes.chunks(HELD_PER_MESSAGE_MAX).map(delta).collect()
    }
}

/// An inventory on its way to one coordinator, part by part, as fast as its link
/// takes it. Changes go between the parts, but none before the first one, which drops
/// what was said before: since parts say what is held when they are told, the last
/// word on a segment is true, whatever comes and goes meanwhile.
#[derive(Debug)]
pub struct Inventory {
    /// What was held when it began. What comes later is a change.
    names: Vec<SegmentName>,
    told: usize,
    is_over: bool,
}

impl Inventory {
    /// An inventory of these, of which nothing was told.
    pub fn new(names: Vec<SegmentName>) -> Self {
        Self { names, told: 0, is_over: false }
    }

    /// The next part, of at most `names_max` names (and no more than fit into a
    /// message); of no names there is one part. `None` when all was told. `held`
    /// tells which of these names are held now.
    pub fn next_part(
        &mut self,
        names_max: usize,
        held: impl FnOnce(&[SegmentName]) -> Vec<Held>,
    ) -> Option<ToCoordinator> {
        if self.is_over {
            return None;
        }
        let from = self.told;
        self.told = self.names.len().min(from + names_max.clamp(1, HELD_PER_MESSAGE_MAX));
        self.is_over = self.told == self.names.len();
        let held = held(&self.names[from..self.told]);
        Some(ToCoordinator::Inventory { is_first: from == 0, is_last: self.is_over, held })
    }
}
