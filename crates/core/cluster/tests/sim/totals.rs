//! Results of seeds.

use std::fmt;

use skep_sim::SeedTotals;

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Totals {
    pub(crate) seeds: u64,
    pub(crate) events: u64,
    pub(crate) claims: u64,
    pub(crate) takeovers: u64,
    pub(crate) tables: u64,
    /// Tables sent as deltas, and as a whole.
    pub(crate) deltas: u64,
    pub(crate) wholes: u64,
    pub(crate) tables_a_second_max: u64,
    pub(crate) lag_ms_max: u64,
    pub(crate) ahead_ms_max: u64,
    pub(crate) vacancy_ms_max: u64,
    pub(crate) double_ms_max: u64,
    pub(crate) dead_ms_max: u64,
}

impl SeedTotals for Totals {
    fn add(&mut self, other: &Self) {
        self.seeds += other.seeds;
        self.events += other.events;
        self.claims += other.claims;
        self.takeovers += other.takeovers;
        self.tables += other.tables;
        self.deltas += other.deltas;
        self.wholes += other.wholes;
        self.tables_a_second_max = self.tables_a_second_max.max(other.tables_a_second_max);
        self.lag_ms_max = self.lag_ms_max.max(other.lag_ms_max);
        self.ahead_ms_max = self.ahead_ms_max.max(other.ahead_ms_max);
        self.vacancy_ms_max = self.vacancy_ms_max.max(other.vacancy_ms_max);
        self.double_ms_max = self.double_ms_max.max(other.double_ms_max);
        self.dead_ms_max = self.dead_ms_max.max(other.dead_ms_max);
    }
}

impl fmt::Display for Totals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} seeds, {} events, {} claims ({} of them takeovers), {} tables (sent {} times as \
             deltas, {} whole); at most: {} ms without an active dispatcher (and no store), {} ms \
             with two that reach each other, {} ms with a dead node in a table, {} tables in a \
             second, {} ms until a node that is reached has a table, {} ms with one of a term that \
             has ended unheard",
            self.seeds,
            self.events,
            self.claims,
            self.takeovers,
            self.tables,
            self.deltas,
            self.wholes,
            self.vacancy_ms_max,
            self.double_ms_max,
            self.dead_ms_max,
            self.tables_a_second_max,
            self.lag_ms_max,
            self.ahead_ms_max,
        )
    }
}
