//! The moves of each donor as recorded by a receiver, including those that have ended.
//!
//! Ended moves are forgotten after some time, or when there are too many, oldest first. A donor's
//! numbers increase, so forgotten moves are at or below the donor's **floor**: an offer at or below
//! it is old, and is never accepted, however late it arrives.

use std::collections::BTreeMap;

use skep_units::{NODES_MAX, Now};
use skep_wire::handoff::HandoffId;
use skep_wire::seal::PeerId;

use super::action::OfferKey;
use super::state::Slot;
use crate::expiry::ExpiryQueue;
use crate::limits::{MEMORY_MS, REMEMBERED_MAX};

/// The moves of all donors.
#[derive(Clone, Debug, Default)]
pub(super) struct Memory {
    donors: BTreeMap<PeerId, DonorRecord>,
    /// Moves that have ended.
    ended: ExpiryQueue<OfferKey, MEMORY_MS, REMEMBERED_MAX>,
}

#[derive(Clone, Debug, Default)]
struct DonorRecord {
    incarnation: u64,
    /// The highest forgotten number of this incarnation.
    floor: u64,
    moves: BTreeMap<HandoffId, Slot>,
}

/// The process that a donor's message comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DonorProcess {
    /// The current process.
    Present,
    /// A new process, which is the current one from now on.
    Restarted,
    /// An earlier process, or too many donors are known.
    Stale,
}

impl Memory {
    /// Records the incarnation in a message.
    pub(super) fn note(&mut self, key: OfferKey) -> DonorProcess {
        let is_known = self.donors.contains_key(&key.donor);
        if !is_known && self.donors.len() >= NODES_MAX {
            return DonorProcess::Stale;
        }
        let donor = self.donors.entry(key.donor).or_default();
        if key.id.incarnation < donor.incarnation {
            return DonorProcess::Stale;
        }
        let is_new = key.id.incarnation > donor.incarnation;
        if is_new {
            (donor.incarnation, donor.floor) = (key.id.incarnation, 0);
        }
        if is_new && is_known { DonorProcess::Restarted } else { DonorProcess::Present }
    }

    /// Whether a move with that number has ended so long ago that it was forgotten.
    pub(super) fn is_forgotten(&self, key: OfferKey) -> bool {
        self.donors.get(&key.donor).is_some_and(|donor| key.id.number <= donor.floor)
    }

    pub(super) fn get(&self, key: OfferKey) -> Option<&Slot> {
        self.donors.get(&key.donor)?.moves.get(&key.id)
    }

    pub(super) fn get_mut(&mut self, key: OfferKey) -> Option<&mut Slot> {
        self.donors.get_mut(&key.donor)?.moves.get_mut(&key.id)
    }

    /// Stores a move of a donor known to [`Memory::note`].
    pub(super) fn insert(&mut self, key: OfferKey, slot: Slot) {
        if let Some(donor) = self.donors.get_mut(&key.donor) {
            donor.moves.insert(key.id, slot);
        }
    }

    /// The move has ended: it is remembered for some time.
    pub(super) fn ended(&mut self, now: Now, key: OfferKey) {
        self.ended.push(now, key);
        self.forget(now);
    }

    /// Forgets moves that ended long ago.
    pub(super) fn forget(&mut self, now: Now) {
        while let Some((_, key)) = self.ended.pop_expired(now) {
            let Some(donor) = self.donors.get_mut(&key.donor) else { continue };
            donor.moves.remove(&key.id);
            if key.id.incarnation == donor.incarnation {
                donor.floor = donor.floor.max(key.id.number);
            }
        }
    }

    /// The moves of that donor's earlier processes.
    pub(super) fn earlier(&self, of: PeerId) -> Vec<OfferKey> {
        let Some(donor) = self.donors.get(&of) else { return Vec::new() };
        let moves = donor.moves.keys().filter(|id| id.incarnation < donor.incarnation);
        moves.map(|&id| OfferKey { donor: of, id }).collect()
    }

    pub(super) fn ends(&self) -> usize {
        self.ended.len()
    }
}
