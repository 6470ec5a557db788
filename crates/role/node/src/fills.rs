//! How much of the memory for fills those of one site's origins have: an origin that is
//! slow holds what it fills for long, and other sites want room, too.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes of the segments that are being filled.
#[derive(Debug, Default)]
pub(crate) struct Fills(AtomicU64);

/// A fill under way.
#[derive(Debug)]
pub(crate) struct Filling {
    fills: Arc<Fills>,
    bytes: u64,
}

impl Fills {
    /// A segment of so many bytes is filled until what this gives is dropped.
    pub(crate) fn begin(self: &Arc<Self>, bytes: u64) -> Filling {
        self.0.fetch_add(bytes, Ordering::Relaxed);
        Filling { fills: Arc::clone(self), bytes }
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Drop for Filling {
    fn drop(&mut self) {
        self.fills.0.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}
