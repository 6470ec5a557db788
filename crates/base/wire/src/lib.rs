//! Messages between the processes and machines of a cluster.
//!
//! [`steer`] defines the terms of direct dispatch: nodes, services, rows and verdicts, as used by
//! the packet programs. [`guard`] defines the orders of a serving process to `skep netguard`.
//!
//! [`cache`] defines the messages between nodes and coordinators about cached segments.
//!
//! Machines exchange [`message`]s, above all heartbeats and the [`table`] that all of them use for
//! steering, complete or as a [`delta`]. A long message is split into [`parts`]; every part travels
//! in a datagram that [`seal`] seals, and verifies on arrival.

#![forbid(unsafe_code)]

pub mod cache;
pub mod delta;
pub mod guard;
pub mod handoff;
pub mod limits;
mod machine;
pub mod message;
pub mod parts;
pub mod seal;
pub mod steer;
pub mod table;
