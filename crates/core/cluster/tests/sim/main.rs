//! Dispatchers and nodes under a virtual clock and network, seeded.
//!
//! Every seed determines a cluster, a network (loss, delay, reordering, duplicates) and
//! a list of faults: crashes, pauses, partitions, a store that becomes unreachable. While
//! it runs, `check` verifies the invariants; at the end all faults are
//! repaired, and the cluster must recover.
//!
//! `SKEP_SIM_SEED=n` runs one seed and prints its events; `SKEP_SIM_SEEDS=n` runs
//! that many. `SKEP_SIM_FAULTS=Crash,Start` restricts them to faults of these kinds, and
//! `SKEP_SIM_NODES=n` to clusters of n nodes. `sim/examples/cluster_mutants.rs` lists bugs that seeds must find.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod body;
mod check;
mod disk;
mod guard;
mod machine;
mod net;
mod plan;
mod scenario;
mod store;
mod totals;
mod world;

use skep_sim::Simulation;
use world::World;

const SIMULATION: Simulation = Simulation { package: "skep-cluster", test: "sim", seeds: 2_400 };

#[test]
fn promises_are_kept_whatever_happens() {
    let totals = SIMULATION.run(|seed, tells| World::new(seed, tells).run());
    let has_happened = totals.is_none_or(|it| it.claims > 0 && it.takeovers > 0);
    assert!(has_happened, "nothing happened");
}
