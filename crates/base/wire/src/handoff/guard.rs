//! What a node may ask of netguard to hand a connection off, over a socket of its own beside that of
//! [`crate::guard`], since these orders must not wait for others.
//!
//! Each order concerns one connection, at a virtual address of netguard's own config: the netguard checks
//! the descriptor that comes with an order against it. Orders are sent in batches; their results come in
//! the same order, with the descriptors that they carry.

use serde::{Deserialize, Serialize};

use super::SocketId;
use crate::guard::Side;
use crate::steer::NodeIndex;

/// The first message of a connection; see [`crate::guard::GREETING`].
pub const GREETING: &[u8] = b"\xffskep handoff 4";

/// Orders in one message, at most: each may carry a descriptor, and the kernel passes 253 at a time.
pub const BATCH_MAX: usize = 64;

/// Bytes of one message, at most: a batch of orders has 4 KiB, and its results, if all are refused, the texts of
/// the system's errors.
pub const MESSAGE_BYTES_MAX: usize = 128 * 1024;

/// Protocol number of control messages on IP itself, for experiments (RFC 3692 section 2.1).
pub const CONTROL_PROTOCOL: u8 = 253;

/// Netguard keeps a duplicate of the descriptor of a [`Freeze`](Self::Freeze) until the donor
/// thaws, resets or releases the flow: a process that dies in between leaves a socket in repair mode, which
/// the kernel would close without a packet, so netguard resets it. Of a receiver's sockets it keeps nothing:
/// closed without a packet is right for them, and the donor ends the connection. When a process is gone,
/// netguard forgets all flows that are blocked on its behalf, with what stood there before: that may lead to
/// the donor, and from there back to here.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum HandoffOrder {
    /// The first order of a process, which has no handoffs yet: flows that an earlier netguard has blocked are
    /// nobody's, and are forgotten.
    ForgetOrphans,
    /// With a descriptor. Donor: block the flow in the packet program, attach a filter to the socket that drops
    /// all packets, then turn its repair mode on. From now on the kernel neither takes packets for it nor sends
    /// any. (Repair mode alone does not stop reception. The filter holds even if the flow is unblocked, as by a
    /// netguard that has started again and takes a paused process for dead.)
    Freeze(SocketId),
    /// With a descriptor. Turn repair mode off, detach the filter, then unblock the flow: the donor keeps the connection. Refused if
    /// the flow is redirected.
    Thaw(SocketId),
    /// Donor: the blocked flow's packets go to a node from now on: one update of the map. Refused if
    /// the flow is not blocked; done if it is redirected to that node already.
    Redirect(SocketId, NodeIndex),
    /// Donor, once the receiver serves: the duplicate of the descriptor is closed, in repair mode. The flow
    /// stays redirected.
    Release(SocketId),
    /// Receiver: block the flow, and answer with the descriptor of a socket in repair mode, with that filter,
    /// that is bound to the server's address. Refused, with nothing changed, if there is a socket of that connection
    /// here, frozen or not. What stood in the map for the flow is remembered beside the block: it may
    /// be redirected from here, if it comes back to a node that it was at before.
    Create(SocketId),
    /// A node that hands off to itself, once all other descriptors of the frozen socket are closed: the duplicate is
    /// closed, in repair mode, then as [`Self::Create`]. If that is refused, `Create` may be tried again.
    Recreate(SocketId),
    /// With a descriptor. Receiver: turn repair mode off, with a window probe that makes the client
    /// acknowledge, detach the filter, then unblock the flow. Done if that has been done already.
    Start(SocketId),
    /// With a descriptor. Donor or receiver: turn repair mode off and close with RST, by one disconnect with
    /// SO_LINGER of 0, and forget the flow, blocked or redirected: a redirect would lead to nobody.
    Reset(SocketId),
    /// Receiver: the packet program forgets the blocked flow: what stood in the map before `Create` is
    /// there again. The process has closed its descriptor before, in repair mode.
    Forget(SocketId),
    /// Answer with a raw socket of [`CONTROL_PROTOCOL`] that is bound to the own address of the node, or of the
    /// dispatcher.
    OpenControlSocket(Side),
}

impl HandoffOrder {
    /// Whether the next of the message's descriptors belongs to it.
    pub fn has_descriptor(&self) -> bool {
        matches!(self, Self::Freeze(_) | Self::Thaw(_) | Self::Start(_) | Self::Reset(_))
    }
}

/// What came of one order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum HandoffResult {
    Done,
    /// The socket of a [`HandoffOrder::Create`] or [`HandoffOrder::OpenControlSocket`]: the next of the
    /// message's descriptors.
    Created,
    Refused(String),
}
