//! The seed of a process's random choices.

use std::hash::{BuildHasher, RandomState};

/// A number that differs between processes, from the standard library's own entropy.
pub(crate) fn seed() -> u64 {
    RandomState::new().hash_one(std::process::id())
}
