//! Evicted sole and primary replicas being offered to another node; until then they can still
//! be found by name.
//!
//! Invariants: bounded in bytes; the segments here are in no index; coordinators are sent the
//! removal of a replica only when it leaves here, so that every node that asks for it finds it.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use skep_directory::keep::offer;
use skep_wire::cache::SegmentName;
use skep_wire::cache::link::MemberId;
use tokio::sync::Notify;

use crate::limits::LEAVING_BYTES_MAX;
use crate::segment::Segment;

#[derive(Debug, Default)]
pub(crate) struct Leaving {
    by_name: HashMap<SegmentName, Arc<Segment>>,
    /// Segments not yet offered, the oldest first.
    waiting: VecDeque<(SegmentName, u8)>,
    bytes: u64,
    /// Whether another node has room.
    is_wanted: bool,
    /// Whether an offering task is running.
    is_offering: bool,
    added: Arc<Notify>,
}

/// A segment to be offered.
#[derive(Debug)]
pub struct Offered {
    pub name: SegmentName,
    /// Its length.
    pub bytes: u32,
    /// The number of times it may still be passed on.
    pub chances: u8,
    /// The holder of another replica, which is asked first.
    pub successor: Option<MemberId>,
}

impl Leaving {
    /// Sets whether there is a node with room.
    pub(crate) fn set_wanted(&mut self, is_wanted: bool) {
        self.is_wanted = is_wanted;
    }

    /// Adds an evicted segment. Returns false if it is not to be offered, and is dropped.
    pub(crate) fn add(&mut self, name: SegmentName, segment: &Arc<Segment>) -> bool {
        let bytes = u64::from(segment.len());
        let fits = self.bytes + bytes <= LEAVING_BYTES_MAX;
        let replica_status = segment.replica_status();
        let is_wanted = self.is_wanted || replica_status.successor().is_some();
        if !is_wanted || !fits || !segment.is_complete() {
            return false;
        }
        let Some(chances) = offer(replica_status, segment.chances()) else { return false };
        self.by_name.insert(name, Arc::clone(segment));
        self.waiting.push_back((name, chances));
        self.bytes += bytes;
        self.added.notify_one();
        true
    }

    /// Whether a segment of any size fits.
    pub(crate) fn has_room(&self) -> bool {
        self.bytes + skep_units::SEGMENT_BYTES <= LEAVING_BYTES_MAX
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.by_name.is_empty()
    }

    /// Returns the handle that is notified of each added segment.
    pub(crate) fn added(&self) -> &Arc<Notify> {
        &self.added
    }

    /// Returns a segment that is still here.
    pub(crate) fn get(&self, name: &SegmentName) -> Option<&Arc<Segment>> {
        self.by_name.get(name)
    }

    /// Removes a segment if it is here: it is kept after all, or dropped.
    pub(crate) fn remove(&mut self, name: &SegmentName) -> Option<Arc<Segment>> {
        let segment = self.by_name.remove(name)?;
        self.bytes -= u64::from(segment.len());
        Some(segment)
    }

    /// Whether there is something to offer. Returns true to one caller only, until
    /// [`Leaving::next`] has returned `None`.
    pub(crate) fn wants_offering(&mut self) -> bool {
        !self.waiting.is_empty() && !std::mem::replace(&mut self.is_offering, true)
    }

    /// Returns all segments that are here.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&SegmentName, &Arc<Segment>)> {
        self.by_name.iter()
    }

    /// Removes a segment that was not offered yet, and returns its name.
    pub(crate) fn give_up(&mut self) -> Option<SegmentName> {
        while let Some((name, _)) = self.waiting.pop_front() {
            if self.remove(&name).is_some() {
                return Some(name);
            }
        }
        None
    }

    /// Removes all segments, including those being offered, and returns their names.
    pub(crate) fn clear(&mut self) -> Vec<SegmentName> {
        self.waiting.clear();
        self.bytes = 0;
        self.by_name.drain().map(|(name, _)| name).collect()
    }

    /// Queues a refused segment to be offered again after all others. Returns false if it is no
    /// longer here.
    pub(crate) fn again(&mut self, offered: &Offered) -> bool {
        let is_here = self.by_name.contains_key(&offered.name);
        if is_here {
            self.waiting.push_back((offered.name, offered.chances));
        }
        is_here
    }

    /// Returns the next segment to offer.
    pub(crate) fn next(&mut self) -> Option<Offered> {
        while let Some((name, chances)) = self.waiting.pop_front() {
            if let Some(segment) = self.by_name.get(&name) {
                let successor = segment.replica_status().successor();
                return Some(Offered { name, bytes: segment.len(), chances, successor });
            }
        }
        self.is_offering = false;
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::segment::Placement;
    use crate::store::SegmentStore;
    use skep_wire::cache::ReplicaStatus;

    fn segment(bytes: u32) -> Arc<Segment> {
        let segment = Segment::new(bytes, Placement::Heap(Arc::default()));
        while segment.next_chunk_bytes() > 0 {
            let published = segment.publish(&vec![0; segment.next_chunk_bytes()]);
            assert!(published.is_ok());
        }
        Arc::new(segment)
    }

    #[test]
    fn sole_replicas_wait_to_be_offered_and_can_come_back() {
        let (mut leaving, name) = (Leaving::default(), |it| SegmentName([it; 16]));
        assert!(!leaving.add(name(1), &segment(10)), "nobody has room");
        leaving.set_wanted(true);
        let redundant = segment(10);
        redundant.set_replica_status(ReplicaStatus::Redundant);
        assert!(!leaving.add(name(1), &redundant));
        assert!(leaving.add(name(2), &segment(10)) && leaving.add(name(3), &segment(10)));
        assert!(leaving.wants_offering() && !leaving.wants_offering());
        assert!(leaving.remove(&name(2)).is_some() && leaving.get(&name(3)).is_some());
        let next = leaving.next();
        assert!(next.as_ref().is_some_and(|it| it.name == name(3) && it.chances == 1));
        assert!(leaving.next().is_none() && !leaving.wants_offering());
        let Some(refused) = next else { return };
        assert!(leaving.again(&refused) && leaving.wants_offering());
        assert!(leaving.next().is_some_and(|it| it.name == name(3)));
        assert!(leaving.remove(&name(3)).is_some() && leaving.remove(&name(3)).is_none());
        assert!(!leaving.again(&refused) && leaving.next().is_none());
        assert_eq!(leaving.bytes, 0);
    }

    #[test]
    fn they_are_bounded() {
        let mut leaving = Leaving { is_wanted: true, ..Leaving::default() };
        let large = skep_units::SEGMENT_BYTES as u32;
        let kept = (0..100).filter(|&it| leaving.add(SegmentName([it; 16]), &segment(large)));
        assert_eq!(kept.count() as u64, LEAVING_BYTES_MAX / u64::from(large));
    }

    #[test]
    fn what_is_forgotten_is_neither_found_nor_offered() {
        let store = SegmentStore::new(1000, usize::MAX, true);
        store.set_replica_statuses(&[], &[], true);
        let names: Vec<_> = (0..20).map(|it| SegmentName([it; 16])).collect();
        for &name in &names {
            let kept = store.take_in(name, &segment(100));
            assert!(kept);
        }
        assert!(store.next_leaving().is_some());
        assert!(names.iter().all(|&name| store.find(name).is_some()));
        store.forget(names.iter().copied());
        assert!(names.iter().all(|&name| store.find(name).is_none()));
        assert!(store.next_leaving().is_none());
    }
}
