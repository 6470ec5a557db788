//! The replay window: the sequence numbers received from a sender, as a bitmap in blocks (RFC 6479).

/// Sequence numbers per block.
const BLOCK: u64 = u64::BITS as u64;

/// Bit `n % 64` of block `n / 64`, in a ring with one block more than the length of the window: an
/// overwritten number is always too old to be looked up.
#[derive(Clone, Debug)]
pub(super) struct Window {
    highest: u64,
    seen: Box<[u64]>,
}

impl Window {
    /// A window of `length` numbers, a multiple of 64.
    pub(super) fn new(length: u64) -> Self {
        debug_assert!(
            length > 0 && length.is_multiple_of(BLOCK),
            "{length} is not in whole blocks"
        );
        Self { highest: 0, seen: vec![0; (length / BLOCK + 1) as usize].into() }
    }

    /// Whether `sequence` is new; if so, it is recorded. A number older than the window is not new;
    /// 0 never is.
    pub(super) fn admit(&mut self, sequence: u64) -> bool {
        if sequence > self.highest {
            self.advance(sequence);
        }
        let block = self.block(sequence);
        let bit = 1 << (sequence % BLOCK);
        if sequence == 0 || self.highest - sequence >= self.length() || self.seen[block] & bit != 0
        {
            return false;
        }
        self.seen[block] |= bit;
        true
    }

    /// The number of sequence numbers in the window.
    pub(super) fn length(&self) -> u64 {
        (self.seen.len() as u64 - 1) * BLOCK
    }

    /// Clears the blocks between the highest number and a higher one.
    fn advance(&mut self, sequence: u64) {
        let blocks = self.seen.len() as u64;
        let (from, to) = (self.highest / BLOCK, sequence / BLOCK);
        for block in from + 1..=to.min(from + blocks) {
            self.seen[(block % blocks) as usize] = 0;
        }
        self.highest = sequence;
    }

    fn block(&self, sequence: u64) -> usize {
        (sequence / BLOCK % self.seen.len() as u64) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    use skep_units::Rng;

    #[test]
    fn each_number_counts_once_and_only_within_the_window() {
        let mut window = Window::new(64);
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
        for (length, step) in [(64, 80), (4_096, 80), (4_096, 5_000), (128, 1_000)] {
            let mut rng = Rng::new(7);
            let (mut window, mut seen, mut highest) = (Window::new(length), BTreeSet::new(), 0_u64);
            for _ in 0..100_000 {
                let sequence = (highest + rng.below(step)).saturating_sub(rng.below(length + 36));
                let in_window = sequence + length > highest && sequence > 0;
                let is_new = in_window && seen.insert(sequence);
                assert_eq!(window.admit(sequence), is_new, "{sequence} of {length}");
                highest = highest.max(sequence);
            }
        }
    }
}
