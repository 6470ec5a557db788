//! A file of the spool, and its operations on threads that may wait for a disk.

use std::collections::VecDeque;
use std::fs::File;
use std::future::Future;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::sync::Semaphore;
use tokio::task::{JoinError, JoinHandle};

use crate::body_buffers::{Reservation, Write, open_unnamed};

/// Bytes of a body in memory.
#[derive(Debug)]
pub(crate) struct Block {
    bytes: Vec<u8>,
    taken: usize,
    reservation: Reservation,
}

impl Block {
    /// Creates an empty block of the size of its reservation.
    pub(crate) fn new(reservation: Reservation) -> Self {
        Self { bytes: Vec::with_capacity(reservation.bytes() as usize), taken: 0, reservation }
    }

    /// Appends as many of the first `bytes` as fit; returns the rest.
    pub(crate) fn fill<'b>(&mut self, bytes: &'b [u8]) -> &'b [u8] {
        let fits = (self.reservation.bytes() as usize - self.bytes.len()).min(bytes.len());
        self.bytes.extend_from_slice(&bytes[..fits]);
        &bytes[fits..]
    }

    /// Moves up to `bytes_max` of its first bytes to `sink`; returns their number.
    pub(crate) fn take(&mut self, sink: &mut Vec<u8>, bytes_max: usize) -> usize {
        let left = &self.bytes[self.taken..];
        let taken = left.len().min(bytes_max);
        sink.extend_from_slice(&left[..taken]);
        self.taken += taken;
        taken
    }

    pub(crate) fn len(&self) -> usize {
        self.bytes.len() - self.taken
    }

    pub(crate) fn into_reservation(self) -> Reservation {
        self.reservation
    }
}

/// A file without a name. The order of the fields ensures that room in the spool is released only after the
/// file was closed.
#[derive(Debug)]
pub(crate) struct SpoolFile {
    file: File,
    _reservation: Arc<std::sync::Mutex<Reservation>>,
}

/// The outcome of a transfer.
pub(crate) struct Transferred {
    /// The file, even if the transfer has created it.
    pub(crate) file: Option<Arc<SpoolFile>>,
    /// Blocks that were not written, or that were read.
    pub(crate) blocks: VecDeque<Block>,
    pub(crate) result: io::Result<()>,
}

impl Transferred {
    /// The outcome if the thread was lost, and its data with it.
    fn lost(ended: JoinError) -> Self {
        Self { file: None, blocks: VecDeque::new(), result: Err(io::Error::other(ended)) }
    }
}

/// A transfer in progress. If it is dropped before its start, it is not started.
pub(crate) struct Transfer(JoinHandle<Transferred>);

impl Future for Transfer {
    type Output = Transferred;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Transferred> {
        Pin::new(&mut self.0).poll(cx).map(|ended| ended.unwrap_or_else(Transferred::lost))
    }
}

impl Drop for Transfer {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// The destination of a write.
pub(crate) enum Target {
    /// A new file in this folder, which keeps the reservation.
    Folder(PathBuf, Arc<std::sync::Mutex<Reservation>>),
    File(Arc<SpoolFile>),
}

/// Writes `blocks` at `offset`; the write counts as in progress until their memory is free.
pub(crate) fn write(
    transfers: &Arc<Semaphore>,
    target: Target,
    blocks: VecDeque<Block>,
    (offset, in_progress): (u64, Write),
) -> Transfer {
    transfer(transfers, move || {
        let _in_progress = in_progress;
        // Declared later, so dropped before it.
        let blocks = blocks;
        let file = match target {
            Target::File(file) => Ok(file),
            Target::Folder(folder, reservation) => open_unnamed(&folder)
                .map(|file| Arc::new(SpoolFile { file, _reservation: reservation })),
        };
        let file = match file {
            Ok(file) => file,
            Err(error) => return Transferred { file: None, blocks, result: Err(error) },
        };
        let mut at = offset;
        for block in &blocks {
            let bytes = &block.bytes[block.taken..];
            if let Err(error) = file.file.write_all_at(bytes, at) {
                return Transferred { file: Some(file), blocks, result: Err(error) };
            }
            at += bytes.len() as u64;
        }
        Transferred { file: Some(file), blocks: VecDeque::new(), result: Ok(()) }
    })
}

/// Reads `bytes` bytes at `offset`, which the file has, into blocks with these reservations.
pub(crate) fn read(
    transfers: &Arc<Semaphore>,
    file: &Arc<SpoolFile>,
    reservations: Vec<Reservation>,
    (offset, bytes): (u64, u64),
) -> Transfer {
    let file = Arc::clone(file);
    transfer(transfers, move || {
        let mut blocks = VecDeque::with_capacity(reservations.len());
        let (mut at, end) = (offset, offset + bytes);
        for reservation in reservations {
            let mut block = Block::new(reservation);
            block.bytes.resize((end - at).min(block.reservation.bytes()) as usize, 0);
            if let Err(error) = file.file.read_exact_at(&mut block.bytes, at) {
                return Transferred { file: None, blocks: VecDeque::new(), result: Err(error) };
            }
            at += block.bytes.len() as u64;
            blocks.push_back(block);
        }
        Transferred { file: None, blocks, result: Ok(()) }
    })
}

/// Closes a file on a thread that may wait, since closing may free gigabytes.
pub(crate) fn close(file: Arc<SpoolFile>) {
    if let Ok(runtime) = tokio::runtime::Handle::try_current() {
        // One task for each body that was spooled.
        runtime.spawn_blocking(move || drop(file));
    }
}

/// Runs `job` when one of the threads for disks is free, even if the result is never polled.
fn transfer(
    transfers: &Arc<Semaphore>,
    job: impl FnOnce() -> Transferred + Send + 'static,
) -> Transfer {
    let transfers = Arc::clone(transfers);
    Transfer(tokio::spawn(async move {
        // The semaphore is never closed.
        let permit = transfers.acquire_owned().await;
        #[expect(clippy::disallowed_methods, reason = "a semaphore bounds them")]
        let ran = tokio::task::spawn_blocking(move || {
            let _permit = permit;
            job()
        });
        ran.await.unwrap_or_else(Transferred::lost)
    }))
}
