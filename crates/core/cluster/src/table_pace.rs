//! Rate limit of tables, by the generic cell rate algorithm: one per interval, and a burst of
//! [`TABLES_AT_ONCE_MAX`] for urgent changes. Each table costs work on all machines.
//!
//! Tables that begin a term, or skip past a later version, do not count.

use skep_units::Now;

use crate::limits::{TABLE_INTERVAL_MS_MIN, TABLE_INTERVAL_US_PER_NODE, TABLES_AT_ONCE_MAX};

/// Determines when the next table may be made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TablePace {
    interval_ms: u64,
    made_at: Option<Now>,
    /// The theoretical arrival time: when the tables so far would be paid for at one per interval.
    paid_at: Now,
}

impl TablePace {
    /// The rate limit for a cluster of `nodes` nodes without a table.
    pub(crate) fn new(nodes: usize) -> Self {
        let mut pace = Self { interval_ms: 0, made_at: None, paid_at: Now(0) };
        pace.set_nodes(nodes);
        pace
    }

    /// Sets the number of nodes.
    pub(crate) fn set_nodes(&mut self, nodes: usize) {
        let of_nodes_ms = nodes as u64 * TABLE_INTERVAL_US_PER_NODE / 1_000;
        self.interval_ms = of_nodes_ms.max(TABLE_INTERVAL_MS_MIN);
    }

    /// Whether a table may be made now. An urgent one need not wait for an interval.
    pub(crate) fn allows(&self, now: Now, is_urgent: bool) -> bool {
        let is_calm = self.made_at.is_none_or(|at| now.since_ms(at) >= self.interval_ms);
        let owed_ms = self.paid_at.since_ms(now);
        (is_urgent || is_calm) && owed_ms <= (TABLES_AT_ONCE_MAX - 1) * self.interval_ms
    }

    /// A table was made.
    pub(crate) fn made(&mut self, now: Now) {
        self.made_at = Some(now);
        self.paid_at = self.paid_at.max(now).plus_ms(self.interval_ms);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(ms: u64, is_urgent: bool) -> Vec<u64> {
        let mut pace = TablePace::new(200);
        let mut tables = Vec::new();
        for now in (1_000..1_000 + ms).step_by(10) {
            if pace.allows(Now(now), is_urgent) {
                pace.made(Now(now));
                tables.push(now - 1_000);
            }
        }
        tables
    }

    #[test]
    fn the_interval_grows_with_the_cluster() {
        let intervals = [3, 100, 256, 1_000].map(|nodes| TablePace::new(nodes).interval_ms);
        assert_eq!(intervals, [50, 50, 128, 500]);
    }

    #[test]
    fn the_first_goes_at_once_and_the_next_after_the_interval() {
        assert_eq!(made(500, false), [0, 100, 200, 300, 400]);
    }

    #[test]
    fn urgent_ones_follow_each_other_until_they_are_too_many() {
        let tables = made(1_000, true);
        assert_eq!(tables[..8], [0, 10, 20, 30, 40, 50, 60, 70]);
        assert_eq!(tables[8..], [100, 200, 300, 400, 500, 600, 700, 800, 900]);
    }

    #[test]
    fn an_urgent_one_need_not_wait_for_those_that_are_not() {
        let mut pace = TablePace::new(200);
        for now in (0..5_000).step_by(100) {
            assert!(pace.allows(Now(now), false));
            pace.made(Now(now));
            assert!(!pace.allows(Now(now + 10), false) && pace.allows(Now(now + 10), true));
        }
    }
}
