//! The unix socket between a serving process and `skep netguard`, both ends; and how both processes drop the
//! privileges that they do not need.
//!
//! - [`HandoffGuard`], [`HandoffListener`]: a second socket, for handoffs.
//! - [`privileges`]: capabilities, and the change to another user.
//! - [`User`]: that user, and its folders. [`access`]: files that it cannot read or write, as
//!   sentences.
//! - [`trust`]: files that another user could change.
//! - [`confine`]: system calls and files that this process never needs.
//!
//! One message is one order or one answer (`SOCK_SEQPACKET`), so neither end ever waits for the rest of a
//! message. The first message of a connection determines whether the builds of both ends are compatible
//! ([`GREETING`](skep_wire::guard::GREETING)). Netguard serves only peers of the configured users, as
//! identified by the kernel (`SO_PEERCRED`), one at a time: two clients would undo each other's changes.

#![forbid(unsafe_code)]

pub mod access;
mod apply;
mod client;
mod complaints;
pub mod confine;
mod error;
mod folder;
mod handoff;
mod limits;
mod message;
pub mod privileges;
mod server;
pub mod trust;
mod user;

pub use apply::Applier;
pub use client::{Guard, is_listening, open_again};
pub use complaints::{CheckFindings, Complaints};
pub use error::GuardError;
pub use handoff::{ClientNumber, HandoffAnswer, HandoffGuard, HandoffListener, ServeHandoffs};
pub use server::{Listener, Serve, Visit};
pub use user::{User, UserError};
