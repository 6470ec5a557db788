//! Each worker's own index of recently served files and origins' objects, by path, and stored responses
//! of pools, by key: no lock, no allocation.
//!
//! Its entries only refer to contents of the catalog and store: when those drop something, the entry here
//! expires as well.

use std::cell::{Cell, RefCell};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use hashbrown::HashMap;
use skep_segments::{Segment, SegmentStore, allocated};

use crate::limits::{
    WORKER_INDEX_ENTRIES_MAX, WORKER_INDEX_ENTRY_BYTES, WORKER_INDEX_VARIANTS_MAX,
    WORKER_INDEXES_PART,
};
use crate::model::changes::SeenVersion;
use crate::model::resource::Resource;

/// A worker's entry for a path.
pub(crate) struct Entry {
    resource: Weak<Resource>,
    /// First segments of the variants, by slot.
    pub(crate) segments: [Weak<Segment>; 4],
}

/// A worker's entry for a pool response: one of the responses under its key.
struct StoredEntry {
    resource: Weak<Resource>,
    /// The only segment of each variant, by slot; none: it is empty, or was not sent yet.
    segments: [Weak<Segment>; 4],
    /// Of the responses stored under its key.
    version: SeenVersion,
}

/// By route, and by path or key.
type Entries<E> = Vec<HashMap<Box<[u8]>, E, foldhash::fast::RandomState>>;

/// Bounds the memory of all workers' indexes together.
#[derive(Debug, Default)]
pub(crate) struct WorkerIndexes {
    count: AtomicUsize,
}

pub(crate) struct WorkerIndex {
    store: Arc<SegmentStore>,
    worker_indexes: Arc<WorkerIndexes>,
    paths: RefCell<Entries<Entry>>,
    stored: RefCell<Entries<Vec<StoredEntry>>>,
    entries: Cell<usize>,
    bytes: Cell<u64>,
}

impl WorkerIndex {
    /// An empty index of `routes` routes.
    pub(crate) fn new(
        routes: usize,
        store: &Arc<SegmentStore>,
        worker_indexes: &Arc<WorkerIndexes>,
    ) -> Self {
        worker_indexes.count.fetch_add(1, Ordering::Relaxed);
        Self {
            store: Arc::clone(store),
            worker_indexes: Arc::clone(worker_indexes),
            paths: RefCell::new((0..routes).map(|_| HashMap::default()).collect()),
            stored: RefCell::new((0..routes).map(|_| HashMap::default()).collect()),
            entries: Cell::new(0),
            bytes: Cell::new(0),
        }
    }

    /// Calls `job` with the entry of a path, if there is one.
    pub(crate) fn with<R>(
        &self,
        route: usize,
        path: &[u8],
        job: impl FnOnce(&Arc<Resource>, &Entry) -> R,
    ) -> Option<R> {
        let paths = self.paths.borrow();
        let entry = paths[route].get(path)?;
        Some(job(&entry.resource.upgrade()?, entry))
    }

    /// Calls `job` with a response under a key that fits, and the segments of its variants, if nothing
    /// was stored under the key since the entry was made.
    pub(crate) fn stored<R>(
        &self,
        route: usize,
        key: &[u8],
        fits: impl Fn(&Arc<Resource>) -> bool,
        job: impl FnOnce(&Arc<Resource>, &[Weak<Segment>; 4]) -> R,
    ) -> Option<R> {
        let stored = self.stored.borrow();
        let mut current = stored[route].get(key)?.iter().filter(|entry| entry.version.is_current());
        let found = current.find_map(|entry| {
            let resource = entry.resource.upgrade().filter(|it| fits(it))?;
            Some((resource, &entry.segments))
        });
        found.map(|(resource, segments)| job(&resource, segments))
    }

    /// Stores an entry for a resource and the first segment of one of its variants (none: it is empty).
    pub(crate) fn remember(
        &self,
        path: &[u8],
        resource: &Arc<Resource>,
        slot: usize,
        segment: Weak<Segment>,
    ) {
        let index = resource.route.index;
        if let Some(entry) = self.paths.borrow_mut()[index].get_mut(path) {
            if !std::ptr::eq(entry.resource.as_ptr(), Arc::as_ptr(resource)) {
                *entry = Entry::new(resource);
            }
            entry.segments[slot] = segment;
            return;
        }
        self.make_room();
        let mut entry = Entry::new(resource);
        entry.segments[slot] = segment;
        self.count(1, entry_bytes(path));
        self.paths.borrow_mut()[index].insert(path.into(), entry);
        self.store.fit();
    }

    /// Stores an entry for the response that a look-up found under a key; a variant's bytes are in one
    /// segment at most.
    pub(crate) fn remember_stored(
        &self,
        (key, version): (&[u8], SeenVersion),
        resource: &Arc<Resource>,
        (slot, segment): (usize, Weak<Segment>),
    ) {
        self.make_room();
        let mut stored = self.stored.borrow_mut();
        let entries = stored[resource.route.index].entry(key.into()).or_default();
        let count_before = entries.len();
        let mut segments = <[Weak<Segment>; 4]>::default();
        entries.retain_mut(|entry| {
            let is_it = std::ptr::eq(entry.resource.as_ptr(), Arc::as_ptr(resource));
            if is_it {
                segments = std::mem::take(&mut entry.segments);
            }
            entry.version.is_current() && !is_it
        });
        segments[slot] = segment;
        if entries.len() == WORKER_INDEX_VARIANTS_MAX {
            entries.remove(0);
        }
        entries.push(StoredEntry { resource: Arc::downgrade(resource), segments, version });
        let more = entries.len() as i64 - count_before as i64;
        drop(stored);
        self.count(more as isize, more * entry_bytes(key));
        self.store.fit();
    }

    /// Removes expired entries, then arbitrary ones.
    fn make_room(&self) {
        let workers = self.worker_indexes.count.load(Ordering::Relaxed).max(1) as u64;
        let bytes_max = self.store.capacity_bytes() / WORKER_INDEXES_PART / workers;
        if self.entries.get() < WORKER_INDEX_ENTRIES_MAX && self.bytes.get() < bytes_max {
            return;
        }
        let (mut paths, mut stored) = (self.paths.borrow_mut(), self.stored.borrow_mut());
        self.forget(&mut paths, |_| 1, |entry| entry.resource.strong_count() == 0);
        let is_over = |entry: &StoredEntry| !entry.version.is_current();
        self.forget(&mut stored, Vec::len, |entries| entries.iter().all(is_over));
        let is_roomy = || {
            self.entries.get() <= WORKER_INDEX_ENTRIES_MAX / 8 * 7
                && self.bytes.get() <= bytes_max / 8 * 7
        };
        self.forget(&mut paths, |_| 1, |_| !is_roomy());
        self.forget(&mut stored, Vec::len, |_| !is_roomy());
    }

    fn forget<E>(
        &self,
        all: &mut Entries<E>,
        count_of: impl Fn(&E) -> usize,
        is_to_go: impl Fn(&E) -> bool,
    ) {
        for entries in all {
            for (key, entry) in entries.extract_if(|_, entry| is_to_go(entry)) {
                let count = count_of(&entry);
                self.count(-(count as isize), -(count as i64) * entry_bytes(&key));
            }
            if entries.capacity() / 4 > entries.len() {
                entries.shrink_to_fit();
            }
        }
    }

    fn count(&self, entries: isize, bytes: i64) {
        self.entries.set(self.entries.get().saturating_add_signed(entries));
        self.bytes.set(self.bytes.get().saturating_add_signed(bytes));
        let all = &self.store.ledger().worker_index_bytes;
        all.fetch_add(bytes as u64, Ordering::Relaxed);
    }
}

impl Drop for WorkerIndex {
    fn drop(&mut self) {
        self.worker_indexes.count.fetch_sub(1, Ordering::Relaxed);
        self.store.ledger().worker_index_bytes.fetch_sub(self.bytes.get(), Ordering::Relaxed);
    }
}

impl Entry {
    fn new(resource: &Arc<Resource>) -> Self {
        Self { resource: Arc::downgrade(resource), segments: Default::default() }
    }
}

fn entry_bytes(path: &[u8]) -> i64 {
    allocated(path.len() + WORKER_INDEX_ENTRY_BYTES) as i64
}
