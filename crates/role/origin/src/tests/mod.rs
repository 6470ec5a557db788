//! Tests of the whole client: against scripted servers on loopback, and against nginx if it is
//! installed.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod bodies;
mod names;
mod nginx;
mod open;
mod rig;
mod versions;
