//! Results of one seed, or of many.

use std::fmt;

use skep_sim::SeedTotals;

/// Counters of a run.
#[derive(Clone, Debug, Default)]
pub(crate) struct Totals {
    pub(crate) seeds: u64,
    pub(crate) events: u64,
    pub(crate) served: u64,
    pub(crate) reset: u64,
    pub(crate) moved: u64,
    pub(crate) stayed: u64,
    pub(crate) closed: u64,
    pub(crate) refused: u64,
    pub(crate) silent: u64,
    pub(crate) undecided: u64,
    pub(crate) gone: u64,
    pub(crate) declined: u64,
    pub(crate) learned: u64,
    pub(crate) passed_on: u64,
    pub(crate) blocked: u64,
    pub(crate) filtered: u64,
    pub(crate) traps: u64,
    pub(crate) bereft: u64,
    pub(crate) came_home: u64,
}

impl Totals {
    fn all(&self) -> [(&'static str, u64); 17] {
        [
            ("client served", self.served),
            ("connection closed with RST", self.reset),
            ("move", self.moved),
            ("connection that stayed", self.stayed),
            ("move that ended with RST", self.closed),
            ("offer refused", self.refused),
            ("offer without an answer", self.silent),
            ("receiver without a word", self.undecided),
            ("connection given to who does not know it", self.gone),
            ("offer declined", self.declined),
            ("flow learned by the dispatcher", self.learned),
            ("packet passed on", self.passed_on),
            ("packet blocked", self.blocked),
            ("packet blocked by a socket's filter", self.filtered),
            ("fault at a step", self.traps),
            ("connection without process and netguard", self.bereft),
            ("move back to a node that had it", self.came_home),
        ]
    }

    /// What must happen at times, but did not.
    pub(crate) fn never(&self) -> Vec<&'static str> {
        self.all().iter().filter(|(_, count)| *count == 0).map(|(what, _)| *what).collect()
    }
}

impl SeedTotals for Totals {
    fn add(&mut self, other: &Self) {
        self.seeds += other.seeds;
        self.events += other.events;
        self.served += other.served;
        self.reset += other.reset;
        self.moved += other.moved;
        self.stayed += other.stayed;
        self.closed += other.closed;
        self.refused += other.refused;
        self.silent += other.silent;
        self.undecided += other.undecided;
        self.gone += other.gone;
        self.declined += other.declined;
        self.learned += other.learned;
        self.passed_on += other.passed_on;
        self.blocked += other.blocked;
        self.filtered += other.filtered;
        self.traps += other.traps;
        self.bereft += other.bereft;
        self.came_home += other.came_home;
    }
}

impl fmt::Display for Totals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} seeds, {} events", self.seeds, self.events)?;
        self.all().iter().try_for_each(|(what, count)| write!(f, "; {count} x {what}"))
    }
}
