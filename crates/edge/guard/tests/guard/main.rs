//! The socket to netguard, and privileges that are given up.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod apply;
mod confine;
mod handoff;
mod privileges;
mod socket;
