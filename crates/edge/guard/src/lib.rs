//! The unix socket between a serving process and `skep netguard`: both ends;
//! and how either gives up what it need not be able to do.
//!
//! - [`privileges`]: capabilities, and becoming another user.
//! - [`User`]: who that is, and folders for it. [`access`]: what it cannot read or write, in sentences.
//! - [`trust`]: what the other user could change.
//! - [`confine`]: system calls and files that nothing here ever needs.
//!
//! One message is one order or one answer (`SOCK_SEQPACKET`), so neither end
//! can be led to wait for the rest of something. The guard's end serves only
//! peers of the users it was told, as the kernel names them (`SO_PEERCRED`), one
//! at a time: two masters would undo each other's work.

#![forbid(unsafe_code)]

pub mod access;
mod apply;
mod client;
pub mod confine;
mod error;
mod folder;
mod limits;
mod message;
pub mod privileges;
mod server;
pub mod trust;
mod user;

pub use apply::Applier;
pub use client::Guard;
pub use error::GuardError;
pub use server::{Listener, Visit};
pub use user::{User, UserError};
