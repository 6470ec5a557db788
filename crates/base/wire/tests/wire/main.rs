//! Messages and streams between machines.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod handoff;
mod messages;
mod streams;
