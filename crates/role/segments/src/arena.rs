//! The memory of larger segments: regions, each a memory file in large folios, filled from
//! front to back.
//!
//! ```text
//!  region 1 |seg a|seg b|  dead |seg d|          a region is freed when its
//!  region 2 |seg e|seg f|..free..   <- current   last segment is dropped
//! ```
//!
//! Each byte of a region is written only once: pages may be in a socket's queue long after
//! their bytes count as sent, and overwriting them would change what a client receives. Space is
//! therefore never reused in place; [`crate::store`] moves the last few segments of a thin region
//! elsewhere and drops the region.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use skep_memory::memory_file;
use skep_wire::cache::SegmentName;

use crate::limits::{REGION_BYTES, REGION_SHARE_MAX};

/// Memory used by a store: segments in the index, segments pinned only by replies, and the
/// waste of regions; in addition, the heads and indexes of objects.
#[derive(Debug, Default)]
pub struct Ledger {
    all_bytes: AtomicU64,
    /// Of these, bytes of segments.
    segment_bytes: AtomicU64,
    /// Of `all_bytes`, bytes of regions, which are not part of the resident size that the
    /// system reports.
    region_bytes: AtomicU64,
    /// Bytes of heads; not in `all_bytes`.
    pub heads_bytes: AtomicU64,
    /// Bytes of the workers' indexes; not in `all_bytes`.
    pub worker_index_bytes: AtomicU64,
}

impl Ledger {
    /// Returns the bytes of segments and regions.
    pub fn bytes(&self) -> u64 {
        self.all_bytes.load(Ordering::Relaxed)
    }

    /// Returns the bytes of heads and workers' indexes.
    pub fn meta_bytes(&self) -> u64 {
        self.heads_bytes.load(Ordering::Relaxed) + self.worker_index_bytes.load(Ordering::Relaxed)
    }

    /// Returns the bytes of segments, in an index or not.
    pub fn segment_bytes(&self) -> u64 {
        self.segment_bytes.load(Ordering::Relaxed)
    }

    /// Returns the bytes of memory files.
    pub fn region_bytes(&self) -> u64 {
        self.region_bytes.load(Ordering::Relaxed)
    }

    /// Records that a segment allocated memory of its own.
    pub fn take(&self, bytes: u64) {
        self.all_bytes.fetch_add(bytes, Ordering::Relaxed);
        self.segment_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Records that a segment released its memory.
    pub fn give_back(&self, bytes: u64) {
        self.all_bytes.fetch_sub(bytes, Ordering::Relaxed);
        self.segment_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Counts the memory of a reply generated for one client, until the returned value is
    /// dropped.
    pub fn hold(self: &Arc<Self>, bytes: u64) -> impl Drop + use<> {
        struct Held(Arc<Ledger>, u64);
        impl Drop for Held {
            fn drop(&mut self) {
                self.0.give_back(self.1);
            }
        }
        self.take(bytes);
        Held(Arc::clone(self), bytes)
    }
}

/// A memory file shared by several segments.
#[derive(Debug)]
pub struct Region {
    file: File,
    bytes: u32,
    live_bytes: AtomicU32,
    /// Names of the segments placed here, including dead ones.
    keys: Mutex<Vec<SegmentName>>,
    ledger: Arc<Ledger>,
}

impl Region {
    fn new(bytes: u32, ledger: &Arc<Ledger>) -> io::Result<Self> {
        let file = memory_file(u64::from(bytes))?;
        ledger.all_bytes.fetch_add(u64::from(bytes), Ordering::Relaxed);
        ledger.region_bytes.fetch_add(u64::from(bytes), Ordering::Relaxed);
        let (live_bytes, keys) = (AtomicU32::new(0), Mutex::default());
        Ok(Self { file, bytes, live_bytes, keys, ledger: Arc::clone(ledger) })
    }

    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// The share of live bytes in this region, in thousandths.
    pub fn live_permille(&self) -> u32 {
        (u64::from(self.live_bytes.load(Ordering::Relaxed)) * 1000 / u64::from(self.bytes)) as u32
    }

    /// Names of the segments placed here.
    pub fn keys(&self) -> Vec<SegmentName> {
        self.keys.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        self.ledger.all_bytes.fetch_sub(u64::from(self.bytes), Ordering::Relaxed);
        self.ledger.region_bytes.fetch_sub(u64::from(self.bytes), Ordering::Relaxed);
    }
}

/// A segment's place in a region.
#[derive(Debug)]
pub struct Extent {
    region: Arc<Region>,
    offset: u32,
    bytes: u32,
}

impl Extent {
    /// The region.
    pub fn region(&self) -> &Arc<Region> {
        &self.region
    }

    /// Returns the file and the segment's offset in it.
    pub fn file(&self) -> (BorrowedFd<'_>, u64) {
        (self.region.file.as_fd(), u64::from(self.offset))
    }

    /// Writes bytes at a position not written before.
    pub fn write(&self, bytes: &[u8], at: u32) -> io::Result<()> {
        debug_assert!(at as usize + bytes.len() <= self.bytes as usize, "within the place");
        self.region.file.write_all_at(bytes, u64::from(self.offset + at))
    }

    /// Reads bytes back, in order to move them.
    pub fn read(&self, bytes: &mut [u8], at: u32) -> io::Result<()> {
        self.region.file.read_exact_at(bytes, u64::from(self.offset + at))
    }
}

impl Drop for Extent {
    fn drop(&mut self) {
        self.region.live_bytes.fetch_sub(self.bytes, Ordering::Relaxed);
        self.region.ledger.segment_bytes.fetch_sub(u64::from(self.bytes), Ordering::Relaxed);
    }
}

/// All regions of a store.
#[derive(Debug)]
pub(crate) struct Arena {
    ledger: Arc<Ledger>,
    /// The region being filled, and the number of bytes used in it.
    current: Option<(Arc<Region>, u32)>,
    regions: Vec<Weak<Region>>,
    /// Each region takes a file descriptor.
    regions_max: usize,
}

impl Arena {
    /// Creates an arena without regions, which has at most `regions_max` of them.
    pub(crate) fn new(ledger: &Arc<Ledger>, regions_max: usize) -> Self {
        Self { ledger: Arc::clone(ledger), current: None, regions: Vec::new(), regions_max }
    }

    /// Returns a place for `bytes` bytes of the segment `key`; `None` if no memory file can be
    /// created, in which case the segment goes on the heap.
    pub(crate) fn place(&mut self, key: SegmentName, bytes: u32) -> Option<Extent> {
        if bytes > REGION_SHARE_MAX {
            // Fills a region on its own, or would waste too much of a shared one.
            return self.open(bytes).map(|region| settle(region, 0, bytes, key));
        }
        let fits = self.current.as_ref().is_some_and(|(_, used)| used + bytes <= REGION_BYTES);
        if !fits {
            self.current = None;
            self.current = Some((self.open(REGION_BYTES)?, 0));
        }
        let (region, used) = self.current.as_mut()?;
        let offset = *used;
        // On pages of its own: the kernel accounts whole pages.
        *used += bytes.next_multiple_of(4096);
        Some(settle(Arc::clone(region), offset, bytes, key))
    }

    /// Stops filling the current region, which is then freed with its last segment.
    pub(crate) fn leave_current(&mut self) {
        self.current = None;
        self.regions.retain(|region| region.strong_count() > 0);
        self.regions.shrink_to_fit();
    }

    /// The regions with the smallest share of live bytes, except the one being filled.
    pub(crate) fn thinnest(&mut self) -> Vec<Arc<Region>> {
        self.regions.retain(|region| region.strong_count() > 0);
        let current = self.current.as_ref().map(|(region, _)| Arc::as_ptr(region));
        let mut regions: Vec<_> = self.regions.iter().filter_map(Weak::upgrade).collect();
        regions.retain(|region| Some(Arc::as_ptr(region)) != current);
        regions.sort_by_key(|region| region.live_permille());
        regions
    }

    fn open(&mut self, bytes: u32) -> Option<Arc<Region>> {
        if self.regions.len() >= self.regions_max {
            self.regions.retain(|region| region.strong_count() > 0);
            if self.regions.len() >= self.regions_max {
                return None;
            }
        }
        let region = Arc::new(Region::new(bytes, &self.ledger).ok()?);
        self.regions.push(Arc::downgrade(&region));
        Some(region)
    }
}

fn settle(region: Arc<Region>, offset: u32, bytes: u32, key: SegmentName) -> Extent {
    region.live_bytes.fetch_add(bytes, Ordering::Relaxed);
    region.ledger.segment_bytes.fetch_add(u64::from(bytes), Ordering::Relaxed);
    region.keys.lock().unwrap_or_else(PoisonError::into_inner).push(key);
    Extent { region, offset, bytes }
}
