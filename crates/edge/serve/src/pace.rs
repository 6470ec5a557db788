//! The minimum pace at which a peer must accept the bytes sent to it, and its enforcement.
//!
//! The measure is the bytes that the peer *acknowledged*. Whether the send buffer is full indicates little:
//! the kernel reports it as writable only when a third of it is free, and a steady reader of 32 KB/s needs
//! most of a minute for a third of megabytes.
//!
//! Receivers acknowledge in steps: a closed window opens again only when a segment, or a sixteenth of the
//! receive buffer, is free (RFC 9293 3.8.6.2.2; `__tcp_select_window`). On loopback a segment is 64 KiB: a
//! reader of 1 KB/s acknowledges nothing for a minute. Therefore a peer is not disconnected for silence
//! before it had the time for one step at the minimum rate. The size of a full receive buffer is unknown, but
//! it is at most the number of bytes accepted so far.
//!
//! Time counts only while bytes wait for the peer. A slow peer costs one system call per eighth of the stall
//! timeout, and a fast one none.

use crate::deadline::TimeoutCause;
use crate::limits::{RECEIVE_BYTES_MAX, STALL_LOOKS, WINDOW_STEPS};

/// The minimum pace of a peer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pace {
    /// Maximum time without an acknowledged byte, in milliseconds.
    pub stall_ms: u64,
    /// Minimum rate in bytes per second; 0: no minimum.
    pub bytes_per_s_min: u64,
    /// Averaging time of the minimum rate, in milliseconds; also the longest time that a peer is given for a
    /// step of its window.
    pub average_ms: u64,
}

impl Pace {
    /// A limit on silence only.
    pub const fn stall(stall_ms: u64) -> Self {
        Self { stall_ms, bytes_per_s_min: 0, average_ms: 0 }
    }

    /// The pace required of a proxy whose clients are held to this pace. The proxy stalls when its clients
    /// do, and their pace is visible here only through two windows: the times are twice the clients' longest,
    /// so that the proxy, which can identify the slow client, disconnects first.
    pub fn of_proxy(self) -> Self {
        let ms = self.stall_ms.max(self.average_ms).saturating_mul(2);
        Self { stall_ms: ms, average_ms: ms, ..self }
    }

    /// Interval of checks of the peer, in milliseconds.
    fn look_ms(&self) -> u64 {
        (self.stall_ms / STALL_LOOKS).max(1)
    }

    /// Maximum time without an acknowledged byte for a peer whose window opens in steps of `step_bytes`, in
    /// milliseconds.
    fn silence_ms(&self, step_bytes: u64) -> u64 {
        let step_ms = match self.bytes_per_s_min {
            0 => self.average_ms,
            rate => (step_bytes.saturating_mul(1000) / rate).min(self.average_ms),
        };
        self.stall_ms.max(step_ms)
    }
}

/// The kernel's information on a peer.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Taken {
    /// Bytes acknowledged since the connection was established.
    pub(crate) acked_bytes: u64,
    /// Payload of a full segment, in bytes.
    pub(crate) segment_bytes: u64,
}

impl Taken {
    /// The smallest step in which the peer's window opens: segments in flight may be merged to slightly more
    /// than one.
    fn segment_step_bytes(&self) -> u64 {
        self.segment_bytes + self.segment_bytes / 8
    }

    /// The largest possible step.
    fn step_bytes(&self) -> u64 {
        self.segment_step_bytes().max(self.acked_bytes.min(RECEIVE_BYTES_MAX) / WINDOW_STEPS)
    }
}

/// The result of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PaceVerdict {
    /// The peer keeps the pace; the next check is due at this time of the worker's clock.
    Wait(u64),
    /// The peer is too slow.
    Cut(TimeoutCause),
}

/// The progress of a peer.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    pace: Pace,
    /// Since when bytes wait for the peer, if any do.
    waits_since_ms: Option<u64>,
    /// Time waited since the last check.
    waited_ms: u64,
    /// Time waited since the last check that found an acknowledgement.
    silent_ms: u64,
    acked_bytes: u64,
    /// Bytes by which the peer is behind the minimum rate, in thousandths of a byte. Never below zero:
    /// earlier speed does not compensate for later slowness.
    missing_milli: u64,
}

impl Progress {
    /// Records that bytes wait for the peer from `now_ms` on, or still do. Returns the time of the next check
    /// if the wait is new.
    pub(crate) fn wait(&mut self, now_ms: u64, pace: &Pace) -> Option<u64> {
        self.pace = *pace;
        if self.waits_since_ms.is_some() {
            return None;
        }
        self.waits_since_ms = Some(now_ms);
        Some(self.next_look_ms(now_ms))
    }

    /// Records that no bytes wait any more. Returns whether some did.
    pub(crate) fn rest(&mut self, now_ms: u64) -> bool {
        let waited = self.waits_since_ms.take().map(|since| now_ms.saturating_sub(since));
        self.waited_ms += waited.unwrap_or(0);
        waited.is_some()
    }

    /// Judges the peer by the bytes that it has acknowledged.
    pub(crate) fn look(&mut self, now_ms: u64, taken: &Taken) -> PaceVerdict {
        if self.rest(now_ms) {
            self.waits_since_ms = Some(now_ms);
        }
        let waited_ms = std::mem::take(&mut self.waited_ms);
        let acked = taken.acked_bytes.saturating_sub(self.acked_bytes);
        self.acked_bytes = taken.acked_bytes;
        self.silent_ms = if acked > 0 { 0 } else { self.silent_ms + waited_ms };
        let Pace { bytes_per_s_min, average_ms, .. } = self.pace;
        let missing = self.missing_milli + bytes_per_s_min.saturating_mul(waited_ms);
        self.missing_milli = missing.saturating_sub(acked.saturating_mul(1000));
        if self.silent_ms >= self.pace.silence_ms(taken.step_bytes()) {
            return PaceVerdict::Cut(TimeoutCause::WriteStall);
        }
        // A segment is acknowledged as a whole: before that, all of it may be missing.
        let missing_max = bytes_per_s_min.saturating_mul(average_ms);
        if self.missing_milli > missing_max.max(taken.segment_step_bytes() * 1000) {
            return PaceVerdict::Cut(TimeoutCause::SendRate);
        }
        PaceVerdict::Wait(self.next_look_ms(now_ms))
    }

    /// Waits shorter than the check interval add up to one interval.
    fn next_look_ms(&self, now_ms: u64) -> u64 {
        now_ms + self.pace.look_ms().saturating_sub(self.waited_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIB: u64 = 1024;
    const PACE: Pace = Pace { stall_ms: 20_000, bytes_per_s_min: KIB, average_ms: 120_000 };
    const LOOPBACK: u64 = 65_483;
    const ETHERNET: u64 = 1_448;

    #[derive(Clone, Copy, Debug)]
    struct Peer {
        segment_bytes: u64,
        /// Bytes that it acknowledges at once, at first.
        burst: u64,
        /// Bytes that it acknowledges at a time later.
        step: u64,
        rate: u64,
    }

    /// The cause for which a peer is disconnected and when, within `for_ms` milliseconds.
    fn run(pace: Pace, peer: Peer, for_ms: u64) -> Option<(TimeoutCause, u64)> {
        let Peer { segment_bytes, burst, step, rate } = peer;
        let mut progress = Progress::default();
        let mut look_ms = progress.wait(0, &pace);
        let mut now_ms = 0;
        while now_ms < for_ms {
            now_ms = look_ms.take().unwrap_or(now_ms);
            let acked_bytes = burst + now_ms * rate / 1000 / step * step;
            match progress.look(now_ms, &Taken { acked_bytes, segment_bytes }) {
                PaceVerdict::Wait(next_ms) => look_ms = Some(next_ms),
                PaceVerdict::Cut(cause) => return Some((cause, now_ms)),
            }
        }
        None
    }

    #[test]
    fn steady_readers_above_the_least_rate_go_on_whatever_their_steps() {
        const HOUR_MS: u64 = 3_600_000;
        for (rate, segment_bytes, burst, step) in [
            (32 * KIB, LOOPBACK, 65_483, 66_560),
            (4 * KIB, LOOPBACK, 65_483, 66_560),
            (KIB + 32, LOOPBACK, 65_483, 66_560),
            (4 * KIB, ETHERNET, 64 * KIB, 4 * KIB),
            (KIB + 32, ETHERNET, 64 * KIB, 4 * KIB),
            // A browser's receive buffer, as Linux grows it.
            (4 * KIB, ETHERNET, 6 << 20, 384 * KIB),
            (32 * KIB, ETHERNET, 6 << 20, 384 * KIB),
            // That of a tuned machine.
            (32 * KIB, ETHERNET, 32 << 20, 2 << 20),
        ] {
            let peer = Peer { segment_bytes, burst, step, rate };
            assert_eq!(run(PACE, peer, HOUR_MS), None, "{peer:?}");
        }
    }

    #[test]
    fn who_takes_nothing_is_cut_within_an_eighth_more_than_it_has() {
        for (segment_bytes, burst, has_ms) in [
            (ETHERNET, 0, 20_000),
            (ETHERNET, 160 * KIB, 20_000),
            (ETHERNET, 400 * KIB, 50_000),
            (ETHERNET, 6 << 20, 120_000),
            // A step on loopback at 1 KiB/s.
            (LOOPBACK, 65_483, 71_940),
        ] {
            let peer = Peer { segment_bytes, burst, step: 1, rate: 0 };
            let (cause, cut_ms) = run(PACE, peer, 600_000).unwrap_or((TimeoutCause::Idle, 0));
            assert_eq!(cause, TimeoutCause::WriteStall);
            // The first check may also be late by an eighth.
            assert!((has_ms..=has_ms + 5_000).contains(&cut_ms), "{peer:?}: {cut_ms}");
        }
    }

    #[test]
    fn who_takes_less_than_the_least_rate_is_cut_after_the_time_of_the_average() {
        let peer = Peer { segment_bytes: ETHERNET, burst: 0, step: 1, rate: KIB / 2 };
        let (cause, cut_ms) = run(PACE, peer, 3_600_000).unwrap_or((TimeoutCause::Idle, 0));
        assert_eq!(cause, TimeoutCause::SendRate);
        // At half the minimum rate, half of the bytes are missing.
        assert!((240_000..=245_000).contains(&cut_ms), "{cut_ms}");
        let free = Pace { bytes_per_s_min: 0, ..PACE };
        assert_eq!(run(free, Peer { rate: 1, ..peer }, 3_600_000), None, "there is none");
    }

    #[test]
    fn only_time_in_which_bytes_wait_counts() {
        let mut progress = Progress::default();
        // An origin that is slower than its reader: for each second of waiting for the reader, an hour of
        // waiting for the origin.
        for hour in 0..100 {
            let began_ms = hour * 3_600_000;
            let look_ms = progress.wait(began_ms, &PACE);
            assert!(look_ms.is_some_and(|look_ms| look_ms <= began_ms + 2_500));
            assert!(progress.rest(began_ms + 100));
        }
        let end_ms = 100 * 3_600_000;
        assert_eq!(progress.wait(end_ms, &PACE), Some(end_ms), "many short waits make a look");
        let verdict = progress.look(end_ms, &Taken::default());
        assert!(matches!(verdict, PaceVerdict::Wait(_)), "ten seconds of silence: {verdict:?}");
    }

    #[test]
    fn who_was_fast_has_earned_nothing() {
        let mut progress = Progress::default();
        progress.wait(0, &PACE);
        let mut taken = Taken { acked_bytes: 1 << 20, segment_bytes: ETHERNET };
        assert!(matches!(progress.look(1_000, &taken), PaceVerdict::Wait(_)));
        for second in 2..=242 {
            taken.acked_bytes += KIB / 2;
            if let PaceVerdict::Cut(cause) = progress.look(second * 1_000, &taken) {
                assert_eq!((cause, second), (TimeoutCause::SendRate, 242));
                return;
            }
        }
        unreachable!("it is cut");
    }

    #[test]
    fn a_proxy_has_longer_than_any_of_its_clients() {
        let of_proxy = PACE.of_proxy();
        for step in [0, 1_448, 66_560, 1 << 20] {
            assert!(of_proxy.silence_ms(0) >= 2 * PACE.silence_ms(step));
        }
        assert_eq!(Pace::stall(500).silence_ms(1 << 20), 500);
    }
}
