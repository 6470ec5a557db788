//! A node's orders to netguard for handing connections off, over a separate socket from that of
//! [`crate::guard`], since these orders must not wait for others.
//!
//! Each order concerns one connection at a virtual address of netguard's own config: netguard
//! checks the descriptor sent with an order against it. Orders are sent in batches; their results
//! are returned in the same order, with the descriptors that they carry.

use serde::{Deserialize, Serialize};

use super::SocketId;
use crate::guard::Side;
use crate::steer::NodeIndex;

/// The first message of a connection; see [`crate::guard::GREETING`].
pub const GREETING: &[u8] = b"\xffskep handoff 4";

/// Orders in one message, at most: each may carry a descriptor, and the kernel passes 253 at a
/// time.
pub const BATCH_MAX: usize = 64;

/// Bytes of one message, at most: a batch of orders needs 4 KiB, and its results, if all are
/// refused, the texts of the system's errors.
pub const MESSAGE_BYTES_MAX: usize = 128 * 1024;

/// Protocol number of control messages on IP itself, for experiments (RFC 3692 section 2.1).
pub const CONTROL_PROTOCOL: u8 = 253;

/// Netguard keeps a duplicate of the descriptor of a [`Freeze`](Self::Freeze) until the donor
/// thaws, resets or releases the flow: a process that dies in between leaves a socket in repair
/// mode, which the kernel would close without a packet, so netguard resets it. It keeps no
/// duplicates of a receiver's sockets: they may be closed without a packet, since the donor ends
/// the connection. When a process exits, netguard removes all flows blocked on its behalf, together
/// with their previous entries: such an entry may redirect to the donor, and from there back to
/// here.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum HandoffOrder {
    /// The first order of a process, which has no handoffs yet: flows blocked by an earlier
    /// netguard have no owner and are removed.
    ForgetOrphans,
    /// With a descriptor. Donor: block the flow in the packet program, attach a filter to the
    /// socket that drops all packets, then turn its repair mode on. From now on the kernel neither
    /// receives packets for it nor sends any. (Repair mode alone does not stop reception. The
    /// filter remains effective even if the flow is unblocked, for example by a restarted netguard
    /// that considers a paused process dead.)
    Freeze(SocketId),
    /// With a descriptor. Turn repair mode off, detach the filter, then unblock the flow: the donor
    /// keeps the connection. Refused if the flow is redirected.
    Thaw(SocketId),
    /// Donor: redirect the blocked flow's packets to a node, with one update of the map. Refused if
    /// the flow is not blocked; done if it is already redirected to that node.
    Redirect(SocketId, NodeIndex),
    /// Donor, once the receiver serves: close the duplicate of the descriptor, in repair mode. The
    /// flow stays redirected.
    Release(SocketId),
    /// Receiver: block the flow, and return the descriptor of a socket in repair mode, with the
    /// same filter, bound to the server's address. Refused, with nothing changed, if a socket of
    /// that connection exists here, frozen or not. The flow's previous entry in the map is saved
    /// with the block: it may be a redirect to another node, if the connection returns to a node
    /// where it was before.
    Create(SocketId),
    /// A node that hands off to itself, once all other descriptors of the frozen socket are closed:
    /// close the duplicate, in repair mode, then proceed as for [`Self::Create`]. If that is
    /// refused, `Create` may be tried again.
    Recreate(SocketId),
    /// With a descriptor. Receiver: turn repair mode off, with a window probe that makes the client
    /// acknowledge, detach the filter, then unblock the flow. Done if this has already happened.
    Start(SocketId),
    /// With a descriptor. Donor or receiver: turn repair mode off and close with RST, by one
    /// disconnect with SO_LINGER of 0, and remove the flow, blocked or redirected: a redirect would
    /// have no target.
    Reset(SocketId),
    /// Receiver: remove the blocked flow from the packet program and restore the map entry from
    /// before `Create`. The process has already closed its descriptor, in repair mode.
    Forget(SocketId),
    /// Return a raw socket of [`CONTROL_PROTOCOL`] bound to the address of the node, or of the
    /// dispatcher.
    OpenControlSocket(Side),
}

impl HandoffOrder {
    /// Whether the next of the message's descriptors belongs to it.
    pub fn has_descriptor(&self) -> bool {
        matches!(self, Self::Freeze(_) | Self::Thaw(_) | Self::Start(_) | Self::Reset(_))
    }
}

/// The result of one order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum HandoffResult {
    Done,
    /// The socket of a [`HandoffOrder::Create`] or [`HandoffOrder::OpenControlSocket`]: the next of
    /// the message's descriptors.
    Created,
    Refused(String),
}
