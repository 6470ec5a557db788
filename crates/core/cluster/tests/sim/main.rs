//! Dispatchers and nodes under a virtual clock and network, seeded.
//!
//! Every seed is a cluster, a network (loss, delay, reordering, duplicates) and
//! a list of misfortunes: crashes, pauses, partitions, a store that goes. While
//! it runs, `check` holds the cluster to its promises; at the end everything is
//! mended, and the cluster must be well.
//!
//! `SKEP_SIM_SEED=n` runs one seed and tells its story; `SKEP_SIM_SEEDS=n` runs
//! so many.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod check;
mod machine;
mod net;
mod scenario;
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
