//! A node's last load report, for the workers' picks: a few atomics.
//!
//! One thread writes them, at each report; workers read them at each pick. A pick between two
//! writes sees half of each report, and its choice is slightly worse.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use skep_policy::{Work, is_stale};
use skep_units::Now;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Reported {
    /// When the report was received, plus one; 0 is never.
    heard: AtomicU64,
    /// The reported load beyond this dispatcher's own count.
    requests: AtomicU64,
    bytes: AtomicU64,
    /// Requests sent there since, whose end this dispatcher does not see.
    sent_on: AtomicU64,
}

impl Reported {
    /// Records a report, with the load that was not known.
    pub(crate) fn set(&self, now: Now, beyond: Work) {
        self.requests.store(beyond.requests, Relaxed);
        self.bytes.store(beyond.bytes, Relaxed);
        self.sent_on.store(0, Relaxed);
        self.heard.store(now.0.saturating_add(1), Relaxed);
    }

    /// A client was redirected there, whose requests this dispatcher does not see.
    pub(crate) fn sent_on(&self) {
        self.sent_on.fetch_add(1, Relaxed);
    }

    /// The load that it counts for now: none, if it is stale.
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
