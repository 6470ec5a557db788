//! Tests of the binary and the loads: `cargo test -p skep-lab --test lab`.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod cli;
#[path = "../../../testbed/tests/testbed/common/mod.rs"]
mod common;
mod load;
mod mix;
