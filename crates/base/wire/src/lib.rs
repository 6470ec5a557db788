//! What the processes and machines of a cluster say to each other.
//!
//! [`steer`] is the vocabulary of direct dispatch: nodes, services, rows and
//! verdicts as the packet programs know them. [`guard`] is what a serving
//! process asks of `skep netguard`.
//!
//! [`cache`] is what nodes and coordinators say about cached segments.
//!
//! Machines talk in [`message`]s, above all heartbeats and the [`table`] that
//! all steer by. A message is cut into [`parts`] if it is long, and every part
//! travels in a datagram that [`seal`] has closed and judges when it arrives.

#![forbid(unsafe_code)]

pub mod cache;
pub mod guard;
pub mod limits;
mod machine;
pub mod message;
pub mod parts;
pub mod seal;
pub mod steer;
pub mod table;
