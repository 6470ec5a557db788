//! Tests of datagrams, links and fetches between machines, over loopback.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod fetches;
mod lccp;
mod links;
mod loopback;
mod rig;
mod support;
