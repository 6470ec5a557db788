//! Connections that move between machines while in use, as root.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod common;
mod moves;
mod options;
mod refusals;
mod same_machine;
mod talk;
mod windows;
