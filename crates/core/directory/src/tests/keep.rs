//! What stays and what leaves.

use skep_wire::cache::Standing;

use crate::keep::*;

#[test]
fn last_copies_are_offered_while_they_have_chances() {
    assert_eq!(offer(Standing::Last, 2), Some(1));
    assert_eq!(offer(Standing::Last, 1), Some(0));
    assert_eq!(offer(Standing::Last, 0), None);
    assert_eq!(offer(Standing::Last, u8::MAX), Some(1));
    assert_eq!(offer(Standing::Kept { heir: 3 }, 2), Some(1));
    assert_eq!(offer(Standing::Spare, 2), None);
}

#[test]
fn offers_take_room_or_the_place_of_spares() {
    let room = |free_bytes, spare_bytes| Room { free_bytes, spare_bytes };
    assert!(accepts(room(10, 0), 10) && accepts(room(4, 6), 10));
    assert!(!accepts(room(4, 5), 10));
    assert!(accepts(room(u64::MAX, 1), 10));
    let segment = skep_units::SEGMENT_BYTES as u32;
    assert!(fills_elsewhere(room(1, segment as u64 - 2), segment));
    assert!(!fills_elsewhere(room(0, segment as u64), segment), "it has room");
    assert!(!fills_elsewhere(room(0, 0), segment - 1), "it is small");
}

#[test]
fn readers_are_read_ahead_of() {
    let mut reader = Reader::default();
    assert!(!reader.is_sequential());
    // What the reply needs, whoever reads.
    assert_eq!(prefetch(0, 9, 9, reader), 1..3);
    assert_eq!(prefetch(8, 9, 9, reader), 9..10);
    assert!(prefetch(9, 9, 9, reader).is_empty());
    assert!(prefetch(4, 4, 9, reader).is_empty());
    // Beyond it for those who read on.
    for index in 2..5 {
        reader.reads(index);
        assert!(!reader.is_sequential());
    }
    reader.reads(5);
    reader.reads(5);
    assert!(reader.is_sequential());
    assert_eq!(prefetch(5, 5, 9, reader), 6..8);
    assert_eq!(prefetch(9, 9, 9, reader), 10..10);
    reader.reads(2);
    assert!(!reader.is_sequential());
    reader.reads(u32::MAX);
    assert!(prefetch(u32::MAX, u32::MAX, u32::MAX, reader).is_empty());
}
