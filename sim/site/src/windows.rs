//! Outcomes of requests by the time window of their arrival, and when they had settled after an event.

use crate::byte_sources::BytesBySource;
use crate::limits::{NS_PER_MS, SETTLED_SIGMAS};

/// Windows of equal length, from the beginning of the run.
#[derive(Clone, Debug, PartialEq)]
pub struct OutcomeWindows {
    pub window_ms: u64,
    pub all: Vec<OutcomeWindow>,
}

/// The requests that arrived in a window.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct OutcomeWindow {
    /// Requests that ended with all their bytes.
    pub requests: u64,
    /// Of these, requests whose bytes were all in their node's memory, and requests that needed the disk or
    /// the origin.
    pub hits: u64,
    pub from_source: u64,
    pub bytes: u64,
    pub memory_bytes: u64,
    /// Sum of the response times, in nanoseconds.
    pub response_ns: f64,
}

impl OutcomeWindows {
    pub(crate) fn new(window_ms: u64) -> Self {
        assert!(window_ms > 0, "windows have a length");
        Self { window_ms, all: Vec::new() }
    }

    pub(crate) fn record(&mut self, began_ns: u64, response_ns: u64, bytes: BytesBySource) {
        let at = (began_ns / (self.window_ms * NS_PER_MS)) as usize;
        if self.all.len() <= at {
            self.all.resize(at + 1, OutcomeWindow::default());
        }
        let window = &mut self.all[at];
        window.requests += 1;
        window.hits += u64::from(bytes.memory == bytes.total());
        window.from_source += u64::from(bytes.fetched > 0);
        window.bytes += bytes.total();
        window.memory_bytes += bytes.memory;
        window.response_ns += response_ns as f64;
    }

    /// Seconds from `from_s` until a measure had settled: until the end of the last two consecutive windows,
    /// before `until_s`, that were both further from the mean of the last quarter than [`SETTLED_SIGMAS`]
    /// standard deviations of its windows. 0 if there were none; `None` if it had not settled by that
    /// quarter, or there are too few windows.
    pub fn settled_s(
        &self,
        from_s: f64,
        until_s: f64,
        of: impl Fn(&OutcomeWindow) -> f64,
    ) -> Option<f64> {
        let at = |seconds: f64| (seconds * 1e3 / self.window_ms as f64) as usize;
        let (from, until) = (at(from_s), at(until_s).min(self.all.len()));
        let seen: Vec<f64> = self.all.get(from..until)?.iter().map(of).collect();
        let last = &seen[seen.len() - seen.len() / 4..];
        if last.len() < 4 {
            return None;
        }
        let mean = last.iter().sum::<f64>() / last.len() as f64;
        let variance = last.iter().map(|value| (value - mean).powi(2)).sum::<f64>();
        let margin = SETTLED_SIGMAS * (variance / (last.len() - 1) as f64).sqrt();
        // The value of a window without requests is NaN, and counts as outside.
        let is_outside = |value: &f64| value.is_nan() || (value - mean).abs() > margin;
        let settled = seen.windows(2).rposition(|pair| pair.iter().all(is_outside));
        let settled = settled.map_or(0, |place| place + 2);
        let has_settled = settled <= seen.len() - last.len();
        let end_ms = (from + settled) as f64 * self.window_ms as f64;
        has_settled.then_some(if settled == 0 { 0.0 } else { end_ms / 1e3 - from_s })
    }
}

impl OutcomeWindow {
    /// The share of requests whose bytes were all in their node's memory.
    pub fn hit_ratio(&self) -> f64 {
        self.hits as f64 / self.requests as f64
    }

    /// The share of requests that needed the disk or the origin.
    pub fn source_ratio(&self) -> f64 {
        self.from_source as f64 / self.requests as f64
    }

    /// Mean response time, in seconds.
    pub fn mean_s(&self) -> f64 {
        self.response_ns / self.requests as f64 / 1e9
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn windows(hits: impl Iterator<Item = u64>) -> OutcomeWindows {
        let window = |hits| OutcomeWindow { requests: 100, hits, ..OutcomeWindow::default() };
        OutcomeWindows { window_ms: 100, all: hits.map(window).collect() }
    }

    #[test]
    fn it_has_settled_after_the_last_two_windows_that_are_far_from_the_end() {
        let usual = |at: u64| 90 + at % 3;
        let dip = |at: u64| if (20..26).contains(&at) { 50 } else { usual(at) };
        let settled =
            |windows: &OutcomeWindows| windows.settled_s(2.0, 6.0, OutcomeWindow::hit_ratio);
        let seen = settled(&windows((0..60).map(dip)));
        assert!(seen.is_some_and(|seen| (seen - 0.6).abs() < 1e-9), "{seen:?}");
        assert_eq!(settled(&windows((0..60).map(usual))), Some(0.0), "nothing happened");
        let one = windows((0..60).map(|at| if at == 40 { 10 } else { dip(at) }));
        assert!(settled(&one).is_some_and(|seen| (seen - 0.6).abs() < 1e-9), "one alone is chance");
        assert_eq!(settled(&windows((0..30).map(dip))), None, "too few");
    }
}
