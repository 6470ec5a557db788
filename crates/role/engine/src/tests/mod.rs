//! The engine in process: one real worker, a handler that follows scripts, clients that
//! send bytes in whatever pieces. After each the tests look at the state of the
//! connection, as its traces tell it, and at what the handler was given, byte by byte.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod bodies;
mod client;
mod limits;
mod model;
mod replies;
mod rig;
mod script;
mod splits;
mod states;
mod traces;
