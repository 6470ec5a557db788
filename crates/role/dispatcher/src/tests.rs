//! The dispatcher over real sockets: one worker, fake nodes that follow a script, and clients that
//! send and read bytes.
//!
//! No test sleeps to wait for an event. Where the order of events matters, [`rig::fence`] passes a
//! request through the same worker: bytes in its sockets before the fence are processed when it
//! returns.

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
