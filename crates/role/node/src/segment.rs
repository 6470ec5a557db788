//! A segment: up to 4 MiB of one version of one object, readable while it grows.
//!
//! Bytes arrive in chunks, in order, each set once and never changed; readers
//! wait for as many as they need. The `Arc` around a segment is the pin: while
//! a reply holds it its memory stays, whether or not the cache still knows it.
//!
//! Small segments live on the heap and are copied into the socket; from 64 KiB
//! on a segment is a memory file of its own, which the kernel sends without a
//! copy. Pages of such a file can sit in a socket's queue long after they count
//! as sent, so a byte of it is written once and the file is never reused.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Context, Poll, Waker};

use rustix::fs::{MemfdFlags, memfd_create};
use skep_cache::Entry;
use skep_serve::SharedBytes;

use crate::limits::{CHUNK_BYTES, MEMORY_FILE_BYTES_MIN};

/// The segment's source failed or changed before it was complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the source of a segment failed or changed while it was read")]
pub(crate) struct FillFailed;

/// Bytes of segments alive, counted where they are made and dropped: what the
/// index holds and what only replies still pin.
#[derive(Debug)]
pub(crate) struct Ledger {
    bytes: AtomicU64,
    files: AtomicU64,
    files_max: u64,
}

impl Ledger {
    /// Nothing alive; at most `files_max` segments may be memory files, since
    /// each takes a descriptor.
    pub(crate) fn new(files_max: u64) -> Arc<Self> {
        Arc::new(Self { bytes: AtomicU64::new(0), files: AtomicU64::new(0), files_max })
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// A memory file, unless there are too many or the kernel has none.
    fn memory_file(&self) -> Option<OwnedFd> {
        if self.files.fetch_add(1, Ordering::Relaxed) < self.files_max
            && let Ok(file) = memfd_create(c"skep-segment", MemfdFlags::CLOEXEC)
        {
            return Some(file);
        }
        self.files.fetch_sub(1, Ordering::Relaxed);
        None
    }
}

#[derive(Debug)]
enum Bytes {
    Heap(Box<[OnceLock<Box<[u8]>>]>),
    File(OwnedFd),
}

/// One segment. See the module.
#[derive(Debug)]
pub(crate) struct Segment {
    bytes: u32,
    content: Bytes,
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
        ledger.bytes.fetch_add(u64::from(bytes), Ordering::Relaxed);
        let file = (bytes >= MEMORY_FILE_BYTES_MIN).then(|| ledger.memory_file()).flatten();
        let content = file.map_or_else(
            || {
                let chunks = (bytes as usize).div_ceil(CHUNK_BYTES);
                Bytes::Heap((0..chunks).map(|_| OnceLock::new()).collect())
            },
            Bytes::File,
        );
        Self {
            bytes,
            content,
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

    /// The contiguous run of bytes at `at`, up to `end`: its chunk, and the
    /// start and end in it.
    pub(crate) fn run(&self, at: u32, end: u32) -> (u32, u32, u32) {
        match &self.content {
            Bytes::File(_) => (0, at, end),
            Bytes::Heap(_) => {
                let (chunk, offset) = locate(at);
                (chunk, offset, (offset + (end - at)).min(CHUNK_BYTES as u32))
            }
        }
    }

    /// The bytes of a segment so small that it is one chunk on the heap.
    pub(crate) fn small_bytes(&self) -> &[u8] {
        debug_assert!(self.bytes < MEMORY_FILE_BYTES_MIN, "{} bytes", self.bytes);
        self.chunk(0)
    }

    /// Size of the chunk that comes next; 0 when complete.
    pub(crate) fn next_chunk_bytes(&self) -> usize {
        ((self.bytes - self.filled()) as usize).min(CHUNK_BYTES)
    }

    /// Adds the next chunk, of exactly [`Segment::next_chunk_bytes`] bytes.
    /// There is one filler, which calls this. Fails only for want of memory.
    pub(crate) fn publish(&self, chunk: Box<[u8]>) -> io::Result<()> {
        let filled = self.filled();
        let (index, offset) = locate(filled);
        assert_eq!(offset, 0, "chunks are whole");
        assert_eq!(chunk.len(), self.next_chunk_bytes(), "chunks are whole");
        let len = chunk.len() as u32;
        match &self.content {
            Bytes::Heap(chunks) => {
                let set = chunks[index as usize].set(chunk);
                assert!(set.is_ok(), "a chunk is set once");
            }
            Bytes::File(file) => write_all_at(file, &chunk, u64::from(filled))?,
        }
        self.filled.store(filled + len, Ordering::Release);
        self.wake();
        Ok(())
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
        self.ledger.bytes.fetch_sub(u64::from(self.bytes), Ordering::Relaxed);
        if matches!(self.content, Bytes::File(_)) {
            self.ledger.files.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl SharedBytes for Segment {
    fn chunk(&self, chunk: u32) -> &[u8] {
        match &self.content {
            Bytes::Heap(chunks) => chunks[chunk as usize].get().map_or(&[], |bytes| bytes),
            Bytes::File(_) => &[],
        }
    }

    fn file(&self) -> Option<BorrowedFd<'_>> {
        match &self.content {
            Bytes::Heap(_) => None,
            Bytes::File(file) => Some(file.as_fd()),
        }
    }
}

/// Where the byte at `offset` is on the heap: its chunk and the offset in it.
fn locate(offset: u32) -> (u32, u32) {
    (offset / CHUNK_BYTES as u32, offset % CHUNK_BYTES as u32)
}

fn write_all_at(file: &OwnedFd, mut bytes: &[u8], mut offset: u64) -> io::Result<()> {
    while !bytes.is_empty() {
        match rustix::io::pwrite(file, bytes, offset) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => {
                bytes = &bytes[written..];
                offset += written as u64;
            }
            Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(())
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
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    /// Both kinds of segment: on the heap and in a memory file.
    fn both(bytes: u32) -> [Segment; 2] {
        [Segment::new(bytes, &Ledger::new(0)), Segment::new(bytes, &Ledger::new(1))]
    }

    #[test]
    fn readers_see_what_is_there_and_are_woken_by_more() {
        for segment in both(CHUNK_BYTES as u32 + 10) {
            let cx = Context::from_waker(Waker::noop());
            assert!(segment.poll_more(&cx, 0).is_pending());
            segment.publish(vec![7; CHUNK_BYTES].into()).unwrap();
            assert_eq!(segment.poll_more(&cx, 0), Poll::Ready(Ok(CHUNK_BYTES as u32)));
            assert!(segment.poll_more(&cx, CHUNK_BYTES as u32).is_pending());
            assert_eq!(segment.next_chunk_bytes(), 10);
            segment.publish(vec![8; 10].into()).unwrap();
            assert!(segment.is_complete());
        }
    }

    #[test]
    fn runs_cover_the_segment_wherever_it_lives() {
        let [heap, file] = both(2 * CHUNK_BYTES as u32);
        let (chunk, half) = (CHUNK_BYTES as u32, CHUNK_BYTES as u32 / 2);
        assert_eq!(heap.run(half, chunk + 1), (0, half, chunk));
        assert_eq!(heap.run(chunk, chunk + 1), (1, 0, 1));
        assert_eq!(file.run(half, chunk + 1), (0, half, chunk + 1));
        assert!(heap.file().is_none() && file.file().is_some());
    }

    #[test]
    fn a_failed_fill_ends_every_wait_but_keeps_what_is_there() {
        for segment in both(2 * CHUNK_BYTES as u32) {
            let cx = Context::from_waker(Waker::noop());
            segment.publish(vec![7; CHUNK_BYTES].into()).unwrap();
            segment.fail();
            assert_eq!(segment.poll_more(&cx, 5), Poll::Ready(Ok(CHUNK_BYTES as u32)));
            assert_eq!(segment.poll_more(&cx, CHUNK_BYTES as u32), Poll::Ready(Err(FillFailed)));
        }
    }

    #[test]
    fn the_ledger_counts_what_is_alive_and_bounds_descriptors() {
        let ledger = Ledger::new(1);
        let first = Segment::new(MEMORY_FILE_BYTES_MIN, &ledger);
        let second = Segment::new(MEMORY_FILE_BYTES_MIN, &ledger);
        assert!(first.file().is_some() && second.file().is_none());
        assert_eq!(ledger.bytes(), 2 * u64::from(MEMORY_FILE_BYTES_MIN));
        drop((first, second));
        assert_eq!(ledger.bytes(), 0);
        assert!(Segment::new(MEMORY_FILE_BYTES_MIN, &ledger).file().is_some());
    }
}
