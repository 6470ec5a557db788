//! Load and reachability of other nodes as observed by this node, for use without a
//! coordinator: the bytes that they are filling for this node, and which of them could not be
//! reached. Overloaded and unreachable owners are passed over
//! ([`skep_directory::RendezvousHash::owner`]).

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use skep_units::Now;
use skep_wire::seal::PeerId;

use crate::limits::OWNER_LOST_MS;

/// Bounded by the number of nodes.
#[derive(Debug, Default)]
pub(super) struct Owners(Mutex<HashMap<PeerId, OwnerState>>);

#[derive(Clone, Copy, Debug, Default)]
struct OwnerState {
    outstanding_bytes: u64,
    lost_until: Option<Now>,
}

impl Owners {
    /// Records a request to `id` for a segment of `bytes`.
    pub(super) fn asked(&self, id: PeerId, bytes: u32) {
        self.lock().entry(id).or_default().outstanding_bytes += u64::from(bytes);
    }

    /// Records the end of a request; `is_lost`: the node was not reached, or broke off.
    pub(super) fn ended(&self, id: PeerId, bytes: u32, is_lost: bool, now: Now) {
        let mut owners = self.lock();
        let owner = owners.entry(id).or_default();
        owner.outstanding_bytes -= u64::from(bytes);
        owner.lost_until = is_lost.then(|| now.plus_ms(OWNER_LOST_MS));
    }

    /// The load of each node, in bytes: above any limit if the node is lost.
    pub(super) fn loads(&self, now: Now) -> impl Fn(PeerId) -> u64 {
        let owners = self.lock();
        move |id| match owners.get(&id) {
            Some(owner) if owner.lost_until.is_some_and(|until| now < until) => u64::MAX,
            Some(owner) => owner.outstanding_bytes,
            None => 0,
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<PeerId, OwnerState>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use skep_directory::RendezvousHash;
    use skep_wire::cache::SegmentName;
    use skep_wire::message::Name;

    #[test]
    fn owners_that_are_lost_or_have_too_much_to_do_are_passed_over() {
        const SEGMENT: u32 = 4 << 20;
        let names = ["one", "two", "three"].map(|name| Name::new(name).unwrap());
        let rendezvous = RendezvousHash::new(names.iter().map(|name| (name.peer(), name.clone())));
        let (owners, segment) = (Owners::default(), SegmentName([7; 16]));
        let owner = |at: u64| {
            let loads = owners.loads(Now(at));
            rendezvous.owner(&segment, &loads).unwrap()
        };
        let first = owner(0);
        owners.asked(first, SEGMENT);
        assert_eq!(owner(0), first);
        owners.ended(first, SEGMENT, true, Now(0));
        let second = owner(1);
        assert_ne!(second, first);
        assert_eq!(owner(OWNER_LOST_MS), first);
        (0..40).for_each(|_| owners.asked(first, SEGMENT));
        assert_eq!(owner(OWNER_LOST_MS), second);
        (0..40).for_each(|_| owners.ended(first, SEGMENT, false, Now(0)));
        assert_eq!(owner(1), first);
    }
}
