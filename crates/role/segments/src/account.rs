//! The memory of a node besides the bytes of segments: object heads and the workers' indexes of
//! them. It is deducted from the memory for segments.
//!
//! Invariant: dropping a charge returns it to its account, wherever the charge was moved.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::arena::Ledger;
use crate::limits::{ALLOCATOR_PART, HEADS_KIND_PART, HEADS_PART};

/// Memory of the heads of one kind: of files, of origins, of other nodes.
#[derive(Debug)]
pub struct HeadAccount {
    ledger: Arc<Ledger>,
    own_bytes: AtomicU64,
    /// Limit for heads of all kinds together.
    all_bytes_max: u64,
}

impl HeadAccount {
    /// Creates an empty account in a store of `capacity_bytes`.
    pub fn new(ledger: &Arc<Ledger>, capacity_bytes: u64) -> Arc<Self> {
        let all_bytes_max = capacity_bytes / HEADS_PART;
        Arc::new(Self { ledger: Arc::clone(ledger), own_bytes: AtomicU64::new(0), all_bytes_max })
    }

    /// Charges `bytes` bytes until the returned value is dropped.
    pub fn charge(self: &Arc<Self>, bytes: usize) -> Charge {
        let bytes = allocated(bytes);
        self.own_bytes.fetch_add(bytes, Ordering::Relaxed);
        self.ledger.heads_bytes.fetch_add(bytes, Ordering::Relaxed);
        Charge { account: Arc::clone(self), bytes }
    }

    /// Whether heads must be evicted before others are added. Heads of one kind may use memory
    /// that other kinds leave free, but never the share guaranteed to each kind.
    pub fn is_full(&self) -> bool {
        self.exceeds(self.all_bytes_max)
    }

    /// Whether enough was evicted that the next search for candidates is not due soon.
    pub fn is_roomy(&self) -> bool {
        !self.exceeds(self.all_bytes_max / 8 * 7)
    }

    fn exceeds(&self, all_bytes_max: u64) -> bool {
        let own_bytes = self.own_bytes.load(Ordering::Relaxed);
        let all_bytes = self.ledger.heads_bytes.load(Ordering::Relaxed);
        all_bytes > all_bytes_max && own_bytes > all_bytes_max / HEADS_KIND_PART
    }
}

/// Memory charged to an account until this is dropped.
#[derive(Debug)]
pub struct Charge {
    account: Arc<HeadAccount>,
    bytes: u64,
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.account.own_bytes.fetch_sub(self.bytes, Ordering::Relaxed);
        self.account.ledger.heads_bytes.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// The number of bytes that the allocator takes for `bytes` bytes in the worst case.
pub fn allocated(bytes: usize) -> u64 {
    (bytes + bytes / ALLOCATOR_PART) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_kind_takes_what_is_free_and_leaves_others_their_part() {
        let ledger = Arc::<Ledger>::default();
        let [files, origins] = [(); 2].map(|()| HeadAccount::new(&ledger, 64_000));
        let mut held: Vec<_> = (0..16).map(|_| files.charge(1_000)).collect();
        assert!(files.is_full() && !origins.is_full(), "a quarter, with what allocating costs");
        held.extend((0..3).map(|_| origins.charge(1_000)));
        assert!(!origins.is_full());
        held.extend((0..2).map(|_| origins.charge(1_000)));
        assert!(origins.is_full(), "a quarter of that");
        while !files.is_roomy() {
            held.swap_remove(0);
        }
        assert!(!files.is_full() && !held.is_empty());
        drop(held);
        assert_eq!(ledger.meta_bytes(), 0);
    }
}
