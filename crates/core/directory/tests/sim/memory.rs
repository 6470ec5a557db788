//! A node's memory: keeping and evicting are decided by the cores that decide it in a node. Only
//! the code between them is here, with the roles of `SegmentStore` and `Leaving`.
//!
//! Invariants, checked at every change: the bytes held are within the capacity, as counted
//! and as summed up; segments being evicted are bounded, and in no index.

use std::cell::Cell;
use std::collections::{BTreeMap, VecDeque};
use std::hash::{BuildHasherDefault, DefaultHasher};
use std::rc::Rc;

use skep_cache::{CacheEntry, PROMOTION_HITS, S3Fifo};
use skep_directory::keep::{self, Room};
use skep_directory::limits::CHANCES;
use skep_wire::cache::link::MemberId;
use skep_wire::cache::{Held, ReplicaStatus, SegmentName};

use crate::origin::Chunk;

/// Bytes that were evicted and are offered to other nodes.
const LEAVING_BYTES_MAX: u64 = 2 << 20;
/// Segments of each queue that are listed in a request to a coordinator.
const TAIL: usize = 4;

/// A complete segment.
pub(crate) struct Kept {
    pub(crate) bytes: u32,
    pub(crate) chunks: Rc<[Chunk]>,
    /// Whether it is the first of several segments.
    pub(crate) is_first: bool,
    replica_status: Cell<ReplicaStatus>,
    chances: Cell<u8>,
    /// How often it was passed on since its last request.
    passes: Cell<u8>,
    frequency: Cell<u8>,
}

impl Kept {
    pub(crate) fn new(bytes: u32, chunks: Rc<[Chunk]>, is_first: bool) -> Self {
        let (replica_status, chances) = (Cell::default(), Cell::new(CHANCES));
        let (passes, frequency) = (Cell::new(0), Cell::new(0));
        Self { bytes, chunks, is_first, replica_status, chances, passes, frequency }
    }

    /// The segment after it was passed on by this offer.
    pub(crate) fn passed_on(self, offered: &Offered) -> Self {
        assert!(offered.passes < CHANCES, "{offered:?} is passed on for ever");
        self.passes.set(offered.passes + 1);
        self.chances.set(offered.chances);
        self
    }
}

impl CacheEntry for Kept {
    fn bytes(&self) -> u64 {
        u64::from(self.bytes)
    }

    fn frequency(&self) -> u8 {
        self.frequency.get()
    }

    fn set_frequency(&self, frequency: u8) {
        self.frequency.set(frequency);
    }

    fn frequency_at_first(&self) -> u8 {
        if self.is_first { PROMOTION_HITS } else { 0 }
    }
}

/// A segment to be offered.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Offered {
    pub(crate) name: SegmentName,
    pub(crate) bytes: u32,
    pub(crate) chances: u8,
    passes: u8,
    /// The node that may hold it, too, and is asked first.
    pub(crate) successor: Option<MemberId>,
}

/// The hasher is the same in every run.
pub(crate) struct Memory {
    index: S3Fifo<SegmentName, Kept, BuildHasherDefault<DefaultHasher>>,
    leaving: BTreeMap<SegmentName, Kept>,
    /// Segments that have not been offered yet, in order.
    waiting: VecDeque<(SegmentName, u8)>,
    /// Whether another node has room, according to the last answer.
    is_wanted: bool,
    evicted: u64,
    /// The numbers of segments held and evicted at the last request about the tail.
    tail_of: (usize, u64),
    /// Additions and evictions since the last report, in order.
    changes: Vec<(SegmentName, Option<u32>)>,
}

impl Memory {
    pub(crate) fn new(capacity_bytes: u64) -> Self {
        Self {
            index: S3Fifo::with_hasher(capacity_bytes, BuildHasherDefault::default()),
            leaving: BTreeMap::new(),
            waiting: VecDeque::new(),
            is_wanted: false,
            evicted: 0,
            tail_of: (0, 0),
            changes: Vec::new(),
        }
    }

    pub(crate) fn capacity_bytes(&self) -> u64 {
        self.index.capacity_bytes()
    }

    pub(crate) fn has(&self, name: &SegmentName) -> bool {
        self.kept(name).is_some()
    }

    /// The chunks of a segment, for a reader.
    pub(crate) fn find(&self, name: &SegmentName) -> Option<Rc<[Chunk]>> {
        let kept = self.kept(name)?;
        kept.touch();
        kept.chances.set(CHANCES);
        kept.passes.set(0);
        Some(Rc::clone(&kept.chunks))
    }

    /// The same for a client of this node: a segment being evicted stays.
    pub(crate) fn acquire(&mut self, name: &SegmentName) -> Option<Rc<[Chunk]>> {
        if let Some(kept) = self.leaving.remove(name)
            && !self.insert(*name, kept)
        {
            self.changes.push((*name, None));
        }
        self.find(name)
    }

    /// Keeps a segment, and evicts others for it. `is_copy`: it was read from a node that keeps it.
    pub(crate) fn keep(&mut self, name: SegmentName, kept: Kept, is_copy: bool) {
        let bytes = kept.bytes;
        if !self.has(&name) && self.insert(name, kept) {
            if is_copy {
                self.index.set_redundant(&name, true);
            }
            self.changes.push((name, Some(bytes)));
        }
    }

    /// Keeps an offered segment. If there is room, only redundant replicas are evicted, unless they
    /// were hit repeatedly.
    pub(crate) fn take_in(&mut self, name: SegmentName, kept: Kept) {
        let (is_new, bytes) = (!self.has(&name), u64::from(kept.bytes));
        let Room { free_bytes, redundant_bytes } = self.room();
        let room =
            Room { free_bytes, redundant_bytes: redundant_bytes.min(self.cold_redundant_bytes()) };
        let has_room = keep::accepts(room, kept.bytes);
        let of_others = |it: &Self| it.index.bytes() - it.index.redundant_bytes();
        let before = of_others(self);
        self.keep(name, kept, false);
        if is_new && has_room {
            assert_eq!(of_others(self), before + bytes, "a sole replica left for a sole replica");
        }
    }

    /// The segments among `names` that are held.
    pub(crate) fn held(&self, names: &[SegmentName]) -> Vec<Held> {
        let held = |&name: &SegmentName| Some(Held { name, bytes: self.kept(&name)?.bytes });
        names.iter().filter_map(held).collect()
    }

    pub(crate) fn names(&self) -> Vec<SegmentName> {
        self.index.keys().chain(self.leaving.keys()).copied().collect()
    }

    pub(crate) fn changes(&mut self) -> std::vec::Drain<'_, (SegmentName, Option<u32>)> {
        self.changes.drain(..)
    }

    /// Room for sole replicas of other nodes.
    pub(crate) fn room(&self) -> Room {
        Room {
            free_bytes: self.index.capacity_bytes() - self.index.bytes(),
            redundant_bytes: self.index.dispensable_bytes(),
        }
    }

    /// The segments to be evicted next, if they have changed.
    pub(crate) fn tail(&mut self) -> Option<Vec<SegmentName>> {
        let now = (self.index.len(), self.evicted);
        let is_full = self.index.bytes() >= self.index.capacity_bytes() / 4 * 3;
        if now == self.tail_of || !is_full {
            return None;
        }
        self.tail_of = now;
        Some(self.index.oldest(TAIL).map(|(&name, _)| name).collect())
    }

    pub(crate) fn set_replica_statuses(
        &mut self,
        names: &[SegmentName],
        replica_statuses: &[ReplicaStatus],
        has_room: bool,
    ) {
        self.is_wanted = has_room;
        for (name, &replica_status) in names.iter().zip(replica_statuses) {
            if let Some(kept) = self.index.get(name) {
                kept.replica_status.set(replica_status);
                self.index.set_redundant(name, replica_status == ReplicaStatus::Redundant);
            }
        }
    }

    /// Promotes the replica held here: from now on it counts as the sole one. Returns false if
    /// there is none.
    pub(crate) fn promote_replica(&mut self, name: &SegmentName) -> bool {
        let Some(kept) = self.index.get(name) else { return false };
        kept.replica_status.set(ReplicaStatus::Sole);
        self.index.set_redundant(name, false);
        true
    }

    /// The next replica to be offered to another node; it is found until [`Self::left`].
    pub(crate) fn next_leaving(&mut self) -> Option<Offered> {
        while let Some((name, chances)) = self.waiting.pop_front() {
            if let Some(kept) = self.leaving.get(&name) {
                let (successor, passes) =
                    (kept.replica_status.get().successor(), kept.passes.get());
                return Some(Offered { name, bytes: kept.bytes, chances, passes, successor });
            }
        }
        None
    }

    /// Whether it is being evicted, and was not taken back for a client.
    pub(crate) fn is_leaving(&self, name: &SegmentName) -> bool {
        self.leaving.contains_key(name)
    }

    /// It was passed on, or dropped.
    pub(crate) fn left(&mut self, name: &SegmentName) {
        if self.leaving.remove(name).is_some() {
            self.changes.push((*name, None));
        }
    }

    /// No known node has room: waiting segments are dropped.
    pub(crate) fn stop_offering(&mut self) {
        self.is_wanted = false;
        while let Some((name, _)) = self.waiting.pop_front() {
            self.left(&name);
        }
    }

    fn kept(&self, name: &SegmentName) -> Option<&Kept> {
        self.index.get(name).or_else(|| self.leaving.get(name))
    }

    fn insert(&mut self, name: SegmentName, kept: Kept) -> bool {
        let mut evicted = Vec::new();
        let is_kept = self.index.insert(name, kept, &mut evicted).is_ok();
        self.evicted += evicted.len() as u64;
        evicted.into_iter().for_each(|(name, kept)| self.evicted(name, kept));
        self.check();
        is_kept
    }

    fn evicted(&mut self, name: SegmentName, kept: Kept) {
        let replica_status = kept.replica_status.get();
        let fits = self.leaving_bytes() + u64::from(kept.bytes) <= LEAVING_BYTES_MAX;
        let is_wanted = self.is_wanted || replica_status.successor().is_some();
        match keep::offer(replica_status, kept.chances.get()).filter(|_| fits && is_wanted) {
            Some(chances) => {
                self.leaving.insert(name, kept);
                self.waiting.push_back((name, chances));
            }
            None => self.changes.push((name, None)),
        }
    }

    /// Bytes of redundant replicas that were not hit since they were last examined.
    fn cold_redundant_bytes(&self) -> u64 {
        let mut redundant_bytes = 0;
        // Redundant replicas come first.
        let redundant = self.index.oldest(usize::MAX).map(|(_, kept)| kept).take_while(|kept| {
            redundant_bytes += u64::from(kept.bytes);
            redundant_bytes <= self.index.redundant_bytes()
        });
        redundant.filter(|kept| kept.frequency() == 0).map(|kept| u64::from(kept.bytes)).sum()
    }

    fn leaving_bytes(&self) -> u64 {
        self.leaving.values().map(|kept| u64::from(kept.bytes)).sum()
    }

    fn check(&self) {
        let bytes: u64 = self.index.iter().map(|(_, kept)| u64::from(kept.bytes)).sum();
        assert_eq!(bytes, self.index.bytes(), "bytes are not those of what is there");
        assert!(bytes <= self.index.capacity_bytes(), "{bytes} bytes are beyond its budget");
        assert!(self.leaving_bytes() <= LEAVING_BYTES_MAX, "too much is on its way out");
        assert!(
            self.leaving.keys().all(|name| self.index.get(name).is_none()),
            "it is there twice"
        );
    }
}
