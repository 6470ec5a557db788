//! What came of a load, in numbers.

use std::collections::BTreeMap;
use std::io;

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use crate::limits::{EXAMPLES_MAX, NODE_NAMES_MAX};

/// What came of a load. Each request ends as succeeded, failed or stopped;
/// each failure has one cause.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Requests or downloads that began.
    pub requests: u64,
    /// Those answered with status 200 and all the right bytes.
    pub succeeded: u64,
    /// Those that were not.
    pub failed: u64,
    /// Those that were under way, and well, when the load was stopped.
    pub stopped: u64,

    /// Failed: no connection, the other side said no.
    pub refused: u64,
    /// Failed: RST in mid-connection.
    pub resets: u64,
    /// Failed: no connection, no byte for too long, or over the deadline.
    pub timeouts: u64,
    /// Failed: ended before its length.
    pub truncated: u64,
    /// Failed: bytes that are not those of the pattern.
    pub wrong_bytes: u64,
    /// Failed: another status than 200.
    pub wrong_status: u64,
    /// Failed: for another cause.
    pub other: u64,

    /// Connections that were made.
    pub connections: u64,
    /// Kept connections that were found closed, or reset, when the next
    /// request was sent; it went over a new one, as RFC 9112 (9.3.1) says.
    pub reopened: u64,
    /// Of these, by RST.
    pub reopened_resets: u64,
    /// Bytes of bodies.
    pub bytes: u64,
    /// From the first beginning to the last end, in milliseconds.
    pub elapsed_ms: u64,
    /// Longest time without a success (of downloads: without a byte) anywhere,
    /// in milliseconds.
    pub longest_gap_ms: u64,
    /// Longest time that one of them waited: a request for its end, a download
    /// for its connection, its response or a byte; in milliseconds.
    pub longest_wait_ms: u64,
    /// Of requests: from the first beginning to that of the last one that failed
    /// or was slow (`SLOW_MS`), in milliseconds. Tells when a fault was over.
    pub last_trouble_ms: Option<u64>,
    /// Time of successful requests, from first attempt to last byte, in
    /// microseconds; of downloads, to their first byte.
    pub time_us: Times,
    /// Responses by the node that they name (`X-Skep-Node`).
    pub by_node: BTreeMap<String, u64>,
    /// The first failures, in words.
    pub examples: Vec<String>,
}

/// A distribution of times, in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Times {
    /// Half are below.
    pub p50: u64,
    /// 99 % are below.
    pub p99: u64,
    /// The longest.
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
    /// What it is, without numbers of bytes.
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
            // What is written after an RST came.
            io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => Self::Reset,
            io::ErrorKind::TimedOut => Self::Timeout("the kernel has given up"),
            _ => Self::Io(error),
        }
    }
}

/// A report in the making, of one task or of all.
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
        // It grows as it needs; what even so does not fit is no time.
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

    /// Adds what another task counted.
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
        // Both have the same precision and grow as they need.
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
