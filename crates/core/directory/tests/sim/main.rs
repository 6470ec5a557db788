//! Coordinators and nodes under a virtual clock and network, seeded.
//!
//! Every seed is a cluster, clients that ask for objects, purges, and a list of
//! misfortunes: links that break, crashes, pauses, takeovers with two coordinators
//! active, nodes that do not reach each other, an origin that fails, stalls or changes.
//! What is decided is decided by the cores that a node and a dispatcher run:
//! `Coordinator`, `Fetcher`, `RendezvousHash`, `PurgeTable`, `Purger`, `keep` and S3-FIFO. What
//! joins them is written here anew, as short as it can be. While it runs:
//!
//! - `check` holds the coordinators to their promises: one lease at a time above all;
//! - `origin` holds all bytes that a client gets against what was there: of one version,
//!   which the origin named within the time that its head was fresh for, and of nothing
//!   that was purged before the node acknowledged it;
//! - `memory` counts the bytes of each node anew, and `offers` sees to it that no sole
//!   replica is dropped where a node that was asked had room for it, or goes round for
//!   ever;
//! - no client waits for longer than so many could be silent.
//!
//! At the end everything is mended, every client must have got its bytes or an end, and
//! the directory must be true.
//!
//! What a network does to messages is done to those that can meet with it. Loads are
//! datagrams: lost, doubled, late and in any order. Links and fetches are TCP, which
//! excludes that: what was said comes once and in order, or the connection breaks, and
//! with it an end of what was under way is lost.
//!
//! `SKEP_SIM_SEED=n` runs one seed and tells its story; `SKEP_SIM_SEEDS=n` runs
//! so many.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod check;
mod clients;
mod faults;
mod links;
mod memory;
mod node;
mod offers;
mod origin;
mod peers;
mod purging;
mod scenario;
mod totals;
mod world;

use skep_sim::Simulation;
use world::World;

const SIMULATION: Simulation = Simulation { package: "skep-directory", test: "sim", seeds: 2_400 };

#[test]
fn promises_are_kept_whatever_happens() {
    let totals = SIMULATION.run(|seed, tells| World::new(seed, tells).run());
    let Some(totals) = totals.filter(|totals| totals.seeds >= SIMULATION.seeds) else { return };
    let never = totals.never();
    assert!(never.is_empty(), "in all these seeds there was no {never:?}");
}
