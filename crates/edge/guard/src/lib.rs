//! The unix socket between a serving process and `skep netguard`: both ends.
//!
//! One message is one order or one answer (`SOCK_SEQPACKET`), so neither end
//! can be led to wait for the rest of something. The guard's end serves only
//! peers of the users it was told, as the kernel names them (`SO_PEERCRED`), one
//! at a time: two masters would undo each other's work.

#![forbid(unsafe_code)]

mod apply;
mod client;
mod error;
mod limits;
mod message;
pub mod privileges;
mod server;

pub use apply::Applier;
pub use client::Guard;
pub use error::GuardError;
pub use server::{Listener, Visit};
