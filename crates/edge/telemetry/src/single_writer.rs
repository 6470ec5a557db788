//! Atomics that one thread writes and any thread reads.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Adds to an atomic that has a single writer.
pub(crate) fn bump(value: &AtomicU64, n: u64) {
    value.store(value.load(Relaxed).wrapping_add(n), Relaxed);
}
