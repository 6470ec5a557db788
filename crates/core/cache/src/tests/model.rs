//! The cache against the pseudocode of the paper, implemented as simply as possible:
//! vectors, linear search, keys as ghosts.

use proptest::prelude::*;

use super::Item;
use crate::limits::GHOSTS_MIN;
use crate::{CacheEntry, S3Fifo};

#[derive(Clone, Debug, PartialEq, Eq)]
struct ModelEntry {
    key: u64,
    bytes: u64,
    hits: u8,
}

/// Vectors are ordered from oldest to newest.
#[derive(Debug, Default)]
struct Model {
    capacity: u64,
    small: Vec<ModelEntry>,
    main: Vec<ModelEntry>,
    redundant: Vec<ModelEntry>,
    ghost: Vec<(u64, u64)>,
}

fn bytes_of(queue: &[ModelEntry]) -> u64 {
    queue.iter().map(|entry| entry.bytes).sum()
}

impl Model {
    fn bytes(&self) -> u64 {
        bytes_of(&self.small) + bytes_of(&self.main) + bytes_of(&self.redundant)
    }

    fn len(&self) -> usize {
        self.small.len() + self.main.len() + self.redundant.len()
    }

    fn entry(&mut self, key: u64) -> Option<&mut ModelEntry> {
        let all = self.small.iter_mut().chain(&mut self.main).chain(&mut self.redundant);
        all.into_iter().find(|entry| entry.key == key)
    }

    fn touch(&mut self, key: u64) {
        if let Some(entry) = self.entry(key) {
            entry.hits = (entry.hits + 1).min(3);
        }
    }

    fn insert(&mut self, key: u64, bytes: u64) -> Option<Vec<u64>> {
        let bytes = bytes.max(1);
        if bytes > self.capacity {
            return None;
        }
        let mut evicted = Vec::new();
        let to_redundant = self.redundant.iter().any(|entry| entry.key == key);
        let mut to_main = self.main.iter().any(|entry| entry.key == key);
        let hits = self.entry(key).map(|entry| entry.hits);
        if hits.is_some() {
            self.remove(key);
            evicted.push(key);
        } else if self.ghost.iter().any(|ghost| ghost.0 == key) {
            self.ghost.retain(|ghost| ghost.0 != key);
            to_main = true;
        }
        self.shrink(self.capacity - bytes, &mut evicted);
        let entry = ModelEntry { key, bytes, hits: hits.unwrap_or(0) };
        if to_redundant {
            self.redundant.push(entry)
        } else if to_main {
            self.main.push(entry)
        } else {
            self.small.push(entry)
        }
        self.trim();
        Some(evicted)
    }

    fn remove(&mut self, key: u64) -> bool {
        let before = self.len();
        for queue in [&mut self.small, &mut self.main, &mut self.redundant] {
            queue.retain(|entry| entry.key != key);
        }
        before != self.len()
    }

    fn set_redundant(&mut self, key: u64, is_redundant: bool) {
        let was_redundant = self.redundant.iter().any(|entry| entry.key == key);
        let Some(entry) = self.entry(key).filter(|_| was_redundant != is_redundant).cloned() else {
            return;
        };
        self.remove(key);
        if is_redundant { self.redundant.push(entry) } else { self.main.push(entry) }
    }

    /// The redundant value to evict, if any.
    fn redundant_victim(&mut self) -> Option<u64> {
        let is_all = self.redundant.len() == self.len();
        if !is_all && bytes_of(&self.redundant) <= self.capacity * 3 / 100 {
            return None;
        }
        for _ in 0..self.redundant.len() {
            let mut entry = self.redundant.remove(0);
            if entry.hits == 0 {
                return Some(entry.key);
            }
            entry.hits -= 1;
            self.redundant.push(entry);
        }
        let are_too_many = bytes_of(&self.redundant) > self.capacity * 25 / 100;
        (are_too_many || is_all).then(|| self.redundant.remove(0).key)
    }

    fn shrink(&mut self, bytes_max: u64, evicted: &mut Vec<u64>) {
        while self.bytes() > bytes_max {
            if !self.redundant.is_empty()
                && let Some(key) = self.redundant_victim()
            {
                evicted.push(key);
                continue;
            }
            let capacity = self.capacity.saturating_sub(bytes_of(&self.redundant));
            let main_share = capacity - capacity * 10 / 100;
            if bytes_of(&self.main) > main_share || self.small.is_empty() {
                let mut entry = self.main.remove(0);
                if entry.hits >= 1 {
                    entry.hits -= 1;
                    self.main.push(entry);
                    // They stay in the main queue until it evicts one.
                    while self.main[0].hits >= 1 {
                        let mut entry = self.main.remove(0);
                        entry.hits -= 1;
                        self.main.push(entry);
                    }
                    entry = self.main.remove(0);
                }
                evicted.push(entry.key);
            } else {
                while !self.small.is_empty() {
                    let mut entry = self.small.remove(0);
                    if entry.hits >= 2 {
                        entry.hits = 0;
                        self.main.push(entry);
                    } else {
                        self.ghost.push((entry.key, entry.bytes));
                        evicted.push(entry.key);
                        break;
                    }
                }
            }
        }
    }

    fn trim(&mut self) {
        let entries = self.len().max(GHOSTS_MIN);
        while self.ghost.iter().map(|ghost| ghost.1).sum::<u64>() > self.capacity * 90 / 100
            || self.ghost.len() > entries
        {
            self.ghost.remove(0);
        }
    }

    /// The expected result of the cache's `iter`.
    fn listing(&self) -> Vec<(u64, u64, u8)> {
        let newest_first = self.small.iter().rev().chain(self.main.iter().rev());
        let newest_first = newest_first.chain(self.redundant.iter().rev());
        newest_first.map(|entry| (entry.key, entry.bytes, entry.hits)).collect()
    }
}

#[derive(Clone, Debug)]
enum Call {
    Insert { key: u64, bytes: u64 },
    Touch { key: u64 },
    SetRedundant { key: u64, is_redundant: bool },
    Remove { key: u64 },
    Retain { modulus: u64 },
    SetCapacity { bytes: u64 },
}

fn call() -> impl Strategy<Value = Call> {
    let key = || 0..40u64;
    prop_oneof![
        20 => (key(), 0..60u64).prop_map(|(key, bytes)| Call::Insert { key, bytes }),
        30 => key().prop_map(|key| Call::Touch { key }),
        10 => (key(), any::<bool>())
            .prop_map(|(key, is_redundant)| Call::SetRedundant { key, is_redundant }),
        3 => key().prop_map(|key| Call::Remove { key }),
        1 => (2..5u64).prop_map(|modulus| Call::Retain { modulus }),
        1 => (0..500u64).prop_map(|bytes| Call::SetCapacity { bytes }),
    ]
}

fn apply(cache: &mut S3Fifo<u64, Item>, model: &mut Model, call: &Call) {
    let mut left: Vec<(u64, Item)> = Vec::new();
    let expected = match *call {
        Call::Insert { key, bytes } => {
            let admitted = cache.insert(key, Item::new(bytes), &mut left).is_ok();
            let expected = model.insert(key, bytes);
            assert_eq!(admitted, expected.is_some());
            expected.unwrap_or_default()
        }
        Call::Touch { key } => {
            cache.get(&key).inspect(|item| item.touch());
            model.touch(key);
            Vec::new()
        }
        Call::SetRedundant { key, is_redundant } => {
            cache.set_redundant(&key, is_redundant);
            model.set_redundant(key, is_redundant);
            Vec::new()
        }
        Call::Remove { key } => {
            assert_eq!(cache.remove(&key).is_some(), model.remove(key));
            model.trim();
            Vec::new()
        }
        Call::Retain { modulus } => {
            cache.retain(|key, _| key % modulus != 0, &mut left);
            let refused: Vec<u64> = model.listing().iter().map(|entry| entry.0).collect();
            let refused: Vec<u64> = refused.into_iter().filter(|key| key % modulus == 0).collect();
            refused.iter().for_each(|key| assert!(model.remove(*key)));
            model.trim();
            refused
        }
        Call::SetCapacity { bytes } => {
            cache.set_capacity(bytes, &mut left);
            model.capacity = bytes;
            let mut expected = Vec::new();
            model.shrink(bytes, &mut expected);
            model.trim();
            expected
        }
    };
    assert_eq!(left.iter().map(|(key, _)| *key).collect::<Vec<_>>(), expected);
}

fn assert_same(cache: &S3Fifo<u64, Item>, model: &Model) {
    let listing: Vec<_> =
        cache.iter().map(|(key, item)| (*key, item.bytes.max(1), item.frequency())).collect();
    assert_eq!(listing, model.listing());
    assert_eq!(cache.bytes(), model.bytes());
    assert_eq!(cache.main_bytes(), bytes_of(&model.main));
    assert_eq!(cache.redundant_bytes(), bytes_of(&model.redundant));
    assert_eq!(cache.ghosts_len(), model.ghost.len());
    assert!(cache.bytes() <= cache.capacity_bytes());
    for (key, ..) in listing {
        assert!(cache.get(&key).is_some());
    }
}

proptest! {
    #[test]
    fn agrees_with_the_plain_model(
        capacity in 0..500u64,
        calls in proptest::collection::vec(call(), 1..300),
    ) {
        let mut cache = S3Fifo::new(capacity);
        let mut model = Model { capacity, ..Model::default() };
        for call in &calls {
            apply(&mut cache, &mut model, call);
            assert_same(&cache, &model);
        }
    }
}
