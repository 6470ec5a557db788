//! The dispatcher over real sockets: one worker, fake nodes that follow a
//! script, clients that send and read bytes.
//!
//! Nothing here sleeps to let something happen. Where the order of events
//! matters, [`rig::fence`] passes a request through the same worker: what
//! was in its sockets before has been dealt with after.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod control;
mod framing;
mod health;
mod loads;
mod proxy;
mod redirect;
mod retries;
mod rig;
mod upgrade;
mod upload;
