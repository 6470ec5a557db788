//! What a node has still to tell the coordinators of what it holds.
//!
//! A delta says "removed" after "added", so a segment that left and came back
//! between two deltas must stand in one of its lists only: the last thing that
//! happened counts.

use std::collections::BTreeMap;

use skep_wire::cache::{Held, SegmentName, ToCoordinator};
use skep_wire::limits::HELD_PER_MESSAGE_MAX;

/// Changes since the last delta. Bounded by the number of segments that come
/// and go in that time; drain it often (every 50 ms or so).
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

/// An inventory of all that is held, as messages; at least one. Send changes that
/// happen after it was taken behind all of it.
pub fn inventory(held: &[Held]) -> Vec<ToCoordinator> {
    let parts = held.len().div_ceil(HELD_PER_MESSAGE_MAX).max(1);
    let part = |place: usize| {
        let held = held.iter().skip(place * HELD_PER_MESSAGE_MAX).take(HELD_PER_MESSAGE_MAX);
        let (is_first, is_last) = (place == 0, place + 1 == parts);
        ToCoordinator::Inventory { is_first, is_last, held: held.copied().collect() }
    };
    (0..parts).map(part).collect()
}
