//! Keeps regions within the store's capacity. Their space is not reused: when they use too
//! much, the live segments of the thinnest regions are compacted, as in log-structured memory
//! (Rumble et al., FAST '14); where compaction cannot make room, segments are evicted.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};

use super::{Inner, SegmentStore};
use crate::arena::{Arena, Region};
use crate::buffer::Buffer;
use crate::limits::{PINNED_BYTES_MAX, REGION_BYTES, THIN_PERMILLE_MAX};
use crate::segment::Segment;

/// The thread that cleans a store. It copies memory for some milliseconds, which would be too
/// long on a worker. Ends with the store.
#[derive(Debug)]
pub(crate) struct Cleaner {
    /// Holds one call: calls that arrive meanwhile are covered by it.
    calls: SyncSender<()>,
}

impl Cleaner {
    fn start(store: &Arc<SegmentStore>) -> io::Result<Self> {
        let (calls, called) = sync_channel(1);
        let store = Arc::downgrade(store);
        let run = move || {
            while called.recv().is_ok() {
                let Some(store) = store.upgrade() else { return };
                store.clean();
            }
        };
        std::thread::Builder::new().name("skep-clean".into()).spawn(run)?;
        Ok(Self { calls })
    }
}

impl SegmentStore {
    /// Starts the thread that cleans the store when necessary. May be called only once.
    pub fn start_cleaner(self: &Arc<Self>) -> io::Result<()> {
        let cleaner = Cleaner::start(self)?;
        assert!(self.cleaner.set(cleaner).is_ok(), "a store has one cleaner");
        Ok(())
    }

    /// Must be called after a segment takes memory.
    pub(super) fn took_memory(&self) {
        if let Some(cleaner) = self.cleaner.get()
            && self.is_crowded()
        {
            // If the channel is full, the cleaner is about to run.
            let _ = cleaner.calls.try_send(());
        }
    }

    /// Brings regions within the capacity.
    pub(super) fn clean(self: &Arc<Self>) {
        // Pinned segments stay; after twice as many rounds as there are regions, no more can be
        // freed.
        let mut rounds = 2 * self.thinnest().len();
        // Segments being filled or pinned keep a region alive: the next one may be freed
        // instead.
        let mut emptied: Vec<*const Region> = Vec::new();
        while self.is_crowded() && rounds > 0 {
            rounds -= 1;
            let mut thinnest = self.thinnest().into_iter();
            match thinnest.find(|region| !emptied.contains(&Arc::as_ptr(region))) {
                Some(region) if region.live_permille() <= THIN_PERMILLE_MAX => {
                    self.empty(&region);
                    emptied.push(Arc::as_ptr(&region));
                }
                _ => self.evict(u64::from(REGION_BYTES)),
            }
        }
    }

    fn thinnest(&self) -> Vec<Arc<Region>> {
        self.lock().arena.as_mut().map(Arena::thinnest).unwrap_or_default()
    }

    /// Whether the cleaner must run. Segments being filled, or still pinned by replies, have
    /// memory beyond the capacity, up to a bound: they must not evict segments that will be
    /// requested.
    fn is_crowded(&self) -> bool {
        let beside_bytes = self.beside_bytes().min(PINNED_BYTES_MAX);
        let kept_bytes = self.taken_bytes().saturating_sub(beside_bytes);
        kept_bytes + u64::from(REGION_BYTES) > self.capacity_bytes
    }

    /// Moves the segments of `region` that are still in the index to other regions.
    fn empty(self: &Arc<Self>, region: &Arc<Region>) {
        for key in region.keys() {
            let (old, home) = {
                let mut inner = self.lock();
                let Some(old) = inner.index.get(&key).map(Arc::clone) else { continue };
                let here = old.place().is_some_and(|place| Arc::ptr_eq(place.region(), region));
                if !here {
                    continue;
                }
                let home = inner.home(key, old.len(), &self.ledger);
                (old, home)
            };
            let moved = Arc::new(match old.checksum(0) {
                Some(_) => Segment::new(old.len(), home).with_checksums(),
                None => Segment::new(old.len(), home),
            });
            if copy(&old, &moved).is_err() {
                continue;
            }
            let mut inner = self.lock();
            if inner.index.get(&key).is_some_and(|current| Arc::ptr_eq(current, &old)) {
                // Statuses reported during the copy count as well.
                moved.take_after(&old);
                inner.insert(key, moved);
            }
        }
    }

    /// Evicts at least `bytes` bytes from the index.
    fn evict(&self, bytes: u64) {
        let mut inner = self.lock();
        let capacity = inner.index.capacity_bytes();
        let target = inner.index.bytes().saturating_sub(bytes);
        let Inner { index, scratch, .. } = &mut *inner;
        index.set_capacity(target, scratch);
        index.set_capacity(capacity, scratch);
        inner.gone(None);
    }
}

/// Copies a complete segment into an empty one of the same size.
fn copy(old: &Segment, new: &Segment) -> io::Result<()> {
    let Some(place) = old.place() else { return Err(io::ErrorKind::Unsupported.into()) };
    let mut buffer = Buffer::take();
    loop {
        let (at, bytes) = (new.filled(), new.next_chunk_bytes());
        if bytes == 0 {
            return Ok(());
        }
        let chunk = &mut buffer.bytes()[..bytes];
        place.read(chunk, at)?;
        new.publish(chunk)?;
    }
}
