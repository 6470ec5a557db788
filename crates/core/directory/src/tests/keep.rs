//! Which segments are kept and which are evicted.

use skep_wire::cache::ReplicaStatus;

use crate::keep::*;

#[test]
fn sole_replicas_are_offered_while_they_have_chances() {
    assert_eq!(offer(ReplicaStatus::Sole, 2), Some(1));
    assert_eq!(offer(ReplicaStatus::Sole, 1), Some(0));
    assert_eq!(offer(ReplicaStatus::Sole, 0), None);
    assert_eq!(offer(ReplicaStatus::Sole, u8::MAX), Some(1));
    assert_eq!(offer(ReplicaStatus::Primary { successor: 3 }, 2), Some(1));
    assert_eq!(offer(ReplicaStatus::Redundant, 2), None);
}

#[test]
fn offers_take_room_or_the_place_of_redundant_replicas() {
    let room = |free_bytes, redundant_bytes| Room { free_bytes, redundant_bytes };
    assert!(accepts(room(10, 0), 10) && accepts(room(4, 6), 10));
    assert!(!accepts(room(4, 5), 10));
    assert!(accepts(room(u64::MAX, 1), 10));
    let segment = skep_units::SEGMENT_BYTES as u32;
    assert!(prefers_remote_fill(room(1, segment as u64 - 2), segment));
    assert!(!prefers_remote_fill(room(0, segment as u64), segment), "it has room");
    assert!(!prefers_remote_fill(room(0, 0), segment - 1), "it is small");
}

#[test]
fn readers_are_read_ahead_of() {
    let mut reader = Reader::default();
    assert!(!reader.is_sequential());
    // Segments that the reply needs, for any client.
    assert_eq!(prefetch(0, 9, 9, reader), 1..3);
    assert_eq!(prefetch(8, 9, 9, reader), 9..10);
    assert!(prefetch(9, 9, 9, reader).is_empty());
    assert!(prefetch(4, 4, 9, reader).is_empty());
    // Segments beyond them for sequential readers.
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
