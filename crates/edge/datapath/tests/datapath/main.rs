//! Tests of packet programs in the kernel of this machine, as root.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod attach;
mod common;
mod compare;
mod handoff;
mod moves;
mod rights;
mod tables;
