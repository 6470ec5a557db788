//! Changes of a node's inventory that the coordinators have not received yet.
//!
//! A delta lists "removed" after "added", so a segment that was evicted and filled again
//! between two deltas must be in only one of its lists: the last event
//! counts. A new link gets the complete list, in an [`Inventory`].

use std::collections::BTreeMap;

use skep_wire::cache::{Held, SegmentName, ToCoordinator};
use skep_wire::limits::HELD_PER_MESSAGE_MAX;

/// Changes since the last delta. Bounded by the number of segments that are added and removed in
/// that time; drain it often (every 20 ms or so).
#[derive(Clone, Debug, Default)]
pub struct Changes {
    /// The length of an added segment, `None` for a removed one.
    by_name: BTreeMap<SegmentName, Option<u32>>,
}

impl Changes {
    /// A segment was added.
    pub fn added(&mut self, held: Held) {
        self.by_name.insert(held.name, Some(held.bytes));
    }

    /// A segment was evicted.
    pub fn removed(&mut self, name: SegmentName) {
        self.by_name.insert(name, None);
    }

    /// The number of changed names.
    pub fn len(&self) -> usize {
        self.by_name.len()
    }

    pub fn is_empty(&self) -> bool {
        self.by_name.is_empty()
    }

    /// The deltas with all changes, in sending order.
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

/// An inventory that is sent to one coordinator part by part, at the rate that its link accepts.
/// Changes are sent between the parts, but none before the first part, which replaces the previous
/// inventory: since a part lists the segments held when it is sent, the last message about a
/// segment is always correct, even if it is filled or evicted meanwhile.
#[derive(Debug)]
pub struct Inventory {
    /// The segments held at its start. Later ones are reported as changes.
    names: Vec<SegmentName>,
    told: usize,
    is_over: bool,
}

impl Inventory {
    /// An inventory of these names; nothing is sent yet.
    pub fn new(names: Vec<SegmentName>) -> Self {
        Self { names, told: 0, is_over: false }
    }

    /// The next part, of at most `names_max` names (and no more than fit into a message); an empty
    /// inventory has one part. `None` when all parts were sent. `held` returns which of the names
    /// it is passed are still held.
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
