//! The epochs that a dispatcher has seen, and those that it may use.
//!
//! An epoch is persisted before it is used, so that no later process of this dispatcher uses it
//! again. A disk may take seconds, which a takeover cannot wait for: so epochs are reserved ahead,
//! in blocks, and the last epoch of each block is persisted. A process that starts continues after
//! all epochs that earlier ones reserved, and after all that it receives.
//!
//! The persisted state may be lost: the file may be missing, or an old copy of it. Machines that
//! know later epochs may be heard only after the first claim, for example after a start without
//! network. So the first claim of each process skips a random number of epochs, and almost never
//! reuses one.
//!
//! A disk that fails, or does not answer for [`RESERVE_PATIENCE_MS`] when epochs have run out, does
//! not keep a dispatcher from claiming: it then skips a random number for each claim, since
//! unpersisted epochs are lost in any case.

use skep_units::Now;

use crate::epoch::first_after;
use crate::limits::{EPOCHS_RESERVED, EPOCHS_SKIPPED_MAX, RESERVE_AGAIN_MS, RESERVE_PATIENCE_MS};

/// The epochs of one dispatcher.
#[derive(Clone, Debug)]
pub(super) struct Epochs {
    /// The number of the dispatcher.
    number: u16,
    /// The latest epoch received or claimed.
    seen: u64,
    /// Epochs up to this one may have been used by earlier processes. Not announced: an active
    /// dispatcher would claim a later one needlessly.
    past: u64,
    /// Epochs up to this one may be used.
    reserved: u64,
    reservation: Reservation,
    /// How many epochs to skip where earlier processes may have used the next ones.
    skip: u64,
    has_claimed: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reservation {
    Idle,
    /// Being persisted; `is_failing`: the previous attempt failed.
    Pending {
        since: Now,
        is_failing: bool,
    },
    Failed {
        retry_at: Now,
    },
}

impl Epochs {
    /// For the dispatcher with this number, which has persisted `last`. `random` must differ
    /// between processes.
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

    /// The epoch for a claim: one of this dispatcher's own, after all that were seen; `None` while
    /// it waits for the disk.
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

    /// Whether the last attempt to persist epochs failed.
    fn is_failing(&self) -> bool {
        match self.reservation {
            Reservation::Idle => false,
            Reservation::Pending { is_failing, .. } => is_failing,
            Reservation::Failed { .. } => true,
        }
    }

    /// The last epoch of a block to persist now, if one is needed.
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

    /// All epochs up to `last` are persisted.
    pub(super) fn persisted(&mut self, last: u64) {
        self.reserved = self.reserved.max(last);
        self.reservation = Reservation::Idle;
    }

    /// The epochs could not be persisted.
    pub(super) fn failed(&mut self, now: Now) {
        self.reservation = Reservation::Failed { retry_at: now.plus_ms(RESERVE_AGAIN_MS) };
    }

    /// The last epoch that must not be used any more.
    fn last(&self) -> u64 {
        self.seen.max(self.past)
    }

    /// The last epoch that the next claim skips.
    fn last_passed(&self) -> u64 {
        self.last().saturating_add(if self.has_claimed { 0 } else { self.skip })
    }
}
