//! Fuzz targets: plain functions from bytes to nothing that panic when an
//! invariant of a codec breaks. Two drivers call them:
//!
//! - libFuzzer (`fuzz_targets/`, feature `libfuzzer`, nightly): follows coverage;
//! - [`drive`]: mutates the seeds in a loop, the same for the same seed; stable
//!   compiler, no further tools. `make test` runs it for seconds.
//!
//! The seeds are the codec's own case tables (`crates/core/http/tests/http/cases`), the exchanges of
//! the cases of caching ([`caching`]), what machines and application servers really say ([`machines`], [`handoffs`], [`streams`], [`gateways`]), and `regressions/`, inputs that once
//! broke something.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a fuzz target fails by panicking")]

pub mod caching;
pub mod drive;
pub mod gateways;
pub mod handoffs;
pub mod machines;
pub mod seeds;
pub mod streams;
pub mod targets;
