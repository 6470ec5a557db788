//! Leases of fills.
//!
//! Invariants: at most one lease for a segment at a time; a lease's number is
//! never reused, in any epoch.

use hashbrown::HashMap;
use skep_units::Now;
use skep_wire::cache::{LeaseId, SegmentName};

use crate::limits::LEASE_BITS;
use crate::node_link::NodeLinkId;

/// The permission to fill a segment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FillLease {
    pub(crate) id: LeaseId,
    pub(crate) leader: NodeLinkId,
    pub(crate) bytes: u32,
    expires_at: Now,
}

/// All leases.
#[derive(Debug)]
pub(crate) struct Leases {
    by_name: HashMap<SegmentName, FillLease>,
    by_id: HashMap<LeaseId, SegmentName>,
    epoch: u64,
    /// Incremented at each grant. It starts at a random number: where epochs are mere ranks, a
    /// restarted coordinator has the same epoch as before.
    number: u64,
    ttl_ms: u64,
}

impl Leases {
    pub(crate) fn new(ttl_ms: u32, first: u64) -> Self {
        let (by_name, by_id) = (HashMap::new(), HashMap::new());
        Self { by_name, by_id, epoch: 0, number: first, ttl_ms: u64::from(ttl_ms) }
    }

    /// Begins a new term, without leases.
    pub(crate) fn begin_term(&mut self, epoch: u64) {
        self.clear();
        self.epoch = epoch;
    }

    /// All leases end.
    pub(crate) fn clear(&mut self) {
        self.by_name.clear();
        self.by_id.clear();
    }

    pub(crate) fn len(&self) -> usize {
        self.by_name.len()
    }

    /// The leaders of all leases, including expired ones.
    pub(crate) fn leaders(&self) -> impl Iterator<Item = NodeLinkId> {
        self.by_name.values().map(|lease| lease.leader)
    }

    /// The lease of a segment, if it has not expired.
    pub(crate) fn of(&self, name: &SegmentName, now: Now) -> Option<&FillLease> {
        self.by_name.get(name).filter(|lease| now < lease.expires_at)
    }

    /// Grants a lease for a segment that has none.
    pub(crate) fn grant(
        &mut self,
        name: SegmentName,
        bytes: u32,
        leader: NodeLinkId,
        now: Now,
    ) -> LeaseId {
        self.number = self.number.wrapping_add(1);
        let id = LeaseId((self.epoch << LEASE_BITS) | (self.number & ((1 << LEASE_BITS) - 1)));
        let expires_at = now.plus_ms(self.ttl_ms);
        let lease = FillLease { id, leader, bytes, expires_at };
        let before = self.by_name.insert(name, lease);
        assert!(before.is_none(), "a segment has one lease at a time");
        self.by_id.insert(id, name);
        id
    }

    /// Renews the lease of this leader, unless it has expired.
    pub(crate) fn renew(&mut self, id: LeaseId, leader: NodeLinkId, now: Now) {
        let lease = self.by_id.get(&id).and_then(|name| self.by_name.get_mut(name));
        let Some(lease) = lease.filter(|it| it.leader == leader && now < it.expires_at) else {
            return;
        };
        lease.expires_at = now.plus_ms(self.ttl_ms);
    }

    /// Ends a lease of this leader that has not expired.
    pub(crate) fn end(
        &mut self,
        id: LeaseId,
        leader: NodeLinkId,
        now: Now,
    ) -> Option<(SegmentName, FillLease)> {
        let name = *self.by_id.get(&id)?;
        self.of(&name, now).filter(|lease| lease.leader == leader)?;
        self.remove(&name).map(|lease| (name, lease))
    }

    /// Ends the lease of a segment, expired or not.
    pub(crate) fn remove(&mut self, name: &SegmentName) -> Option<FillLease> {
        let lease = self.by_name.remove(name)?;
        self.by_id.remove(&lease.id);
        Some(lease)
    }

    /// Ends the lease of a segment if it is this leader's.
    pub(crate) fn remove_of(&mut self, name: &SegmentName, leader: NodeLinkId) -> bool {
        let is_its = self.by_name.get(name).is_some_and(|lease| lease.leader == leader);
        is_its && self.remove(name).is_some()
    }

    /// Ends all leases of a leader.
    pub(crate) fn left(&mut self, leader: NodeLinkId) {
        self.retain(|lease| lease.leader != leader);
    }

    /// Removes expired leases; returns how many.
    pub(crate) fn expire(&mut self, now: Now) -> u64 {
        let before = self.len();
        self.retain(|lease| now < lease.expires_at);
        (before - self.len()) as u64
    }

    fn retain(&mut self, is_kept: impl Fn(&FillLease) -> bool) {
        let by_id = &mut self.by_id;
        self.by_name.retain(|_, lease| {
            let is_kept = is_kept(lease);
            if !is_kept {
                by_id.remove(&lease.id);
            }
            is_kept
        });
    }
}
