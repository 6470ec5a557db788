//! How fast a client receives a reply, and how much memory its reply may hold.
//!
//! A fast client is sent whole segments, without a copy. A slow client is sent copies of as much as
//! it receives in a second, and the segment is released in between: the slower a client is, the
//! less memory its reply holds.

use std::time::Duration;

use crate::limits::{FAST_BYTES, PATIENCE_MS, PIECE_BYTES_MAX, PIECE_BYTES_MIN, STREAM_BYTES};

/// The observed pace of a client that receives a reply.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClientPace {
    is_slow: bool,
    /// The reply is small enough to be sent as a copy.
    is_at_once: bool,
    /// Bytes that it receives in [`ClientPace::PATIENCE`], within the bounds of a piece.
    piece_bytes: u64,
    /// Bytes received at the rate of a fast client.
    fast_bytes: u64,
}

impl Default for ClientPace {
    /// Clients are assumed to be fast, as most are.
    fn default() -> Self {
        let piece_bytes = STREAM_BYTES as u64;
        Self { is_slow: false, is_at_once: false, piece_bytes, fast_bytes: 0 }
    }
}

impl ClientPace {
    /// Time that a client may take to receive data sent without a copy.
    pub(crate) const PATIENCE: Duration = Duration::from_millis(PATIENCE_MS);

    /// Records that the reply is so small that the rate does not matter.
    pub(crate) fn takes_at_once(&mut self) {
        self.is_at_once = true;
    }

    /// Whether it is sent copies.
    pub(crate) fn is_sent_copies(&self) -> bool {
        self.is_slow || self.is_at_once
    }

    /// Whether it was found to be slow.
    pub(crate) fn is_slow(&self) -> bool {
        self.is_slow
    }

    /// Size of the next copy, in bytes.
    pub(crate) fn piece_bytes(&self) -> u64 {
        self.piece_bytes
    }

    /// Records that it received only `taken_bytes` in [`ClientPace::PATIENCE`].
    pub(crate) fn was_slow(&mut self, taken_bytes: u64) {
        let piece_bytes = taken_bytes.clamp(PIECE_BYTES_MIN, PIECE_BYTES_MAX);
        *self = Self { is_slow: true, piece_bytes, fast_bytes: 0, ..*self };
    }

    /// Records that it received a copy of `bytes` in `ms` milliseconds.
    pub(crate) fn took(&mut self, bytes: u64, ms: u64) {
        let in_patience = bytes.saturating_mul(PATIENCE_MS) / ms.max(1);
        if !self.is_slow {
            if ms > PATIENCE_MS {
                self.was_slow(in_patience);
            }
            return;
        }
        // At most twice the last piece: the kernel's buffer may have taken it at once, which shows
        // little about the client.
        let next_bytes = in_patience.min(2 * self.piece_bytes);
        self.piece_bytes = next_bytes.clamp(PIECE_BYTES_MIN, PIECE_BYTES_MAX);
        self.fast_bytes = if in_patience >= FAST_BYTES { self.fast_bytes + bytes } else { 0 };
        if self.fast_bytes >= FAST_BYTES {
            *self = Self { is_at_once: self.is_at_once, ..Self::default() };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slower_it_is_the_less_it_is_sent_at_a_time() {
        let mut pace = ClientPace::default();
        assert!(!pace.is_sent_copies());
        pace.was_slow(30_000);
        assert!(pace.is_sent_copies() && pace.piece_bytes() == 30_000);
        pace.took(30_000, 3_000);
        assert_eq!(pace.piece_bytes(), 10_000);
        for _ in 0..10 {
            pace.took(pace.piece_bytes(), 60_000);
        }
        assert_eq!(pace.piece_bytes(), PIECE_BYTES_MIN);
        pace.took(PIECE_BYTES_MIN, 0);
        assert_eq!(pace.piece_bytes(), 2 * PIECE_BYTES_MIN, "step by step");
    }

    #[test]
    fn who_gets_copies_for_another_reason_is_slow_all_the_same() {
        let mut pace = ClientPace::default();
        pace.took(pace.piece_bytes(), PATIENCE_MS);
        assert!(!pace.is_sent_copies());
        pace.took(100_000, 5 * PATIENCE_MS);
        assert!(pace.is_sent_copies() && pace.piece_bytes() == 20_000);
    }

    #[test]
    fn who_becomes_fast_is_fast_again_when_that_lasts() {
        let mut pace = ClientPace::default();
        pace.was_slow(0);
        let mut taken = 0;
        while pace.is_sent_copies() {
            let bytes = pace.piece_bytes();
            pace.took(bytes, bytes * PATIENCE_MS / FAST_BYTES);
            taken += bytes;
        }
        assert!((FAST_BYTES..2 * FAST_BYTES).contains(&taken), "{taken}");
        pace.was_slow(0);
        (0..100).for_each(|_| pace.took(PIECE_BYTES_MAX, 100));
        assert!(pace.is_sent_copies(), "640 KB/s");
    }
}
