//! A register over a sliding window of time, in one word.
//!
//! ```text
//!  bit 63                41                                   0
//!   | newest slot (22) | rank of newest-6 | .. | newest-1 | newest |     6 bits each; 0: nothing
//! ```
//!
//! A word is only ever replaced by the result of [`WindowRegister::raised`], so threads can share
//! it as an atomic, with a compare-and-swap; in the steady state nothing is raised, and nothing is
//! written.

use skep_units::Now;

use crate::limits::{RANK_MAX, SLOT_MS, SLOTS};
use crate::observation::Observation;

const RANK_BITS: u64 = 6;
const RANK_MASK: u64 = (1 << RANK_BITS) - 1;
const RANKS_BITS: u64 = RANK_BITS * SLOTS;
const RANKS_MASK: u64 = (1 << RANKS_BITS) - 1;
/// The last representable slot, after 39 years.
const SLOT_MAX: u64 = (1 << (64 - RANKS_BITS)) - 1;

const _: () = assert!(RANK_MAX as u64 <= RANK_MASK);

/// The value 0 means that nothing was observed yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WindowRegister(pub u64);

impl WindowRegister {
    /// The register after observing `seen` at `now`; unchanged if that adds nothing.
    #[must_use]
    pub fn raised(self, now: Now, seen: Observation) -> Self {
        let own = self.moved_to(slot_of(now));
        // Another thread's clock may be slightly ahead.
        let age = own.newest() - slot_of(now);
        if age >= SLOTS || own.rank(age) >= seen.rank {
            return own;
        }
        let at = age * RANK_BITS;
        Self(own.0 & !(RANK_MASK << at) | u64::from(seen.rank) << at)
    }

    /// The highest rank of the window that ends at `now`; 0 if there is none.
    pub fn highest(self, now: Now) -> u8 {
        let own = self.moved_to(slot_of(now));
        let ahead = own.newest() - slot_of(now);
        (ahead.min(SLOTS)..SLOTS).map(|age| own.rank(age)).max().unwrap_or(0)
    }

    /// Advanced to `slot` as the newest slot, unless it is already later.
    fn moved_to(self, slot: u64) -> Self {
        let by = slot.saturating_sub(self.newest());
        match by {
            0 => self,
            _ => {
                let shift = (by.min(SLOTS) * RANK_BITS) as u32;
                Self(slot << RANKS_BITS | (self.0 & RANKS_MASK) << shift & RANKS_MASK)
            }
        }
    }

    fn newest(self) -> u64 {
        self.0 >> RANKS_BITS
    }

    /// The rank of the slot `age` slots before the newest.
    fn rank(self, age: u64) -> u8 {
        (self.0 >> (age * RANK_BITS) & RANK_MASK) as u8
    }
}

fn slot_of(now: Now) -> u64 {
    (now.0 / SLOT_MS).min(SLOT_MAX)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn seen(rank: u8) -> Observation {
        Observation { register: 0, rank }
    }

    #[test]
    fn a_rank_leaves_with_its_slot() {
        let register = WindowRegister::default().raised(Now(7), seen(9));
        let register = register.raised(Now(2 * SLOT_MS), seen(4));
        for (slot, wanted) in [(2, 9), (6, 9), (7, 4), (8, 4), (9, 0), (1 << 30, 0)] {
            assert_eq!(register.highest(Now(slot * SLOT_MS)), wanted, "slot {slot}");
        }
        let later = register.raised(Now(7 * SLOT_MS), seen(1));
        assert_eq!((later.highest(Now(7 * SLOT_MS)), later.highest(Now(9 * SLOT_MS))), (4, 1));
    }

    #[test]
    fn what_is_seen_again_writes_nothing() {
        let register = WindowRegister::default().raised(Now(SLOT_MS), seen(5));
        assert_eq!(register.raised(Now(2 * SLOT_MS - 1), seen(5)), register);
        assert_eq!(register.raised(Now(SLOT_MS), seen(3)), register);
        assert_ne!(register.raised(Now(2 * SLOT_MS), seen(5)), register);
    }

    proptest! {
        /// Against a list of all observations, with clocks that are not in step.
        #[test]
        fn a_window_has_what_a_list_of_its_slots_has(
            events in proptest::collection::vec((0..20_u64, 1..=RANK_MAX), 0..40),
            at in 0..30_u64,
        ) {
            let (mut register, mut newest) = (WindowRegister::default(), 0);
            let mut list = Vec::new();
            for (slot, rank) in events {
                newest = newest.max(slot);
                register = register.raised(Now(slot * SLOT_MS + slot), seen(rank));
                list.push((slot, rank));
            }
            // Slots that a later one has displaced are lost, even for queries about an earlier
            // time.
            let kept = newest.saturating_sub(SLOTS - 1)..=at;
            let inside = |slot: &u64| kept.contains(slot) && at - slot < SLOTS;
            let inside = list.iter().filter(|(slot, _)| inside(slot));
            let wanted = inside.map(|(_, rank)| *rank).max().unwrap_or(0);
            prop_assert_eq!(register.highest(Now(at * SLOT_MS)), wanted);
        }

        /// The order of threads does not matter, except for observations that were too late anyway.
        #[test]
        fn the_order_within_a_window_does_not_matter(
            events in proptest::collection::vec((20..20 + SLOTS, 1..=RANK_MAX), 1..30),
        ) {
            let raise = |register: WindowRegister, (slot, rank): &(u64, u8)| {
                register.raised(Now(slot * SLOT_MS), seen(*rank))
            };
            let forth = events.iter().fold(WindowRegister::default(), raise);
            let back = events.iter().rev().fold(WindowRegister::default(), raise);
            prop_assert_eq!(forth, back);
        }
    }
}
