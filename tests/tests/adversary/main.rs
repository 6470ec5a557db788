//! The other end lies, stalls or leaves, at any byte. Clients get right
//! bytes or see that there are none; nobody waits for ever; and when they are gone,
//! nothing of them is left: no connection, no place, no task, no pinned byte, no
//! descriptor, no memory.
//!
//! `cargo test -p skep-tests --test adversary` throws all cases of a kind at once and
//! looks behind them. `... -- --ignored` throws one after the other, and looks behind
//! each: it takes minutes, and names the case that leaves something.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod clients;
mod judge;
mod lies;
mod nodes;
mod origins;
mod victim;
