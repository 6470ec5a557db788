//! Every packet through kernel, host build and model: `cargo test -p skep-bpf-tests --test bpf`.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod fixtures;
mod kernel;
mod random;
