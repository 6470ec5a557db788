//! Test beds: `cargo test -p skep-testbed --test testbed`.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod bed;
mod common;
mod links;
mod relay;
