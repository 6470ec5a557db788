//! Ghost queue: hashes of keys that were evicted from the small queue.
//!
//! It stores hashes, not keys: if two keys share a 64-bit hash, one that should have entered the
//! small queue is admitted to the main queue. This is harmless.

use hashbrown::HashTable;

use crate::queue::{Arena, Index, Queue, is_sparse, store};

/// Hashes of evicted keys in the order of their eviction, with the sizes of their values.
#[derive(Debug)]
pub(crate) struct Ghosts {
    arena: Arena<u64>,
    by_hash: HashTable<Index>,
    queue: Queue,
}

impl Ghosts {
    pub(crate) fn new() -> Self {
        Self { arena: Arena::new(), by_hash: HashTable::new(), queue: Queue::new() }
    }

    pub(crate) fn len(&self) -> usize {
        self.queue.len()
    }

    #[cfg(test)]
    pub(crate) fn slots(&self) -> usize {
        self.arena.capacity()
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.queue.bytes()
    }

    /// Records an evicted value. The caller trims afterwards.
    pub(crate) fn insert(&mut self, hash: u64, bytes: u64) {
        self.remove(hash);
        let index = store(&mut self.arena, hash, bytes);
        self.queue.push(&mut self.arena, index);
        let arena = &self.arena;
        self.by_hash.insert_unique(hash, index, |&index| arena[index as usize].item);
    }

    /// Removes a hash; returns whether it was present.
    pub(crate) fn remove(&mut self, hash: u64) -> bool {
        let arena = &self.arena;
        let found = self.by_hash.find_entry(hash, |&index| arena[index as usize].item == hash);
        let Ok(entry) = found else { return false };
        let (index, _) = entry.remove();
        self.queue.unlink(&mut self.arena, index);
        self.arena.remove(index as usize);
        true
    }

    /// Drops the oldest hashes until both bounds hold.
    pub(crate) fn trim(&mut self, bytes_max: u64, len_max: usize) {
        while self.bytes() > bytes_max || self.len() > len_max {
            let Some(oldest) = self.queue.oldest() else { break };
            self.remove(self.arena[oldest as usize].item);
        }
        if is_sparse(&self.arena) {
            self.compact();
        }
    }

    fn compact(&mut self) {
        let mut old = std::mem::take(&mut self.arena);
        self.arena = Arena::with_capacity(old.len());
        self.queue.move_to(&mut old, &mut self.arena);
        let arena = &self.arena;
        self.by_hash = HashTable::with_capacity(arena.len());
        for (index, linked) in arena {
            let hash = |&index: &Index| arena[index as usize].item;
            self.by_hash.insert_unique(linked.item, index as Index, hash);
        }
    }
}
