//! A segment: up to 4 MiB of one version of one object, readable while it grows.
//!
//! Bytes arrive in chunks, in order, each set once and never changed; readers
//! wait for as many as they need. The `Arc` around a segment is the pin: while
//! a reply holds it its memory stays, whether or not the cache still knows it.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Context, Poll, Waker};

use skep_cache::Entry;
use skep_serve::SharedBytes;

use crate::limits::CHUNK_BYTES;

/// The segment's source failed or changed before it was complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the source of a segment failed or changed while it was read")]
pub(crate) struct FillFailed;

/// Bytes of segments alive, counted where they are made and dropped: what the
/// index holds and what only replies still pin.
#[derive(Debug, Default)]
pub(crate) struct Ledger(AtomicU64);

impl Ledger {
    pub(crate) fn bytes(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// One segment. See the module.
#[derive(Debug)]
pub(crate) struct Segment {
    bytes: u32,
    chunks: Box<[OnceLock<Box<[u8]>>]>,
    filled: AtomicU32,
    failed: AtomicBool,
    frequency: AtomicU8,
    waiters: Mutex<Vec<Waker>>,
    ledger: Arc<Ledger>,
}

impl Segment {
    /// An empty segment that will hold `bytes` bytes; not 0, at most 4 MiB.
    pub(crate) fn new(bytes: u32, ledger: &Arc<Ledger>) -> Self {
        assert!(bytes > 0 && u64::from(bytes) <= skep_units::SEGMENT_BYTES, "{bytes} bytes");
        ledger.0.fetch_add(u64::from(bytes), Ordering::Relaxed);
        let chunks = (bytes as usize).div_ceil(CHUNK_BYTES);
        Self {
            bytes,
            chunks: (0..chunks).map(|_| OnceLock::new()).collect(),
            filled: AtomicU32::new(0),
            failed: AtomicBool::new(false),
            frequency: AtomicU8::new(0),
            waiters: Mutex::default(),
            ledger: Arc::clone(ledger),
        }
    }

    /// Bytes when complete.
    pub(crate) fn len(&self) -> u32 {
        self.bytes
    }

    /// Whether every byte is there.
    pub(crate) fn is_complete(&self) -> bool {
        self.filled.load(Ordering::Acquire) == self.bytes
    }

    /// Bytes there so far.
    pub(crate) fn filled(&self) -> u32 {
        self.filled.load(Ordering::Acquire)
    }

    /// Where the byte at `offset` is: its chunk and the offset in it.
    pub(crate) fn locate(offset: u32) -> (u32, u32) {
        (offset / CHUNK_BYTES as u32, offset % CHUNK_BYTES as u32)
    }

    /// Size of the chunk that comes next; 0 when complete.
    pub(crate) fn next_chunk_bytes(&self) -> usize {
        ((self.bytes - self.filled()) as usize).min(CHUNK_BYTES)
    }

    /// Adds the next chunk, of exactly [`Segment::next_chunk_bytes`] bytes.
    /// There is one filler, which calls this.
    pub(crate) fn publish(&self, chunk: Box<[u8]>) {
        let filled = self.filled();
        let (index, offset) = Self::locate(filled);
        assert_eq!(offset, 0, "chunks are whole");
        assert_eq!(chunk.len(), self.next_chunk_bytes(), "chunks are whole");
        let len = chunk.len() as u32;
        let set = self.chunks[index as usize].set(chunk);
        assert!(set.is_ok(), "a chunk is set once");
        self.filled.store(filled + len, Ordering::Release);
        self.wake();
    }

    /// Says that no further chunk will come. Readers of what is there go on.
    pub(crate) fn fail(&self) {
        self.failed.store(true, Ordering::Release);
        self.wake();
    }

    /// Ready when more than `have` bytes are there, with their number.
    pub(crate) fn poll_more(&self, cx: &Context<'_>, have: u32) -> Poll<Result<u32, FillFailed>> {
        let look = || {
            let filled = self.filled();
            match filled > have {
                true => Some(Ok(filled)),
                false => self.failed.load(Ordering::Acquire).then_some(Err(FillFailed)),
            }
        };
        if let Some(ready) = look() {
            return Poll::Ready(ready);
        }
        let mut waiters = self.waiters();
        // Looked at again under the lock: whoever publishes takes it after.
        if let Some(ready) = look() {
            return Poll::Ready(ready);
        }
        if !waiters.iter().any(|waker| waker.will_wake(cx.waker())) {
            waiters.push(cx.waker().clone());
        }
        Poll::Pending
    }

    fn wake(&self) {
        let waiters = std::mem::take(&mut *self.waiters());
        waiters.into_iter().for_each(Waker::wake);
    }

    fn waiters(&self) -> MutexGuard<'_, Vec<Waker>> {
        self.waiters.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Segment {
    fn drop(&mut self) {
        self.ledger.0.fetch_sub(u64::from(self.bytes), Ordering::Relaxed);
    }
}

impl SharedBytes for Segment {
    fn chunk(&self, chunk: u32) -> &[u8] {
        self.chunks[chunk as usize].get().map_or(&[], |bytes| bytes)
    }
}

impl Entry for Segment {
    fn bytes(&self) -> u64 {
        u64::from(self.bytes)
    }

    fn frequency(&self) -> u8 {
        self.frequency.load(Ordering::Relaxed)
    }

    fn set_frequency(&self, frequency: u8) {
        self.frequency.store(frequency, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readers_see_what_is_there_and_are_woken_by_more() {
        let ledger = Arc::new(Ledger::default());
        let segment = Segment::new(CHUNK_BYTES as u32 + 10, &ledger);
        let cx = Context::from_waker(Waker::noop());
        assert!(segment.poll_more(&cx, 0).is_pending());
        segment.publish(vec![7; CHUNK_BYTES].into());
        assert_eq!(segment.poll_more(&cx, 0), Poll::Ready(Ok(CHUNK_BYTES as u32)));
        assert!(segment.poll_more(&cx, CHUNK_BYTES as u32).is_pending());
        assert_eq!(segment.next_chunk_bytes(), 10);
        segment.publish(vec![8; 10].into());
        assert!(segment.is_complete());
        assert_eq!(segment.chunk(1), &[8; 10]);
    }

    #[test]
    fn a_failed_fill_ends_every_wait_but_keeps_what_is_there() {
        let ledger = Arc::new(Ledger::default());
        let segment = Segment::new(2 * CHUNK_BYTES as u32, &ledger);
        let cx = Context::from_waker(Waker::noop());
        segment.publish(vec![7; CHUNK_BYTES].into());
        segment.fail();
        assert_eq!(segment.poll_more(&cx, 5), Poll::Ready(Ok(CHUNK_BYTES as u32)));
        assert_eq!(segment.poll_more(&cx, CHUNK_BYTES as u32), Poll::Ready(Err(FillFailed)));
    }

    #[test]
    fn the_ledger_counts_what_is_alive() {
        let ledger = Arc::new(Ledger::default());
        let segment = Segment::new(100, &ledger);
        assert_eq!(ledger.bytes(), 100);
        drop(segment);
        assert_eq!(ledger.bytes(), 0);
    }
}
