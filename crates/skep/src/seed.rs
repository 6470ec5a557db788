//! What makes the random choices of processes differ.

use std::hash::{BuildHasher, RandomState};

/// A number that differs from process to process, from the standard library's own entropy.
pub(crate) fn seed() -> u64 {
    RandomState::new().hash_one(std::process::id())
}
