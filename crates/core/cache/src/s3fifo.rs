//! The cache: a map, three queues of entries and one of ghosts.
//!
//! Invariants: bytes <= capacity and entries <= their bound after every call; an
//! entry is in exactly one of the queues; a key that is in the cache is not a ghost;
//! the capacity of the tables is not much larger than their content.

use std::hash::{BuildHasher, Hash};

use hashbrown::{DefaultHashBuilder, Equivalent, HashTable};

use crate::entry::{CacheEntry, TooLarge};
use crate::ghost::Ghosts;
use crate::limits::{
    FREQUENCY_MAX, GHOST_PERCENT, GHOSTS_MIN, PROMOTION_HITS, REDUNDANT_PERCENT_MAX,
    REDUNDANT_PERCENT_MIN, SMALL_PERCENT,
};
use crate::queue::{Arena, Index, Queue, is_sparse, store};

/// A cache bounded in bytes. All operations are O(1), amortised over hits: an eviction may skip
/// entries that were hit, at most three times each.
///
/// The order of everything is determined by the calls, not by the hasher.
#[derive(Debug)]
pub struct S3Fifo<K, V, S = DefaultHashBuilder> {
    arena: Arena<Resident<K, V>>,
    by_key: HashTable<Index>,
    hasher: S,
    small: Queue,
    main: Queue,
    redundant: Queue,
    ghosts: Ghosts,
    capacity_bytes: u64,
    entries_max: usize,
}

#[derive(Debug)]
struct Resident<K, V> {
    key: K,
    value: V,
    place: QueueKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum QueueKind {
    Small,
    Main,
    Redundant,
}

impl<K: Hash + Eq, V: CacheEntry> S3Fifo<K, V> {
    /// An empty cache that will hold at most `capacity_bytes`.
    pub fn new(capacity_bytes: u64) -> Self {
        Self::with_hasher(capacity_bytes, DefaultHashBuilder::default())
    }
}

impl<K: Hash + Eq, V: CacheEntry, S: BuildHasher> S3Fifo<K, V, S> {
    /// An empty cache with the caller's hasher.
    pub fn with_hasher(capacity_bytes: u64, hasher: S) -> Self {
        Self {
            arena: Arena::new(),
            by_key: HashTable::new(),
            hasher,
            small: Queue::new(),
            main: Queue::new(),
            redundant: Queue::new(),
            ghosts: Ghosts::new(),
            capacity_bytes,
            entries_max: usize::MAX,
        }
    }

    /// The same with at most `entries_max` values, which must not be 0, whatever their sizes.
    pub fn with_entries_max(mut self, entries_max: usize) -> Self {
        assert!(entries_max > 0, "a cache holds something");
        self.entries_max = entries_max;
        self
    }

    /// Admits `value`. Evicted entries are appended to `evicted`, as is a previous value with the
    /// same key (the new one takes over its queue and hits). If the value is refused, nothing
    /// changes.
    pub fn insert(
        &mut self,
        key: K,
        value: V,
        evicted: &mut Vec<(K, V)>,
    ) -> Result<(), TooLarge<V>> {
        let bytes = value.bytes().max(1);
        if bytes > self.capacity_bytes {
            return Err(TooLarge(value));
        }
        let hash = self.hasher.hash_one(&key);
        let (place, frequency) = match self.take(hash, &key) {
            Some(old) => {
                let inherited = (old.place, old.value.frequency());
                evicted.push((old.key, old.value));
                inherited
            }
            None if self.ghosts.remove(hash) => (QueueKind::Main, value.frequency_at_first()),
            None => (QueueKind::Small, value.frequency_at_first()),
        };
        value.set_frequency(frequency);
        self.shrink_to(self.capacity_bytes - bytes, self.entries_max - 1, evicted);
        self.admit(hash, Resident { key, value, place }, bytes);
        self.settle();
        Ok(())
    }

    /// The value under `key`. Counts no hit: see [`CacheEntry::touch`].
    pub fn get<Q: Hash + Equivalent<K> + ?Sized>(&self, key: &Q) -> Option<&V> {
        let index = self.find(self.hasher.hash_one(key), key)?;
        Some(&self.arena[index as usize].item.value)
    }

    /// Removes and returns the value under `key`. It leaves no ghost.
    pub fn remove<Q: Hash + Equivalent<K> + ?Sized>(&mut self, key: &Q) -> Option<V> {
        let removed = self.take(self.hasher.hash_one(key), key);
        self.settle();
        removed.map(|resident| resident.value)
    }

    /// Sets whether the value under `key` is redundant: another node has it, so it is evicted
    /// before other values. A value that is no longer redundant moves to the main queue.
    pub fn set_redundant<Q: Hash + Equivalent<K> + ?Sized>(&mut self, key: &Q, is_redundant: bool) {
        let Some(index) = self.find(self.hasher.hash_one(key), key) else { return };
        let was_redundant = self.arena[index as usize].item.place == QueueKind::Redundant;
        if was_redundant != is_redundant {
            self.dequeue(index);
            self.enqueue(index, if is_redundant { QueueKind::Redundant } else { QueueKind::Main });
        }
    }

    /// Removes the entries for which `keep` returns false, and appends them to `removed`. O(n).
    pub fn retain(&mut self, mut keep: impl FnMut(&K, &V) -> bool, removed: &mut Vec<(K, V)>) {
        let refused: Vec<Index> = self
            .residents()
            .filter(|(_, resident)| !keep(&resident.key, &resident.value))
            .map(|(index, _)| index)
            .collect();
        for index in refused {
            let resident = self.take_at(index);
            removed.push((resident.key, resident.value));
        }
        self.settle();
    }

    /// Changes the capacity. Evicted entries are appended to `evicted`.
    pub fn set_capacity(&mut self, capacity_bytes: u64, evicted: &mut Vec<(K, V)>) {
        self.capacity_bytes = capacity_bytes;
        self.shrink_to(capacity_bytes, self.entries_max, evicted);
        self.settle();
    }

    /// All entries: the small queue, the main queue, the redundant queue, each newest first.
    pub fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.residents().map(|(_, resident)| (&resident.key, &resident.value))
    }

    /// All keys in arbitrary order, at the speed of a memory scan.
    pub fn keys(&self) -> impl Iterator<Item = &K> {
        self.arena.iter().map(|(_, linked)| &linked.item.key)
    }

    /// At most `count` entries of each queue that are the next candidates for eviction, in order.
    pub fn oldest(&self, count: usize) -> impl Iterator<Item = (&K, &V)> {
        let queues = [&self.redundant, &self.small, &self.main];
        let oldest = queues.into_iter().flat_map(move |it| it.iter_oldest(&self.arena).take(count));
        oldest.map(|(_, resident)| (&resident.key, &resident.value))
    }

    /// Bytes of all values.
    pub fn bytes(&self) -> u64 {
        self.small.bytes() + self.main.bytes() + self.redundant.bytes()
    }

    /// Bytes of the redundant values.
    pub fn redundant_bytes(&self) -> u64 {
        self.redundant.bytes()
    }

    /// Of these, the bytes that are evicted before any other value.
    pub fn dispensable_bytes(&self) -> u64 {
        self.redundant.bytes().saturating_sub(percent(self.capacity_bytes, REDUNDANT_PERCENT_MIN))
    }

    /// Bytes of the values in the main queue, which have been hit.
    #[cfg(test)]
    pub(crate) fn main_bytes(&self) -> u64 {
        self.main.bytes()
    }

    /// The capacity, in bytes.
    pub fn capacity_bytes(&self) -> u64 {
        self.capacity_bytes
    }

    /// Number of values.
    pub fn len(&self) -> usize {
        self.by_key.len()
    }

    pub fn is_empty(&self) -> bool {
        self.by_key.is_empty()
    }

    /// The number of ghosts.
    #[cfg(test)]
    pub(crate) fn ghosts_len(&self) -> usize {
        self.ghosts.len()
    }

    /// Entries and ghosts for which memory is allocated.
    #[cfg(test)]
    pub(crate) fn table_slots(&self) -> usize {
        self.arena.capacity() + self.ghosts.slots()
    }

    fn residents(&self) -> impl Iterator<Item = (Index, &Resident<K, V>)> {
        let queues = [&self.small, &self.main, &self.redundant];
        queues.into_iter().flat_map(|queue| queue.iter(&self.arena))
    }

    fn find<Q: Equivalent<K> + ?Sized>(&self, hash: u64, key: &Q) -> Option<Index> {
        let is_it = |&index: &Index| key.equivalent(&self.arena[index as usize].item.key);
        self.by_key.find(hash, is_it).copied()
    }

    fn admit(&mut self, hash: u64, resident: Resident<K, V>, bytes: u64) {
        let place = resident.place;
        let index = store(&mut self.arena, resident, bytes);
        let (arena, hasher) = (&self.arena, &self.hasher);
        self.by_key
            .insert_unique(hash, index, |&index| hasher.hash_one(&arena[index as usize].item.key));
        self.enqueue(index, place);
    }

    fn take<Q: Equivalent<K> + ?Sized>(&mut self, hash: u64, key: &Q) -> Option<Resident<K, V>> {
        let index = self.find(hash, key)?;
        Some(self.take_hashed(hash, index))
    }

    fn take_at(&mut self, index: Index) -> Resident<K, V> {
        let hash = self.hasher.hash_one(&self.arena[index as usize].item.key);
        self.take_hashed(hash, index)
    }

    fn take_hashed(&mut self, hash: u64, index: Index) -> Resident<K, V> {
        self.dequeue(index);
        if let Ok(entry) = self.by_key.find_entry(hash, |&found| found == index) {
            entry.remove();
        }
        self.arena.remove(index as usize).item
    }

    fn enqueue(&mut self, index: Index, place: QueueKind) {
        self.arena[index as usize].item.place = place;
        match place {
            QueueKind::Small => self.small.push(&mut self.arena, index),
            QueueKind::Main => self.main.push(&mut self.arena, index),
            QueueKind::Redundant => self.redundant.push(&mut self.arena, index),
        }
    }

    fn dequeue(&mut self, index: Index) {
        match self.arena[index as usize].item.place {
            QueueKind::Small => self.small.unlink(&mut self.arena, index),
            QueueKind::Main => self.main.unlink(&mut self.arena, index),
            QueueKind::Redundant => self.redundant.unlink(&mut self.arena, index),
        }
    }

    /// Evicts until at most `bytes_max` in `entries_max` entries are left.
    fn shrink_to(&mut self, bytes_max: u64, entries_max: usize, evicted: &mut Vec<(K, V)>) {
        while self.bytes() > bytes_max || self.len() > entries_max {
            if self.redundant.len() > 0 && self.evict_from_redundant(evicted) {
                continue;
            }
            if self.small.len() == 0 || self.main.bytes() > self.main_share_bytes() {
                self.evict_from_main(evicted);
            } else {
                self.evict_from_small(evicted);
            }
        }
    }

    /// Evicts the oldest redundant value without hits since it was last skipped. Evicts none if
    /// there are too few for them to have been hit, or if all were hit and there are not too many.
    fn evict_from_redundant(&mut self, evicted: &mut Vec<(K, V)>) -> bool {
        let others = self.small.len() + self.main.len() > 0;
        if others && self.dispensable_bytes() == 0 {
            return false;
        }
        let max = percent(self.capacity_bytes, REDUNDANT_PERCENT_MAX);
        for _ in 0..self.redundant.len() {
            let Some(oldest) = self.redundant.oldest() else { return false };
            let value = &self.arena[oldest as usize].item.value;
            let frequency = value.frequency().min(FREQUENCY_MAX);
            if frequency == 0 {
                return self.evict_oldest_redundant(evicted);
            }
            value.set_frequency(frequency - 1);
            self.dequeue(oldest);
            self.enqueue(oldest, QueueKind::Redundant);
        }
        (self.redundant.bytes() > max || !others) && self.evict_oldest_redundant(evicted)
    }

    fn evict_oldest_redundant(&mut self, evicted: &mut Vec<(K, V)>) -> bool {
        let Some(oldest) = self.redundant.oldest() else { return false };
        let resident = self.take_at(oldest);
        evicted.push((resident.key, resident.value));
        true
    }

    /// Evicts the oldest entry of the small queue that was not hit twice, and promotes older
    /// entries that were. May find none.
    fn evict_from_small(&mut self, evicted: &mut Vec<(K, V)>) {
        while let Some(oldest) = self.small.oldest() {
            let linked = &self.arena[oldest as usize];
            if linked.item.value.frequency() < PROMOTION_HITS {
                let (hash, bytes) = (self.hasher.hash_one(&linked.item.key), linked.bytes);
                self.ghosts.insert(hash, bytes);
                let resident = self.take_hashed(hash, oldest);
                evicted.push((resident.key, resident.value));
                return;
            }
            linked.item.value.set_frequency(0);
            self.dequeue(oldest);
            self.enqueue(oldest, QueueKind::Main);
        }
    }

    /// Evicts the oldest entry of the main queue without hits since it was last skipped.
    fn evict_from_main(&mut self, evicted: &mut Vec<(K, V)>) {
        // More passes are due only to hits that arrive meanwhile; they must not prolong the loop.
        let mut passes_left = self.main.len() * usize::from(FREQUENCY_MAX);
        while let Some(oldest) = self.main.oldest() {
            let value = &self.arena[oldest as usize].item.value;
            let frequency = value.frequency().min(FREQUENCY_MAX);
            if frequency == 0 || passes_left == 0 {
                let resident = self.take_at(oldest);
                evicted.push((resident.key, resident.value));
                return;
            }
            passes_left -= 1;
            value.set_frequency(frequency - 1);
            self.dequeue(oldest);
            self.enqueue(oldest, QueueKind::Main);
        }
    }

    fn main_share_bytes(&self) -> u64 {
        let bytes = self.capacity_bytes.saturating_sub(self.redundant.bytes());
        bytes - percent(bytes, SMALL_PERCENT)
    }

    /// Called at the end of every public mutation: bounds the ghosts, checks the invariants.
    fn settle(&mut self) {
        let ghost_bytes_max = percent(self.capacity_bytes, GHOST_PERCENT);
        self.ghosts.trim(ghost_bytes_max, self.len().max(GHOSTS_MIN));
        if is_sparse(&self.arena) {
            self.compact();
        }
        debug_assert!(self.bytes() <= self.capacity_bytes);
        debug_assert!(self.len() <= self.entries_max);
        debug_assert_eq!(self.len(), self.arena.len());
        debug_assert_eq!(self.len(), self.small.len() + self.main.len() + self.redundant.len());
        debug_assert!(self.ghosts.bytes() <= ghost_bytes_max);
    }

    /// Frees the memory of entries that have been removed; the time is amortised over their removals.
    /// The order is preserved.
    fn compact(&mut self) {
        let mut old = std::mem::take(&mut self.arena);
        self.arena = Arena::with_capacity(old.len());
        for queue in [&mut self.small, &mut self.main, &mut self.redundant] {
            queue.move_to(&mut old, &mut self.arena);
        }
        let (arena, hasher) = (&self.arena, &self.hasher);
        let hash = |&index: &Index| hasher.hash_one(&arena[index as usize].item.key);
        self.by_key = HashTable::with_capacity(arena.len());
        for (index, _) in arena {
            let index = index as Index;
            self.by_key.insert_unique(hash(&index), index, hash);
        }
    }
}

fn percent(bytes: u64, percent: u64) -> u64 {
    (u128::from(bytes) * u128::from(percent) / 100) as u64
}
