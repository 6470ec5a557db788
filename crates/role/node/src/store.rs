//! The segment store: a node's share of the cluster's memory.
//!
//! Versioned segments, pins while a reply is sent, fills that can be read while
//! they grow, one fill per segment at a time. Local files fill it today; a
//! peer or an origin will fill it through the same [`Filler`].
//!
//! The lock is taken on misses, never on a hit: workers keep weak references to
//! segments, and a hit only raises a counter inside the segment.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use skep_cache::{Entry, S3Fifo};

use crate::limits::{MEMORY_FILES_SHARE, PINNED_BYTES_MAX};
use crate::segment::{Ledger, Segment};

/// Which version of an object: its modification time and its size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Version {
    /// Last modification, in nanoseconds since 1970.
    pub(crate) mtime_ns: i128,
    /// Size, in bytes.
    pub(crate) bytes: u64,
}

/// Names a segment: object, version, number.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct SegmentKey {
    /// The object's name, unique in the node (for a file: its path).
    pub(crate) object: Arc<[u8]>,
    /// Its version.
    pub(crate) version: Version,
    /// The segment's number, from 0.
    pub(crate) index: u32,
}

/// What [`Store::acquire`] found.
pub(crate) enum Acquired {
    /// All of it is in memory.
    Ready(Arc<Segment>),
    /// Somebody is filling it.
    Growing(Arc<Segment>),
    /// The caller must fill it.
    Fill(Filler),
}

/// Counts of a store, for gauges.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreStats {
    /// Bytes that the index holds.
    pub indexed_bytes: u64,
    /// Bytes alive: indexed, or pinned by replies alone.
    pub alive_bytes: u64,
    /// Segments in the index.
    pub segments: usize,
    /// Segments that left to make room.
    pub evicted: u64,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Store {
    inner: Mutex<Inner>,
    ledger: Arc<Ledger>,
}

#[derive(Debug)]
struct Inner {
    index: S3Fifo<SegmentKey, Arc<Segment>>,
    filling: HashMap<SegmentKey, Arc<Segment>>,
    evicted: u64,
    scratch: Vec<(SegmentKey, Arc<Segment>)>,
}

impl Store {
    /// An empty store that keeps at most `capacity_bytes`.
    pub(crate) fn new(capacity_bytes: u64) -> Arc<Self> {
        let inner = Inner {
            index: S3Fifo::new(capacity_bytes),
            filling: HashMap::new(),
            evicted: 0,
            scratch: Vec::new(),
        };
        let descriptors = rustix::process::getrlimit(rustix::process::Resource::Nofile);
        let files_max = descriptors.current.unwrap_or(u64::MAX) / MEMORY_FILES_SHARE;
        Arc::new(Self { inner: Mutex::new(inner), ledger: Ledger::new(files_max) })
    }

    /// Finds a segment, joins its fill, or makes the caller its filler.
    pub(crate) fn acquire(self: &Arc<Self>, key: &SegmentKey, bytes: u32) -> Acquired {
        let mut inner = self.lock();
        if let Some(segment) = inner.filling.get(key) {
            return Acquired::Growing(Arc::clone(segment));
        }
        if let Some(segment) = inner.index.get(key) {
            segment.touch();
            return Acquired::Ready(Arc::clone(segment));
        }
        let segment = Arc::new(Segment::new(bytes, &self.ledger));
        inner.filling.insert(key.clone(), Arc::clone(&segment));
        let Inner { index, scratch, .. } = &mut *inner;
        let kept = index.insert(key.clone(), Arc::clone(&segment), scratch).is_ok();
        inner.evicted += inner.scratch.len() as u64;
        let evicted = std::mem::take(&mut inner.scratch);
        drop(inner);
        // Their memory is freed outside the lock.
        drop(evicted);
        Acquired::Fill(Filler { store: Arc::clone(self), key: key.clone(), segment, kept })
    }

    /// Forgets `segments` segments of a version that is no longer current.
    pub(crate) fn forget(&self, object: &Arc<[u8]>, version: Version, segments: u32) {
        let mut inner = self.lock();
        for index in 0..segments {
            inner.index.remove(&SegmentKey { object: Arc::clone(object), version, index });
        }
    }

    /// Whether further segments may be pinned: not while slow readers keep too
    /// many alive that were evicted long ago.
    pub(crate) fn may_pin(&self) -> bool {
        self.ledger.bytes() <= self.capacity_bytes() + PINNED_BYTES_MAX
    }

    /// Bytes that the store may keep.
    pub(crate) fn capacity_bytes(&self) -> u64 {
        self.lock().index.capacity_bytes()
    }

    /// Counts, for gauges.
    pub(crate) fn stats(&self) -> StoreStats {
        let inner = self.lock();
        StoreStats {
            indexed_bytes: inner.index.bytes(),
            alive_bytes: self.ledger.bytes(),
            segments: inner.index.len(),
            evicted: inner.evicted,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The right and the duty to fill one segment. Dropped before the end, the
/// fill has failed: readers are told, and the next one may try.
#[derive(Debug)]
pub(crate) struct Filler {
    store: Arc<Store>,
    key: SegmentKey,
    segment: Arc<Segment>,
    kept: bool,
}

impl Filler {
    /// The segment to publish chunks to.
    pub(crate) fn segment(&self) -> &Arc<Segment> {
        &self.segment
    }

    /// Its number within the object.
    pub(crate) fn index(&self) -> u32 {
        self.key.index
    }

    /// Whether the store has room to keep it.
    pub(crate) fn is_kept(&self) -> bool {
        self.kept
    }
}

impl Drop for Filler {
    fn drop(&mut self) {
        let mut inner = self.store.lock();
        inner.filling.remove(&self.key);
        let complete = self.segment.is_complete();
        if !complete {
            inner.index.remove(&self.key);
        }
        drop(inner);
        if !complete {
            self.segment.fail();
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn key(name: &str, index: u32) -> SegmentKey {
        let version = Version { mtime_ns: 1, bytes: 10 };
        SegmentKey { object: name.as_bytes().into(), version, index }
    }

    fn fill(store: &Arc<Store>, key: &SegmentKey, bytes: u32) {
        match store.acquire(key, bytes) {
            Acquired::Fill(filler) => {
                let chunk = vec![0; filler.segment().next_chunk_bytes()];
                filler.segment().publish(chunk.into()).unwrap();
            }
            _ => panic!("{key:?} was there"),
        }
    }

    #[test]
    fn many_askers_one_filler() {
        let store = Store::new(1 << 20);
        let Acquired::Fill(filler) = store.acquire(&key("a", 0), 10) else { panic!("empty store") };
        for _ in 0..100 {
            assert!(matches!(store.acquire(&key("a", 0), 10), Acquired::Growing(_)));
        }
        filler.segment().publish(vec![1; 10].into()).unwrap();
        drop(filler);
        assert!(matches!(store.acquire(&key("a", 0), 10), Acquired::Ready(_)));
    }

    #[test]
    fn a_dropped_filler_leaves_nothing_and_the_next_may_try() {
        let store = Store::new(1 << 20);
        drop(store.acquire(&key("a", 0), 10));
        assert_eq!(store.stats().segments, 0);
        assert!(matches!(store.acquire(&key("a", 0), 10), Acquired::Fill(_)));
    }

    #[test]
    fn eviction_bounds_the_index_and_pins_keep_bytes_alive() {
        let store = Store::new(1000);
        for i in 0..50 {
            fill(&store, &key("a", i), 100);
        }
        let stats = store.stats();
        assert!(stats.indexed_bytes <= 1000, "{stats:?}");
        assert_eq!(stats.alive_bytes, stats.indexed_bytes);
        let Acquired::Ready(newest) = store.acquire(&key("a", 49), 100) else { panic!("newest") };
        for i in 100..150 {
            fill(&store, &key("b", i), 100);
        }
        store.forget(&key("a", 0).object, key("a", 0).version, 50);
        assert_eq!(store.stats().alive_bytes, store.stats().indexed_bytes + 100, "pinned");
        drop(newest);
    }

    #[test]
    fn larger_than_the_store_is_filled_but_not_kept() {
        let store = Store::new(50);
        let Acquired::Fill(filler) = store.acquire(&key("a", 0), 100) else { panic!("empty") };
        assert!(!filler.is_kept());
        filler.segment().publish(vec![1; 100].into()).unwrap();
        drop(filler);
        assert_eq!(store.stats().segments, 0);
    }
}
