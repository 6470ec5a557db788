//! Tests of the store.
#![allow(clippy::unwrap_used, reason = "tests")]
use super::*;
use skep_wire::cache::ObjectName;

/// The memory charged for a segment of 100 bytes.
const SMALL_COST: u64 = 112 + crate::limits::SEGMENT_COST_BYTES;

fn key(name: &str, index: u32) -> SegmentName {
    let purged = skep_wire::cache::PurgeStamp::NONE;
    ObjectName::new(b"site", name.as_bytes(), b"1", 0, purged).segment(index)
}

fn wanted(name: SegmentName, bytes: u32) -> Wanted {
    Wanted { name, bytes, has_more: false }
}

fn fill(store: &Arc<SegmentStore>, key: SegmentName, bytes: u32) {
    fill_wanted(store, wanted(key, bytes));
}

fn fill_wanted(store: &Arc<SegmentStore>, wanted: Wanted) {
    match store.acquire(wanted) {
        Acquired::Fill(filler) => {
            let chunk = vec![0; filler.segment().next_chunk_bytes()];
            filler.segment().publish(&chunk).unwrap();
        }
        _ => panic!("{:?} was there", wanted.name),
    }
}

#[test]
fn many_askers_one_filler() {
    let store = SegmentStore::new(1 << 20, usize::MAX, false);
    let Acquired::Fill(filler) = store.acquire(wanted(key("a", 0), 10)) else {
        panic!("empty store")
    };
    for _ in 0..100 {
        assert!(matches!(store.acquire(wanted(key("a", 0), 10)), Acquired::Growing(_)));
    }
    filler.segment().publish(&[1; 10]).unwrap();
    drop(filler);
    assert!(matches!(store.acquire(wanted(key("a", 0), 10)), Acquired::Ready(_)));
}

#[test]
fn a_dropped_filler_leaves_nothing_and_the_next_may_try() {
    let store = SegmentStore::new(1 << 20, usize::MAX, false);
    drop(store.acquire(wanted(key("a", 0), 10)));
    assert_eq!(store.stats().segments, 0);
    assert!(matches!(store.acquire(wanted(key("a", 0), 10)), Acquired::Fill(_)));
}

#[test]
fn eviction_bounds_the_index_and_pins_keep_bytes_alive() {
    let store = SegmentStore::new(10 * SMALL_COST, usize::MAX, false);
    for i in 0..50 {
        fill(&store, key("a", i), 100);
    }
    let stats = store.stats();
    assert!(stats.indexed_bytes <= 10 * SMALL_COST, "{stats:?}");
    assert_eq!(stats.alive_bytes, stats.indexed_bytes);
    let Acquired::Ready(newest) = store.acquire(wanted(key("a", 49), 100)) else {
        panic!("newest")
    };
    for i in 100..150 {
        fill(&store, key("b", i), 100);
    }
    store.forget((0..50).map(|index| key("a", index)));
    assert_eq!(store.stats().alive_bytes, store.stats().indexed_bytes + SMALL_COST, "pinned");
    drop(newest);
}

#[test]
fn a_version_of_many_segments_is_forgotten_to_its_last_one() {
    let store = SegmentStore::new(1 << 20, usize::MAX, false);
    let names = || (0..2 * FORGOTTEN_AT_ONCE_MAX as u32 + 1).map(|index| key("a", index));
    names().for_each(|name| fill(&store, name, 10));
    fill(&store, key("b", 0), 10);
    store.forget(names());
    assert_eq!((store.stats().segments, store.has(&key("b", 0))), (1, true));
}

#[test]
fn the_first_segment_of_an_object_that_has_more_outlives_others_asked_for_as_often() {
    let store = SegmentStore::new(10 * SMALL_COST, usize::MAX, false);
    let first = Wanted { has_more: true, ..wanted(key("film", 0), 100) };
    fill_wanted(&store, first);
    fill(&store, key("song", 0), 100);
    fill(&store, key("film", 1), 100);
    for index in 0..50 {
        fill(&store, key("others", index), 100);
    }
    let kept =
        [("film", 0), ("song", 0), ("film", 1)].map(|(it, index)| store.has(&key(it, index)));
    assert_eq!(kept, [true, false, false]);
}

/// Regions whose segments are dropped at random must not exceed the capacity, and surviving
/// segments must keep their bytes.
#[test]
fn cleaning_bounds_memory_and_keeps_bytes() {
    const CAPACITY: u64 = REGIONS_CAPACITY_MIN;
    let store = SegmentStore::new(CAPACITY, usize::MAX, false);
    let mut rng = skep_units::Rng::new(7);
    for index in 0..2_000u32 {
        let bytes = 10_000 + rng.below(300_000) as u32;
        if let Acquired::Fill(filler) = store.acquire(wanted(key("a", index), bytes)) {
            let segment = filler.segment();
            while segment.next_chunk_bytes() > 0 {
                let chunk = vec![index as u8; segment.next_chunk_bytes()];
                segment.publish(&chunk).unwrap();
            }
            if rng.below(3) == 0 {
                (0..3).for_each(|_| segment.touch());
            }
            segment.set_replica_status(ReplicaStatus::Primary { successor: 3 });
            segment.set_chances((index % 2) as u8);
        }
        store.clean();
        let stats = store.stats();
        assert!(stats.alive_bytes <= CAPACITY, "{index}: {stats:?}");
    }
    let stats = store.stats();
    assert!(stats.indexed_bytes > CAPACITY / 2, "cleaning must not empty it: {stats:?}");
    for index in 0..2_000u32 {
        let segment = store.lock().index.get(&key("a", index)).map(Arc::clone);
        let Some(segment) = segment else { continue };
        let mut bytes = vec![0; segment.len() as usize];
        segment.place().unwrap().read(&mut bytes, 0).unwrap();
        assert!(bytes.iter().all(|&byte| byte == index as u8), "segment {index}");
        let is_as_told = segment.replica_status() == ReplicaStatus::Primary { successor: 3 };
        assert!(is_as_told && segment.chances() == (index % 2) as u8, "segment {index}");
    }
}

/// Whatever inserts segments, and whether or not one of them is requested again.
#[test]
fn the_cleaner_is_called_by_all_who_take_memory() {
    const CAPACITY: u64 = REGIONS_CAPACITY_MIN;
    let store = SegmentStore::new(CAPACITY, usize::MAX, false);
    store.start_cleaner().unwrap();
    for index in 0..200 {
        let name = key("a", index);
        let segment = store.room_for(wanted(name, 1 << 20)).unwrap();
        while segment.next_chunk_bytes() > 0 {
            segment.publish(&vec![0; segment.next_chunk_bytes()]).unwrap();
        }
        assert!(store.take_in(name, &segment));
    }
    while store.stats().alive_bytes > CAPACITY {
        std::thread::yield_now();
    }
}

/// The sender of a copy may lie or be mistaken; only a node that knows what the name stands for
/// can tell.
#[test]
fn a_copy_of_another_length_is_no_copy() {
    for (bytes, other) in [(100, 150), (150, 100)] {
        let store = SegmentStore::new(1 << 20, 10_000, true);
        let segment = store.room_for(wanted(key("a", 0), other)).unwrap();
        segment.publish(&vec![1; other as usize]).unwrap();
        assert!(store.take_in(key("a", 0), &segment));
        assert_eq!(store.changes().len(), 1, "coordinators are told that it is here");
        let Acquired::Fill(filler) = store.acquire(wanted(key("a", 0), bytes)) else {
            panic!("{other} bytes in place of {bytes}")
        };
        assert_eq!((filler.segment().len(), store.stats().segments), (bytes, 0));
        assert_eq!(store.changes().len(), 1, "and that it is not any more");
        filler.segment().publish(&vec![2; bytes as usize]).unwrap();
        drop(filler);
        assert!(matches!(store.acquire(wanted(key("a", 0), bytes)), Acquired::Ready(_)));
    }
}

#[test]
fn larger_than_the_store_is_filled_but_not_kept() {
    let store = SegmentStore::new(50, usize::MAX, false);
    let Acquired::Fill(filler) = store.acquire(wanted(key("a", 0), 100)) else { panic!("empty") };
    assert!(!filler.is_kept());
    filler.segment().publish(&[1; 100]).unwrap();
    drop(filler);
    assert_eq!(store.stats().segments, 0);
}

#[test]
fn tiny_segments_are_charged_what_they_take_and_counted() {
    let store = SegmentStore::new(1 << 20, 1024, false);
    (0..10_000).for_each(|index| fill(&store, key("a", index), 1));
    let stats = store.stats();
    let evicted = 10_000 - stats.segments as u64;
    assert_eq!((stats.segments, stats.evicted), (1024, evicted), "as many as may be kept");
    assert!(stats.indexed_bytes >= 1024 * crate::limits::SEGMENT_COST_BYTES);
}

#[test]
fn segments_leave_room_for_heads_and_take_it_again() {
    let store = SegmentStore::new(1 << 20, usize::MAX, false);
    let full = || {
        (0..4_000).for_each(|index| fill(&store, key("a", index), 1));
        store.forget((0..4_000).step_by(2).map(|index| key("a", index)));
        let stats = store.stats();
        store.forget((0..4_000).map(|index| key("a", index)));
        assert!(stats.alive_bytes <= 1 << 20, "{stats:?}");
        stats.indexed_bytes
    };
    let alone = full();
    let account = store.account();
    let heads: Vec<_> = std::iter::repeat_with(|| account.charge(4_000))
        .take_while(|_| !account.is_full())
        .collect();
    store.fit();
    let beside = full();
    assert!(beside <= alone * 7 / 8, "{beside} of {alone}");
    drop(heads);
    store.fit();
    assert_eq!(full(), alone);
}
