//! Per-thread buffers for bytes being copied into a segment.
//!
//! Allocating a buffer of this size for each fill would strain the allocator: a thread keeps
//! its buffers for reuse, up to a bound.

use std::cell::RefCell;

use skep_peer::stream::FETCH_BUFFER_BYTES;

use crate::limits::{BUFFERS_KEPT_MAX, CHUNK_BYTES};

const _: () = assert!(FETCH_BUFFER_BYTES >= CHUNK_BYTES, "room for a chunk and its head");

thread_local! {
    static KEPT: RefCell<Vec<Box<[u8]>>> = const { RefCell::new(Vec::new()) };
}

/// A buffer large enough for a chunk as other nodes send it, and so for any chunk; returned to
/// its thread when dropped.
pub struct Buffer(Box<[u8]>);

impl Buffer {
    /// Takes one of this thread's buffers.
    pub fn take() -> Self {
        let kept = KEPT.with_borrow_mut(Vec::pop);
        Self(kept.unwrap_or_else(|| vec![0; FETCH_BUFFER_BYTES].into_boxed_slice()))
    }

    /// Returns the whole buffer; it contains bytes of earlier uses.
    pub fn bytes(&mut self) -> &mut [u8] {
        &mut self.0
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let buffer = std::mem::take(&mut self.0);
        KEPT.with_borrow_mut(|kept| {
            if kept.len() < BUFFERS_KEPT_MAX {
                kept.push(buffer);
            }
        });
    }
}
