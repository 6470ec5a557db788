//! What a load is to do.

use std::sync::Arc;

use skep_probe::ProbeUrl;
use skep_workload::{ClientRamp, LogTrace, Workload};

/// A load.
#[derive(Clone, Debug)]
pub struct LoadPlan {
    /// The site: `http`. Paths of a workload begin behind its path.
    pub url: ProbeUrl,
    pub subject: LoadSubject,
    pub pace: LoadPace,
    /// Clients of the closed loop, or connections at a time of the open one, at most.
    pub clients: u32,
    pub is_http10: bool,
    /// Requests on a connection, at most.
    pub per_connection: u64,
    /// Time for a request, with its connection and redirects, in milliseconds.
    pub timeout_ms: u64,
    /// No request begins after it, in milliseconds.
    pub duration_ms: u64,
    /// What is not measured at the beginning, and at the end, in milliseconds.
    pub warm_up_ms: u64,
    pub cool_down_ms: u64,
    /// Requests in all, at most.
    pub requests_max: Option<u64>,
    pub seed: u64,
    /// The part of this process.
    pub share: ProcessShare,
}

/// What is asked for.
#[derive(Clone, Debug)]
pub enum LoadSubject {
    /// Files of a workload, each body compared with what it must be.
    Files(Workload),
    /// The URL itself; with `has_same_bodies`, each body must be the first one, by its hash.
    Page { has_same_bodies: bool },
    /// What an access log says, with answers like the logged ones; bodies are not compared.
    Log(Arc<LogTrace>),
}

/// When requests begin.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum LoadPace {
    /// Each client asks again when it has its answer, after a pause of this mean (exponential), in milliseconds.
    Closed { think_ms: u64, ramp: Option<ClientRamp> },
    /// At planned times (Poisson), so many a second in the mean, whatever becomes of the requests.
    Open { per_second: f64 },
    /// At the times of the log, so many times as fast, whatever becomes of the requests.
    Logged { speed: f64 },
}

/// One of several processes that share a load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessShare {
    /// From 0.
    pub index: u32,
    /// Not 0.
    pub processes: u32,
}

impl ProcessShare {
    /// The only one.
    pub const WHOLE: Self = Self { index: 0, processes: 1 };

    /// Whether this process has the thing of that number.
    pub(crate) fn has(self, number: u64) -> bool {
        number % u64::from(self.processes) == u64::from(self.index)
    }

    /// How many of so many things it has.
    pub(crate) fn of(self, count: u64) -> u64 {
        let (index, processes) = (u64::from(self.index), u64::from(self.processes));
        count / processes + u64::from(index < count % processes)
    }
}

impl LoadPlan {
    /// The window that is measured, in microseconds since the beginning.
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
