//! Fuzz targets: plain functions that take bytes and panic if an invariant of a codec is violated. Two
//! drivers call them:
//!
//! - libFuzzer (`fuzz_targets/`, feature `libfuzzer`, nightly): guided by coverage;
//! - [`drive`]: mutates the seeds in a loop, deterministically by seed; needs only the stable compiler. `make
//!   test` runs it for seconds.
//!
//! The seeds are the codec's own case tables (`crates/core/http/tests/http/cases`), the exchanges of the
//! caching cases ([`caching`]), real messages of machines and application servers ([`machines`],
//! [`handoffs`], [`streams`], [`gateways`]), and `regressions/`: inputs that once caused a failure.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a fuzz target fails by panicking")]

pub mod caching;
pub mod drive;
pub mod gateways;
pub mod handoffs;
pub mod machines;
pub mod seeds;
pub mod streams;
pub mod targets;
