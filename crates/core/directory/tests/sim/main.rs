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

use std::panic::{AssertUnwindSafe, catch_unwind};

use totals::Totals;
use world::World;

/// Seeds that `cargo test` runs.
const SEEDS: u64 = 2_400;

#[test]
fn promises_are_kept_whatever_happens() {
    if let Some(seed) = number("SKEP_SIM_SEED") {
        eprintln!("{}", World::new(seed, true).run().unwrap());
        return;
    }
    let seeds = number("SKEP_SIM_SEEDS").unwrap_or(SEEDS);
    let threads = std::thread::available_parallelism().map_or(1, |count| count.get() as u64);
    let totals = std::thread::scope(|scope| {
        let run = |first: u64| move || run_all((first..seeds).step_by(threads as usize));
        let threads: Vec<_> = (0..threads).map(|first| scope.spawn(run(first))).collect();
        let mut totals = Totals::default();
        for thread in threads {
            let of_thread = thread.join().expect("its panics are caught");
            totals.add(&of_thread.unwrap_or_else(|broken| panic!("{broken}")));
        }
        totals
    });
    eprintln!("{totals}");
    let never = totals.never();
    assert!(seeds < SEEDS || never.is_empty(), "in all these seeds there was no {never:?}");
}

/// Runs seeds up to the first that breaks a promise.
fn run_all(seeds: impl Iterator<Item = u64>) -> Result<Totals, String> {
    let mut totals = Totals::default();
    for seed in seeds {
        let result = catch_unwind(AssertUnwindSafe(|| World::new(seed, false).run()));
        let broken = match result {
            Ok(Ok(of_seed)) => {
                totals.add(&of_seed);
                continue;
            }
            Ok(Err(broken)) => broken,
            Err(_) => "panic, see above".to_owned(),
        };
        return Err(format!(
            "seed {seed}: {broken}\nagain, with its story:\n  \
             SKEP_SIM_SEED={seed} cargo test -p skep-directory --test sim -- --nocapture"
        ));
    }
    Ok(totals)
}

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().map(|value| value.parse().expect("a number"))
}
