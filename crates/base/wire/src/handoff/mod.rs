//! The terms of a handoff: an established TCP connection moves from the node that accepted it, the
//! **donor**, to the node that should answer, the **receiver**.
//!
//! [`tcp`] defines the transferred state of a connection, [`guard`] the orders to netguard, which
//! switches `TCP_REPAIR` for both ends, [`lccp`] the messages between machines, and [`fragments`]
//! how a long message is split.

mod bytes;
pub mod fragments;
pub mod guard;
mod info;
pub mod lccp;
pub mod tcp;

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

pub use info::{HandoffInfo, NotAnInfo};

/// A connection, by its two ends: the same on the donor and on the receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct SocketId {
    pub client: SocketAddr,
    /// A virtual address and port of a service.
    pub server: SocketAddr,
}

impl SocketId {
    /// Returns the connection between these addresses in canonical form: IPv4-mapped IPv6 addresses
    /// become IPv4, and scopes and flow labels are omitted. `None` if the families differ.
    pub fn new(client: SocketAddr, server: SocketAddr) -> Option<Self> {
        let plain = |it: SocketAddr| SocketAddr::new(it.ip().to_canonical(), it.port());
        let (client, server) = (plain(client), plain(server));
        (client.is_ipv4() == server.is_ipv4()).then_some(Self { client, server })
    }
}

/// A handoff, unique among all handoffs of one donor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct HandoffId {
    /// The donor's incarnation: distinguishes handoffs of a process that has ended from those of
    /// the next.
    pub incarnation: u64,
    /// Increases by one with each handoff, from 1.
    pub number: u64,
}
