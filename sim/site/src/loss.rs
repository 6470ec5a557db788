//! A simultaneous loss of nodes, as input of a run, and its outcome.

use crate::windows::OutcomeWindows;

/// Nodes that are lost during the run: their memories are gone, and they send nothing any more.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SimulatedLoss {
    /// The share of the requests after which the nodes are lost.
    pub at_share: f64,
    /// Every how many nodes one is lost: 10 for a tenth of them.
    pub every: usize,
    /// Length of the windows in which outcomes are counted, in milliseconds.
    pub window_ms: u64,
}

/// The outcome of a loss.
#[derive(Clone, Debug, PartialEq)]
pub struct LossOutcome {
    pub nodes: u64,
    /// Time of the loss and of the last request, in seconds of the run.
    pub at_s: f64,
    pub last_arrival_s: f64,
    /// Requests in progress at the lost nodes, which end without the rest of their bytes.
    pub cut_requests: u64,
    /// Bytes that had been sent for those.
    pub cut_bytes: u64,
    /// Requests sent to a lost node before the loss was detected, which went to another one after the
    /// timeout.
    pub late_requests: u64,
    /// Fetches from the lost nodes' memories, or waiting for one of their fetches, which were redirected.
    pub refetches: u64,
    /// Bytes of the lost memories that no other node had.
    pub sole_bytes: u64,
    /// Outcomes by the time of the request.
    pub windows: OutcomeWindows,
}

impl SimulatedLoss {
    /// Whether a node is lost. Among fewer nodes than `every`, the last one is lost.
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
