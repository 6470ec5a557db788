//! Tests of the cluster cache: one file for each of its parts.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod changes;
mod coordinator;
mod directory;
mod fetcher;
mod keep;
mod purger;
mod purges;
mod ring;

use skep_units::Rng;
use skep_wire::cache::{Held, SegmentName};

/// A name that is as good as a hash of something.
fn name(seed: u64) -> SegmentName {
    let mut rng = Rng::new(seed);
    SegmentName((u128::from(rng.next_u64()) << 64 | u128::from(rng.next_u64())).to_le_bytes())
}

fn held(seed: u64, bytes: u32) -> Held {
    Held { name: name(seed), bytes }
}
