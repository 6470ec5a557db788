//! The terms of a handoff: an established TCP connection moves from the node that accepted it, the
//! **donor**, to the node that should answer, the **receiver**.
//!
//! [`tcp`] defines what of a connection travels, [`guard`] the orders to netguard, which switches
//! `TCP_REPAIR` for both ends.

pub mod guard;
pub mod tcp;

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

/// A connection, by its two ends: the same on the donor and on the receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct SocketId {
    pub client: SocketAddr,
    /// A virtual address and port of a service.
    pub server: SocketAddr,
}
