//! Every bound of this crate, with unit and reason.

use std::time::Duration;

/// Size of the blocks in which memory is reserved, in bytes: the cost of a body of one byte, small enough
/// that thousands of clients which send one byte each fit.
pub(crate) const BLOCK_BYTES: usize = 16 * 1024;

/// Memory that a body in a file keeps for itself, in bytes, so that it can be read back when no other memory
/// is free: a page.
pub(crate) const RESERVE_BYTES: u64 = 4 * 1024;

/// Room required before more is read, in bytes: the maximum of one read from a socket.
pub const READ_BYTES: u64 = 64 * 1024;

/// The reciprocal of the share of the free memory that one body may have, so that a few large bodies leave
/// room for many small ones: the dynamic threshold of switches with shared memory (Choudhury, Hahne: Dynamic
/// Queue Length Thresholds for Shared-Memory Packet Switches, 1998), with a factor of 1/4.
pub(crate) const FREE_PART: u64 = 4;

/// With a spool, the reciprocal of the share of the memory that is kept for bytes on their way to it or back:
/// stalled clients cannot fill that.
pub(crate) const SPOOL_PART: u64 = 4;

/// The reciprocal of the share of the free memory into which one body is read back from its file: it is not
/// known whether its client accepts the bytes, and thousands of stalled clients must leave room for new
/// bodies.
pub(crate) const READ_BACK_PART: u64 = 256;

/// If less than the memory divided by this is free, bytes that wait for the spool are written at once,
/// however few.
pub(crate) const SCARCE_PART: u64 = 2;

/// Maximum number of bytes per write to a file or read from it: at 128 KiB the cost of waking a thread is
/// negligible.
pub(crate) const TRANSFER_BYTES: u64 = 128 * 1024;

/// Maximum number of bytes of one body that wait to be written, including those being written.
pub(crate) const UNWRITTEN_BYTES_MAX: u64 = 256 * 1024;

/// Maximum number of threads of the process that read and write spool files at a time: half of what one
/// worker has for disks, so that a slow spool leaves threads for files of sites.
pub(crate) const TRANSFERS_MAX: usize = 4;

/// How long the reader of a body waits for the disk, which keeps a slot of a server occupied: longer than the
/// response time of any disk that still works.
pub(crate) const READ_WAIT: Duration = Duration::from_secs(30);

/// Waiters for room are woken when the memory divided by this is free: waking all of them for each freed
/// block would be wasteful.
pub(crate) const WAKE_PART: u64 = 64;

/// Time between two log messages about failures of the spool, in milliseconds; a metric counts all.
pub(crate) const COMPLAINT_MS: u64 = 10_000;
