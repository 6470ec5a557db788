//! The rate at which a node fills segments from its disk and its origins: the cost of a miss, for policies that weigh it
//! against the node's link.
//!
//! The bytes of complete reads are divided by the time in which at least one of them was in progress: idle time does not
//! count, and reads that share a disk count together. A read that fails or hangs has no effect, as it shows nothing about
//! the others; a short one measures latency and does not count.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::limits::{RATE_BUSY_MIN, RATE_INTERVALS_MAX, RATE_READ_BYTES_MIN, RATE_SMOOTHING};

#[derive(Debug, Default)]
pub struct BackendRate {
    state: Mutex<RateState>,
}

/// A read in progress. It counts if it is [`BackendRead::completed`].
#[derive(Debug)]
pub struct BackendRead {
    rate: Arc<BackendRate>,
    began: Instant,
    bytes: u64,
}

#[derive(Debug, Default)]
struct RateState {
    /// Disjoint intervals in which complete reads were in progress, since the last estimate, in order.
    busy: Vec<(Instant, Instant)>,
    /// Bytes of these reads.
    bytes: u64,
    estimated_at: Option<Instant>,
    /// 0 before the first estimate.
    bytes_per_s: u64,
}

impl BackendRate {
    /// Begins a read of `bytes`.
    pub fn begin(self: &Arc<Self>, bytes: u64) -> BackendRead {
        BackendRead { rate: Arc::clone(self), began: Instant::now(), bytes }
    }

    /// The moving average, in bytes per second; 0: too little has been read.
    pub fn bytes_per_s(&self) -> u64 {
        self.lock().bytes_per_s
    }

    fn lock(&self) -> MutexGuard<'_, RateState> {
        // No panic leaves the numbers half changed.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl BackendRead {
    /// All bytes have arrived.
    pub fn completed(self) {
        if self.bytes >= RATE_READ_BYTES_MIN {
            self.rate.lock().add((self.began, Instant::now()), self.bytes);
        }
    }
}

impl RateState {
    /// Reads are added in the order in which they end.
    fn add(&mut self, (began, ended): (Instant, Instant), bytes: u64) {
        // The time before the last estimate is part of that.
        let mut began = self.estimated_at.map_or(began, |at| began.max(at));
        while let Some(&(from, to)) = self.busy.last()
            && to >= began
        {
            began = began.min(from);
            self.busy.pop();
        }
        self.busy.push((began, ended));
        self.bytes += bytes;
        let busy: Duration =
            self.busy.iter().map(|(from, to)| to.saturating_duration_since(*from)).sum();
        // Many short busy times are as good as a long one, and the list is bounded.
        if busy >= RATE_BUSY_MIN || self.busy.len() >= RATE_INTERVALS_MAX {
            self.estimate(busy, ended);
        }
    }

    fn estimate(&mut self, busy: Duration, now: Instant) {
        let sample = (self.bytes as f64 / busy.as_secs_f64().max(1e-9)) as u64;
        self.bytes_per_s = match self.bytes_per_s {
            0 => sample,
            old => (old / RATE_SMOOTHING * (RATE_SMOOTHING - 1))
                .saturating_add(sample / RATE_SMOOTHING),
        };
        (self.busy, self.bytes, self.estimated_at) = (Vec::new(), 0, Some(now));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MB: u64 = 1_000_000;

    fn at(start: Instant, ms: u64) -> Instant {
        start + Duration::from_millis(ms)
    }

    #[test]
    fn idle_time_does_not_count_and_reads_at_a_time_count_together() {
        let (mut state, start) = (RateState::default(), Instant::now());
        let mut read = |from, to, bytes| {
            state.add((at(start, from), at(start, to)), bytes);
            state.bytes_per_s
        };
        assert_eq!(read(0, 50, MB), 0, "too little to tell");
        // A second of idleness, then two at once: 4 MB in 200 ms of reading.
        assert_eq!(read(1_050, 1_150, MB), 0);
        assert_eq!(read(1_100, 1_200, 2 * MB), 20 * MB);
        assert_eq!(read(2_000, 3_000, 100 * MB), 40 * MB, "it follows in steps");
        // What was in progress at the last estimate counts from there.
        assert_eq!(read(2_500, 3_500, 20 * MB), 40 * MB);
    }

    #[test]
    fn a_long_read_covers_the_gaps_between_others() {
        let (mut state, start) = (RateState::default(), Instant::now());
        state.add((at(start, 0), at(start, 20)), MB);
        state.add((at(start, 60), at(start, 80)), MB);
        state.add((at(start, 10), at(start, 200)), 2 * MB);
        assert_eq!(state.bytes_per_s, 20 * MB);
    }

    #[test]
    fn short_reads_and_failed_ones_do_not_count() {
        let rate = Arc::<BackendRate>::default();
        rate.begin(RATE_READ_BYTES_MIN - 1).completed();
        drop(rate.begin(RATE_READ_BYTES_MIN));
        assert!(rate.lock().busy.is_empty());
        rate.begin(RATE_READ_BYTES_MIN).completed();
        assert_eq!(rate.lock().bytes, RATE_READ_BYTES_MIN);
    }

    #[test]
    fn the_intervals_are_bounded() {
        let (mut state, start) = (RateState::default(), Instant::now());
        for number in 0..=RATE_INTERVALS_MAX as u64 {
            state.add((at(start, 10 * number), at(start, 10 * number)), MB);
        }
        assert!(state.busy.len() <= RATE_INTERVALS_MAX && state.bytes_per_s > 0);
    }
}
