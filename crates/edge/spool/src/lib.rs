//! Bodies that wait for a slow client: in memory within one bound for the process, then in files that have no
//! name and disappear with the process.
//!
//! ```text
//!   push -> front ----------------------------------------> take     as long as memory has room
//!   push -> back -> (written) file (read) -> front -------> take     beyond
//! ```
//! Invariants:
//! - Bytes are taken in the order in which they were appended, wherever they are stored.
//! - Memory and spool stay within their bounds; memory may exceed its bound by the read in progress of each
//!   worker.
//! - No call waits for a disk: files are opened, written, read and closed on threads that may.
//! - What a disk does not accept stays in memory: a full disk loses no byte.

#![forbid(unsafe_code)]

mod body_buffer;
mod body_buffers;
pub mod limits;
mod spool_file;

pub use body_buffer::BodyBuffer;
pub use body_buffers::{BodyBuffers, BufferLimits, Shortage};
