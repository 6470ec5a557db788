//! What the bodies of a process share: bounds, the folder, counters.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU64, fence};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Waker};
use std::time::Instant;

use rustix::fs::{Mode, OFlags};
use tokio::sync::Semaphore;

use crate::limits::{COMPLAINT_MS, READ_BYTES, TRANSFERS_MAX, WAKE_PART};

/// The bounds of a process, in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BufferLimits {
    /// Memory of all bodies together.
    pub memory_bytes_max: u64,
    /// Folder of the spool; `None`: bodies are kept in memory only.
    pub folder: Option<PathBuf>,
    /// Files of all bodies together.
    pub spool_bytes_max: u64,
    /// The file of one body.
    pub spool_body_bytes_max: u64,
}

/// Why a body gets no more room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shortage {
    /// The body has reached the limit for one body.
    Body,
    /// The memory of all bodies is in use.
    Memory,
    /// The spool of all bodies is in use.
    Spool,
    /// The disk is full, or failed.
    Disk,
    /// The disk did not finish within the timeout of a waiting reader.
    Slow,
}

impl Shortage {
    const ALL: [Self; 5] = [Self::Body, Self::Memory, Self::Spool, Self::Disk, Self::Slow];

    /// The name in metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Body => "body",
            Self::Memory => "memory",
            Self::Spool => "spool",
            Self::Disk => "disk",
            Self::Slow => "slow",
        }
    }
}

/// Memory and spool for the bodies of a process; shared by all workers.
#[derive(Debug)]
pub struct BodyBuffers {
    pub(crate) limits: BufferLimits,
    pub(crate) transfers: Arc<Semaphore>,
    memory: AtomicU64,
    spool: AtomicU64,
    spooled_bytes: AtomicU64,
    shortages: [AtomicU64; Shortage::ALL.len()],
    waits: Mutex<Waits>,
    /// Whether `waits` has waiters, so that releasing room takes no lock if there are none.
    has_waiters: AtomicBool,
    started: Instant,
    /// When the next failure is logged, in milliseconds since the start.
    tells_at_ms: AtomicU64,
}

impl BodyBuffers {
    /// Creates empty buffers.
    pub fn new(limits: BufferLimits) -> Arc<Self> {
        Arc::new(Self {
            limits,
            transfers: Arc::new(Semaphore::new(TRANSFERS_MAX)),
            memory: AtomicU64::new(0),
            spool: AtomicU64::new(0),
            spooled_bytes: AtomicU64::new(0),
            shortages: Default::default(),
            waits: Mutex::default(),
            has_waiters: AtomicBool::new(false),
            started: Instant::now(),
            tells_at_ms: AtomicU64::new(0),
        })
    }

    /// Creates a file in the folder, as a check at the start of a process.
    ///
    /// # Errors
    /// The folder does not exist or may not be written, or its file system does not support files without
    /// names (`O_TMPFILE`).
    pub fn check_folder(&self) -> io::Result<()> {
        self.limits.folder.as_deref().map_or(Ok(()), |folder| open_unnamed(folder).map(drop))
    }

    /// Bytes currently in memory.
    pub fn memory_bytes(&self) -> u64 {
        self.memory.load(Relaxed)
    }

    /// Bytes currently in files.
    pub fn spool_bytes(&self) -> u64 {
        self.spool.load(Relaxed)
    }

    /// Bytes written to files since the start.
    pub fn spooled_bytes(&self) -> u64 {
        self.spooled_bytes.load(Relaxed)
    }

    /// The numbers of bodies that got no more room, by reason.
    pub fn shortages(&self) -> Vec<(&'static str, u64)> {
        let counts = self.shortages.iter().map(|count| count.load(Relaxed));
        Shortage::ALL.iter().map(|it| it.name()).zip(counts).collect()
    }

    /// Memory that is not in use, in bytes.
    pub(crate) fn free_memory(&self) -> u64 {
        self.limits.memory_bytes_max.saturating_sub(self.memory_bytes())
    }

    pub(crate) fn count_shortage(&self, shortage: Shortage) {
        self.shortages[shortage as usize].fetch_add(1, Relaxed);
    }

    pub(crate) fn count_spooled(&self, bytes: u64) {
        self.spooled_bytes.fetch_add(bytes, Relaxed);
    }

    /// Records a write, which frees memory when it ends.
    pub(crate) fn begin_write(self: &Arc<Self>) -> Write {
        self.waits().writes_in_progress += 1;
        Write(Arc::clone(self))
    }

    /// Whether a write is in progress, which will free memory.
    pub(crate) fn is_writing(&self) -> bool {
        self.waits().writes_in_progress > 0
    }

    /// Wakes this task when room is released. The caller must check once more afterwards: some may have been
    /// released before.
    pub(crate) fn wake_with_room(&self, cx: &Context<'_>) {
        let mut waits = self.waits();
        if !waits.waiters.iter().any(|waiter| waiter.will_wake(cx.waker())) {
            waits.waiters.push(cx.waker().clone());
        }
        self.has_waiters.store(true, SeqCst);
        fence(SeqCst);
    }

    /// Wakes the waiters after room was released.
    fn wake(&self) {
        if self.has_waiters.load(SeqCst) {
            let mut waits = self.waits();
            self.has_waiters.store(false, SeqCst);
            let waiters = std::mem::take(&mut waits.waiters);
            drop(waits);
            waiters.into_iter().for_each(Waker::wake);
        }
    }

    fn waits(&self) -> MutexGuard<'_, Waits> {
        self.waits.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Logs a failure of the spool, unless one was logged recently.
    pub(crate) fn tell(&self, error: &io::Error) {
        let now_ms = self.started.elapsed().as_millis() as u64;
        let tells_at_ms = self.tells_at_ms.load(Relaxed);
        let next_ms = now_ms + COMPLAINT_MS;
        let is_due = now_ms >= tells_at_ms;
        let tells = &self.tells_at_ms;
        if is_due && tells.compare_exchange(tells_at_ms, next_ms, Relaxed, Relaxed).is_ok() {
            let folder = self.limits.folder.as_deref().unwrap_or("".as_ref()).display();
            tracing::warn!("spool in {folder}: {error}; bodies are no longer read ahead");
        }
    }

    /// Reserves memory, whether enough is free or not.
    pub(crate) fn reserve_memory(self: &Arc<Self>, bytes: u64) -> Reservation {
        self.memory.fetch_add(bytes, Relaxed);
        Reservation { of: Arc::clone(self), place: Place::Memory, bytes }
    }

    /// Creates an empty reservation of the spool.
    pub(crate) fn reserve_spool(self: &Arc<Self>) -> Reservation {
        Reservation { of: Arc::clone(self), place: Place::Spool, bytes: 0 }
    }

    fn taken(&self, place: Place) -> (&AtomicU64, u64) {
        match place {
            Place::Memory => (&self.memory, self.limits.memory_bytes_max),
            Place::Spool => (&self.spool, self.limits.spool_bytes_max),
        }
    }
}

/// Opens a new file without a name in `folder`, accessible to this user only; it cannot be given a name.
pub(crate) fn open_unnamed(folder: &Path) -> io::Result<File> {
    let flags = OFlags::TMPFILE | OFlags::EXCL | OFlags::RDWR | OFlags::CLOEXEC;
    Ok(File::from(rustix::fs::open(folder, flags, Mode::RUSR | Mode::WUSR)?))
}

/// The tasks that wait for room, and the writes that will free it.
#[derive(Debug, Default)]
struct Waits {
    writes_in_progress: usize,
    /// Each task once, until room is released.
    waiters: Vec<Waker>,
}

/// A write in progress; ends on drop.
pub(crate) struct Write(Arc<BodyBuffers>);

impl Drop for Write {
    fn drop(&mut self) {
        self.0.waits().writes_in_progress -= 1;
        self.0.wake();
    }
}

#[derive(Clone, Copy, Debug)]
enum Place {
    Memory,
    Spool,
}

/// Memory or spool that a body has reserved, in bytes; released on drop.
#[derive(Debug)]
pub(crate) struct Reservation {
    of: Arc<BodyBuffers>,
    place: Place,
    bytes: u64,
}

impl Reservation {
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Grows to `bytes` in total. Returns `false`, without a change, if not enough is free.
    pub(crate) fn grow_to(&mut self, bytes: u64) -> bool {
        let Some(more) = bytes.checked_sub(self.bytes).filter(|more| *more > 0) else {
            return true;
        };
        let (taken, bytes_max) = self.of.taken(self.place);
        let fits = |taken: u64| taken.checked_add(more).filter(|sum| *sum <= bytes_max);
        let has_grown = taken.fetch_update(Relaxed, Relaxed, fits).is_ok();
        if has_grown {
            self.bytes = bytes;
        }
        has_grown
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.of.taken(self.place).0.fetch_sub(self.bytes, SeqCst);
        fence(SeqCst);
        let wakes_at = self.of.limits.memory_bytes_max / WAKE_PART;
        if self.of.free_memory() >= wakes_at.max(READ_BYTES) {
            self.of.wake();
        }
    }
}
