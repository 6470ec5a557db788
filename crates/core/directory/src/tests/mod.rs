//! Tests of the cluster cache, one file for each part.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod changes;
mod coordinator;
mod directory;
mod fetcher;
mod files;
mod keep;
mod orders;
mod purger;
mod purges;
mod rendezvous;

use std::collections::HashMap;

use skep_units::Rng;
use skep_wire::cache::{Held, SegmentName, ToCoordinator};

use crate::Inventory;

/// A pseudo-random name, like a hash.
fn name(seed: u64) -> SegmentName {
    let mut rng = Rng::new(seed);
    SegmentName((u128::from(rng.next_u64()) << 64 | u128::from(rng.next_u64())).to_le_bytes())
}

fn held(seed: u64, bytes: u32) -> Held {
    Held { name: name(seed), bytes }
}

/// An inventory of all these segments, complete.
fn whole_inventory(held: &[Held]) -> Vec<ToCoordinator> {
    let bytes: HashMap<_, _> = held.iter().map(|it| (it.name, it.bytes)).collect();
    let held_of = |&name: &SegmentName| Held { name, bytes: bytes[&name] };
    let mut inventory = Inventory::new(held.iter().map(|it| it.name).collect());
    let held = |names: &[SegmentName]| names.iter().map(held_of).collect();
    std::iter::from_fn(|| inventory.next_part(usize::MAX, held)).collect()
}
