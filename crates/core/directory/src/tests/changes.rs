//! What is still to be told.

use skep_wire::cache::ToCoordinator;
use skep_wire::limits::HELD_PER_MESSAGE_MAX;

use super::{held, name};
use crate::{Changes, inventory};

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
    let parts = inventory(&many);
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
    assert_eq!(inventory(&[]).iter().map(flags_of_empty).collect::<Vec<_>>(), [(true, true, 0)]);
}

fn flags_of_empty(part: &ToCoordinator) -> (bool, bool, usize) {
    match part {
        ToCoordinator::Inventory { is_first, is_last, held } => (*is_first, *is_last, held.len()),
        other => panic!("{other:?}"),
    }
}
