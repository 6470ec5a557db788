//! The epochs that a dispatcher has seen, and those that it may use.
//!
//! An epoch is persisted before it is used, so that no later process of this dispatcher uses it
//! again. A disk may take seconds, which a takeover cannot wait for: epochs are reserved ahead, in
//! blocks, and what is persisted is the last one of a block. A process that starts continues after
//! all that earlier ones have reserved, and after all that it hears of.
//!
//! What was persisted may be lost: the file is gone, or an old copy of it. Who knows of the epochs
//! since may be heard only after the first claim, as after a start with the network down. So the first
//! claim of each process skips a random number of epochs, and has hardly the epoch of an earlier one.
//!
//! A disk that fails, or does not answer for [`RESERVE_PATIENCE_MS`] when epochs have run out, does
//! not keep a dispatcher from claiming: it skips as many for each claim, as what is not persisted is
//! lost in any case.

use skep_units::Now;

use crate::epoch::first_after;
use crate::limits::{EPOCHS_RESERVED, EPOCHS_SKIPPED_MAX, RESERVE_AGAIN_MS, RESERVE_PATIENCE_MS};

/// The epochs of one dispatcher.
#[derive(Clone, Debug)]
pub(super) struct Epochs {
    /// That of the dispatcher.
    number: u16,
    /// The latest one heard of, or claimed.
    seen: u64,
    /// Those up to here may have been used by earlier processes. Nobody is told: an active
    /// dispatcher would claim a later one for nothing.
    past: u64,
    /// Those up to here may be used.
    reserved: u64,
    reservation: Reservation,
    /// How many it skips where earlier processes may have used the next ones, unknown to it.
    skip: u64,
    has_claimed: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reservation {
    Idle,
    /// Being persisted; the time before, that failed or not.
    Pending {
        since: Now,
        is_failing: bool,
    },
    Failed {
        retry_at: Now,
    },
}

impl Epochs {
    /// Those of the dispatcher with this number, which has persisted `last`. `random` differs between
    /// processes.
    pub(super) fn new(number: u16, last: u64, random: u64) -> Self {
        let (skip, reservation) = (random % EPOCHS_SKIPPED_MAX, Reservation::Idle);
        Self { number, seen: 0, past: last, reserved: last, reservation, skip, has_claimed: false }
    }

    pub(super) fn seen(&self) -> u64 {
        self.seen
    }

    pub(super) fn see(&mut self, epoch: u64) {
        self.seen = self.seen.max(epoch);
    }

    /// It has claimed in this epoch.
    pub(super) fn claimed(&mut self, epoch: u64) {
        self.see(epoch);
        self.has_claimed = true;
    }

    /// The epoch for a claim, this dispatcher's own and after all that were seen; `None` while it
    /// waits for the disk.
    pub(super) fn next(&self, now: Now) -> Option<u64> {
        let epoch = first_after(self.last_passed(), self.number);
        if epoch <= self.reserved {
            return Some(epoch);
        }
        let has_waited = match self.reservation {
            Reservation::Idle => false,
            Reservation::Pending { since, is_failing } => {
                is_failing || now.since_ms(since) >= RESERVE_PATIENCE_MS
            }
            Reservation::Failed { .. } => true,
        };
        has_waited.then(|| first_after(self.last().saturating_add(self.skip), self.number))
    }

    /// Whether epochs could not be persisted when that was tried last.
    fn is_failing(&self) -> bool {
        match self.reservation {
            Reservation::Idle => false,
            Reservation::Pending { is_failing, .. } => is_failing,
            Reservation::Failed { .. } => true,
        }
    }

    /// The last epoch of a block to be persisted now, if there is need of one.
    pub(super) fn reserve(&mut self, now: Now) -> Option<u64> {
        let is_due = match self.reservation {
            Reservation::Idle => {
                self.reserved < self.last_passed().saturating_add(EPOCHS_RESERVED / 2)
            }
            Reservation::Pending { .. } => false,
            Reservation::Failed { retry_at } => now >= retry_at,
        };
        is_due.then(|| {
            self.reservation = Reservation::Pending { since: now, is_failing: self.is_failing() };
            self.last_passed().saturating_add(EPOCHS_RESERVED)
        })
    }

    /// All up to `last` are persisted.
    pub(super) fn persisted(&mut self, last: u64) {
        self.reserved = self.reserved.max(last);
        self.reservation = Reservation::Idle;
    }

    /// They could not be persisted.
    pub(super) fn failed(&mut self, now: Now) {
        self.reservation = Reservation::Failed { retry_at: now.plus_ms(RESERVE_AGAIN_MS) };
    }

    /// The last one that must not be used any more.
    fn last(&self) -> u64 {
        self.seen.max(self.past)
    }

    /// The last one that the next claim passes over.
    fn last_passed(&self) -> u64 {
        self.last().saturating_add(if self.has_claimed { 0 } else { self.skip })
    }
}
