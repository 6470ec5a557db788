//! Target tracking: how many nodes the load needs, by its mean, with hysteresis and windows.

use std::collections::VecDeque;

use super::settings::{ElasticitySettings, LoadTargets, NodeObservation};

/// The target load of one node, in the unit of loads.
const PERMILLE: u64 = 1_000;

impl LoadTargets {
    /// Outstanding work of all nodes in thousandths of one node's target, by requests or by bytes,
    /// whichever is more. Draining nodes count, since their work belongs to the cluster; nodes held
    /// by an operator do not.
    pub(crate) fn load_permille(&self, seen: &[NodeObservation]) -> u64 {
        let seen = || seen.iter().filter(|node| !node.is_held);
        let requests: u64 = seen().map(|node| node.requests).sum();
        let bytes: u64 = seen().map(|node| node.bytes).sum();
        let share = |load: u64, target: u64| match target {
            0 => 0,
            target => load.saturating_mul(PERMILLE) / target,
        };
        share(requests, self.requests).max(share(bytes, self.bytes))
    }
}

/// Accumulates the mean of loads.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LoadMean {
    sum: u64,
    count: u64,
}

impl LoadMean {
    pub(super) fn add(&mut self, load_permille: u64) {
        self.sum = self.sum.saturating_add(load_permille);
        self.count += 1;
    }

    /// The mean since the last call; there must have been a load.
    pub(super) fn take(&mut self) -> u64 {
        let Self { sum, count } = std::mem::take(self);
        sum / count.max(1)
    }
}

/// The loads of recent decisions, each with its time.
#[derive(Clone, Debug, Default)]
pub(super) struct LoadWindow {
    loads: VecDeque<(u64, u64)>,
    /// Time of the first load ever.
    began_ms: Option<u64>,
}

impl LoadWindow {
    /// Adds a load, and drops those older than the windows.
    pub(super) fn add(&mut self, clock_ms: u64, load_permille: u64, settings: &ElasticitySettings) {
        self.began_ms.get_or_insert(clock_ms);
        self.loads.push_back((clock_ms, load_permille));
        let kept_ms = settings.scale_in_window_ms.max(settings.scale_out_window_ms);
        while self.loads.front().is_some_and(|(at, _)| clock_ms - at > kept_ms) {
            self.loads.pop_front();
        }
    }

    /// The number of nodes that should be on, if `on` are.
    pub(super) fn wanted(&self, clock_ms: u64, on: usize, settings: &ElasticitySettings) -> usize {
        let since = |window_ms: u64| {
            let within = move |(at, _): &&(u64, u64)| clock_ms - at <= window_ms;
            self.loads.iter().filter(within).map(|(_, load)| *load)
        };
        let lasting = since(settings.scale_out_window_ms).min().unwrap_or(0);
        let tolerance = u64::from(settings.tolerance_permille);
        if lasting > on as u64 * (PERMILLE + tolerance) {
            return lasting.div_ceil(PERMILLE) as usize;
        }
        // Until a whole window was observed, its highest load is unknown.
        let is_whole =
            self.began_ms.is_some_and(|began| clock_ms - began >= settings.scale_in_window_ms);
        let highest = since(settings.scale_in_window_ms).max().unwrap_or(0);
        let enough = highest.div_ceil(PERMILLE - tolerance) as usize;
        if is_whole { enough.min(on) } else { on }
    }
}
