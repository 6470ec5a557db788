//! Each worker's own index of recently served paths: no lock, no allocation.
//!
//! Its entries only point to the contents of catalog and store: when those drop something,
//! its entry here expires too, sooner or later.

use std::cell::{Cell, RefCell};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use hashbrown::HashMap;
use skep_segments::{Segment, SegmentStore, allocated};

use crate::limits::{WORKER_INDEX_ENTRIES_MAX, WORKER_INDEX_ENTRY_BYTES, WORKER_INDEXES_PART};
use crate::model::resource::Resource;

/// A worker's entry for a path.
pub(crate) struct Entry {
    resource: Weak<Resource>,
    /// First segments of the variants, by slot.
    pub(crate) segments: [Weak<Segment>; 4],
}

type Paths = HashMap<Box<[u8]>, Entry, foldhash::fast::RandomState>;

/// Bounds the memory of all workers' indexes together.
#[derive(Debug, Default)]
pub(crate) struct WorkerIndexes {
    count: AtomicUsize,
}

/// The index of the paths that one worker served last, by route and path.
pub(crate) struct WorkerIndex {
    store: Arc<SegmentStore>,
    worker_indexes: Arc<WorkerIndexes>,
    routes: RefCell<Vec<Paths>>,
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
            routes: RefCell::new((0..routes).map(|_| HashMap::default()).collect()),
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
        let routes = self.routes.borrow();
        let entry = routes[route].get(path)?;
        Some(job(&entry.resource.upgrade()?, entry))
    }

    /// Remembers a resource and the first segment of one of its variants
    /// (none: it is empty).
    pub(crate) fn remember(
        &self,
        path: &[u8],
        resource: &Arc<Resource>,
        slot: usize,
        segment: Weak<Segment>,
    ) {
        let index = resource.route.index;
        if let Some(entry) = self.routes.borrow_mut()[index].get_mut(path) {
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
        self.routes.borrow_mut()[index].insert(path.into(), entry);
        self.store.fit();
    }

    /// Removes expired entries, then any.
    fn make_room(&self) {
        let workers = self.worker_indexes.count.load(Ordering::Relaxed).max(1) as u64;
        let bytes_max = self.store.capacity_bytes() / WORKER_INDEXES_PART / workers;
        if self.entries.get() < WORKER_INDEX_ENTRIES_MAX && self.bytes.get() < bytes_max {
            return;
        }
        let mut routes = self.routes.borrow_mut();
        self.forget(&mut routes, |entry| entry.resource.strong_count() == 0);
        let is_roomy = || {
            self.entries.get() <= WORKER_INDEX_ENTRIES_MAX / 8 * 7
                && self.bytes.get() <= bytes_max / 8 * 7
        };
        self.forget(&mut routes, |_| !is_roomy());
    }

    fn forget(&self, routes: &mut [Paths], is_to_go: impl Fn(&Entry) -> bool) {
        for paths in routes {
            for (path, _) in paths.extract_if(|_, entry| is_to_go(entry)) {
                self.count(-1, -entry_bytes(&path));
            }
            if paths.capacity() / 4 > paths.len() {
                paths.shrink_to_fit();
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
