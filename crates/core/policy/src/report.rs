//! Load reports of nodes, which complement the selecting dispatcher's own counts.
//!
//! A dispatcher knows its own requests and their replies at once. A report is up to an interval
//! old, but includes more: requests of other dispatchers, of clients that reached the node by
//! another path, and bytes that slow clients have not received yet. So a dispatcher uses its own
//! count, **plus** the node's load beyond it at the time of the report, **plus** requests sent
//! there since then whose end it does not see (redirects). A report that is [stale](is_stale) is
//! ignored.

use skep_wire::message::NodeLoad;

use crate::limits::{REPLY_BYTES, REPORTS_MISSED_MAX};

/// Outstanding work, from one process's view.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// Requests not yet answered completely.
    pub requests: u64,
    /// Bytes of replies still to be sent.
    pub bytes: u64,
}

impl Work {
    /// The work of a node according to its report.
    pub fn of(load: &NodeLoad) -> Self {
        Self { requests: load.requests_in_flight, bytes: load.bytes_outstanding }
    }

    /// The work in a report beyond `own_most`, the maximum that the dispatcher itself had there
    /// since the previous report. The maximum is used rather than the current value because the
    /// report is slightly old, and work that has ended since is not that of others.
    pub fn beyond(self, own_most: Self) -> Self {
        Self {
            requests: self.requests.saturating_sub(own_most.requests),
            bytes: self.bytes.saturating_sub(own_most.bytes),
        }
    }

    /// The sum.
    pub fn plus(self, other: Self) -> Self {
        Self {
            requests: self.requests.saturating_add(other.requests),
            bytes: self.bytes.saturating_add(other.bytes),
        }
    }

    /// The work as a number of replies of average length.
    pub fn replies(self) -> u64 {
        self.requests.saturating_add(self.bytes / REPLY_BYTES)
    }
}

/// Whether a report of age `age_ms` is stale, if one is due every `interval_ms`.
pub fn is_stale(age_ms: u64, interval_ms: u64) -> bool {
    age_ms > interval_ms.saturating_mul(REPORTS_MISSED_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn work(requests: u64, bytes: u64) -> Work {
        Work { requests, bytes }
    }

    #[test]
    fn a_report_counts_for_what_the_dispatcher_did_not_know() {
        for (what, reported, own_most, own_now, seen) in [
            ("nothing new", work(3, 300), work(3, 300), work(3, 300), work(3, 300)),
            ("another dispatcher's", work(10, 900), work(4, 100), work(4, 100), work(10, 900)),
            ("slow clients", work(1, 5_000), work(1, 0), work(1, 0), work(1, 5_000)),
            ("ended since the report", work(9, 900), work(9, 900), work(1, 0), work(1, 0)),
            ("begun since the report", work(0, 0), work(7, 70), work(7, 70), work(7, 70)),
            ("less than we know of", work(1, 10), work(5, 50), work(5, 50), work(5, 50)),
        ] {
            assert_eq!(own_now.plus(reported.beyond(own_most)), seen, "{what}");
        }
        let most = work(u64::MAX, u64::MAX);
        assert_eq!(most.plus(most), most);
    }

    #[test]
    fn a_report_is_stale_after_as_many_intervals_as_may_be_missed() {
        assert!(!is_stale(0, 100));
        assert!(!is_stale(100 * REPORTS_MISSED_MAX, 100));
        assert!(is_stale(100 * REPORTS_MISSED_MAX + 1, 100));
        assert!(!is_stale(u64::MAX, u64::MAX));
    }

    #[test]
    fn bytes_weigh_as_many_replies_as_they_would_be() {
        assert_eq!(work(3, 0).replies(), 3);
        assert_eq!(work(3, 10 * REPLY_BYTES).replies(), 13);
        assert_eq!(work(0, REPLY_BYTES - 1).replies(), 0);
        assert!(work(u64::MAX, u64::MAX).replies() == u64::MAX);
    }
}
