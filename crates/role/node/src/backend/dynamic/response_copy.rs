//! The copy of a response of unknown length, which is stored when its end is received. Its memory is
//! charged as it grows: to the fills of its site, to the memory besides the cache, and to all copies of the
//! node.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use skep_segments::{Filling, Fills, SegmentStore};
use skep_units::SEGMENT_BYTES;

use crate::limits::COPIES_BYTES_MAX;

/// The memory of all copies of a node.
#[derive(Debug, Default)]
pub(super) struct Copies {
    bytes: AtomicU64,
}

#[derive(Debug)]
pub(super) struct ResponseCopy {
    bytes: Vec<u8>,
    charge: CopyCharge,
}

/// The memory of a copy, until it is dropped.
#[derive(Debug)]
pub(super) struct CopyCharge {
    copies: Arc<Copies>,
    store: Arc<SegmentStore>,
    filling: Filling,
    bytes: u64,
}

/// Why a copy cannot grow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CopyFull {
    /// It would be longer than a segment.
    TooLong,
    NoMemory,
}

impl ResponseCopy {
    /// Creates an empty copy.
    pub(super) fn new(copies: &Arc<Copies>, store: &Arc<SegmentStore>, fills: &Arc<Fills>) -> Self {
        let (copies, store) = (Arc::clone(copies), Arc::clone(store));
        let charge = CopyCharge { copies, store, filling: fills.begin(0), bytes: 0 };
        Self { bytes: Vec::new(), charge }
    }

    pub(super) fn len(&self) -> u64 {
        self.bytes.len() as u64
    }

    /// Appends `data`.
    ///
    /// # Errors
    /// [`CopyFull`]: nothing is appended.
    pub(super) fn push(&mut self, data: &[u8]) -> Result<(), CopyFull> {
        let needed = self.bytes.len() + data.len();
        if needed as u64 > SEGMENT_BYTES {
            return Err(CopyFull::TooLong);
        }
        let capacity = self.bytes.capacity();
        if needed > capacity {
            // The capacity doubles, as that of a vector, but never exceeds the charged bytes.
            let wanted = (2 * capacity).clamp(needed, SEGMENT_BYTES as usize);
            self.charge.grow_to(wanted as u64)?;
            self.bytes.reserve_exact(wanted - self.bytes.len());
        }
        self.bytes.extend_from_slice(data);
        Ok(())
    }

    /// The bytes, and their charge.
    pub(super) fn into_parts(self) -> (Vec<u8>, CopyCharge) {
        (self.bytes, self.charge)
    }
}

impl CopyCharge {
    fn grow_to(&mut self, bytes: u64) -> Result<(), CopyFull> {
        let more = bytes - self.bytes;
        let fills = self.filling.fills();
        // The rest is left to other sites, even if none needs it now: a copy holds memory for seconds.
        let may_grow = !fills.has_share() && self.store.may_fill_beside(Some(fills));
        if !may_grow || !self.copies.take(more) {
            return Err(CopyFull::NoMemory);
        }
        self.store.ledger().take(more);
        self.filling.grow(more);
        self.bytes = bytes;
        Ok(())
    }
}

impl Drop for CopyCharge {
    fn drop(&mut self) {
        self.copies.bytes.fetch_sub(self.bytes, Ordering::Relaxed);
        self.store.ledger().give_back(self.bytes);
    }
}

impl Copies {
    /// Takes `more` bytes; false: fewer are left, and none are taken.
    fn take(&self, more: u64) -> bool {
        let fits = |bytes: u64| Some(bytes + more).filter(|sum| *sum <= COPIES_BYTES_MAX);
        self.bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use skep_segments::limits::PINNED_BYTES_MAX;

    use super::*;

    const SEGMENT: usize = SEGMENT_BYTES as usize;

    struct Rig {
        copies: Arc<Copies>,
        store: Arc<SegmentStore>,
        fills: Arc<Fills>,
    }

    impl Rig {
        fn new(capacity_bytes: u64) -> Self {
            let store = SegmentStore::new(capacity_bytes, usize::MAX, false);
            Self { copies: Arc::default(), store, fills: Fills::new(true) }
        }

        fn copy(&self) -> ResponseCopy {
            ResponseCopy::new(&self.copies, &self.store, &self.fills)
        }

        fn charged(&self) -> [u64; 2] {
            [self.copies.bytes.load(Ordering::Relaxed), self.store.stats().pinned_bytes]
        }
    }

    #[test]
    fn a_copy_is_charged_as_it_grows_and_ends_with_a_segment() {
        let rig = Rig::new(64 << 20);
        let mut copy = rig.copy();
        assert_eq!(rig.charged(), [0; 2]);
        assert_eq!(copy.push(&[1; 1000]), Ok(()));
        assert_eq!(rig.charged(), [1000; 2], "a small page takes little");
        let piece = vec![2; SEGMENT / 4];
        (0..3).for_each(|_| assert_eq!(copy.push(&piece), Ok(())));
        assert_eq!(copy.push(&piece), Err(CopyFull::TooLong));
        assert_eq!(copy.push(&piece[1000..]), Ok(()));
        assert_eq!((copy.len(), copy.push(&[3])), (SEGMENT_BYTES, Err(CopyFull::TooLong)));
        let (bytes, charge) = copy.into_parts();
        assert_eq!((bytes.len(), bytes.capacity()), (SEGMENT, SEGMENT));
        assert_eq!(rig.charged(), [SEGMENT_BYTES; 2], "as long as somebody has them");
        drop((bytes, charge));
        assert_eq!(rig.charged(), [0; 2]);
    }

    #[test]
    fn a_site_has_half_of_the_memory_at_most() {
        let rig = Rig { fills: Fills::new(false), ..Rig::new(1 << 30) };
        let full = vec![0; SEGMENT];
        let copies: Vec<_> = (0..8)
            .filter_map(|_| {
                let mut copy = rig.copy();
                copy.push(&full).ok().map(|()| copy)
            })
            .collect();
        assert_eq!(copies.len() as u64 * SEGMENT_BYTES, COPIES_BYTES_MAX / 2);
        let other = Fills::new(false);
        let mut of_other = ResponseCopy::new(&rig.copies, &rig.store, &other);
        assert_eq!(of_other.push(&full), Ok(()));
    }

    #[test]
    fn all_copies_have_one_bound_and_leave_it_to_others() {
        let rig = Rig::new(1 << 30);
        let full = vec![0; SEGMENT];
        let grown = || {
            let mut copy = rig.copy();
            copy.push(&full).map(|()| copy)
        };
        let mut copies: Vec<_> = (0..8).filter_map(|_| grown().ok()).collect();
        assert_eq!(rig.charged(), [COPIES_BYTES_MAX; 2]);
        assert_eq!(rig.copy().push(&[0]), Err(CopyFull::NoMemory));
        copies.pop();
        assert!(grown().is_ok());
    }

    #[test]
    fn what_replies_and_fills_hold_beyond_the_cache_leaves_no_room() {
        let rig = Rig::new(1 << 20);
        let held = rig.store.ledger().hold(PINNED_BYTES_MAX + (1 << 20) + 1);
        assert_eq!(rig.copy().push(&[0]), Err(CopyFull::NoMemory));
        drop(held);
        assert_eq!(rig.copy().push(&[0]), Ok(()));
    }
}
