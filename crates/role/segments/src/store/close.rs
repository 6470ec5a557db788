//! A store that keeps nothing for a while: its segments go to other nodes, and its memory to the kernel.
//!
//! Invariant: a segment filled while the store is closed is read by those who wait for it, and freed with
//! the last of them.

use skep_cache::S3Fifo;
use skep_directory::limits::CHANCES;
use skep_wire::cache::SegmentName;

use super::{Inner, SegmentStore};

impl SegmentStore {
    /// Stops keeping new segments. Those already here stay until [`SegmentStore::let_go`].
    pub fn close(&self) {
        self.lock().is_closed = true;
    }

    /// Keeps segments again.
    pub fn open(&self) {
        self.lock().is_closed = false;
    }

    /// Returns the names of the oldest segments, at most `count`.
    pub fn oldest(&self, count: usize) -> Vec<SegmentName> {
        self.lock().index.oldest(count).map(|(name, _)| *name).collect()
    }

    /// Removes segments; with `offers`, those that the cluster would lose are offered to other nodes.
    /// Returns false if too many are waiting to be offered; the rest of `names` is then still here.
    pub fn let_go(&self, names: &[SegmentName], offers: bool) -> bool {
        let mut gone = Vec::new();
        let mut inner = self.lock();
        let mut has_room = true;
        for name in names {
            has_room = !offers || inner.leaving.has_room();
            if !has_room {
                break;
            }
            let Some(segment) = inner.index.remove(name) else { continue };
            if offers {
                // That a node is switched off says nothing about how often the segment is requested.
                segment.set_chances(CHANCES);
            }
            if !(offers && inner.leaving.add(*name, &segment)) {
                inner.lost(*name);
            }
            gone.push(segment);
        }
        // Memory files are closed after the lock is released.
        drop(inner);
        drop(gone);
        has_room
    }

    /// Whether no segment is here or waits to be offered.
    pub fn is_empty(&self) -> bool {
        let inner = self.lock();
        inner.index.is_empty() && inner.leaving.is_empty()
    }

    /// Frees the memory of empty tables, and of the region that would be filled next.
    pub fn shrink(&self) {
        let mut inner = self.lock();
        let Inner { index, arena, filling, scratch, .. } = &mut *inner;
        if index.is_empty() {
            let capacity_bytes = index.capacity_bytes();
            *index = S3Fifo::new(capacity_bytes).with_entries_max(self.entries_max);
        }
        filling.shrink_to_fit();
        scratch.shrink_to_fit();
        if let Some(arena) = arena {
            arena.leave_current();
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use std::sync::Arc;

    use skep_wire::cache::ReplicaStatus;

    use super::*;
    use crate::segment::{Placement, Segment};
    use crate::store::{Acquired, Wanted};

    const KIB: usize = 1024;

    fn segment(bytes: u32) -> Arc<Segment> {
        let segment = Segment::new(bytes, Placement::Heap(Arc::default()));
        segment.publish(&vec![0; bytes as usize]).unwrap();
        Arc::new(segment)
    }

    fn store(segments: u8) -> (Arc<SegmentStore>, Vec<SegmentName>) {
        let store = SegmentStore::new(1 << 30, usize::MAX, true);
        let names: Vec<_> = (0..segments).map(|it| SegmentName([it; 16])).collect();
        for &name in &names {
            assert!(store.take_in(name, &segment(1)));
        }
        drop(store.changes());
        (store, names)
    }

    #[test]
    fn a_closed_store_keeps_nothing_and_an_open_one_does_again() {
        let (store, names) = store(1);
        store.close();
        let name = SegmentName([9; 16]);
        assert!(!store.take_in(name, &segment(1)) && !store.has(&name));
        assert_eq!((store.index_bytes_max(), store.room().free_bytes), (0, 0));
        let wanted = Wanted { name, bytes: 64 * KIB as u32, has_more: false };
        let Acquired::Fill(filler) = store.acquire(wanted) else { panic!("it is not here") };
        filler.segment().publish(&vec![0; 64 * KIB]).unwrap();
        assert!(!filler.is_kept());
        drop(filler);
        assert!(!store.has(&name) && store.has(&names[0]), "what it had stays for now");
        assert!(store.let_go(&store.oldest(10), false));
        assert!(store.is_empty());
        store.shrink();
        assert_eq!(store.stats().alive_bytes, 0);
        store.open();
        assert!(store.take_in(name, &segment(1)) && store.has(&name));
    }

    #[test]
    fn what_only_it_has_is_offered_and_the_rest_is_dropped() {
        let (store, names) = store(3);
        let statuses = [ReplicaStatus::Redundant, ReplicaStatus::Sole, ReplicaStatus::Sole];
        store.set_replica_statuses(&names, &statuses, true);
        store.close();
        assert!(store.let_go(&names, true));
        assert!(!store.is_empty() && !store.has(&names[0]));
        let offered = store.next_leaving().unwrap();
        assert_eq!(offered.name, names[1]);
        store.left(&names[1]);
        store.stop_offering();
        assert!(store.is_empty());
    }

    #[test]
    fn what_nobody_takes_is_lost_at_the_end_of_a_hand_over() {
        let (store, names) = store(1);
        store.set_replica_statuses(&names, &[ReplicaStatus::Sole], true);
        store.close();
        assert!(store.let_go(&names, true));
        let offered = store.next_leaving().unwrap();
        assert!(store.offers_again(&offered) && !store.is_empty());
        let refused = store.next_leaving().unwrap();
        store.end_offers();
        assert!(store.is_empty());
        assert!(!store.offers_again(&refused), "it is offered for ever");
        assert!(store.next_leaving().is_none());
    }

    #[test]
    fn what_was_passed_on_before_and_not_asked_for_is_handed_over() {
        let (store, names) = store(1);
        store.find(names[0]).unwrap().set_chances(0);
        store.set_replica_statuses(&names, &[ReplicaStatus::Sole], true);
        store.close();
        assert!(store.let_go(&names, true));
        assert_eq!(store.next_leaving().map(|it| it.name), Some(names[0]));
    }
}
