//! Every bound of this crate, with unit and reason.

use std::time::Duration;

/// Memory is taken in blocks of so many bytes: the cost of a body of one byte, and little enough that
/// thousands of clients which send one byte each fit.
pub(crate) const BLOCK_BYTES: usize = 16 * 1024;

/// Memory that a body in a file keeps for itself, in bytes, so that it can be read back when others have
/// all: a page.
pub(crate) const RESERVE_BYTES: u64 = 4 * 1024;

/// What must be free before more is read, in bytes: what one read of a socket takes at most.
pub const READ_BYTES: u64 = 64 * 1024;

/// One body may have one part in so many of the memory that is free for all, so that a few large ones leave
/// room to many small ones: the dynamic threshold of switches with shared memory (Choudhury, Hahne:
/// Dynamic Queue Length Thresholds for Shared-Memory Packet Switches, 1998), with a factor of 1/4.
pub(crate) const FREE_PART: u64 = 4;

/// Where there is a spool, one part in so many of the memory is for what is on its way to it or back:
/// clients that stand still cannot fill it.
pub(crate) const SPOOL_PART: u64 = 4;

/// What is read back from a file has one part in so many of the memory that is free, for each body: nobody
/// knows whether its client takes it, and thousands that take nothing more leave room to what comes.
pub(crate) const READ_BACK_PART: u64 = 256;

/// If less than one part in so many of the memory is free, what waits for the spool is written at once,
/// however little it is.
pub(crate) const SCARCE_PART: u64 = 2;

/// Bytes that one call writes to a file or reads from it, at most: at 128 KiB the cost of a thread's
/// wake-up no longer shows.
pub(crate) const TRANSFER_BYTES: u64 = 128 * 1024;

/// Bytes of one body that wait to be written, at most, with those that are being written.
pub(crate) const UNWRITTEN_BYTES_MAX: u64 = 256 * 1024;

/// Threads that read and write spool files at a time, in the process: half of what one worker has for
/// disks, so that a slow spool leaves threads to files of sites.
pub(crate) const TRANSFERS_MAX: usize = 4;

/// How long the reader of a body waits for the disk: a server's place is held meanwhile. Longer than any
/// disk takes that will still answer.
pub(crate) const READ_WAIT: Duration = Duration::from_secs(30);

/// Who waits for room is woken when one part in so many of the memory is free: each freed block would wake
/// all of them for nothing.
pub(crate) const WAKE_PART: u64 = 64;

/// Time between two messages about failures of the spool, in milliseconds; a metric counts all.
pub(crate) const COMPLAINT_MS: u64 = 10_000;
