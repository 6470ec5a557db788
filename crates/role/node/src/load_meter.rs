//! Measures the load of this process, as its node reports it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use skep_telemetry::{CoreGauge, Registry, Totals};
use skep_wire::message::NodeLoad;

use crate::Node;

/// Window over which rates are measured, in milliseconds: long enough to smooth bursts, short
/// enough to follow a change within a second.
const RATE_MS: u128 = 1000;

/// Samples stored for that window at most, however often the load is read.
const SAMPLES_MAX: usize = 128;

/// Reads the load of the node of this process.
pub struct LoadMeter {
    node: Arc<Node>,
    registry: Arc<Registry>,
    cores: f64,
    /// Samples of the last second, oldest first.
    samples: VecDeque<Sample>,
}

/// Sums at one moment.
#[derive(Clone, Copy)]
struct Sample {
    at: Instant,
    cpu: Duration,
    sent_bytes: u64,
    filled_bytes: u64,
    hits: u64,
    /// Look-ups in the memory cache.
    asked: u64,
}

impl LoadMeter {
    /// Measures `node`, whose requests `registry` counts.
    pub fn new(node: &Arc<Node>, registry: &Arc<Registry>) -> Self {
        Self {
            node: Arc::clone(node),
            registry: Arc::clone(registry),
            cores: std::thread::available_parallelism().map_or(1, usize::from) as f64,
            samples: VecDeque::new(),
        }
    }

    /// The load now; rates are those of the last second.
    pub fn read(&mut self) -> NodeLoad {
        let now = sample(&self.registry.totals());
        let is_old = |it: &Sample| now.at.duration_since(it.at).as_millis() > RATE_MS;
        // One older sample is kept, so that the window covers a whole second.
        while self.samples.get(1).is_some_and(is_old) || self.samples.len() >= SAMPLES_MAX {
            self.samples.pop_front();
        }
        let before = self.samples.front().copied().unwrap_or(now);
        self.samples.push_back(now);
        let sending_bytes = self.node.cluster().map_or(0, |cluster| cluster.sending_bytes());
        NodeLoad {
            connections: self.registry.gauge(CoreGauge::ConnectionsOpen),
            requests_in_flight: self.registry.gauge(CoreGauge::RequestsInFlight),
            bytes_outstanding: self.registry.gauge(CoreGauge::BytesOutstanding) + sending_bytes,
            memory_bytes: resident_bytes() + self.node.store_stats().file_bytes,
            ..rates(&before, &now, self.cores)
        }
    }

    /// How fast it reads its disk and its origins, in bytes a second; 0: not known.
    pub fn fetch_bytes_per_s(&self) -> u64 {
        self.node.fetch_bytes_per_s()
    }
}

fn sample(totals: &Totals) -> Sample {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    let cpu = Duration::new(time.tv_sec as u64, time.tv_nsec as u32);
    Sample {
        at: Instant::now(),
        cpu,
        sent_bytes: totals.sent_bytes + totals.peer_sent_bytes,
        filled_bytes: totals.cluster_origin_bytes,
        hits: totals.cache_hits(),
        asked: totals.cache_lookups(),
    }
}

/// The rates between two samples.
fn rates(before: &Sample, after: &Sample, cores: f64) -> NodeLoad {
    let seconds = after.at.duration_since(before.at).as_secs_f64();
    if seconds == 0.0 {
        return NodeLoad::default();
    }
    let rate = |old: u64, new: u64| (new.saturating_sub(old) as f64 / seconds) as u64;
    let busy_s = after.cpu.saturating_sub(before.cpu).as_secs_f64();
    let hits = after.hits.saturating_sub(before.hits);
    let asked = after.asked.saturating_sub(before.asked);
    NodeLoad {
        cpu_permille: (busy_s / seconds / cores * 1000.0).min(1000.0) as u16,
        sent_bytes_s: rate(before.sent_bytes, after.sent_bytes),
        filled_bytes_s: rate(before.filled_bytes, after.filled_bytes),
        hit_permille: (hits.min(asked) * 1000).checked_div(asked).unwrap_or(0) as u16,
        ..NodeLoad::default()
    }
}

/// Resident memory, in bytes (proc(5), statm); files that are stored in memory files are not part
/// of it.
fn resident_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = text.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok());
    pages.unwrap_or(0) * rustix::param::page_size() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_per_second_and_shares_are_of_what_happened() {
        let at = Instant::now();
        let before =
            Sample { at, cpu: Duration::ZERO, sent_bytes: 100, filled_bytes: 0, hits: 5, asked: 9 };
        let after = Sample {
            at: at + Duration::from_millis(500),
            cpu: Duration::from_millis(250),
            sent_bytes: 1_100,
            filled_bytes: 50,
            hits: 8,
            asked: 13,
        };
        let load = rates(&before, &after, 2.0);
        assert_eq!((load.sent_bytes_s, load.filled_bytes_s), (2_000, 100));
        assert_eq!((load.cpu_permille, load.hit_permille), (250, 750));
        assert_eq!(rates(&before, &before, 2.0), NodeLoad::default());
    }

    #[test]
    fn a_process_takes_memory() {
        assert!(resident_bytes() > 1 << 20);
    }
}
