//! The cache itself. (Skeleton: signatures first, so that callers can be written.)
#![allow(unused_variables, dead_code, reason = "skeleton")]

use std::hash::{BuildHasher, Hash};

use hashbrown::{DefaultHashBuilder, Equivalent};

use crate::limits::FREQUENCY_MAX;

/// What the cache must know of a value.
pub trait Entry {
    /// Bytes charged for it, overhead included. Read once, at insertion.
    fn bytes(&self) -> u64;
    /// Hits since the cache last asked, `0..=FREQUENCY_MAX`.
    fn frequency(&self) -> u8;
    /// Stores the frequency.
    fn set_frequency(&self, frequency: u8);

    /// Counts a hit. Callers do this with what `get` returned.
    fn touch(&self) {
        let frequency = self.frequency();
        if frequency < FREQUENCY_MAX {
            self.set_frequency(frequency + 1);
        }
    }
}

/// The value is larger than the whole cache; here it is back.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("larger than the cache")]
pub struct TooLarge<V>(pub V);

/// The cache.
#[derive(Debug)]
pub struct S3Fifo<K, V, S = DefaultHashBuilder> {
    map: hashbrown::HashMap<K, V, S>,
}

impl<K: Hash + Eq, V: Entry> S3Fifo<K, V> {
    /// An empty cache for `capacity_bytes`.
    pub fn new(capacity_bytes: u64) -> Self {
        unimplemented!("skeleton")
    }
}

impl<K: Hash + Eq, V: Entry, S: BuildHasher> S3Fifo<K, V, S> {
    /// Admits `value`; what had to leave is appended to `evicted`. A value that
    /// was there under the same key leaves too.
    pub fn insert(
        &mut self,
        key: K,
        value: V,
        evicted: &mut Vec<(K, V)>,
    ) -> Result<(), TooLarge<V>> {
        unimplemented!("skeleton")
    }
    /// The value under `key`. Counts nothing: see [`Entry::touch`].
    pub fn get<Q: Hash + Equivalent<K> + ?Sized>(&self, key: &Q) -> Option<&V> {
        unimplemented!("skeleton")
    }
    /// Takes the value under `key` out.
    pub fn remove<Q: Hash + Equivalent<K> + ?Sized>(&mut self, key: &Q) -> Option<V> {
        unimplemented!("skeleton")
    }
    /// Bytes of all values.
    pub fn bytes(&self) -> u64 {
        unimplemented!("skeleton")
    }
    /// Number of values.
    pub fn len(&self) -> usize {
        unimplemented!("skeleton")
    }
    /// Is it empty?
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Bytes it may hold.
    pub fn capacity_bytes(&self) -> u64 {
        unimplemented!("skeleton")
    }
    /// Changes the capacity; what has to leave is appended to `evicted`.
    pub fn set_capacity(&mut self, capacity_bytes: u64, evicted: &mut Vec<(K, V)>) {
        unimplemented!("skeleton")
    }
    /// All entries, newest first within each queue.
    pub fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.map.iter()
    }
    /// Removes the entries for which `keep` is false; appends them to `removed`.
    pub fn retain(&mut self, keep: impl FnMut(&K, &V) -> bool, removed: &mut Vec<(K, V)>) {
        unimplemented!("skeleton")
    }
}
