//! The engine in process: one real worker, a handler that follows scripts, and clients that send
//! bytes in pieces of any size. After each step the tests compare, byte by byte, the state of the
//! connection in its traces and the input of the handler.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod bodies;
mod client;
mod depart;
mod limits;
mod model;
mod replies;
mod rig;
mod script;
mod splits;
mod states;
mod traces;
