//! Changes of the inventory that have not been reported yet.

use skep_wire::cache::{Held, SegmentName, ToCoordinator};
use skep_wire::limits::HELD_PER_MESSAGE_MAX;

use super::{held, name, whole_inventory};
use crate::{Changes, Inventory};

#[test]
fn the_last_thing_that_happened_counts() {
    let mut changes = Changes::default();
    changes.removed(name(1));
    changes.added(held(1, 5));
    changes.added(held(2, 5));
    changes.removed(name(2));
    let delta = ToCoordinator::Delta { added: vec![held(1, 5)], removed: vec![name(2)] };
    assert_eq!(changes.drain(), [delta]);
    assert!(changes.is_empty() && changes.drain().is_empty());
}

#[test]
fn messages_keep_to_their_bounds() {
    let many: Vec<_> = (0..HELD_PER_MESSAGE_MAX as u64 * 2 + 1).map(|it| held(it, 1)).collect();
    let mut changes = Changes::default();
    many.iter().for_each(|it| changes.added(*it));
    let deltas = changes.drain();
    assert_eq!(deltas.len(), 3);
    let parts = whole_inventory(&many);
    assert_eq!(parts.len(), 3);
    for message in deltas.iter().chain(&parts) {
        assert_eq!(ToCoordinator::decode(&message.encode()).as_ref(), Ok(message));
    }
    let flags = |part: &ToCoordinator| match part {
        ToCoordinator::Inventory { is_first, is_last, .. } => (*is_first, *is_last),
        other => panic!("{other:?}"),
    };
    let flags: Vec<_> = parts.iter().map(flags).collect();
    assert_eq!(flags, [(true, false), (false, false), (false, true)]);
}

#[test]
fn an_inventory_says_what_is_still_held() {
    let mut inventory = Inventory::new((0..5).map(name).collect());
    let still = |names: &[SegmentName]| {
        let held = names.iter().filter(|it| **it != name(1));
        held.map(|&name| Held { name, bytes: 1 }).collect()
    };
    let part = |is_first, is_last, numbers: &[u64]| {
        let held = numbers.iter().map(|&it| held(it, 1)).collect();
        Some(ToCoordinator::Inventory { is_first, is_last, held })
    };
    assert_eq!(inventory.next_part(2, still), part(true, false, &[0]));
    assert_eq!(inventory.next_part(2, still), part(false, false, &[2, 3]));
    assert_eq!(inventory.next_part(2, still), part(false, true, &[4]));
    assert_eq!(inventory.next_part(2, still), None);
    let mut nothing = Inventory::new(Vec::new());
    assert_eq!(nothing.next_part(2, still), part(true, true, &[]));
    assert_eq!(nothing.next_part(2, still), None);
}
