//! The replay window: the sequence numbers received from a sender, as a sliding bitmap.

use crate::limits::REPLAY_WINDOW;

/// Bit `i` stands for `highest - i` (RFC 4303, 3.4.3).
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Window {
    highest: u64,
    seen: u64,
}

const _: () = assert!(REPLAY_WINDOW == u64::BITS as u64);

impl Window {
    /// Whether `sequence` is new; if so, it is recorded. A number
    /// older than the window is not new; 0 never is.
    pub(super) fn admit(&mut self, sequence: u64) -> bool {
        if sequence > self.highest {
            let shift = sequence - self.highest;
            self.seen = if shift < REPLAY_WINDOW { self.seen << shift } else { 0 };
            self.highest = sequence;
        }
        let age = self.highest - sequence;
        if sequence == 0 || age >= REPLAY_WINDOW || self.seen & (1 << age) != 0 {
            return false;
        }
        self.seen |= 1 << age;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    use skep_units::Rng;

    #[test]
    fn each_number_counts_once_and_only_within_the_window() {
        let mut window = Window::default();
        for (sequence, is_new) in [
            (0, false),
            (1, true),
            (1, false),
            (3, true),
            (2, true),
            (2, false),
            (66, true),
            (3, false),
            (2, false),
            (4, true),
            (u64::MAX, true),
            (u64::MAX, false),
            (u64::MAX - 63, true),
            (u64::MAX - 64, false),
        ] {
            assert_eq!(window.admit(sequence), is_new, "{sequence}");
        }
    }

    #[test]
    fn agrees_with_a_set_of_all_numbers_seen() {
        let mut rng = Rng::new(7);
        let (mut window, mut seen, mut highest) = (Window::default(), BTreeSet::new(), 0_u64);
        for _ in 0..100_000 {
            let sequence = (highest + rng.below(80)).saturating_sub(rng.below(100));
            let in_window = sequence + REPLAY_WINDOW > highest && sequence > 0;
            assert_eq!(window.admit(sequence), in_window && seen.insert(sequence), "{sequence}");
            highest = highest.max(sequence);
        }
    }
}
