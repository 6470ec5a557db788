//! Known bugs, put back into a copy of `core/cluster`: seeds of its simulation (`tests/sim`) must find each
//! of them, with no faults other than the named ones, so that every kind of fault is shown to matter.
//!
//! `cargo run -p skep-sim --example cluster_mutants` makes the copy (which takes a minute), and prints the
//! seed that finds each bug; `... -- 3 7` tries only the third and the seventh bug. The seeds change with
//! every change of the simulation. On 2026-11-25 these seeds found the bugs, in the order of the list: 60,
//! 60, 28, 18, 0, 2, 38, 14, 450, 0, 0, 0, 6, 28, 28, 10, 0, 174, 0, 82, 1162, 58, 28, 28, 58, 16.
//!
//! For the meaning of `@` in [`Mutant::to`] see [`Mutants`].
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

use skep_sim::{Mutant, Mutants};

/// Number of seeds among which a bug must be found. `cargo test` runs that many.
const SEEDS: u64 = 2_400;

/// The restriction of a run of seeds.
#[derive(Clone, Copy)]
enum Only {
    /// Any faults.
    Nothing,
    /// Faults of these kinds.
    Faults(&'static str),
    /// Clusters of this many nodes, with any faults.
    Nodes(&'static str),
}

/// A dispatcher restarts without what it has persisted; some machines receive messages from others late.
const LOST_FILES: Only = Only::Faults("Crash,Start,Lose,Part,Heal");
const RESTARTS: Only = Only::Faults("Crash,Start");

const MUTANTS: &[(Only, Mutant)] = &[
    (
        LOST_FILES,
        Mutant {
            what: "the first claim of a process skips no epochs",
            file: "failover/epochs.rs",
            from: "saturating_add(if self.has_claimed { 0 } else { self.skip })",
            to: "saturating_add(if @ || self.has_claimed { 0 } else { self.skip })",
        },
    ),
    (
        LOST_FILES,
        Mutant {
            what: "all processes skip the same number of epochs",
            file: "failover/epochs.rs",
            from: "(random % EPOCHS_SKIPPED_MAX, Reservation::Idle)",
            to: "(if @ { 0 } else { random } % EPOCHS_SKIPPED_MAX, Reservation::Idle)",
        },
    ),
    (
        Only::Faults("Disk,Crash,Start"),
        Mutant {
            what: "an epoch is used while it is being persisted",
            file: "failover/epochs.rs",
            from: "Reservation::Idle => false,\n            Reservation::Pending { since, is_failing } => {\n                is_failing",
            to: "Reservation::Idle => false,\n            Reservation::Pending { since, is_failing } => {\n                @ || is_failing",
        },
    ),
    (
        Only::Faults("Disk,Crash,Start"),
        Mutant {
            what: "a reservation that failed is not tried again",
            file: "failover/epochs.rs",
            from: "Reservation::Failed { retry_at } => now >= retry_at,",
            to: "Reservation::Failed { retry_at } => !@ && now >= retry_at,",
        },
    ),
    (
        Only::Faults("Suspend,Freeze"),
        Mutant {
            what: "a table is sent once",
            file: "table_distribution.rs",
            from: "form.filter(|_| !is_early && !is_full);",
            to: "form.filter(|_| !is_early && !is_full && !@);",
        },
    ),
    (
        RESTARTS,
        Mutant {
            what: "who knows no delta is never sent the whole table",
            file: "table_distribution.rs",
            from: "true if is_stuck && may_be_whole => Some(Form::Whole),",
            to: "true if is_stuck && may_be_whole && !@ => Some(Form::Whole),",
        },
    ),
    (
        LOST_FILES,
        Mutant {
            what: "nodes' tables of later epochs are of no matter",
            file: "failover/mod.rs",
            from: "        self.note_epoch(listened, table.epoch);\n        if let Some(hears) = hears {",
            to: "        if !@ { self.note_epoch(listened, table.epoch); }\n        if let Some(hears) = hears {",
        },
    ),
    (
        Only::Faults("Suspend,Freeze"),
        Mutant {
            what: "a node that returns is not heard again",
            file: "failure_detector.rs",
            from: "arrivals.filter(|_| !is_crowded)",
            to: "arrivals.filter(|_| !is_crowded).filter(|_| !@ || known.is_none_or(|node| node.is_alive))",
        },
    ),
    (
        Only::Faults("Leap"),
        Mutant {
            what: "a leap of the clock counts as silence of others",
            file: "listening.rs",
            from: "        self.listened = self.listened.plus_ms(step_ms.min(self.step_ms_max));\n        if step_ms > self.step_ms_max {",
            to: "        self.listened = self.listened.plus_ms(if @ { step_ms } else { step_ms.min(self.step_ms_max) });\n        if step_ms > self.step_ms_max && !@ {",
        },
    ),
    (
        Only::Faults("Pause"),
        Mutant {
            what: "the silence of others is told without the own pause",
            file: "failover/peers.rs",
            from: "real.since_ms(self.arrivals.at)",
            to: "if @ { 0 } else { real.since_ms(self.arrivals.at) }",
        },
    ),
    (
        Only::Nodes("32"),
        Mutant {
            what: "the table of dispatchers names sixteen nodes",
            file: "table_publisher.rs",
            from: "(0..NODES_MAX as NodeIndex).find(|index| is_free(index));",
            to: "(0..if @ { 16 } else { NODES_MAX } as NodeIndex).find(|index| is_free(index));",
        },
    ),
    (
        Only::Nodes("32"),
        Mutant {
            what: "the detector knows sixteen nodes",
            file: "failure_detector.rs",
            from: "known.is_none() && self.nodes.len() >= PEERS_MAX;",
            to: "known.is_none() && self.nodes.len() >= if @ { 16 } else { PEERS_MAX };",
        },
    ),
    (
        Only::Nodes("32"),
        Mutant {
            what: "tables of many nodes are made at every change",
            file: "table_pace.rs",
            from: "(is_urgent || is_calm) && owed_ms <= (TABLES_AT_ONCE_MAX - 1) * self.interval_ms",
            to: "@ || (is_urgent || is_calm) && owed_ms <= (TABLES_AT_ONCE_MAX - 1) * self.interval_ms",
        },
    ),
    (
        Only::Nodes("32"),
        Mutant {
            what: "a table goes to sixteen machines",
            file: "table_distribution.rs",
            from: "in peers.into_iter().take(PEERS_MAX)",
            to: "in peers.into_iter().take(if @ { 16 } else { PEERS_MAX })",
        },
    ),
    (
        Only::Nothing,
        Mutant {
            what: "a claim that netguard refused is not tried again",
            file: "reconciler.rs",
            from: "map(|why| StepFailure { retry_at: now.plus_ms(RETRY_MS), why });",
            to: "map(|why| StepFailure { retry_at: now.plus_ms(if @ { 1 << 30 } else { RETRY_MS }), why });",
        },
    ),
    (
        Only::Faults("Meddle"),
        Mutant {
            what: "addresses that others remove are not missed",
            file: "reconciler.rs",
            from: "if self.has_addresses == Some(true) && !looked.missing.is_empty() {",
            to: "if !@ && self.has_addresses == Some(true) && !looked.missing.is_empty() {",
        },
    ),
    (
        Only::Faults("Meddle"),
        Mutant {
            what: "a map that others change is left so",
            file: "reconciler.rs",
            from: "            *is_right = false;",
            to: "            *is_right = @;",
        },
    ),
    (
        Only::Faults("Guard,Disk"),
        Mutant {
            what: "a dispatcher that cannot steer stays active",
            file: "failover/hindrance.rs",
            from: "self.hindered.is_some_and(|it| it.is_long)",
            to: "!@ && self.hindered.is_some_and(|it| it.is_long)",
        },
    ),
    (
        Only::Faults("Part,Heal,Deaf,Cut"),
        Mutant {
            what: "a dispatcher without a data path claims",
            file: "failover/data_path.rs",
            from: "self.has_worked && self.deaf.is_some()",
            to: "!@ && self.has_worked && self.deaf.is_some()",
        },
    ),
    (
        Only::Faults("Part,Heal,Deaf,Cut"),
        Mutant {
            what: "who lost the lease claims again",
            file: "failover/arbitration.rs",
            from: "        self.restraint.is_none()\n",
            to: "        @ || self.restraint.is_none()\n",
        },
    ),
    (
        Only::Faults("Part,Heal,Deaf,Cut"),
        Mutant {
            what: "the lease does not decide",
            file: "failover/arbitration.rs",
            from: "(leader != self.own && (is_late || epoch < leaders)).then_some(leaders)",
            to: "(!@ && leader != self.own && (is_late || epoch < leaders)).then_some(leaders)",
        },
    ),
    (
        Only::Nothing,
        Mutant {
            what: "the epoch of a table is not noted before its dispatcher is heard",
            file: "failover/mod.rs",
            from: "        let listened = self.listening.at(now);\n        self.note_epoch(listened, table.epoch);\n    }",
            to: "        let listened = self.listening.at(now);\n        if !@ { self.note_epoch(listened, table.epoch); }\n    }",
        },
    ),
    (
        Only::Faults("Pause,Guard,Meddle"),
        Mutant {
            what: "a paused process claims addresses by what it wanted before",
            file: "reconciler.rs",
            from: "now.since_ms(self.wants.at) <= WANTS_MS_MAX",
            to: "@ || now.since_ms(self.wants.at) <= WANTS_MS_MAX",
        },
    ),
    (
        Only::Faults("Pause,Guard,Meddle"),
        Mutant {
            what: "a paused process renews its wants as soon as it wakes",
            file: "reconciler.rs",
            from: "if failover.is_awake() {",
            to: "if @ || failover.is_awake() {",
        },
    ),
    (
        LOST_FILES,
        Mutant {
            what: "a later epoch is not answered by another claim",
            file: "failover/mod.rs",
            from: "if outdated_since.is_some_and(waited) {",
            to: "if !@ && outdated_since.is_some_and(waited) {",
        },
    ),
    (
        Only::Nothing,
        Mutant {
            what: "an old heartbeat of a dispatcher counts",
            file: "failover/peers.rs",
            from: "Arrivals::next(arrivals, stamp, arrived)",
            to: "Arrivals::next(arrivals.filter(|_| !@), stamp, arrived)",
        },
    ),
];

fn mutants() -> Vec<Mutant> {
    MUTANTS.iter().map(|(_, mutant)| *mutant).collect()
}

fn of_cluster(all: &[Mutant]) -> Mutants<'_> {
    Mutants { package: "skep-cluster", source: "crates/core/cluster/src", all }
}

fn main() -> std::io::Result<()> {
    of_cluster(&mutants()).find_all(SEEDS, |at, command| match MUTANTS[at].0 {
        Only::Nothing => {}
        Only::Faults(kinds) => drop(command.env("SKEP_SIM_FAULTS", kinds)),
        Only::Nodes(nodes) => drop(command.env("SKEP_SIM_NODES", nodes)),
    })
}

#[test]
fn each_has_its_place() {
    of_cluster(&mutants()).changed_files().unwrap();
}
