//! Arrivals of an open loop: planned in advance, and timed by a separate thread, since the runtime's timer
//! has a resolution of milliseconds.

use std::io;
use std::thread;
use std::time::Instant;

use skep_units::Rng;
use tokio::sync::mpsc;

use crate::limits::ARRIVALS_PENDING_MAX;

/// The times of all arrivals, in microseconds since the beginning: a Poisson process.
pub(crate) struct Arrivals {
    rng: Rng,
    gap_us: f64,
    at_us: f64,
}

impl Arrivals {
    pub(crate) fn new(per_second: f64, seed: u64) -> Self {
        Self { rng: Rng::new(seed ^ 0xa771), gap_us: 1e6 / per_second, at_us: 0.0 }
    }
}

impl Iterator for Arrivals {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        self.at_us -= (1.0 - self.rng.unit()).ln() * self.gap_us;
        Some(self.at_us as u64)
    }
}

/// An arrival that is due.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrival {
    /// Its number in the plan.
    pub(crate) number: u64,
    /// Its time in the plan, in microseconds since the beginning.
    pub(crate) at_us: u64,
}

/// Sends arrivals when they are due; while the receiver is busy they wait, and keep their planned times.
pub(crate) fn begin_arrivals(
    planned: impl Iterator<Item = Arrival> + Send + 'static,
    begin: Instant,
) -> io::Result<mpsc::Receiver<Arrival>> {
    let (sender, receiver) = mpsc::channel(ARRIVALS_PENDING_MAX);
    thread::Builder::new().name("bench-arrivals".to_owned()).spawn(move || {
        for arrival in planned {
            let at = begin + std::time::Duration::from_micros(arrival.at_us);
            thread::sleep(at.saturating_duration_since(Instant::now()));
            if sender.blocking_send(arrival).is_err() {
                return;
            }
        }
    })?;
    Ok(receiver)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrivals_come_at_their_rate_and_again_by_their_seed() {
        let times: Vec<u64> = Arrivals::new(1_000.0, 1).take(20_000).collect();
        assert!(times.is_sorted());
        let mean_us = times[19_999] as f64 / 20_000.0;
        assert!((mean_us / 1_000.0 - 1.0).abs() < 0.03, "{mean_us}");
        assert!(times.iter().copied().eq(Arrivals::new(1_000.0, 1).take(20_000)));
        assert!(!times.iter().copied().eq(Arrivals::new(1_000.0, 2).take(20_000)));
    }
}
