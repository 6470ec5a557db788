//! The results of a load, in numbers.

use std::collections::BTreeMap;
use std::io;

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use crate::limits::{EXAMPLES_MAX, NODE_NAMES_MAX};

/// The results of a load. Each request ends as succeeded, failed or stopped; each failure has one cause.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Number of requests or downloads that were started.
    pub requests: u64,
    /// Number of requests with status 200 and the correct body.
    pub succeeded: u64,
    /// Number of failed requests.
    pub failed: u64,
    /// Number of requests in progress without a fault when the load was stopped.
    pub stopped: u64,

    /// Failed: the connection was refused.
    pub refused: u64,
    /// Failed: RST on an established connection.
    pub resets: u64,
    /// Failed: no connection, no byte for too long, or beyond the deadline.
    pub timeouts: u64,
    /// Failed: the body ended before its length.
    pub truncated: u64,
    /// Failed: bytes that differ from the pattern.
    pub wrong_bytes: u64,
    /// Failed: another status than 200.
    pub wrong_status: u64,
    /// Failed for any other cause.
    pub other: u64,

    /// Number of established connections.
    pub connections: u64,
    /// Persistent connections that were found closed or reset when the next request was sent; it was sent
    /// again on a new one, as RFC 9112 (9.3.1) specifies.
    pub reopened: u64,
    /// Number of these connections that were reset.
    pub reopened_resets: u64,
    /// Bytes of bodies.
    pub bytes: u64,
    /// From the first start to the last end, in milliseconds.
    pub elapsed_ms: u64,
    /// Longest time without any success (for downloads: without any byte), in milliseconds.
    pub longest_gap_ms: u64,
    /// Longest wait of one of them, in milliseconds: of a request for its end, of a download for its
    /// connection, its response or a byte.
    pub longest_wait_ms: u64,
    /// For requests: from the first start to that of the last one that failed or was slow (`SLOW_MS`), in
    /// milliseconds. Indicates when a fault was over.
    pub last_trouble_ms: Option<u64>,
    /// Times of successful requests, from the first attempt to the last byte, in microseconds; for downloads,
    /// to their first byte.
    pub time_us: Times,
    /// Responses by the node that they name (`X-Skep-Node`).
    pub by_node: BTreeMap<String, u64>,
    /// Descriptions of the first failures.
    pub examples: Vec<String>,
}

/// A distribution of times, in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Times {
    /// The median.
    pub p50: u64,
    /// The 99th percentile.
    pub p99: u64,
    /// The maximum.
    pub max: u64,
}

/// Why a request failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum Failure {
    #[error("connection refused")]
    Refused,
    #[error("connection reset")]
    Reset,
    #[error("{0}")]
    Timeout(&'static str),
    #[error("ended at byte {found} of {expected}")]
    Truncated { found: u64, expected: u64 },
    #[error("ended before a response")]
    NoResponse,
    #[error("wrong byte at {0}")]
    WrongByte(u64),
    #[error("status {0}")]
    Status(u16),
    #[error("{0}")]
    Malformed(&'static str),
    #[error("{0}")]
    Io(io::Error),
}

impl Failure {
    /// The kind of failure, without numbers of bytes.
    pub(super) fn kind(&self) -> String {
        match self {
            Self::Truncated { .. } => "ended within the body".to_owned(),
            Self::WrongByte(_) => "wrong byte".to_owned(),
            other => other.to_string(),
        }
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::ConnectionRefused => Self::Refused,
            // The error of writing after an RST was received.
            io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => Self::Reset,
            io::ErrorKind::TimedOut => Self::Timeout("the kernel has given up"),
            _ => Self::Io(error),
        }
    }
}

/// A report being built, of one task or of all.
pub(super) struct Tally {
    report: Report,
    times_us: Histogram<u64>,
}

impl Tally {
    pub(super) fn new() -> Self {
        #[expect(clippy::expect_used, reason = "2 is a number of digits that it takes")]
        let times_us = Histogram::new(2).expect("two significant digits");
        Self { report: Report::default(), times_us }
    }

    pub(super) fn begun(&mut self) {
        self.report.requests += 1;
    }

    pub(super) fn connected(&mut self) {
        self.report.connections += 1;
    }

    pub(super) fn reopened(&mut self, by_reset: bool) {
        self.report.reopened += 1;
        self.report.reopened_resets += u64::from(by_reset);
    }

    pub(super) fn answered(&mut self, time_us: u64, node: Option<String>) {
        // The histogram resizes itself; a value that still does not fit is not a plausible time.
        let _ = self.times_us.record(time_us);
        self.count_node(node, 1);
    }

    pub(super) fn received(&mut self, bytes: u64) {
        self.report.bytes += bytes;
    }

    pub(super) fn waited(&mut self, time_us: u64) {
        self.report.longest_wait_ms = self.report.longest_wait_ms.max(time_us / 1000);
    }

    pub(super) fn troubled(&mut self, begun_ms: u64) {
        self.report.last_trouble_ms = self.report.last_trouble_ms.max(Some(begun_ms));
    }

    pub(super) fn stopped(&mut self) {
        self.report.stopped += 1;
    }

    pub(super) fn ended(&mut self, result: Result<(), Failure>) {
        let report = &mut self.report;
        let Err(failure) = result else {
            report.succeeded += 1;
            return;
        };
        report.failed += 1;
        *match &failure {
            Failure::Refused => &mut report.refused,
            Failure::Reset => &mut report.resets,
            Failure::Timeout(_) => &mut report.timeouts,
            Failure::Truncated { .. } | Failure::NoResponse => &mut report.truncated,
            Failure::WrongByte(_) => &mut report.wrong_bytes,
            Failure::Status(_) => &mut report.wrong_status,
            Failure::Malformed(_) | Failure::Io(_) => &mut report.other,
        } += 1;
        self.add_example(failure.to_string());
    }

    /// Adds the counts of another task.
    pub(super) fn add(&mut self, other: Self) {
        let (sum, one) = (&mut self.report, other.report);
        for (sum, one) in [
            (&mut sum.requests, one.requests),
            (&mut sum.succeeded, one.succeeded),
            (&mut sum.failed, one.failed),
            (&mut sum.stopped, one.stopped),
            (&mut sum.refused, one.refused),
            (&mut sum.resets, one.resets),
            (&mut sum.timeouts, one.timeouts),
            (&mut sum.truncated, one.truncated),
            (&mut sum.wrong_bytes, one.wrong_bytes),
            (&mut sum.wrong_status, one.wrong_status),
            (&mut sum.other, one.other),
            (&mut sum.connections, one.connections),
            (&mut sum.reopened, one.reopened),
            (&mut sum.reopened_resets, one.reopened_resets),
            (&mut sum.bytes, one.bytes),
        ] {
            *sum += one;
        }
        sum.longest_wait_ms = sum.longest_wait_ms.max(one.longest_wait_ms);
        sum.last_trouble_ms = sum.last_trouble_ms.max(one.last_trouble_ms);
        one.by_node.into_iter().for_each(|(node, count)| self.count_node(Some(node), count));
        one.examples.into_iter().for_each(|example| self.add_example(example));
        // Both have the same precision and resize themselves.
        let _ = self.times_us.add(other.times_us);
    }

    pub(super) fn finish(self, elapsed_ms: u64, longest_gap_ms: u64) -> Report {
        let times = &self.times_us;
        let time_us = Times {
            p50: times.value_at_quantile(0.5),
            p99: times.value_at_quantile(0.99),
            max: times.max(),
        };
        Report { elapsed_ms, longest_gap_ms, time_us, ..self.report }
    }

    fn count_node(&mut self, node: Option<String>, count: u64) {
        let by_node = &mut self.report.by_node;
        if let Some(node) = node
            && (by_node.len() < NODE_NAMES_MAX || by_node.contains_key(&node))
        {
            *by_node.entry(node).or_default() += count;
        }
    }

    fn add_example(&mut self, example: String) {
        if self.report.examples.len() < EXAMPLES_MAX {
            self.report.examples.push(example);
        }
    }
}
