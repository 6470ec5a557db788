//! Coordinators and nodes under a virtual clock and network, seeded.
//!
//! Every seed determines a cluster, clients that request objects, purges, and a list of
//! faults: links that break, crashes, pauses, takeovers with two coordinators
//! active, nodes that do not reach each other, an origin that fails, stalls or changes.
//! All decisions are made by the cores that a node and a dispatcher run:
//! `Coordinator`, `Fetcher`, `RendezvousHash`, `PurgeTables`, `Purger`, `keep` and S3-FIFO. The
//! code that connects them is a minimal reimplementation. Meanwhile:
//!
//! - `check` verifies the coordinators' invariants: above all one lease at a time;
//! - `origin` compares all bytes that a client receives with those of the origin: all of one
//!   version, which the origin gave within the time that its head was fresh, and none that were
//!   purged before the node acknowledged the purge; after a soft purge, of a version that the
//!   origin had when the purge was ordered, or later;
//! - `memory` counts the bytes of each node independently, and `offers` checks that no sole
//!   replica is dropped where a node that was asked had room for it, or circulates
//!   forever;
//! - `files` verifies that no coordinator answers "nobody" for a file while a node may have it;
//! - no client waits for longer than the sum of the possible timeouts.
//!
//! At the end all faults are repaired; every client must have received its bytes or an error, and
//! the directory must be correct.
//!
//! Messages suffer only the faults that their transport allows. Loads are
//! datagrams: lost, duplicated, late and in any order. Links and fetches are TCP, which
//! excludes that: messages arrive once and in order, or the connection breaks, and
//! the last messages in flight are lost with it.
//!
//! `SKEP_SIM_SEED=n` runs one seed and prints its events; `SKEP_SIM_SEEDS=n` runs
//! that many.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod check;
mod clients;
mod faults;
mod files;
mod links;
mod memory;
mod node;
mod offers;
mod origin;
mod peers;
mod purging;
mod scenario;
mod slots;
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
