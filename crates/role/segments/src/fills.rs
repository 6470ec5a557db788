//! Limits how much of the memory for fills the origins of one site may use: a slow origin holds
//! memory for a long time, and other sites need some, too.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::limits::SITE_FILLS_BYTES_MAX;

/// The bytes of the segments that a site's origins are filling.
#[derive(Debug)]
pub struct Fills {
    bytes: AtomicU64,
    share_bytes: u64,
}

/// A fill in progress.
#[derive(Debug)]
pub struct Filling {
    fills: Arc<Fills>,
    bytes: u64,
}

impl Fills {
    /// Creates the account without fills. `is_alone`: no other site has origins, so this one
    /// may use all of the memory.
    pub fn new(is_alone: bool) -> Arc<Self> {
        let share_bytes = if is_alone { u64::MAX } else { SITE_FILLS_BYTES_MAX };
        Arc::new(Self { bytes: AtomicU64::new(0), share_bytes })
    }

    /// Records a fill of `bytes` bytes until the returned value is dropped.
    pub fn begin(self: &Arc<Self>, bytes: u64) -> Filling {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        Filling { fills: Arc::clone(self), bytes }
    }

    /// Whether the site has used up its share.
    pub fn has_share(&self) -> bool {
        self.bytes.load(Ordering::Relaxed) >= self.share_bytes
    }
}

impl Filling {
    /// Records that the fill is `bytes` bytes longer than previously known.
    pub fn grow(&mut self, bytes: u64) {
        self.fills.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.bytes += bytes;
    }

    /// Returns the fills of the same site.
    pub fn fills(&self) -> &Fills {
        &self.fills
    }
}

impl Drop for Filling {
    fn drop(&mut self) {
        self.fills.bytes.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}
