//! Nodes that are lost at once, as a run is given them, and what came of it.

use crate::windows::OutcomeWindows;

/// Nodes that are lost at a time of the run: their memories are gone, and nothing comes from them any more.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SimulatedLoss {
    /// After this share of the requests.
    pub at_share: f64,
    /// Every n-th node: 10 for a tenth of them.
    pub every: usize,
    /// Length of the windows in which outcomes are counted, in milliseconds.
    pub window_ms: u64,
}

/// What came of a loss.
#[derive(Clone, Debug, PartialEq)]
pub struct LossOutcome {
    pub nodes: u64,
    /// When, in seconds of the run, and when the last request came.
    pub at_s: f64,
    pub last_arrival_s: f64,
    /// Requests that were in progress at the lost nodes: they end without the rest of their bytes.
    pub cut_requests: u64,
    /// Bytes that had been sent for these.
    pub cut_bytes: u64,
    /// Requests that were sent to a lost node before the loss was detected, and went to another one after the timeout.
    pub late_requests: u64,
    /// Fetches from the lost nodes' memories, or that waited for one of their fetches, which went elsewhere.
    pub refetches: u64,
    /// Bytes of the lost memories that no other node had.
    pub sole_bytes: u64,
    /// By the time of the request.
    pub windows: OutcomeWindows,
}

impl SimulatedLoss {
    /// Whether a node is one of those that are lost. Of fewer nodes than `every` it is the last one.
    pub(crate) fn takes(&self, node: usize, nodes: usize) -> bool {
        let every = self.every.clamp(1, nodes);
        node % every == every - 1
    }

    pub(crate) fn at_request(&self, requests: u64) -> u64 {
        (requests as f64 * self.at_share) as u64
    }
}

impl LossOutcome {
    pub(crate) fn new(window_ms: u64) -> Self {
        Self {
            nodes: 0,
            at_s: f64::NAN,
            last_arrival_s: f64::NAN,
            cut_requests: 0,
            cut_bytes: 0,
            late_requests: 0,
            refetches: 0,
            sole_bytes: 0,
            windows: OutcomeWindows::new(window_ms),
        }
    }
}
