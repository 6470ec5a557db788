//! The socket for orders of handoffs, beside that for orders of direct dispatch: both ends.
//!
//! It is a separate socket, since moving a connection takes microseconds and must not wait for an order that
//! takes 100 ms. Messages are batches of orders, and of their results, with the descriptors that belong to
//! them (`SCM_RIGHTS`), in the same order. Several clients are served at once, one batch of each in turn.
//!
//! Invariants: unexpected descriptors are closed. Neither end waits for the other while it holds one:
//! netguard sends without waiting, and disconnects a client that does not read its results.

mod client;
mod message;
mod server;

pub use client::{HandoffAnswer, HandoffGuard};
pub use server::{ClientNumber, HandoffListener, ServeHandoffs};
