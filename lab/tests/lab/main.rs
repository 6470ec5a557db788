//! Test beds and loads: `cargo test -p skep-lab --test lab`.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod bed;
mod cli;
mod common;
mod links;
mod load;
mod mix;
