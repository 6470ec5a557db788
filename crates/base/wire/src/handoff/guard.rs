//! What a node may ask of netguard to hand a connection off, over a socket of its own beside that of
//! [`crate::guard`], since these orders must not wait for others.
//!
//! Each order concerns one connection, at a virtual address of netguard's own config: the netguard checks
//! the descriptor that comes with an order against it. Orders are sent in batches; their results come in
//! the same order, with the descriptors that they carry.

use serde::{Deserialize, Serialize};

use super::SocketId;
use crate::steer::NodeIndex;

/// The first message of a connection; see [`crate::guard::GREETING`].
pub const GREETING: &[u8] = b"\xffskep handoff 1";

/// Orders in one message, at most: each may carry a descriptor, and the kernel passes 253 at a time.
pub const BATCH_MAX: usize = 64;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum HandoffOrder {
    /// With a descriptor. Donor: block the flow in the packet program, then turn the socket's repair
    /// mode on. From now on the kernel neither takes packets for it nor sends any.
    Freeze(SocketId),
    /// With a descriptor. Turn repair mode off, then unblock the flow: the donor keeps the connection.
    Thaw(SocketId),
    /// Donor: the blocked flow's packets go to a node from now on: one update of the map. Refused if
    /// the flow is not blocked.
    Redirect(SocketId, NodeIndex),
    /// Receiver: block the flow, and answer with the descriptor of a socket in repair mode that is
    /// bound to the server's address.
    Create(SocketId),
    /// With a descriptor. Receiver: unblock the flow and turn repair mode off, with a window probe that
    /// makes the client acknowledge.
    Start(SocketId),
    /// Donor or receiver: the packet program forgets the flow, blocked or redirected.
    Forget(SocketId),
}

/// What came of one order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum HandoffResult {
    Done,
    /// The socket of a [`HandoffOrder::Create`]: the next of the message's descriptors.
    Created,
    Refused(String),
}
