//! A segment: up to 4 MiB of one version of one object, readable while it grows.
//!
//! Bytes arrive in chunks, in order, each set once and never changed; readers wait for as many
//! as they need. The `Arc` around a segment is its pin: while a reply holds it, the segment stays
//! in memory, whether or not it is still in the cache.
//!
//! Small segments are on the heap and are copied into the socket; larger ones have a place in
//! a memory file ([`crate::arena`]), which the kernel sends without a copy.

use std::collections::HashMap;
use std::io;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Context, Poll, Waker};

use skep_cache::{CacheEntry, FREQUENCY_MAX, PROMOTION_HITS};
use skep_directory::limits::CHANCES;
use skep_peer::stream::Chunk;
use skep_serve::{FilePart, SharedBytes, SharedSlice};
use skep_wire::cache::ReplicaStatus;
use skep_wire::cache::link::MemberId;
use skep_wire::seal::PeerId;

use crate::account::allocated;
use crate::arena::{Extent, Ledger};
use crate::fetch_error::FetchError;
use crate::limits::{CHUNK_BYTES, SEGMENT_COST_BYTES};

/// Where a segment's bytes live.
#[derive(Debug)]
pub enum Placement {
    /// On the heap, accounted in the ledger.
    Heap(Arc<Ledger>),
    /// In a region.
    Place(Extent),
}

/// The source of the next bytes of a growing segment.
pub type PeerFillSource = skep_directory::FillSource<PeerId>;

/// Identity of a waker: its data and its functions. Thousands of readers may wait for one
/// segment, each for every chunk.
type WakerId = (usize, usize);

#[derive(Debug)]
enum Content {
    Heap { chunks: Box<[OnceLock<Box<[u8]>>]>, ledger: Arc<Ledger> },
    Place(Extent),
}

const STATUS_SOLE: u32 = u32::MAX;
const STATUS_REDUNDANT: u32 = u32::MAX - 1;

/// One segment of an object.
#[derive(Debug)]
pub struct Segment {
    bytes: u32,
    content: Content,
    filled: AtomicU32,
    /// Why no further chunk will arrive.
    failed: OnceLock<FetchError>,
    /// Whether its version was forgotten during the fill.
    forgotten: AtomicBool,
    frequency: AtomicU8,
    waiters: Mutex<HashMap<WakerId, Waker>>,
    /// Checksum of each chunk; empty if no other node reads this segment.
    checksums: Box<[AtomicU32]>,
    fill_source: Mutex<PeerFillSource>,
    /// Whether bytes came from another node's memory.
    is_from_peer: AtomicBool,
    /// Whether it is the first segment of an object that has more.
    is_first: bool,
    /// [`ReplicaStatus`] as last reported by a coordinator: one of the constants above, or the
    /// successor.
    replica_status: AtomicU32,
    /// The number of times it may still be passed on to another node.
    chances: AtomicU8,
}

impl Segment {
    /// Creates an empty segment for `bytes` bytes, from 1 to 4 MiB.
    pub fn new(bytes: u32, home: Placement) -> Self {
        assert!(bytes > 0 && u64::from(bytes) <= skep_units::SEGMENT_BYTES, "{bytes} bytes");
        let content = match home {
            Placement::Place(place) => Content::Place(place),
            Placement::Heap(ledger) => {
                let chunks = (bytes as usize).div_ceil(CHUNK_BYTES);
                Content::Heap { chunks: (0..chunks).map(|_| OnceLock::new()).collect(), ledger }
            }
        };
        let segment = Self {
            bytes,
            content,
            filled: AtomicU32::new(0),
            failed: OnceLock::new(),
            forgotten: AtomicBool::new(false),
            frequency: AtomicU8::new(0),
            waiters: Mutex::default(),
            checksums: Box::default(),
            fill_source: Mutex::default(),
            is_from_peer: AtomicBool::new(false),
            is_first: false,
            replica_status: AtomicU32::new(STATUS_SOLE),
            chances: AtomicU8::new(CHANCES),
        };
        segment.ledger().take(segment.own_bytes());
        segment
    }

    /// Marks the segment as the first of an object that has more, where playback and downloads
    /// begin. It is kept longer.
    pub fn with_more_behind(mut self) -> Self {
        self.is_first = true;
        self
    }

    /// Makes the segment readable by other nodes: chunks get checksums as they arrive.
    pub fn with_checksums(mut self) -> Self {
        let chunks = (self.bytes as usize).div_ceil(CHUNK_BYTES);
        self.checksums = (0..chunks).map(|_| AtomicU32::new(0)).collect();
        self
    }

    /// Returns the checksum of a chunk that has arrived.
    pub fn checksum(&self, chunk: u32) -> Option<u32> {
        self.checksums.get(chunk as usize).map(|checksum| checksum.load(Ordering::Relaxed))
    }

    fn ledger(&self) -> &Ledger {
        match &self.content {
            Content::Heap { ledger, .. } => ledger,
            Content::Place(place) => place.region().ledger(),
        }
    }

    /// Returns the bytes of memory used, without those of its place in a region.
    fn own_bytes(&self) -> u64 {
        match &self.content {
            Content::Heap { .. } => allocated(self.bytes as usize) + SEGMENT_COST_BYTES,
            Content::Place(_) => SEGMENT_COST_BYTES,
        }
    }

    /// Sets the source of the next bytes.
    pub fn set_fill_source(&self, fill_source: PeerFillSource) {
        *self.fill_source.lock().unwrap_or_else(PoisonError::into_inner) = fill_source;
        if matches!(fill_source, PeerFillSource::Peer { .. }) {
            self.is_from_peer.store(true, Ordering::Relaxed);
        }
    }

    /// Whether another node's memory was asked for some of its bytes.
    pub fn is_from_peer(&self) -> bool {
        self.is_from_peer.load(Ordering::Relaxed)
    }

    /// Prevents the segment from being kept once it is complete.
    pub fn forget(&self) {
        self.forgotten.store(true, Ordering::Relaxed);
    }

    /// Whether [`Segment::forget`] was called.
    pub fn is_forgotten(&self) -> bool {
        self.forgotten.load(Ordering::Relaxed)
    }

    /// Whether its last bytes came from another node, which keeps them.
    pub fn is_copy(&self) -> bool {
        self.fill_source() != PeerFillSource::Local
    }

    /// Whether it is complete, or its fill waits for no other node.
    pub fn grows_from_here(&self) -> bool {
        self.is_complete() || self.fill_source() == PeerFillSource::Local
    }

    /// Returns the status of this replica relative to those of other nodes.
    pub fn replica_status(&self) -> ReplicaStatus {
        match self.replica_status.load(Ordering::Relaxed) {
            STATUS_SOLE => ReplicaStatus::Sole,
            STATUS_REDUNDANT => ReplicaStatus::Redundant,
            successor => ReplicaStatus::Primary { successor: successor as MemberId },
        }
    }

    /// Sets the status of this replica, as reported by a coordinator.
    pub fn set_replica_status(&self, replica_status: ReplicaStatus) {
        let told = match replica_status {
            ReplicaStatus::Sole => STATUS_SOLE,
            ReplicaStatus::Redundant => STATUS_REDUNDANT,
            ReplicaStatus::Primary { successor } => u32::from(successor),
        };
        self.replica_status.store(told, Ordering::Relaxed);
    }

    /// Returns the number of times it may still be passed on without a request for it.
    pub fn chances(&self) -> u8 {
        self.chances.load(Ordering::Relaxed)
    }

    /// Sets the chances of a segment that another node passed on.
    pub fn set_chances(&self, chances: u8) {
        self.chances.store(chances, Ordering::Relaxed);
    }

    /// Copies the state of `old`, of which this segment is a copy in another place.
    pub fn take_after(&self, old: &Self) {
        self.set_fill_source(old.fill_source());
        self.is_from_peer.store(old.is_from_peer(), Ordering::Relaxed);
        self.set_replica_status(old.replica_status());
        self.set_chances(old.chances());
    }

    /// Whether `peer` may read this segment while it grows: nodes must not wait for each other
    /// in a circle.
    pub fn may_serve(&self, peer: PeerId) -> bool {
        self.is_complete() || self.fill_source().may_serve(&peer)
    }

    fn fill_source(&self) -> PeerFillSource {
        *self.fill_source.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the bytes `start..end`, which lie in one chunk and have arrived, for another
    /// node.
    pub fn shared_chunk(self: &Arc<Self>, start: u32, end: u32) -> Option<Chunk> {
        let (chunk, offset) = locate(start);
        // A part of a chunk has no checksum of its own.
        let is_whole = offset == 0 && (end == self.bytes || end.is_multiple_of(CHUNK_BYTES as u32));
        let checksum = self.checksum(chunk).filter(|_| is_whole)?;
        let bytes = self.slice(start, end).filter(|bytes| bytes.len() == end - start)?;
        Some(Chunk { bytes, checksum })
    }

    /// Returns the bytes from `at` to at most `end` that have arrived and are contiguous in
    /// memory; `None` if there are none.
    pub fn slice(self: &Arc<Self>, at: u32, end: u32) -> Option<SharedSlice> {
        let end = end.min(self.filled());
        let bytes = end.checked_sub(at).filter(|bytes| *bytes > 0)?;
        let (chunk, range) = match &self.content {
            Content::Place(_) => (0, at..end),
            Content::Heap { .. } => {
                let (chunk, offset) = locate(at);
                (chunk, offset..(offset + bytes).min(CHUNK_BYTES as u32))
            }
        };
        SharedSlice::of(Arc::clone(self) as Arc<dyn SharedBytes>, chunk, range)
    }

    /// Returns the length when complete, in bytes.
    #[expect(clippy::len_without_is_empty, reason = "no segment is empty")]
    pub fn len(&self) -> u32 {
        self.bytes
    }

    /// Whether every byte has arrived.
    pub fn is_complete(&self) -> bool {
        self.filled.load(Ordering::Acquire) == self.bytes
    }

    /// Returns the number of bytes that have arrived.
    pub fn filled(&self) -> u32 {
        self.filled.load(Ordering::Acquire)
    }

    /// Returns the bytes of a segment that is a single chunk on the heap.
    pub fn heap_bytes(&self) -> Option<&[u8]> {
        match &self.content {
            Content::Heap { chunks, .. } if chunks.len() == 1 => chunks[0].get().map(|c| &**c),
            _ => None,
        }
    }

    /// Returns the segment's place if it is in a region.
    pub fn place(&self) -> Option<&Extent> {
        match &self.content {
            Content::Heap { .. } => None,
            Content::Place(place) => Some(place),
        }
    }

    /// Copies the bytes that have arrived from `at` on to `to`, as far as they fit; returns
    /// their number.
    pub fn read(&self, at: u32, to: &mut [u8]) -> io::Result<usize> {
        let there = self.filled().saturating_sub(at) as usize;
        let bytes = there.min(to.len());
        let mut rest = &mut to[..bytes];
        match &self.content {
            Content::Place(place) => place.read(rest, at)?,
            Content::Heap { chunks, .. } => {
                let (first, mut from) = locate(at);
                for chunk in chunks[first as usize..].iter().map_while(OnceLock::get) {
                    let chunk = &chunk[from as usize..];
                    let some = chunk.len().min(rest.len());
                    let (now, later) = rest.split_at_mut(some);
                    now.copy_from_slice(&chunk[..some]);
                    (rest, from) = (later, 0);
                }
            }
        }
        Ok(bytes)
    }

    /// Returns the size of the next chunk; 0 when complete.
    pub fn next_chunk_bytes(&self) -> usize {
        ((self.bytes - self.filled()) as usize).min(CHUNK_BYTES)
    }

    /// Adds the next chunk, of exactly [`Segment::next_chunk_bytes`] bytes. Called only by the
    /// one filler. Fails only for lack of memory.
    pub fn publish(&self, chunk: &[u8]) -> io::Result<()> {
        let filled = self.filled();
        let (index, offset) = locate(filled);
        assert_eq!(offset, 0, "chunks are whole");
        assert_eq!(chunk.len(), self.next_chunk_bytes(), "chunks are whole");
        let len = chunk.len() as u32;
        match &self.content {
            Content::Heap { chunks, .. } => {
                let set = chunks[index as usize].set(chunk.into());
                assert!(set.is_ok(), "a chunk is set once");
            }
            Content::Place(place) => place.write(chunk, filled)?,
        }
        if let Some(checksum) = self.checksums.get(index as usize) {
            checksum.store(skep_wire::cache::frame::checksum(chunk), Ordering::Relaxed);
        }
        self.filled.store(filled + len, Ordering::Release);
        self.wake();
        Ok(())
    }

    /// Ends the fill: no further chunk will arrive, because of `error`. Readers may still read
    /// the bytes that have arrived.
    pub fn fail(&self, error: FetchError) {
        // The first error is the cause.
        let _ = self.failed.set(error);
        self.wake();
    }

    /// Ready with the number of arrived bytes when it exceeds `have`. Fails when no more will
    /// arrive, as no reader may wait for bytes that no segment holds.
    pub fn poll_more(&self, cx: &Context<'_>, have: u32) -> Poll<Result<u32, FetchError>> {
        let look = || {
            let filled = self.filled();
            match filled > have {
                true => Some(Ok(filled)),
                false => {
                    let is_whole = (filled == self.bytes).then_some(FetchError::Abandoned);
                    is_whole.or_else(|| self.failed.get().copied()).map(Err)
                }
            }
        };
        if let Some(ready) = look() {
            return Poll::Ready(ready);
        }
        let mut waiters = self.waiters();
        // Check again under the lock: publishers take it afterwards.
        if let Some(ready) = look() {
            return Poll::Ready(ready);
        }
        let waker = cx.waker();
        let id = (waker.data() as usize, ptr::from_ref(waker.vtable()) as usize);
        waiters.entry(id).or_insert_with(|| waker.clone());
        Poll::Pending
    }

    fn wake(&self) {
        let waiters = std::mem::take(&mut *self.waiters());
        waiters.into_values().for_each(Waker::wake);
    }

    fn waiters(&self) -> MutexGuard<'_, HashMap<WakerId, Waker>> {
        self.waiters.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Segment {
    fn drop(&mut self) {
        self.ledger().give_back(self.own_bytes());
    }
}

impl SharedBytes for Segment {
    fn chunk(&self, chunk: u32) -> &[u8] {
        match &self.content {
            Content::Heap { chunks, .. } => chunks[chunk as usize].get().map_or(&[], |bytes| bytes),
            Content::Place(_) => &[],
        }
    }

    fn file(&self) -> Option<FilePart<'_>> {
        let (file, offset) = self.place()?.file();
        Some(FilePart { file, offset, bytes: self.filled() })
    }
}

const _: () = assert!(size_of::<Segment>() <= 240, "as `SEGMENT_COST_BYTES` says");
const _: () = assert!(CHUNK_BYTES == skep_wire::limits::PEER_CHUNK_BYTES as usize);

/// Returns the chunk of the byte at `offset` of a segment on the heap, and the offset in it.
fn locate(offset: u32) -> (u32, u32) {
    (offset / CHUNK_BYTES as u32, offset % CHUNK_BYTES as u32)
}

impl CacheEntry for Segment {
    fn bytes(&self) -> u64 {
        match &self.content {
            Content::Heap { .. } => self.own_bytes(),
            Content::Place(_) => self.own_bytes() + u64::from(self.bytes),
        }
    }

    fn frequency(&self) -> u8 {
        self.frequency.load(Ordering::Relaxed)
    }

    fn set_frequency(&self, frequency: u8) {
        self.frequency.store(frequency, Ordering::Relaxed);
    }

    fn frequency_at_first(&self) -> u8 {
        if self.is_first { PROMOTION_HITS } else { 0 }
    }

    fn touch(&self) {
        let frequency = self.frequency();
        if frequency < FREQUENCY_MAX {
            self.set_frequency(frequency + 1);
        }
        if self.chances() < CHANCES {
            self.set_chances(CHANCES);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use crate::arena::Arena;

    /// Returns a segment of each kind: on the heap and in a region.
    fn both(bytes: u32) -> [Segment; 2] {
        let name = skep_wire::cache::SegmentName([0; 16]);
        let place = Arena::new(&Arc::default(), 1).place(name, bytes).unwrap();
        [
            Segment::new(bytes, Placement::Heap(Arc::default())),
            Segment::new(bytes, Placement::Place(place)),
        ]
    }

    #[test]
    fn readers_see_what_is_there_and_are_woken_by_more() {
        for segment in both(CHUNK_BYTES as u32 + 10) {
            let cx = Context::from_waker(Waker::noop());
            assert!(segment.poll_more(&cx, 0).is_pending());
            segment.publish(&[7; CHUNK_BYTES]).unwrap();
            assert_eq!(segment.poll_more(&cx, 0), Poll::Ready(Ok(CHUNK_BYTES as u32)));
            assert!(segment.poll_more(&cx, CHUNK_BYTES as u32).is_pending());
            assert_eq!(segment.next_chunk_bytes(), 10);
            segment.publish(&[8; 10]).unwrap();
            assert!(segment.is_complete());
            let all = CHUNK_BYTES as u32 + 10;
            let none = Poll::Ready(Err(FetchError::Abandoned));
            assert_eq!(segment.poll_more(&cx, all), none, "no more comes");
        }
    }

    #[test]
    fn a_thousand_readers_are_woken_once_each_however_often_they_looked() {
        #[derive(Default)]
        struct Woken(AtomicU32);
        impl std::task::Wake for Woken {
            fn wake(self: Arc<Self>) {
                self.0.fetch_add(1, Ordering::Relaxed);
            }
        }
        let [segment, _] = both(CHUNK_BYTES as u32 + 10);
        let readers: Vec<_> = (0..1_000).map(|_| Arc::<Woken>::default()).collect();
        for _ in 0..3 {
            for reader in &readers {
                let waker = Waker::from(Arc::clone(reader));
                assert!(segment.poll_more(&Context::from_waker(&waker), 0).is_pending());
            }
        }
        segment.publish(&[7; CHUNK_BYTES]).unwrap();
        assert!(readers.iter().all(|reader| reader.0.load(Ordering::Relaxed) == 1));
    }

    #[test]
    fn slices_cover_what_is_there_and_no_more_wherever_it_lives() {
        let (chunk, half) = (CHUNK_BYTES as u32, CHUNK_BYTES as u32 / 2);
        let [heap, file] = both(chunk + half).map(Arc::new);
        assert!(heap.file().is_none() && file.file().is_some());
        let bytes = |of: &Arc<Segment>, at, end| of.slice(at, end).map(|slice| slice.len());
        for segment in [&heap, &file] {
            assert_eq!(bytes(segment, 0, chunk), None, "none are there");
            segment.publish(&[7; CHUNK_BYTES]).unwrap();
            assert_eq!(bytes(segment, half, chunk + 1), Some(half), "the next chunk is not there");
            assert_eq!(bytes(segment, chunk, chunk + 1), None);
            segment.publish(&[7; CHUNK_BYTES / 2]).unwrap();
            assert_eq!(bytes(segment, chunk, u32::MAX), Some(half), "it ends there");
            assert_eq!(bytes(segment, chunk + half, u32::MAX), None);
            assert_eq!(bytes(segment, half, 1), None);
        }
        assert_eq!(bytes(&heap, half, chunk + 1), Some(half), "two pieces of the heap");
        assert_eq!(bytes(&file, half, chunk + 1), Some(half + 1));
    }

    #[test]
    fn copies_are_of_what_is_there_wherever_it_lives() {
        for segment in both(2 * CHUNK_BYTES as u32) {
            let chunk = CHUNK_BYTES as u32;
            let read = |at, room| {
                let mut copy = vec![0; room];
                let bytes = segment.read(at, &mut copy).unwrap();
                copy[..bytes].to_vec()
            };
            segment.publish(&[7; CHUNK_BYTES]).unwrap();
            assert_eq!(read(chunk - 2, 5), [7, 7]);
            segment.publish(&[8; CHUNK_BYTES]).unwrap();
            assert_eq!(read(chunk - 2, 5), [7, 7, 8, 8, 8]);
            assert_eq!((read(2 * chunk, 5), read(chunk, 0)), (vec![], vec![]));
        }
    }

    #[test]
    fn a_failed_fill_ends_every_wait_but_keeps_what_is_there() {
        for segment in both(2 * CHUNK_BYTES as u32) {
            let cx = Context::from_waker(Waker::noop());
            segment.publish(&[7; CHUNK_BYTES]).unwrap();
            segment.fail(FetchError::Peer);
            assert_eq!(segment.poll_more(&cx, 5), Poll::Ready(Ok(CHUNK_BYTES as u32)));
            assert_eq!(
                segment.poll_more(&cx, CHUNK_BYTES as u32),
                Poll::Ready(Err(FetchError::Peer))
            );
        }
    }

    #[test]
    fn the_ledger_counts_what_is_alive() {
        let ledger = Arc::<Ledger>::default();
        let segment = Segment::new(100, Placement::Heap(Arc::clone(&ledger)));
        assert_eq!(ledger.bytes(), segment.bytes());
        assert!(segment.bytes() > 100 + size_of::<Segment>() as u64, "what it is, too");
        drop(segment);
        assert_eq!(ledger.bytes(), 0);
    }
}
