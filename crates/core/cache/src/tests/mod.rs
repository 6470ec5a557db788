//! Tests of the cache: behaviour by name here, comparison with a slow model in
//! `model.rs`, hit ratios in `hit_ratio.rs`.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod hit_ratio;
mod model;

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

use crate::limits::GHOSTS_MIN;
use crate::{CacheEntry, FREQUENCY_MAX, S3Fifo, TooLarge};

/// A value of a given size.
#[derive(Debug)]
struct Item {
    bytes: u64,
    frequency: AtomicU8,
}

impl Item {
    fn new(bytes: u64) -> Self {
        Self { bytes, frequency: AtomicU8::new(0) }
    }
}

impl CacheEntry for Item {
    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn frequency(&self) -> u8 {
        self.frequency.load(Relaxed)
    }

    fn set_frequency(&self, frequency: u8) {
        self.frequency.store(frequency, Relaxed);
    }
}

/// Inserts a value, and returns the evicted keys.
fn insert(cache: &mut S3Fifo<u64, Item>, key: u64, bytes: u64) -> Vec<u64> {
    let mut evicted = Vec::new();
    cache.insert(key, Item::new(bytes), &mut evicted).unwrap();
    evicted.into_iter().map(|(key, _)| key).collect()
}

fn keys(cache: &S3Fifo<u64, Item>) -> Vec<u64> {
    cache.iter().map(|(key, _)| *key).collect()
}

#[test]
fn entries_that_nobody_hits_leave_in_the_order_they_came() {
    let mut cache = S3Fifo::new(30);
    for key in 0..3 {
        assert!(insert(&mut cache, key, 10).is_empty());
    }
    assert_eq!(insert(&mut cache, 3, 10), [0]);
    assert_eq!(insert(&mut cache, 4, 20), [1, 2]);
    assert_eq!(keys(&cache), [4, 3]);
    assert_eq!((cache.bytes(), cache.len()), (30, 2));
}

#[test]
fn two_hits_promote_to_the_main_queue_and_one_does_not() {
    let mut cache = S3Fifo::new(30);
    for key in 0..3 {
        insert(&mut cache, key, 10);
    }
    cache.get(&0).unwrap().touch();
    cache.get(&1).unwrap().touch();
    cache.get(&1).unwrap().touch();
    assert_eq!(insert(&mut cache, 3, 10), [0]);
    assert_eq!(insert(&mut cache, 4, 10), [2], "1 moved to the main queue");
    assert_eq!(cache.main_bytes(), 10);
    assert_eq!(cache.get(&1).unwrap().frequency(), 0, "its hits are spent");
}

#[test]
fn a_key_that_comes_back_soon_enters_the_main_queue() {
    let mut cache = S3Fifo::new(30);
    for key in 0..4 {
        insert(&mut cache, key, 10);
    }
    assert_eq!((cache.main_bytes(), cache.ghosts_len()), (0, 1));
    assert_eq!(insert(&mut cache, 0, 10), [1]);
    assert_eq!((cache.main_bytes(), cache.ghosts_len()), (10, 1));
}

#[test]
fn an_entry_of_the_main_queue_goes_round_once_for_each_hit() {
    let mut cache = S3Fifo::new(100);
    for key in 0..10 {
        insert(&mut cache, key, 10);
        cache.get(&key).unwrap().touch();
        cache.get(&key).unwrap().touch();
    }
    assert_eq!(insert(&mut cache, 10, 10), [0], "all ten are promoted, then the oldest goes");
    assert_eq!(cache.main_bytes(), 90);
    for _ in 0..5 {
        cache.get(&1).unwrap().touch();
    }
    assert_eq!(cache.get(&1).unwrap().frequency(), FREQUENCY_MAX);
    // With a capacity of 90 bytes, the main queue's 90 exceed its share of 81.
    let mut evicted = Vec::new();
    cache.set_capacity(90, &mut evicted);
    assert_eq!(evicted[0].0, 2, "1 went round");
    assert_eq!(cache.get(&1).unwrap().frequency(), FREQUENCY_MAX - 1);
}

#[test]
fn an_entry_larger_than_the_small_queue_is_admitted() {
    let mut cache = S3Fifo::new(100);
    insert(&mut cache, 1, 5);
    assert_eq!(insert(&mut cache, 2, 100), [1]);
    assert_eq!(cache.bytes(), 100);
}

#[test]
fn an_entry_larger_than_the_cache_is_handed_back_and_nothing_changes() {
    let mut cache = S3Fifo::new(100);
    insert(&mut cache, 1, 60);
    let mut evicted = Vec::new();
    let TooLarge(refused) = cache.insert(2, Item::new(101), &mut evicted).unwrap_err();
    assert_eq!(refused.bytes, 101);
    assert_eq!((keys(&cache), evicted.len()), (vec![1], 0));
    let refused = cache.insert(1, Item::new(101), &mut evicted);
    assert!(refused.is_err(), "a replacement too");
    assert_eq!(cache.get(&1).unwrap().bytes, 60);
}

#[test]
fn a_value_under_the_same_key_replaces_the_old_and_inherits_its_hits() {
    let mut cache = S3Fifo::new(100);
    insert(&mut cache, 1, 60);
    cache.get(&1).unwrap().touch();
    let mut evicted = Vec::new();
    cache.insert(1, Item::new(70), &mut evicted).unwrap();
    assert_eq!(evicted.len(), 1);
    assert_eq!((evicted[0].0, evicted[0].1.bytes), (1, 60));
    assert_eq!((cache.bytes(), cache.len()), (70, 1));
    assert_eq!(cache.get(&1).unwrap().frequency(), 1);
}

#[test]
fn a_new_value_starts_without_hits() {
    let mut cache = S3Fifo::new(100);
    let item = Item::new(10);
    item.set_frequency(3);
    cache.insert(1, item, &mut Vec::new()).unwrap();
    assert_eq!(cache.get(&1).unwrap().frequency(), 0);
}

#[test]
fn removed_entries_are_gone_and_leave_no_ghost() {
    let mut cache = S3Fifo::new(100);
    for key in 0..3 {
        insert(&mut cache, key, 10);
    }
    assert_eq!(cache.remove(&1).unwrap().bytes, 10);
    assert!(cache.remove(&1).is_none());
    assert_eq!((keys(&cache), cache.bytes(), cache.ghosts_len()), (vec![2, 0], 20, 0));
}

#[test]
fn retain_takes_out_what_is_refused() {
    let mut cache = S3Fifo::new(100);
    for key in 0..6 {
        insert(&mut cache, key, 10);
    }
    let mut removed = Vec::new();
    cache.retain(|key, _| key % 2 == 0, &mut removed);
    assert_eq!(keys(&cache), [4, 2, 0]);
    assert_eq!((removed.len(), cache.bytes()), (3, 30));
}

#[test]
fn a_smaller_capacity_evicts_at_once_and_zero_admits_nothing() {
    let mut cache = S3Fifo::new(100);
    for key in 0..10 {
        insert(&mut cache, key, 10);
    }
    let mut evicted = Vec::new();
    cache.set_capacity(25, &mut evicted);
    assert_eq!((evicted.len(), keys(&cache)), (8, vec![9, 8]));
    cache.set_capacity(0, &mut evicted);
    assert!(cache.is_empty() && cache.ghosts_len() == 0);
    assert!(cache.insert(1, Item::new(0), &mut evicted).is_err(), "0 bytes count as 1");
}

#[test]
fn ghosts_are_bounded_in_number_even_if_their_values_were_tiny() {
    let mut cache = S3Fifo::new(1 << 20);
    for key in 0..100_000 {
        insert(&mut cache, key, 1);
    }
    insert(&mut cache, 100_000, (1 << 20) - 10);
    assert!(cache.len() <= 11);
    assert!(cache.ghosts_len() <= GHOSTS_MIN);
}

#[test]
fn ghosts_are_bounded_in_the_bytes_they_stand_for() {
    let mut cache = S3Fifo::new(1_000);
    for key in 0..10_000 {
        insert(&mut cache, key, 100);
    }
    assert_eq!(cache.ghosts_len(), 9);
}

#[test]
fn a_value_that_claims_to_be_hot_for_ever_is_evicted_all_the_same() {
    #[derive(Debug)]
    struct Hot;
    impl CacheEntry for Hot {
        fn bytes(&self) -> u64 {
            10
        }
        fn frequency(&self) -> u8 {
            u8::MAX
        }
        fn set_frequency(&self, _: u8) {}
    }
    let mut cache = S3Fifo::new(100);
    let mut evicted = Vec::new();
    for key in 0..50 {
        cache.insert(key, Hot, &mut evicted).unwrap();
        assert!(cache.bytes() <= 100);
    }
    assert_eq!(evicted.len(), 40);
}

#[test]
fn shared_values_count_hits_through_any_copy() {
    let mut cache = S3Fifo::new(100);
    let value = Arc::new(Item::new(10));
    cache.insert("key".to_owned(), Arc::clone(&value), &mut Vec::new()).unwrap();
    value.touch();
    assert_eq!(cache.get("key").unwrap().frequency(), 1, "and keys are found by a borrowed form");
}

#[test]
fn redundant_values_leave_first_unless_they_are_hit_and_few() {
    let mut cache = S3Fifo::new(100);
    for key in 0..10 {
        insert(&mut cache, key, 10);
    }
    for key in [3, 7, 8] {
        cache.set_redundant(&key, true);
    }
    assert_eq!(cache.oldest(1).map(|(key, _)| *key).collect::<Vec<_>>(), [3, 0]);
    // 30 of 100 bytes are too many, even if all were hit.
    [3, 7, 8].iter().for_each(|key| cache.get(key).unwrap().touch());
    assert_eq!(insert(&mut cache, 10, 10), [3]);
    // 20 are not: values without other replicas are evicted, and the hits are used up.
    [7, 8].iter().for_each(|key| cache.get(key).unwrap().touch());
    assert_eq!(insert(&mut cache, 11, 10), [0]);
    assert_eq!(insert(&mut cache, 12, 10), [7]);
    // The other holders have lost it.
    cache.set_redundant(&8, false);
    assert_eq!((cache.redundant_bytes(), cache.main_bytes()), (0, 10));
    assert_eq!(insert(&mut cache, 13, 10), [1]);
}

#[test]
fn a_redundant_value_has_time_to_be_hit() {
    let mut cache = S3Fifo::new(1_000);
    for key in 0..100 {
        insert(&mut cache, key, 10);
    }
    (50..53).for_each(|key| cache.set_redundant(&key, true));
    assert_eq!(insert(&mut cache, 100, 10), [0]);
    cache.set_redundant(&53, true);
    assert_eq!(insert(&mut cache, 101, 10), [50]);
}

#[test]
fn a_cache_of_redundant_values_alone_is_bounded_too() {
    let mut cache = S3Fifo::new(20);
    for key in 0..2 {
        insert(&mut cache, key, 10);
        cache.set_redundant(&key, true);
        cache.get(&key).unwrap().touch();
    }
    assert_eq!(insert(&mut cache, 2, 20), [0, 1]);
}

#[test]
fn a_value_that_deserves_it_stays_longer() {
    struct First(AtomicU8);
    impl CacheEntry for First {
        fn bytes(&self) -> u64 {
            10
        }
        fn frequency(&self) -> u8 {
            self.0.load(Relaxed)
        }
        fn set_frequency(&self, frequency: u8) {
            self.0.store(frequency, Relaxed);
        }
        fn frequency_at_first(&self) -> u8 {
            crate::PROMOTION_HITS
        }
    }
    let (mut cache, mut evicted) = (S3Fifo::new(20), Vec::new());
    assert!(cache.insert(0, First(AtomicU8::new(0)), &mut evicted).is_ok());
    assert!(cache.insert(1, First(AtomicU8::new(0)), &mut evicted).is_ok());
    cache.get(&1).unwrap().set_frequency(0);
    assert!(cache.insert(2, First(AtomicU8::new(0)), &mut evicted).is_ok());
    assert_eq!(evicted.iter().map(|(key, _)| *key).collect::<Vec<_>>(), [1]);
}

#[test]
fn entries_are_bounded_whatever_their_bytes() {
    let mut cache = S3Fifo::new(1_000_000).with_entries_max(3);
    for key in 0..3 {
        assert!(insert(&mut cache, key, 1).is_empty());
    }
    assert_eq!(insert(&mut cache, 1, 2), [1], "the same key takes its own place");
    assert_eq!(insert(&mut cache, 3, 1), [0]);
    cache.set_redundant(&3, true);
    assert_eq!(insert(&mut cache, 4, 1).len(), 1, "redundant values count, too");
    assert_eq!(cache.len(), 3);
}

#[test]
fn tables_shrink_behind_a_crowd_and_the_order_stays() {
    const CROWD: u64 = 100_000;
    let mut cache = S3Fifo::new(CROWD);
    for key in 0..2 * CROWD {
        insert(&mut cache, key, 1);
    }
    for key in [2 * CROWD - 5, 2 * CROWD - 3] {
        cache.set_redundant(&key, true);
    }
    let crowded = cache.table_slots();
    assert!(crowded as u64 >= 2 * CROWD, "entries and ghosts: {crowded}");
    cache.set_capacity(10, &mut Vec::new());
    assert!(cache.table_slots() < crowded / 10, "{}", cache.table_slots());
    let left = keys(&cache);
    assert_eq!(left.len(), 10);
    assert!(left.iter().all(|key| cache.get(key).is_some()), "{left:?}");
    cache.set_capacity(20, &mut Vec::new());
    insert(&mut cache, 7, 1);
    assert_eq!(keys(&cache)[1..], left, "the newest first");
}
