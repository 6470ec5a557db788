//! A link or a disk that shares its rate equally among its transfers (processor sharing); the rate of each
//! transfer may be limited.
//!
//! Implemented by virtual time: the bytes that each transfer has received since the resource was last idle. A
//! transfer ends when virtual time reaches its value at the start plus the transfer's bytes, so an arrival or
//! an end costs O(log n), and no other transfer is updated.
//!
//! **Invariant:** while there are transfers, [`ProcessorSharing::wake_at`] is not later than the next end.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::limits::{BYTES_EPSILON, NS_PER_S};

/// A rate shared by transfers, each identified by a value of type `T`.
#[derive(Clone, Debug)]
pub(crate) struct ProcessorSharing<T> {
    bytes_per_ns: f64,
    /// The maximum rate of one transfer.
    transfer_bytes_per_ns: f64,
    /// Bytes that each transfer has received since the resource was idle, at `updated_ns`.
    virtual_bytes: f64,
    updated_ns: u64,
    /// How long it would have been busy until then at its full rate.
    busy_ns: f64,
    /// Ends in virtual bytes (as bits, which have the order of the numbers, as none is negative); equal ones
    /// in the order of arrival.
    ends: BinaryHeap<Reverse<(u64, u64, T)>>,
    arrivals: u64,
    /// The time of the requested wake-up; `u64::MAX` if there is none.
    wake_at: u64,
}

impl<T: Copy + Ord> ProcessorSharing<T> {
    /// Creates an idle resource with this rate.
    pub(crate) fn new(bytes_per_s: u64) -> Self {
        assert!(bytes_per_s > 0, "a resource has a rate");
        Self {
            bytes_per_ns: bytes_per_s as f64 / NS_PER_S as f64,
            transfer_bytes_per_ns: f64::INFINITY,
            virtual_bytes: 0.0,
            updated_ns: 0,
            busy_ns: 0.0,
            ends: BinaryHeap::new(),
            arrivals: 0,
            wake_at: u64::MAX,
        }
    }

    /// Limits the rate of each transfer; `None`: no limit.
    pub(crate) fn with_transfer_max(mut self, bytes_per_s: Option<u64>) -> Self {
        let bytes_per_ns = |bytes_per_s| bytes_per_s as f64 / NS_PER_S as f64;
        self.transfer_bytes_per_ns = bytes_per_s.map_or(f64::INFINITY, bytes_per_ns);
        self
    }

    /// Starts a transfer. Returns when to call [`wake`](Self::wake), if that is earlier than requested
    /// before.
    pub(crate) fn start(&mut self, now_ns: u64, bytes: u64, transfer: T) -> Option<u64> {
        self.advance(now_ns);
        let end = self.virtual_bytes + bytes as f64;
        self.arrivals += 1;
        self.ends.push(Reverse((end.to_bits(), self.arrivals, transfer)));
        self.sooner(now_ns)
    }

    /// Appends the transfers that have ended to `ended`. Returns when to call it next. A call that is no
    /// longer due has no effect.
    pub(crate) fn wake(&mut self, now_ns: u64, ended: &mut Vec<T>) -> Option<u64> {
        if now_ns != self.wake_at {
            return None;
        }
        self.wake_at = u64::MAX;
        self.advance(now_ns);
        while let Some(&Reverse((end, _, transfer))) = self.ends.peek() {
            if f64::from_bits(end) > self.virtual_bytes + BYTES_EPSILON {
                break;
            }
            ended.push(transfer);
            self.ends.pop();
        }
        self.sooner(now_ns)
    }

    /// Cuts all transfers off.
    pub(crate) fn cut(&mut self, now_ns: u64) {
        self.advance(now_ns);
        self.ends.clear();
        self.wake_at = u64::MAX;
    }

    /// Virtual time: the bytes that a transfer would have received by now if it had started when the resource
    /// was idle.
    pub(crate) fn virtual_bytes(&self, now_ns: u64) -> f64 {
        match self.ends.len() {
            0 => 0.0,
            transfers => {
                let passed_ns = (now_ns - self.updated_ns) as f64;
                self.virtual_bytes + passed_ns * self.rate_of_each(transfers)
            }
        }
    }

    /// How long the resource would have been busy so far at its full rate.
    pub(crate) fn busy_ns(&self, now_ns: u64) -> u64 {
        self.busy_until(now_ns) as u64
    }

    fn busy_until(&self, now_ns: u64) -> f64 {
        let transfers = self.ends.len();
        if transfers == 0 {
            return self.busy_ns;
        }
        let used = self.rate_of_each(transfers) * transfers as f64 / self.bytes_per_ns;
        self.busy_ns + (now_ns - self.updated_ns) as f64 * used.min(1.0)
    }

    /// The rate of each transfer, in bytes per nanosecond.
    fn rate_of_each(&self, transfers: usize) -> f64 {
        (self.bytes_per_ns / transfers as f64).min(self.transfer_bytes_per_ns)
    }

    fn advance(&mut self, now_ns: u64) {
        // Restarts at 0 after each idle time, so that it stays precise.
        self.virtual_bytes = self.virtual_bytes(now_ns);
        self.busy_ns = self.busy_until(now_ns);
        self.updated_ns = now_ns;
    }

    /// The time of the next end, unless an earlier wake-up is requested.
    fn sooner(&mut self, now_ns: u64) -> Option<u64> {
        let Reverse((end, _, _)) = self.ends.peek()?;
        let left = (f64::from_bits(*end) - self.virtual_bytes).max(0.0);
        let wait_ns = (left / self.rate_of_each(self.ends.len())).ceil().max(1.0);
        let at = now_ns + wait_ns as u64;
        (at < self.wake_at).then(|| {
            self.wake_at = at;
            at
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use crate::events::EventQueue;
    use skep_units::Rng;

    /// The ends of transfers with these start times and bytes, in milliseconds; the rate is 1000 bytes per
    /// second.
    fn ends(starts: &[(u64, u64)]) -> Vec<(usize, u64)> {
        let mut link = ProcessorSharing::new(1000);
        let mut events = EventQueue::default();
        for (number, (at_ms, _)) in starts.iter().enumerate() {
            events.schedule(at_ms * 1_000_000, Some(number));
        }
        let mut all = Vec::new();
        while let Some((now, event)) = events.pop() {
            let mut ended = Vec::new();
            let wake = match event {
                Some(number) => link.start(now, starts[number].1, number),
                None => link.wake(now, &mut ended),
            };
            all.extend(ended.into_iter().map(|number| (number, now / 1_000_000)));
            wake.into_iter().for_each(|at| events.schedule(at, None));
        }
        all
    }

    #[test]
    fn transfers_share_the_rate_and_end_when_they_have_their_bytes() {
        assert_eq!(ends(&[(0, 500)]), [(0, 500)], "alone");
        assert_eq!(ends(&[(0, 500), (0, 500)]), [(0, 1000), (1, 1000)], "equal halves");
        assert_eq!(ends(&[(0, 1000), (500, 100)]), [(1, 700), (0, 1100)], "a short one passes");
        assert_eq!(ends(&[(0, 100), (5000, 100)]), [(0, 100), (1, 5100)], "idle between");
        assert_eq!(ends(&[(0, 300), (0, 600)]), [(0, 600), (1, 900)], "the rest is faster");
    }

    #[test]
    fn a_transfer_takes_no_more_than_its_bound() {
        let mut link = ProcessorSharing::new(1000).with_transfer_max(Some(400));
        let (mut now, mut ended) = (0, Vec::new());
        let mut next = link.start(0, 400, 'a');
        for (transfer, bytes) in [('b', 800), ('c', 1_000)] {
            next = link.start(0, bytes, transfer).or(next);
        }
        let mut ends = Vec::new();
        while let Some(at) = next {
            now = at;
            next = link.wake(now, &mut ended);
            ends.extend(ended.drain(..).map(|transfer| (transfer, now / 1_000_000)));
        }
        // A third each, then 400 bytes per second for both, and for the last one alone.
        assert_eq!(ends, [('a', 1_200), ('b', 2_200), ('c', 2_700)]);
        assert_eq!(link.busy_ns(now) / 1_000_000, 1_200 + 800 + 200);
    }

    /// Mean response time over mean service time, for Poisson arrivals.
    fn mean_over_service(load: f64, service: impl Fn(&mut Rng) -> f64) -> f64 {
        const BYTES_PER_S: u64 = 1_000_000_000;
        let (mut link, mut rng) = (ProcessorSharing::new(BYTES_PER_S), Rng::new(7));
        let mut events = EventQueue::default();
        let (mean, count) = (100_000.0, 400_000);
        let mut began = Vec::with_capacity(count);
        let (mut total_ns, mut all) = (0.0, 0u32);
        events.schedule(0, true);
        let mut ended = Vec::new();
        while let Some((now, is_arrival)) = events.pop() {
            if !is_arrival {
                link.wake(now, &mut ended).into_iter().for_each(|at| events.schedule(at, false));
                for number in ended.drain(..) {
                    total_ns += (now - began[number]) as f64;
                    all += 1;
                }
                continue;
            }
            let bytes = (mean * service(&mut rng)).max(1.0) as u64;
            let wake = link.start(now, bytes, began.len());
            wake.into_iter().for_each(|at| events.schedule(at, false));
            began.push(now);
            if began.len() < count {
                // A byte takes one nanosecond.
                let gap = -(1.0 - rng.unit()).ln() * mean / load;
                events.schedule(now + gap as u64, true);
            }
        }
        assert_eq!(all as usize, count, "every transfer ends");
        total_ns / f64::from(all) / mean
    }

    #[test]
    fn the_mean_response_is_that_of_the_formula_whatever_the_distribution() {
        for load in [0.5, 0.8] {
            let expected = 1.0 / (1.0 - load);
            let exponential = mean_over_service(load, |rng| -(1.0 - rng.unit()).ln());
            let equal = mean_over_service(load, |_| 1.0);
            let uneven = |rng: &mut Rng| if rng.below(10) == 0 { 5.5 } else { 0.5 };
            let uneven = mean_over_service(load, uneven);
            for (what, seen) in [("M/M/1", exponential), ("M/D/1", equal), ("M/G/1", uneven)] {
                let is_near = (seen / expected - 1.0).abs() < 0.03;
                assert!(is_near, "{what} at {load}: {seen:.3}, formula {expected:.3}");
            }
        }
    }
}
