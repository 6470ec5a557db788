//! The progress of a running load, and the order to stop it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::watch;

/// Shared by a load and its observer.
#[derive(Clone)]
pub(super) struct Watch(Arc<Shared>);

struct Shared {
    begin: Instant,
    is_stopped: watch::Sender<bool>,
    begun: AtomicU64,
    succeeded: AtomicU64,
    failed: AtomicU64,
    bytes: AtomicU64,
    /// The round in the upper half, its number of flowing downloads in the lower.
    round: AtomicU64,
    /// Time since `begin`.
    last_sign_us: AtomicU64,
    longest_gap_us: AtomicU64,
}

/// The progress of a load.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Number of requests or downloads that were started.
    pub begun: u64,
    /// Number of successful ones.
    pub succeeded: u64,
    /// Number of failed ones.
    pub failed: u64,
    /// Bytes of bodies.
    pub bytes: u64,
    /// Downloads that received bytes since the last `mark`, or since the start.
    pub flowing: u64,
}

impl Watch {
    pub(super) fn new() -> Self {
        Self(Arc::new(Shared {
            begin: Instant::now(),
            is_stopped: watch::Sender::new(false),
            begun: AtomicU64::new(0),
            succeeded: AtomicU64::new(0),
            failed: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            round: AtomicU64::new(1 << 32),
            last_sign_us: AtomicU64::new(0),
            longest_gap_us: AtomicU64::new(0),
        }))
    }

    pub(super) fn stop(&self) {
        self.0.is_stopped.send_replace(true);
    }

    pub(super) fn is_stopped(&self) -> bool {
        *self.0.is_stopped.borrow()
    }

    /// Returns when the load is to stop.
    pub(super) async fn stopped(&self) {
        // The sender is in the same structure, so it exists.
        let _ = self.0.is_stopped.subscribe().wait_for(|&is_stopped| is_stopped).await;
    }

    pub(super) fn begun(&self) {
        self.0.begun.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn ended(&self, is_ok: bool) {
        let counter = if is_ok { &self.0.succeeded } else { &self.0.failed };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn received(&self, bytes: u64) {
        self.0.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Records a success, which ends a gap.
    pub(super) fn sign(&self) {
        let now_us = us(self.0.begin.elapsed());
        let last_us = self.0.last_sign_us.swap(now_us, Ordering::Relaxed);
        self.0.longest_gap_us.fetch_max(now_us.saturating_sub(last_us), Ordering::Relaxed);
    }

    /// Records that a download received bytes; `seen` is the round in which it last did.
    pub(super) fn flows(&self, seen: &mut u64) {
        let mut now = self.0.round.load(Ordering::Relaxed);
        while now >> 32 != *seen {
            let step =
                self.0.round.compare_exchange(now, now + 1, Ordering::Relaxed, Ordering::Relaxed);
            match step {
                Ok(_) => *seen = now >> 32,
                Err(changed) => now = changed,
            }
        }
    }

    /// Resets the count of flowing downloads.
    pub(super) fn mark(&self) {
        let next = |now: u64| Some(((now >> 32) + 1) << 32);
        let _ = self.0.round.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
    }

    pub(super) fn progress(&self) -> Progress {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Progress {
            begun: of(&self.0.begun),
            succeeded: of(&self.0.succeeded),
            failed: of(&self.0.failed),
            bytes: of(&self.0.bytes),
            flowing: of(&self.0.round) & u64::from(u32::MAX),
        }
    }

    /// Time since the start, in milliseconds.
    pub(super) fn elapsed_ms(&self) -> u64 {
        us(self.0.begin.elapsed()) / 1000
    }

    /// Time since the start, and the longest gap up to now, in milliseconds.
    pub(super) fn finish(&self) -> (u64, u64) {
        let elapsed_ms = self.elapsed_ms();
        let since_last =
            us(self.0.begin.elapsed()).saturating_sub(self.0.last_sign_us.load(Ordering::Relaxed));
        let gap_us = self.0.longest_gap_us.load(Ordering::Relaxed).max(since_last);
        (elapsed_ms, gap_us / 1000)
    }
}

/// Converts to microseconds.
pub(super) fn us(time: Duration) -> u64 {
    time.as_micros() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_counts_each_download_anew_and_once() {
        let watch = Watch::new();
        let (mut one, mut two) = (0, 0);
        watch.flows(&mut one);
        watch.flows(&mut one);
        watch.flows(&mut two);
        assert_eq!(watch.progress().flowing, 2);
        watch.mark();
        assert_eq!(watch.progress().flowing, 0);
        watch.flows(&mut two);
        watch.flows(&mut two);
        assert_eq!(watch.progress().flowing, 1);
    }
}
