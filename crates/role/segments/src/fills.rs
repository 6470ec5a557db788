//! How much of the memory for fills those of one site's origins have: an origin that is
//! slow holds what it fills for long, and other sites want room, too.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::limits::SITE_FILLS_BYTES_MAX;

/// The segments that a site's origins are filling.
#[derive(Debug)]
pub struct Fills {
    bytes: AtomicU64,
    share_bytes: u64,
}

/// A fill under way.
#[derive(Debug)]
pub struct Filling {
    fills: Arc<Fills>,
    bytes: u64,
}

impl Fills {
    /// None yet. A site `is_alone` if no other has origins: it has all of the memory.
    pub fn new(is_alone: bool) -> Arc<Self> {
        let share_bytes = if is_alone { u64::MAX } else { SITE_FILLS_BYTES_MAX };
        Arc::new(Self { bytes: AtomicU64::new(0), share_bytes })
    }

    /// A segment of so many bytes is filled until what this gives is dropped.
    pub fn begin(self: &Arc<Self>, bytes: u64) -> Filling {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        Filling { fills: Arc::clone(self), bytes }
    }

    /// Whether the site has its share.
    pub fn has_share(&self) -> bool {
        self.bytes.load(Ordering::Relaxed) >= self.share_bytes
    }
}

impl Drop for Filling {
    fn drop(&mut self) {
        self.fills.bytes.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}
