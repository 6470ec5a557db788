//! What this process has to do: the load that nodes tell.

use std::sync::Arc;
use std::time::Instant;

use skep_serve::Admission;
use skep_telemetry::{Registry, Totals};
use skep_wire::cache::Load;

/// Bytes of a page of memory, as `/proc` counts them here.
const PAGE_BYTES: u64 = 4096;

/// Clock ticks per second in `/proc` (`USER_HZ`, the same on all machines that
/// Linux runs on today).
const TICKS_PER_S: u64 = 100;

/// Shortest time that a rate is measured over, in milliseconds.
const RATE_MS_MIN: u128 = 1000;

/// Reads the load; rates are those since a second ago.
pub(crate) struct LoadMeter {
    admission: Arc<Admission>,
    registry: Arc<Registry>,
    since: Instant,
    before: Sample,
    rates: Load,
}

/// Sums at a moment.
#[derive(Clone, Default)]
struct Sample {
    cpu_ticks: u64,
    totals: Totals,
}

impl LoadMeter {
    pub(crate) fn new(admission: &Arc<Admission>, registry: &Arc<Registry>) -> Self {
        Self {
            admission: Arc::clone(admission),
            registry: Arc::clone(registry),
            since: Instant::now(),
            before: Sample::default(),
            rates: Load::default(),
        }
    }

    /// The load now.
    pub(crate) fn read(&mut self) -> Load {
        let elapsed = self.since.elapsed();
        if elapsed.as_millis() >= RATE_MS_MIN {
            let after = Sample { cpu_ticks: cpu_ticks(), totals: self.registry.snapshot().totals };
            self.rates = rates(&self.before, &after, elapsed.as_secs_f64());
            (self.since, self.before) = (Instant::now(), after);
        }
        Load {
            connections: self.admission.open() as u64,
            memory_bytes: memory_bytes(),
            ..self.rates
        }
    }
}

fn rates(before: &Sample, after: &Sample, seconds: f64) -> Load {
    let (old, new) = (&before.totals, &after.totals);
    let rate = |old: u64, new: u64| (new.saturating_sub(old) as f64 / seconds) as u64;
    let cores = std::thread::available_parallelism().map_or(1, usize::from) as f64;
    let busy_s = after.cpu_ticks.saturating_sub(before.cpu_ticks) as f64 / TICKS_PER_S as f64;
    let hits = new.cache_hit.saturating_sub(old.cache_hit);
    let others = |it: &Totals| {
        it.cache_fill + it.cache_fill_joined + it.cache_peer_hit + it.cache_peer_joined
    };
    let asked = hits + others(new).saturating_sub(others(old));
    Load {
        cpu_permille: (busy_s / seconds / cores * 1000.0).min(1000.0) as u16,
        sent_bytes_s: rate(old.sent_bytes, new.sent_bytes),
        filled_bytes_s: rate(old.cluster_origin_bytes, new.cluster_origin_bytes),
        hit_permille: (hits * 1000).checked_div(asked).unwrap_or(0) as u16,
        ..Load::default()
    }
}

/// Time on processors, user and system (proc(5), fields 14 and 15).
fn cpu_ticks() -> u64 {
    let text = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The name in parentheses may contain anything.
    let fields = text.rsplit(')').next().unwrap_or_default().split_whitespace();
    fields.skip(11).take(2).filter_map(|field| field.parse::<u64>().ok()).sum()
}

fn memory_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = text.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok());
    pages.unwrap_or(0) * PAGE_BYTES
}
