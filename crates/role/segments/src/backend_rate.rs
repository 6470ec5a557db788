//! The rate at which a node fills segments from its disk and its origins: what a miss costs, for policies that weigh it
//! against the node's link.
//!
//! Bytes are counted over the time in which at least one read is in progress, so that idle time does not count, and reads
//! that share a disk count together. Short reads measure latency and do not count.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::limits::{RATE_BUSY_MIN, RATE_READ_BYTES_MIN, RATE_SMOOTHING};

#[derive(Debug, Default)]
pub struct BackendRate {
    state: Mutex<RateState>,
}

/// A read in progress. Dropped before [`BackendRead::ended`], its bytes do not count.
#[derive(Debug)]
pub struct BackendRead {
    /// `None` for a short one.
    rate: Option<Arc<BackendRate>>,
    bytes: u64,
}

#[derive(Debug, Default)]
struct RateState {
    reads: usize,
    /// Start of the busy time that is not counted yet, while there are reads.
    busy_since: Option<Instant>,
    /// Since the last estimate.
    busy: Duration,
    bytes: u64,
    /// 0 before the first estimate.
    bytes_per_s: u64,
}

impl BackendRate {
    /// Begins to read a segment of `bytes`.
    pub fn begin(self: &Arc<Self>, bytes: u32) -> BackendRead {
        self.begin_at(Instant::now(), bytes)
    }

    /// The moving average, in bytes a second; 0: too little has been read.
    pub fn bytes_per_s(&self) -> u64 {
        self.lock().bytes_per_s
    }

    fn begin_at(self: &Arc<Self>, now: Instant, bytes: u32) -> BackendRead {
        if bytes < RATE_READ_BYTES_MIN {
            return BackendRead { rate: None, bytes: 0 };
        }
        self.lock().begin(now);
        BackendRead { rate: Some(Arc::clone(self)), bytes: 0 }
    }

    fn lock(&self) -> MutexGuard<'_, RateState> {
        // No panic leaves the numbers half changed.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl BackendRead {
    /// It has brought in so many bytes.
    pub fn ended(mut self, bytes: u64) {
        self.bytes = bytes;
    }

    fn end_at(&mut self, now: Instant) {
        if let Some(rate) = self.rate.take() {
            rate.lock().end(now, self.bytes);
        }
    }
}

impl Drop for BackendRead {
    fn drop(&mut self) {
        self.end_at(Instant::now());
    }
}

impl RateState {
    fn begin(&mut self, now: Instant) {
        self.count_busy(now);
        self.reads += 1;
        self.busy_since = Some(now);
    }

    fn end(&mut self, now: Instant, bytes: u64) {
        self.count_busy(now);
        self.reads -= 1;
        self.busy_since = (self.reads > 0).then_some(now);
        self.bytes += bytes;
        if self.busy < RATE_BUSY_MIN {
            return;
        }
        let sample = (self.bytes as f64 / self.busy.as_secs_f64()) as u64;
        self.bytes_per_s = match self.bytes_per_s {
            0 => sample,
            old => (old * (RATE_SMOOTHING - 1) + sample) / RATE_SMOOTHING,
        };
        (self.busy, self.bytes) = (Duration::ZERO, 0);
    }

    fn count_busy(&mut self, now: Instant) {
        if let Some(since) = self.busy_since {
            self.busy += now.saturating_duration_since(since);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MB: u64 = 1_000_000;

    #[test]
    fn idle_time_does_not_count_and_reads_at_a_time_count_together() {
        let (rate, start) = (Arc::<BackendRate>::default(), Instant::now());
        let at = |ms| start + Duration::from_millis(ms);
        let read = |from, to, bytes| {
            let mut read = rate.begin_at(at(from), RATE_READ_BYTES_MIN);
            read.bytes = bytes;
            read.end_at(at(to));
        };
        read(0, 50, MB);
        assert_eq!(rate.bytes_per_s(), 0, "too little to tell");
        // A second of idleness, then two at once: 4 MB in 200 ms of reading.
        let mut first = rate.begin_at(at(1_050), RATE_READ_BYTES_MIN);
        let mut second = rate.begin_at(at(1_100), RATE_READ_BYTES_MIN);
        (first.bytes, second.bytes) = (MB, 2 * MB);
        first.end_at(at(1_150));
        second.end_at(at(1_200));
        assert_eq!(rate.bytes_per_s(), 20 * MB);
        read(2_000, 3_000, 100 * MB);
        assert_eq!(rate.bytes_per_s(), 40 * MB, "it follows in steps");
    }

    #[test]
    fn short_reads_do_not_count_and_failed_ones_end() {
        let (rate, start) = (Arc::<BackendRate>::default(), Instant::now());
        let later = start + Duration::from_secs(1);
        let mut short = rate.begin_at(start, RATE_READ_BYTES_MIN - 1);
        short.bytes = MB;
        short.end_at(later);
        assert_eq!(rate.bytes_per_s(), 0);
        drop(rate.begin_at(start, RATE_READ_BYTES_MIN));
        assert_eq!(rate.lock().reads, 0);
    }
}
