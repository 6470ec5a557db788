//! What the processes and machines of a cluster say to each other.
//!
//! [`steer`] is the vocabulary of direct dispatch: nodes, services, rows and
//! verdicts as the packet programs know them. [`guard`] is what a serving
//! process asks of `skep netguard`.

#![forbid(unsafe_code)]

pub mod guard;
pub mod steer;
