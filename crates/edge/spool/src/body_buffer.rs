//! One body: a queue of bytes, first in memory.

use std::collections::VecDeque;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};

use tokio::time::{Sleep, sleep};

use crate::body_buffers::{BodyBuffers, Reservation, Shortage};
use crate::limits::{
    BLOCK_BYTES, FREE_PART, READ_BACK_PART, READ_BYTES, READ_WAIT, RESERVE_BYTES, SCARCE_PART,
    SPOOL_PART, TRANSFER_BYTES, UNWRITTEN_BYTES_MAX,
};
use crate::spool_file::{self, Block, SpoolFile, Target, Transfer, Transferred};

/// The bytes of one body that were received and not taken yet. Everything is released on drop.
pub struct BodyBuffer {
    of: Arc<BodyBuffers>,
    memory_bytes_max: u64,
    /// The bytes to take next.
    front: Blocks,
    /// The bytes after those in the file.
    back: Blocks,
    /// Whether the next bytes are appended to the back.
    is_spooling: bool,
    /// Nothing is taken before the body is complete: the front need not stay in memory.
    is_taken_whole: bool,
    disk: Disk,
    /// Whether the shortage was counted.
    is_short: bool,
}

/// The part of a body in a file, between `front` and `back`: bytes from `read_at` to `written`.
#[derive(Default)]
struct Disk {
    file: Option<Arc<SpoolFile>>,
    /// Shared with the file, which is closed later than this if a transfer is in progress.
    reservation: Option<Arc<Mutex<Reservation>>>,
    /// Memory into which the file is read back when no other is free.
    reserve: Option<Reservation>,
    read_at: u64,
    written: u64,
    transfer: Option<(Direction, Transfer)>,
    /// The timeout of the current wait.
    deadline: Option<Pin<Box<Sleep>>>,
    /// The file accepts no more writes.
    is_broken: bool,
    /// The file cannot be read back.
    error: Option<io::Error>,
}

/// The direction of a transfer, and its number of bytes.
#[derive(Clone, Copy)]
enum Direction {
    Read(u64),
    Write(u64),
}

impl BodyBuffers {
    /// Creates a buffer for one body, which is taken as it is received and may use `memory_bytes_max` of
    /// memory before it continues in the spool.
    pub fn body(self: &Arc<Self>, memory_bytes_max: u64) -> BodyBuffer {
        BodyBuffer::new(Arc::clone(self), memory_bytes_max, false)
    }

    /// The same for a body of which nothing is taken before it is complete or there is no more room: if it
    /// exceeds its share of the memory, all of it moves to the spool.
    pub fn whole_body(self: &Arc<Self>, memory_bytes_max: u64) -> BodyBuffer {
        BodyBuffer::new(Arc::clone(self), memory_bytes_max, true)
    }
}

impl BodyBuffer {
    fn new(of: Arc<BodyBuffers>, memory_bytes_max: u64, is_taken_whole: bool) -> Self {
        Self {
            of,
            memory_bytes_max,
            front: Blocks::default(),
            back: Blocks::default(),
            is_spooling: false,
            is_taken_whole,
            disk: Disk::default(),
            is_short: false,
        }
    }

    /// Whether no bytes wait.
    pub fn is_empty(&self) -> bool {
        let is_in_memory = self.disk.transfer.is_none() && self.disk.unread() == 0;
        is_in_memory && self.front.bytes == 0 && self.back.bytes == 0
    }

    /// Ready when [`READ_BYTES`] more may be appended; pending while a disk is at work.
    ///
    /// # Errors
    /// There is no room. There may be some after part of the body is taken, or when others release theirs:
    /// then the task is woken.
    pub fn poll_room(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Shortage>> {
        let _ = self.poll_transfer(cx);
        let mut room = self.look_for_room(cx);
        if let Poll::Ready(Err(Shortage::Memory | Shortage::Spool)) = room {
            self.of.wake_with_room(cx);
            room = self.look_for_room(cx);
            // A write in progress will free memory.
            if room == Poll::Ready(Err(Shortage::Memory)) && self.of.is_writing() {
                return Poll::Pending;
            }
        }
        if let Poll::Ready(Err(shortage)) = room {
            self.give_up(shortage);
        }
        room
    }

    /// Appends `bytes`, for which there must be room.
    pub fn push(&mut self, bytes: &[u8]) {
        let queue = if self.is_spooling { &mut self.back } else { &mut self.front };
        queue.push(bytes, || self.of.reserve_memory(BLOCK_BYTES as u64));
    }

    /// Moves waiting bytes to the file if memory is scarce. To be called while bytes are neither appended nor
    /// taken: the task is woken when it can continue.
    pub fn settle(&mut self, cx: &mut Context<'_>) {
        let is_due = |it: &Self| it.back.bytes > 0 && !it.disk.is_broken && it.is_scarce();
        while self.poll_transfer(cx).is_ready() && is_due(self) {
            if self.start_write().is_err() {
                return;
            }
        }
    }

    /// Moves the next bytes to `sink`, at most `bytes_max`; returns their number, 0 at the end.
    ///
    /// # Errors
    /// The disk failed to return the bytes.
    pub fn poll_take(
        &mut self,
        cx: &mut Context<'_>,
        sink: &mut Vec<u8>,
        bytes_max: usize,
    ) -> Poll<io::Result<usize>> {
        loop {
            let taken = self.front.take(sink, bytes_max);
            if let Some(reservation) = self.front.pop_empty()
                && reservation.bytes() == RESERVE_BYTES
            {
                self.disk.reserve = Some(reservation);
            }
            if taken > 0 {
                return Poll::Ready(Ok(taken));
            }
            if let Some(error) = self.disk.error.take() {
                return Poll::Ready(Err(error));
            }
            if self.disk.transfer.is_some() {
                if self.poll_transfer(cx).is_pending() {
                    ready!(self.disk.poll_deadline(cx));
                    return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
                }
            } else if self.disk.unread() > 0 {
                self.start_read();
            } else if self.back.bytes > 0 {
                self.front = std::mem::take(&mut self.back);
            } else {
                return Poll::Ready(Ok(0));
            }
        }
    }

    /// Counts that the writer continues without more room; once for each body.
    pub fn give_up(&mut self, shortage: Shortage) {
        if !std::mem::replace(&mut self.is_short, true) {
            self.of.count_shortage(shortage);
        }
    }

    /// Whether the next bytes may be appended to the front.
    fn fits_memory(&self) -> bool {
        let disk = &self.disk;
        if disk.transfer.is_some() || disk.unread() > 0 || self.back.bytes > 0 {
            return false;
        }
        let limits = &self.of.limits;
        let kept = limits.folder.as_ref().map_or(0, |_| limits.memory_bytes_max / SPOOL_PART);
        let free = self.of.free_memory().saturating_sub(kept);
        let own = self.front.memory_bytes();
        own + READ_BYTES <= self.memory_bytes_max && own < free / FREE_PART && READ_BYTES <= free
    }

    fn look_for_room(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Shortage>> {
        self.is_spooling = !self.fits_memory();
        if self.is_spooling { self.poll_spool(cx) } else { Poll::Ready(Ok(())) }
    }

    fn poll_spool(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Shortage>> {
        self.check_spool()?;
        if self.is_taken_whole && self.disk.transfer.is_none() && self.disk.unread() == 0 {
            let Blocks { blocks, bytes } = std::mem::take(&mut self.front);
            self.back.put_back(blocks, bytes);
        }
        let is_due = self.back.bytes >= TRANSFER_BYTES || (self.is_scarce() && self.back.bytes > 0);
        if is_due && self.disk.transfer.is_none() {
            self.start_write()?;
        }
        let unwritten = self.back.memory_bytes() + self.disk.writing() + READ_BYTES;
        if unwritten <= UNWRITTEN_BYTES_MAX && READ_BYTES <= self.of.free_memory() {
            return Poll::Ready(Ok(()));
        }
        if self.disk.transfer.is_none() {
            if self.back.bytes == 0 {
                return Poll::Ready(Err(Shortage::Memory));
            }
            self.start_write()?;
        }
        match self.poll_transfer(cx) {
            Poll::Pending => Poll::Pending,
            // It completed at once: the next call finds the room.
            Poll::Ready(()) => {
                cx.waker().wake_by_ref();
                Poll::Pending
            }
        }
    }

    fn is_scarce(&self) -> bool {
        self.of.free_memory() < self.of.limits.memory_bytes_max / SCARCE_PART
    }

    /// Checks that the file may take the waiting bytes and one more read.
    fn check_spool(&self) -> Result<(), Shortage> {
        let (limits, disk) = (&self.of.limits, &self.disk);
        if disk.is_broken {
            return Err(Shortage::Disk);
        }
        let end = disk.written + disk.writing() + self.back.bytes + READ_BYTES;
        let fits = self.front.memory_bytes() + READ_BYTES <= self.memory_bytes_max;
        if limits.folder.is_none() {
            return Err(if fits { Shortage::Memory } else { Shortage::Body });
        }
        if end > limits.spool_body_bytes_max {
            return Err(Shortage::Body);
        }
        let free = limits.spool_bytes_max.saturating_sub(self.of.spool_bytes());
        let more = end.saturating_sub(disk.reserved());
        if more > free { Err(Shortage::Spool) } else { Ok(()) }
    }

    /// Starts writing the back to the file.
    fn start_write(&mut self) -> Result<(), Shortage> {
        let Some(folder) = self.of.limits.folder.clone() else { return Err(Shortage::Body) };
        let (bytes, offset) = (self.back.bytes, self.disk.written);
        let reservation = self.disk.reservation.get_or_insert_with(|| {
            let reservation = self.of.reserve_spool();
            Arc::new(Mutex::new(reservation))
        });
        if !reservation.lock().unwrap_or_else(PoisonError::into_inner).grow_to(offset + bytes) {
            return Err(Shortage::Spool);
        }
        let of = &self.of;
        self.disk.reserve.get_or_insert_with(|| of.reserve_memory(RESERVE_BYTES));
        let target = match &self.disk.file {
            Some(file) => Target::File(Arc::clone(file)),
            None => Target::Folder(folder, Arc::clone(reservation)),
        };
        let blocks = std::mem::take(&mut self.back).blocks;
        let transfer = spool_file::write(&of.transfers, target, blocks, (offset, of.begin_write()));
        self.disk.transfer = Some((Direction::Write(bytes), transfer));
        Ok(())
    }

    /// Starts reading the next bytes of the file, as many as there is memory for.
    fn start_read(&mut self) {
        let Some(file) = &self.disk.file else { unreachable!("what is unread is in a file") };
        const BLOCK: u64 = BLOCK_BYTES as u64;
        let part = (self.of.free_memory() / READ_BACK_PART).min(TRANSFER_BYTES);
        let wanted = self.disk.unread().min(part / BLOCK * BLOCK);
        let reservations: Vec<_> = match wanted > 0 {
            true => (0..wanted.div_ceil(BLOCK)).map(|_| self.of.reserve_memory(BLOCK)).collect(),
            false => {
                let new = || self.of.reserve_memory(RESERVE_BYTES);
                vec![self.disk.reserve.take().unwrap_or_else(new)]
            }
        };
        let bytes = self.disk.unread().min(reservations.iter().map(Reservation::bytes).sum());
        let range = (self.disk.read_at, bytes);
        let transfer = spool_file::read(&self.of.transfers, file, reservations, range);
        self.disk.transfer = Some((Direction::Read(bytes), transfer));
    }

    /// Ready when no transfer is in progress.
    fn poll_transfer(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some((direction, transfer)) = &mut self.disk.transfer else { return Poll::Ready(()) };
        let direction = *direction;
        let transferred = ready!(Pin::new(transfer).poll(cx));
        (self.disk.transfer, self.disk.deadline) = (None, None);
        self.end_transfer(direction, transferred);
        Poll::Ready(())
    }

    fn end_transfer(&mut self, direction: Direction, transferred: Transferred) {
        let Transferred { file, blocks, result } = transferred;
        if let Some(file) = file {
            self.disk.file = Some(file);
        }
        if let Err(error) = &result {
            self.of.tell(error);
            self.disk.is_broken = true;
        }
        match (direction, result) {
            (Direction::Write(bytes), Ok(())) => {
                self.disk.written += bytes;
                self.of.count_spooled(bytes);
            }
            (Direction::Write(bytes), Err(error)) => {
                if blocks.is_empty() {
                    // The thread was lost, and the blocks with it.
                    self.disk.error = Some(error);
                } else {
                    self.back.put_back(blocks, bytes);
                }
            }
            (Direction::Read(bytes), Ok(())) => {
                self.disk.read_at += bytes;
                if self.disk.unread() == 0 {
                    (self.disk.read_at, self.disk.written) = (0, 0);
                }
                self.front = Blocks { blocks, bytes };
            }
            (Direction::Read(_), Err(error)) => self.disk.error = Some(error),
        }
    }
}

impl Drop for BodyBuffer {
    fn drop(&mut self) {
        // A transfer has the file open, too; the last holder closes it.
        self.disk.transfer = None;
        if let Some(file) = self.disk.file.take() {
            self.disk.reservation = None;
            spool_file::close(file);
        }
    }
}

impl std::fmt::Debug for BodyBuffer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (front, unread, back) = (self.front.bytes, self.disk.unread(), self.back.bytes);
        write!(f, "BodyBuffer({front} in front, {unread} in a file, {back} at the back)")
    }
}

impl Disk {
    fn poll_deadline(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let deadline = self.deadline.get_or_insert_with(|| Box::pin(sleep(READ_WAIT)));
        deadline.as_mut().poll(cx)
    }

    fn unread(&self) -> u64 {
        self.written - self.read_at
    }

    /// The number of bytes being written.
    fn writing(&self) -> u64 {
        match self.transfer {
            Some((Direction::Write(bytes), _)) => bytes,
            _ => 0,
        }
    }

    /// The number of bytes that the file has or may get.
    fn reserved(&self) -> u64 {
        let reservation = self.reservation.as_ref();
        reservation.map_or(0, |it| it.lock().unwrap_or_else(PoisonError::into_inner).bytes())
    }
}

/// Bytes in memory, in order.
#[derive(Debug, Default)]
struct Blocks {
    blocks: VecDeque<Block>,
    bytes: u64,
}

impl Blocks {
    fn push(&mut self, mut bytes: &[u8], mut reservation: impl FnMut() -> Reservation) {
        self.bytes += bytes.len() as u64;
        if let Some(last) = self.blocks.back_mut() {
            bytes = last.fill(bytes);
        }
        while !bytes.is_empty() {
            let mut block = Block::new(reservation());
            bytes = block.fill(bytes);
            self.blocks.push_back(block);
        }
    }

    fn take(&mut self, sink: &mut Vec<u8>, bytes_max: usize) -> usize {
        let taken = self.blocks.front_mut().map_or(0, |block| block.take(sink, bytes_max));
        self.bytes -= taken as u64;
        taken
    }

    /// Removes the first block if it is used up.
    fn pop_empty(&mut self) -> Option<Reservation> {
        self.blocks.pop_front_if(|block| block.len() == 0).map(Block::into_reservation)
    }

    /// Prepends `blocks`, which have `bytes` bytes in total.
    fn put_back(&mut self, mut blocks: VecDeque<Block>, bytes: u64) {
        self.bytes += bytes;
        blocks.append(&mut self.blocks);
        self.blocks = blocks;
    }

    fn memory_bytes(&self) -> u64 {
        self.blocks.len() as u64 * BLOCK_BYTES as u64
    }
}

#[cfg(test)]
mod tests;
