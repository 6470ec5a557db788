//! What the processes and machines of a cluster say to each other.
//!
//! [`steer`] is the vocabulary of direct dispatch: nodes, services, rows and
//! verdicts as the packet programs know them.

#![forbid(unsafe_code)]

pub mod steer;
