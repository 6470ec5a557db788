//! The peer lies, stalls or leaves at any byte. Clients receive correct bytes or a detectable failure; nobody
//! waits for ever; and when the peers are gone, nothing of them remains: no connection, slot, task, pinned
//! byte, descriptor or memory.
//!
//! `cargo test -p skep-tests --test adversary` runs all cases of a kind at once and checks for leaks
//! afterwards. `... -- --ignored` runs one case after the other and checks after each: it takes minutes, and
//! names the case that leaks.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod clients;
mod judge;
mod lies;
mod nodes;
mod origins;
mod victim;
