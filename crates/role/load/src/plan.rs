//! The plan of a load.

use std::sync::Arc;

use skep_probe::ProbeUrl;
use skep_workload::{ClientRamp, LogTrace, Workload};

/// A load.
#[derive(Clone, Debug)]
pub struct LoadPlan {
    /// The site, by `http`. Paths of a workload are appended to its path.
    pub url: ProbeUrl,
    pub subject: LoadSubject,
    pub pace: LoadPace,
    /// Clients of the closed loop, or concurrent connections of the open one, at most.
    pub clients: u32,
    pub is_http10: bool,
    /// Requests on one connection, at most.
    pub per_connection: u64,
    /// Time limit of a request, including its connection and redirects, in milliseconds.
    pub timeout_ms: u64,
    /// Time after which no request begins, in milliseconds.
    pub duration_ms: u64,
    /// Times at the beginning and at the end that are not measured, in milliseconds.
    pub warm_up_ms: u64,
    pub cool_down_ms: u64,
    /// Total number of requests, at most.
    pub requests_max: Option<u64>,
    pub seed: u64,
    /// The share of this process.
    pub share: ProcessShare,
}

/// The objects that are requested.
#[derive(Clone, Debug)]
pub enum LoadSubject {
    /// Files of a workload; each body is compared with its expected contents.
    Files(Workload),
    /// The URL itself; with `has_same_bodies`, each body must have the same hash as the first one.
    Page { has_same_bodies: bool },
    /// The requests of an access log, with responses like the logged ones; bodies are not compared.
    Log(Arc<LogTrace>),
}

/// When requests begin.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum LoadPace {
    /// Each client sends its next request after a response and a pause with this mean (exponential), in
    /// milliseconds.
    Closed { think_ms: u64, ramp: Option<ClientRamp> },
    /// At planned times (Poisson) with this mean rate per second, independent of responses.
    Open { per_second: f64 },
    /// At the times of the log, sped up by this factor, independent of responses.
    Logged { speed: f64 },
}

/// One of several processes that share a load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessShare {
    /// Index from 0.
    pub index: u32,
    /// Number of processes, not 0.
    pub processes: u32,
}

impl ProcessShare {
    /// The only process.
    pub const WHOLE: Self = Self { index: 0, processes: 1 };

    /// Whether the item with this number belongs to this process.
    pub(crate) fn has(self, number: u64) -> bool {
        number % u64::from(self.processes) == u64::from(self.index)
    }

    /// The number of items of `count` that belong to this process.
    pub(crate) fn of(self, count: u64) -> u64 {
        let (index, processes) = (u64::from(self.index), u64::from(self.processes));
        count / processes + u64::from(index < count % processes)
    }
}

impl LoadPlan {
    /// The measured window, in microseconds since the beginning.
    pub(crate) fn window_us(&self) -> std::ops::Range<u64> {
        self.warm_up_ms * 1_000..self.duration_ms.saturating_sub(self.cool_down_ms) * 1_000
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_have_everything_once() {
        for processes in [1, 3, 7] {
            let shares = || (0..processes).map(|index| ProcessShare { index, processes });
            for number in 0..20 {
                assert_eq!(shares().filter(|share| share.has(number)).count(), 1);
                assert_eq!(shares().map(|share| share.of(number)).sum::<u64>(), number);
            }
        }
    }
}
