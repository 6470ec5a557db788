//! The segment store: a node's share of the cluster's memory.
//!
//! It holds versioned segments, which replies pin while they are sent. Segments can be read during
//! their fill, of which there is one per segment at a time: from a file, an origin or another node,
//! always through a [`Filler`].
//!
//! The lock is taken on misses, never on a hit: workers keep weak references to segments, and a
//! hit only increments a counter in the segment.
//!
//! Larger segments are in regions ([`crate::arena`]), whose number [`clean`] keeps small.
//!
//! Segments get the part of the capacity that is left by heads and workers' indexes
//! ([`crate::account`]).

mod clean;
mod close;
mod offers;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use skep_cache::{CacheEntry, S3Fifo};
use skep_directory::Changes;
use skep_directory::keep::Room;
use skep_wire::cache::{Held, ReplicaStatus, SegmentName, ToCoordinator};
use skep_wire::limits::TAIL_MAX;
use tokio::sync::Notify;

use crate::account::HeadAccount;
use crate::arena::{Arena, Ledger};
use crate::backend_rate::{BackendRate, BackendRead};
use crate::fetch_error::FetchError;
use crate::fills::Fills;
use crate::leaving::Leaving;
use crate::limits::{
    FILLS_PART, FIT_PART, FORGOTTEN_AT_ONCE_MAX, PINNED_BYTES_MAX, PLACED_BYTES_MIN,
    REGION_FILES_SHARE, REGIONS_CAPACITY_MIN, REGIONS_SLACK, ROOM_LOOK_MS, ROOM_WAIT_MS,
};
use crate::segment::{Placement, Segment};
use clean::Cleaner;

/// The result of [`SegmentStore::acquire`].
pub enum Acquired {
    /// The segment is completely in memory.
    Ready(Arc<Segment>),
    /// Another request is filling it.
    Growing(Arc<Segment>),
    /// The caller must fill the segment.
    Fill(Filler),
}

/// A segment that a request needs.
#[derive(Clone, Copy, Debug)]
pub struct Wanted {
    pub name: SegmentName,
    /// Its length.
    pub bytes: u32,
    /// Whether it is the first segment of an object that has more.
    pub has_more: bool,
}

/// Figures of a store, for gauges.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreStats {
    /// Bytes of the segments in the index, including each segment's overhead.
    pub indexed_bytes: u64,
    /// Of these, bytes of redundant replicas, which another node keeps as well.
    pub redundant_bytes: u64,
    /// Bytes of memory in use: indexed, pinned only by replies, wasted in regions, and heads and
    /// workers' indexes.
    pub alive_bytes: u64,
    /// Of these, bytes of segments that only replies and fills hold, not the cache.
    pub pinned_bytes: u64,
    /// Of these, bytes in memory files.
    pub file_bytes: u64,
    /// Segments in the index.
    pub segments: usize,
    /// Segments evicted to make room.
    pub evicted: u64,
    /// Files and objects dropped because they were found changed.
    pub stale: u64,
}

#[derive(Debug)]
pub struct SegmentStore {
    inner: Mutex<Inner>,
    ledger: Arc<Ledger>,
    capacity_bytes: u64,
    entries_max: usize,
    /// Of the capacity, the part reserved for the waste of regions.
    slack_bytes: u64,
    /// The memory besides segments when the capacity of the index was last adjusted to it.
    fitted_bytes: AtomicU64,
    stale: AtomicU64,
    cleaner: OnceLock<Cleaner>,
    leaving_added: Arc<Notify>,
    backend_rate: Arc<BackendRate>,
}

#[derive(Debug)]
struct Inner {
    index: S3Fifo<SegmentName, Arc<Segment>>,
    /// `None` in a store too small for regions.
    arena: Option<Arena>,
    filling: HashMap<SegmentName, Arc<Segment>>,
    evicted: u64,
    scratch: Vec<(SegmentName, Arc<Segment>)>,
    leaving: Leaving,
    /// The number of indexed and of evicted segments at the last request for the tail.
    tail_of: (usize, u64),
    /// Changes not yet reported to coordinators; `None` without coordinators.
    changes: Option<Changes>,
    /// Whether nothing is kept: see [`SegmentStore::close`].
    is_closed: bool,
}

impl SegmentStore {
    /// Creates an empty store that uses at most `capacity_bytes` of memory and keeps at most
    /// `entries_max` segments, not counting what replies pin. `is_shared`: other nodes read from it,
    /// and its changes are reported to coordinators.
    pub fn new(capacity_bytes: u64, entries_max: usize, is_shared: bool) -> Arc<Self> {
        let ledger = Arc::<Ledger>::default();
        let descriptors = rustix::process::getrlimit(rustix::process::Resource::Nofile);
        let files_max = descriptors.current.unwrap_or(u64::MAX) / REGION_FILES_SHARE;
        let arena = (capacity_bytes >= REGIONS_CAPACITY_MIN)
            .then(|| Arena::new(&ledger, usize::try_from(files_max).unwrap_or(usize::MAX)));
        let slack_bytes = if arena.is_some() { capacity_bytes / REGIONS_SLACK } else { 0 };
        let index = S3Fifo::new(capacity_bytes - slack_bytes).with_entries_max(entries_max);
        let leaving = Leaving::default();
        let leaving_added = Arc::clone(leaving.added());
        let inner = Inner {
            index,
            arena,
            filling: HashMap::new(),
            evicted: 0,
            scratch: Vec::new(),
            leaving,
            tail_of: (0, 0),
            changes: is_shared.then(Changes::default),
            is_closed: false,
        };
        Arc::new(Self {
            inner: Mutex::new(inner),
            ledger,
            capacity_bytes,
            entries_max,
            slack_bytes,
            fitted_bytes: AtomicU64::new(0),
            stale: AtomicU64::new(0),
            cleaner: OnceLock::new(),
            leaving_added,
            backend_rate: Arc::default(),
        })
    }

    /// How fast segments are filled from disks and origins.
    pub fn backend_rate(&self) -> &BackendRate {
        &self.backend_rate
    }

    /// The ledger, shared with other users of the same memory.
    pub fn ledger(&self) -> &Arc<Ledger> {
        &self.ledger
    }

    /// A new account for heads of one kind.
    pub fn account(&self) -> Arc<HeadAccount> {
        HeadAccount::new(&self.ledger, self.capacity_bytes)
    }

    /// Adjusts the memory for segments to the memory used besides them. Must be called after such
    /// memory is taken.
    pub fn fit(&self) {
        let meta_bytes = self.ledger.meta_bytes();
        let fitted_bytes = self.fitted_bytes.load(Ordering::Relaxed);
        if meta_bytes.abs_diff(fitted_bytes) <= self.capacity_bytes / FIT_PART {
            return;
        }
        self.fitted_bytes.store(meta_bytes, Ordering::Relaxed);
        let capacity_bytes = self.capacity_bytes - self.slack_bytes;
        let mut inner = self.lock();
        let Inner { index, scratch, .. } = &mut *inner;
        index.set_capacity(capacity_bytes.saturating_sub(meta_bytes), scratch);
        inner.gone(None);
    }

    /// Finds a segment, joins its fill, or makes the caller its filler. A segment that is found
    /// has the requested length.
    pub fn acquire(self: &Arc<Self>, wanted: Wanted) -> Acquired {
        let key = wanted.name;
        let mut inner = self.lock();
        if let Some(segment) = inner.filling.get(&key) {
            assert_eq!(segment.len(), wanted.bytes, "who fills knows what the name says");
            return Acquired::Growing(Arc::clone(segment));
        }
        inner.drop_of_other_length(&wanted);
        if let Some(segment) = inner.index.get(&key) {
            segment.touch();
            return Acquired::Ready(Arc::clone(segment));
        }
        if let Some(segment) = inner.leaving.get(&key).filter(|_| inner.is_closed) {
            return Acquired::Ready(Arc::clone(segment));
        }
        if let Some(segment) = inner.leaving.remove(&key) {
            if !inner.insert(key, Arc::clone(&segment)) {
                inner.lost(key);
            }
            segment.touch();
            return Acquired::Ready(segment);
        }
        let segment = inner.segment(wanted, &self.ledger);
        inner.filling.insert(key, Arc::clone(&segment));
        let fits = !inner.is_closed && segment.bytes() <= inner.index.capacity_bytes();
        drop(inner);
        self.took_memory();
        Acquired::Fill(Filler { store: Arc::clone(self), key, segment, fits })
    }

    /// Whether [`SegmentStore::acquire`] would find the segment or join its fill.
    pub fn has(&self, name: &SegmentName) -> bool {
        self.lock().knows(name)
    }

    /// Promotes the local replica of a segment: from now on it counts as the sole one. Returns
    /// false if there is none, or if the store is closed and will not keep it.
    pub fn promote_replica(&self, name: &SegmentName) -> bool {
        let mut inner = self.lock();
        if inner.is_closed {
            return false;
        }
        let Some(segment) = inner.index.get(name) else { return false };
        segment.set_replica_status(ReplicaStatus::Sole);
        inner.index.set_redundant(name, false);
        true
    }

    /// Returns a segment that is being filled.
    pub fn growing(&self, name: &SegmentName) -> Option<Arc<Segment>> {
        self.lock().filling.get(name).map(Arc::clone)
    }

    /// Allocates a segment that another node passes on. No one else reads it or waits for it
    /// before [`SegmentStore::take_in`], as it may never become complete. Returns `None` if the
    /// segment is here or being filled.
    pub fn room_for(&self, wanted: Wanted) -> Option<Arc<Segment>> {
        let mut inner = self.lock();
        let is_new = !inner.knows(&wanted.name);
        let segment = is_new.then(|| inner.segment(wanted, &self.ledger));
        drop(inner);
        self.took_memory();
        segment
    }

    /// Keeps a complete segment that was passed on. Returns false if it has meanwhile arrived from
    /// elsewhere, or if there is no room.
    pub fn take_in(&self, name: SegmentName, segment: &Arc<Segment>) -> bool {
        assert!(segment.is_complete(), "others are told that it is here");
        let mut inner = self.lock();
        !inner.knows(&name) && inner.keep(name, segment)
    }

    /// Forgets segments of a version that is no longer current.
    pub fn forget(&self, mut names: impl Iterator<Item = SegmentName>) {
        loop {
            // Computed before the lock is taken: each name is a hash.
            let some: Vec<_> = names.by_ref().take(FORGOTTEN_AT_ONCE_MAX).collect();
            if some.is_empty() {
                return;
            }
            let mut inner = self.lock();
            some.into_iter().for_each(|name| inner.forget(name));
        }
    }

    /// Returns a segment that is here or being filled, for another node.
    pub fn find(&self, name: SegmentName) -> Option<Arc<Segment>> {
        let inner = self.lock();
        let kept = || inner.index.get(&name).or_else(|| inner.leaving.get(&name));
        let found = inner.filling.get(&name).or_else(kept)?;
        found.touch();
        Some(Arc::clone(found))
    }

    /// Reports a name to coordinators that is not a segment of the store, but stands for something
    /// without bytes.
    pub fn announce(&self, name: SegmentName) {
        if let Some(changes) = &mut self.lock().changes {
            changes.added(Held { name, bytes: 0 });
        }
    }

    /// Withdraws names that were reported to coordinators but are not segments of the store.
    pub fn withdraw(&self, names: impl Iterator<Item = SegmentName>) {
        let mut inner = self.lock();
        names.for_each(|name| inner.lost(name));
    }

    /// Returns the changes since the last call, in the order in which they must be reported.
    pub fn changes(&self) -> Vec<ToCoordinator> {
        self.lock().changes.as_mut().map(Changes::drain).unwrap_or_default()
    }

    /// Returns the names of all held segments.
    pub fn names(&self) -> Vec<SegmentName> {
        let inner = self.lock();
        let leaving = inner.leaving.iter().map(|(name, _)| name);
        inner.index.keys().chain(leaving).copied().collect()
    }

    /// Returns those of `names` that are held.
    pub fn held(&self, names: &[SegmentName]) -> Vec<Held> {
        let inner = self.lock();
        let held = |name: &SegmentName| {
            let kept = inner.index.get(name).or_else(|| inner.leaving.get(name))?;
            Some(Held { name: *name, bytes: kept.len() })
        };
        names.iter().filter_map(held).collect()
    }

    /// Whether there is memory for further fills.
    pub fn may_fill(&self) -> bool {
        self.taken_bytes() <= self.capacity_bytes + PINNED_BYTES_MAX
    }

    /// Whether there is memory for a segment from the origins of a site with these fills in
    /// progress. A site that has used up its share leaves the rest to other sites.
    pub fn may_fill_beside(&self, fills: Option<&Fills>) -> bool {
        let leaves_room = || self.beside_bytes() <= PINNED_BYTES_MAX / FILLS_PART;
        self.may_fill() && (fills.is_none_or(|fills| !fills.has_share()) || leaves_room())
    }

    /// Returns the bytes of segments that fills and replies hold and the index does not.
    fn beside_bytes(&self) -> u64 {
        let indexed_bytes = self.lock().index.bytes();
        self.ledger.segment_bytes().saturating_sub(indexed_bytes)
    }

    /// Whether replies may pin further segments: not while they keep too many evicted ones in
    /// memory.
    pub fn may_pin(&self) -> bool {
        self.taken_bytes() <= self.capacity_bytes + PINNED_BYTES_MAX / FILLS_PART
    }

    /// Waits briefly until [`SegmentStore::may_fill_beside`] is true; returns whether it became
    /// true.
    pub async fn room_to_fill(&self, fills: Option<&Fills>) -> bool {
        for _ in 0..ROOM_WAIT_MS / ROOM_LOOK_MS {
            if self.may_fill_beside(fills) {
                return true;
            }
            tokio::time::sleep(Duration::from_millis(ROOM_LOOK_MS)).await;
        }
        self.may_fill_beside(fills)
    }

    /// Returns a segment that is here or being filled, for a reader that continues; it does not
    /// count as a hit.
    pub fn peek(&self, name: &SegmentName) -> Option<Arc<Segment>> {
        let inner = self.lock();
        let kept = || inner.index.get(name).or_else(|| inner.leaving.get(name));
        inner.filling.get(name).or_else(kept).map(Arc::clone)
    }

    /// Returns the segments that will be evicted next, to ask the cluster whether others hold
    /// them; `None` if none was added or evicted since the last call, or if evictions are not near.
    pub fn tail(&self) -> Option<Vec<SegmentName>> {
        let mut inner = self.lock();
        let now = (inner.index.len(), inner.evicted);
        // Asks before the first eviction, early enough that the answer arrives in time.
        let is_full = inner.index.bytes() >= inner.index.capacity_bytes() / 4 * 3;
        if now == inner.tail_of || !is_full {
            return None;
        }
        inner.tail_of = now;
        let names: Vec<_> = inner.index.oldest(TAIL_MAX / 3).map(|(&name, _)| name).collect();
        (!names.is_empty()).then_some(names)
    }

    /// Sets the status of the replicas of a tail, as reported by a coordinator. `has_room`: some
    /// other node has room.
    pub fn set_replica_statuses(
        &self,
        names: &[SegmentName],
        replica_statuses: &[ReplicaStatus],
        has_room: bool,
    ) {
        let mut inner = self.lock();
        inner.leaving.set_wanted(has_room);
        for (name, &replica_status) in names.iter().zip(replica_statuses) {
            if let Some(segment) = inner.index.get(name) {
                segment.set_replica_status(replica_status);
                inner.index.set_redundant(name, replica_status == ReplicaStatus::Redundant);
            }
        }
    }

    /// Returns the room for sole replicas of other nodes.
    pub fn room(&self) -> Room {
        let inner = self.lock();
        if inner.is_closed {
            return Room { free_bytes: 0, redundant_bytes: 0 };
        }
        Room {
            free_bytes: inner.index.capacity_bytes().saturating_sub(inner.index.bytes()),
            redundant_bytes: inner.index.dispensable_bytes(),
        }
    }

    /// Returns the bytes of segments that the store may keep.
    pub fn index_bytes_max(&self) -> u64 {
        let inner = self.lock();
        if inner.is_closed { 0 } else { inner.index.capacity_bytes() }
    }

    /// Returns the bytes of memory that the store may use.
    pub fn capacity_bytes(&self) -> u64 {
        self.capacity_bytes
    }

    /// Returns figures for gauges.
    pub fn stats(&self) -> StoreStats {
        let inner = self.lock();
        StoreStats {
            indexed_bytes: inner.index.bytes(),
            redundant_bytes: inner.index.redundant_bytes(),
            alive_bytes: self.taken_bytes(),
            pinned_bytes: self.ledger.segment_bytes().saturating_sub(inner.index.bytes()),
            file_bytes: self.ledger.region_bytes(),
            segments: inner.index.len(),
            evicted: inner.evicted,
            stale: self.stale.load(Ordering::Relaxed),
        }
    }

    fn taken_bytes(&self) -> u64 {
        self.ledger.bytes() + self.ledger.meta_bytes()
    }

    /// Counts a file or object that was found to have changed.
    pub fn count_stale(&self) {
        self.stale.fetch_add(1, Ordering::Relaxed);
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    /// Whether a segment is here or being filled.
    fn knows(&self, name: &SegmentName) -> bool {
        let is_kept = || self.index.get(name).or_else(|| self.leaving.get(name)).is_some();
        self.filling.contains_key(name) || is_kept()
    }

    /// Chooses the placement of a new segment.
    fn home(&mut self, key: SegmentName, bytes: u32, ledger: &Arc<Ledger>) -> Placement {
        let arena = self.arena.as_mut().filter(|_| bytes >= PLACED_BYTES_MIN);
        match arena.and_then(|arena| arena.place(key, bytes)) {
            Some(place) => Placement::Place(place),
            None => Placement::Heap(Arc::clone(ledger)),
        }
    }

    fn segment(&mut self, wanted: Wanted, ledger: &Arc<Ledger>) -> Arc<Segment> {
        let Wanted { name, bytes, has_more } = wanted;
        let mut segment = Segment::new(bytes, self.home(name, bytes, ledger));
        if self.changes.is_some() {
            segment = segment.with_checksums();
        }
        Arc::new(if has_more { segment.with_more_behind() } else { segment })
    }

    /// Drops a segment that does not have the requested length. The name determines the length,
    /// but only for nodes that know what it names: what another node passed on under the name may be
    /// anything.
    fn drop_of_other_length(&mut self, wanted: &Wanted) {
        let Wanted { name, bytes, .. } = wanted;
        let kept = self.index.get(name).or_else(|| self.leaving.get(name));
        if let Some(other) = kept.filter(|kept| kept.len() != *bytes) {
            tracing::warn!(
                expected = bytes,
                found = other.len(),
                "a segment received from another node had the wrong length, and was dropped"
            );
            self.forget(*name);
        }
    }

    fn insert(&mut self, key: SegmentName, segment: Arc<Segment>) -> bool {
        let kept = self.index.insert(key, segment, &mut self.scratch).is_ok();
        // The old entry under the same name has only moved.
        self.gone(Some(key));
        kept
    }

    /// Queues evicted segments to be offered to other nodes, or drops them.
    fn gone(&mut self, moved: Option<SegmentName>) {
        let Self { scratch, changes, leaving, .. } = self;
        self.evicted += scratch.len() as u64;
        if let Some(changes) = changes {
            let gone = scratch.iter().filter(|(name, _)| Some(*name) != moved);
            let lost = gone.filter(|(name, segment)| !leaving.add(*name, segment));
            lost.for_each(|&(name, _)| changes.removed(name));
        }
        self.scratch.clear();
    }

    fn forget(&mut self, name: SegmentName) {
        if self.index.remove(&name).or_else(|| self.leaving.remove(&name)).is_some() {
            self.lost(name);
        } else if let Some(growing) = self.filling.get(&name) {
            growing.forget();
        }
    }

    fn lost(&mut self, name: SegmentName) {
        if let Some(changes) = &mut self.changes {
            changes.removed(name);
        }
    }

    /// Keeps a complete segment and reports it. Returns false if it is larger than the index, or
    /// if the store is closed.
    fn keep(&mut self, name: SegmentName, segment: &Arc<Segment>) -> bool {
        if self.is_closed {
            return false;
        }
        let is_kept = self.insert(name, Arc::clone(segment));
        if segment.is_copy() {
            self.index.set_redundant(&name, true);
        }
        if let Some(changes) = self.changes.as_mut().filter(|_| is_kept) {
            changes.added(Held { name, bytes: segment.len() });
        }
        is_kept
    }
}

/// The exclusive right and duty to fill one segment, which enters the index, and evicts others,
/// when it is complete. If this is dropped before, the fill has failed: readers get an error, and the
/// next request may try again.
#[derive(Debug)]
pub struct Filler {
    store: Arc<SegmentStore>,
    key: SegmentName,
    segment: Arc<Segment>,
    fits: bool,
}

impl Filler {
    /// The segment to publish chunks to.
    pub fn segment(&self) -> &Arc<Segment> {
        &self.segment
    }

    /// The segment's name.
    pub fn name(&self) -> SegmentName {
        self.key
    }

    /// The store that it is in.
    pub fn store(&self) -> &Arc<SegmentStore> {
        &self.store
    }

    /// Begins to read the segment from a disk or an origin.
    pub fn begin_backend_read(&self) -> BackendRead {
        self.store.backend_rate.begin((self.segment.len() - self.segment.filled()).into())
    }

    /// Ends the fill early, with an error for its readers.
    pub fn fail(self, error: FetchError) {
        self.segment.fail(error);
    }

    /// Whether the store will keep the segment when it is complete.
    pub fn is_kept(&self) -> bool {
        self.fits && !self.segment.is_forgotten()
    }
}

impl Drop for Filler {
    fn drop(&mut self) {
        let is_whole = self.segment.is_complete();
        let mut inner = self.store.lock();
        inner.filling.remove(&self.key);
        if is_whole && self.is_kept() {
            inner.keep(self.key, &self.segment);
        }
        drop(inner);
        if !is_whole {
            self.segment.fail(FetchError::Abandoned);
        }
    }
}
