//! Pins: segments being sent without a copy, bounded per client address, regardless of the
//! number of its connections.
//!
//! A pin lasts until the kernel has accepted all bytes sent from the segment. The kernel keeps
//! bytes that the client has not acknowledged by then; they are not counted here.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::segment::Segment;

/// Pinned bytes per client address.
#[derive(Debug)]
pub struct Pins {
    by_address: Mutex<HashMap<IpAddr, u64>>,
    per_address_max: AtomicU64,
}

/// A segment that is being sent to a client.
#[derive(Debug)]
pub struct Pin {
    _share: PinnedBytes,
    segment: Arc<Segment>,
}

/// Bytes held for a client; released when dropped.
#[derive(Debug)]
pub struct PinnedBytes {
    pins: Arc<Pins>,
    address: IpAddr,
    bytes: u64,
}

impl Pins {
    /// Creates an empty set with at most `per_address_max` bytes per address.
    pub fn new(per_address_max: u64) -> Arc<Self> {
        let per_address_max = AtomicU64::new(per_address_max);
        Arc::new(Self { by_address: Mutex::default(), per_address_max })
    }

    /// Sets a new bound, which applies to later pins.
    pub fn set_per_address_max(&self, per_address_max: u64) {
        self.per_address_max.store(per_address_max, Ordering::Relaxed);
    }

    /// Pins a segment for the client at `address`. Returns `None` if that address has used up
    /// its share.
    pub fn pin(self: &Arc<Self>, address: IpAddr, segment: Arc<Segment>) -> Option<Pin> {
        Some(Pin { _share: self.share(address, segment.len().into())?, segment })
    }

    /// Counts bytes other than those of segments in the same way.
    pub fn share(self: &Arc<Self>, address: IpAddr, bytes: u64) -> Option<PinnedBytes> {
        let mut by_address = self.lock();
        let before = by_address.get(&address).copied().unwrap_or(0);
        // The first may be of any size: otherwise it would be refused forever.
        if before > 0 && before + bytes > self.per_address_max.load(Ordering::Relaxed) {
            return None;
        }
        by_address.insert(address, before + bytes);
        Some(PinnedBytes { pins: Arc::clone(self), address, bytes })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<IpAddr, u64>> {
        self.by_address.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Pin {
    /// The pinned segment.
    pub fn segment(&self) -> &Arc<Segment> {
        &self.segment
    }
}

impl Drop for PinnedBytes {
    fn drop(&mut self) {
        let mut by_address = self.pins.lock();
        if let Some(held) = by_address.get_mut(&self.address) {
            *held -= self.bytes;
            if *held == 0 {
                by_address.remove(&self.address);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use crate::segment::Placement;

    #[test]
    fn each_address_has_its_share_and_gets_it_back() {
        let pins = Pins::new(250);
        let segment = || Arc::new(Segment::new(100, Placement::Heap(Arc::default())));
        let [a, b] = [[10, 0, 0, 1], [10, 0, 0, 2]].map(IpAddr::from);
        let held: Vec<_> = (0..2).map(|_| pins.pin(a, segment()).unwrap()).collect();
        assert!(pins.pin(a, segment()).is_none());
        assert!(pins.pin(b, segment()).is_some());
        drop(held);
        assert!(pins.pin(a, segment()).is_some());
        assert!(pins.lock().is_empty());
    }
}
