//! Tests of the socket to netguard, and of dropping privileges.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod apply;
mod confine;
mod handoff;
mod privileges;
mod socket;
