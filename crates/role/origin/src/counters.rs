//! Counters of a worker's client of origins. Written by that worker only; readable by any thread.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::error::FaultKind;

const KINDS: usize = FaultKind::ALL.len();

/// The live counters of one [`crate::Origins`].
#[derive(Debug, Default)]
pub struct OriginCounters {
    asked: AtomicU64,
    requests: AtomicU64,
    retries: AtomicU64,
    reused: AtomicU64,
    body_bytes: AtomicU64,
    failures: [AtomicU64; KINDS],
}

/// A snapshot of counters; those of several workers can be added.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OriginTotals {
    /// Number of calls of [`crate::Origins::open`].
    pub asked: u64,
    /// Requests sent or attempted: one per attempt.
    pub requests: u64,
    /// Requests beyond the first of each call, at any origin.
    pub retries: u64,
    /// Requests sent over a kept connection.
    pub reused: u64,
    /// Bytes of bodies that were returned.
    pub body_bytes: u64,
    /// Failures, in the order of [`FaultKind::ALL`].
    pub failures: [u64; KINDS],
}

impl OriginCounters {
    /// The current values.
    pub fn totals(&self) -> OriginTotals {
        let mut totals = OriginTotals {
            asked: self.asked.load(Relaxed),
            requests: self.requests.load(Relaxed),
            retries: self.retries.load(Relaxed),
            reused: self.reused.load(Relaxed),
            body_bytes: self.body_bytes.load(Relaxed),
            failures: [0; KINDS],
        };
        for (total, value) in totals.failures.iter_mut().zip(&self.failures) {
            *total = value.load(Relaxed);
        }
        totals
    }

    pub(crate) fn count_asked(&self) {
        bump(&self.asked, 1);
    }

    pub(crate) fn count_request(&self, is_retry: bool) {
        bump(&self.requests, 1);
        bump(&self.retries, u64::from(is_retry));
    }

    pub(crate) fn count_reused(&self) {
        bump(&self.reused, 1);
    }

    pub(crate) fn count_body(&self, bytes: u64) {
        bump(&self.body_bytes, bytes);
    }

    pub(crate) fn count_failure(&self, kind: FaultKind) {
        bump(&self.failures[kind as usize], 1);
    }
}

impl OriginTotals {
    /// Number of failures of this kind.
    pub fn failed(&self, kind: FaultKind) -> u64 {
        self.failures[kind as usize]
    }

    /// Adds the counts of another worker.
    pub fn add(&mut self, other: &Self) {
        self.asked += other.asked;
        self.requests += other.requests;
        self.retries += other.retries;
        self.reused += other.reused;
        self.body_bytes += other.body_bytes;
        for (total, value) in self.failures.iter_mut().zip(other.failures) {
            *total += value;
        }
    }
}

/// Adds to an atomic with a single writer, which needs no lock prefix.
fn bump(value: &AtomicU64, n: u64) {
    value.store(value.load(Relaxed).wrapping_add(n), Relaxed);
}
