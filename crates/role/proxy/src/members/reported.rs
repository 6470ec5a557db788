//! A node's last load report from the view of a service: the load beyond this dispatcher's own
//! count, for the workers' selections.
//!
//! The first selection after a report reads it from [`ReportCell`]. A selection at the same time
//! may see half of each report, and is slightly worse.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

use skep_policy::{Work, is_stale};
use skep_units::Now;
use skep_wire::message::{NodeLoad, TransferRates};

use crate::members::node_reports::ReportCell;

#[derive(Debug, Default)]
pub(crate) struct Reported {
    cell: OnceLock<Arc<ReportCell>>,
    /// Version of the report from which the other values were taken.
    version: AtomicU64,
    /// Time at which the report was received, plus one; 0: never.
    heard: AtomicU64,
    /// The reported load beyond this dispatcher's own count.
    requests: AtomicU64,
    bytes: AtomicU64,
    /// Requests sent there since then whose end this dispatcher does not see.
    sent_on: AtomicU64,
}

impl Reported {
    /// Reads the reports in `cell` from now on. Only the first call has an effect.
    pub(crate) fn follow(&self, cell: Arc<ReportCell>) {
        let _ = self.cell.set(cell);
    }

    /// The node's rates, as far as it has reported them.
    pub(crate) fn rates(&self, now: Now) -> TransferRates {
        self.cell.get().map(|cell| cell.current_rates(now)).unwrap_or_default()
    }

    /// The node's last report, however old.
    pub(crate) fn last(&self) -> Option<NodeLoad> {
        Some(self.cell.get()?.read()?.1.load)
    }

    /// Number of times that its heartbeats stopped.
    pub(crate) fn silences(&self) -> u64 {
        self.cell.get().map_or(0, |cell| cell.silences())
    }

    /// Takes over the last report if it is new; `take_own_most` returns the maximum load that this
    /// dispatcher had there since the last call.
    pub(crate) fn catch_up(&self, take_own_most: impl FnOnce() -> Work) {
        let Some(cell) = self.cell.get() else { return };
        let (version, seen) = (cell.version(), self.version.load(Relaxed));
        let is_new = version != seen && version.is_multiple_of(2);
        if !is_new || self.version.compare_exchange(seen, version, Relaxed, Relaxed).is_err() {
            return;
        }
        let Some((_, report)) = cell.read() else { return };
        let beyond = Work::of(&report.load).beyond(take_own_most());
        self.requests.store(beyond.requests, Relaxed);
        self.bytes.store(beyond.bytes, Relaxed);
        self.sent_on.store(0, Relaxed);
        self.heard.store(report.at.0.saturating_add(1), Relaxed);
    }

    /// Counts a redirect of a client to the node, whose requests this dispatcher does not see.
    pub(crate) fn sent_on(&self) {
        self.sent_on.fetch_add(1, Relaxed);
    }

    /// The load to add now: none if the report is stale.
    pub(crate) fn at(&self, now: Now, interval_ms: u64) -> Work {
        let heard = self.heard.load(Relaxed);
        if heard == 0 || is_stale(now.since_ms(Now(heard - 1)), interval_ms) {
            return Work::default();
        }
        Work {
            requests: self.requests.load(Relaxed).saturating_add(self.sent_on.load(Relaxed)),
            bytes: self.bytes.load(Relaxed),
        }
    }
}
