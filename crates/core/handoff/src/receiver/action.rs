//! The actions of a receiver for its node.

use skep_wire::handoff::lccp::{Lccp, RefuseCause};
use skep_wire::handoff::{HandoffId, HandoffInfo, SocketId};
use skep_wire::seal::PeerId;

/// Identifies a move among all moves to a receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OfferKey {
    pub donor: PeerId,
    pub id: HandoffId,
}

/// An action for the node. Orders go to netguard in the order of the actions; each except a discard
/// has exactly one result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReceiverAction {
    /// Order netguard to create the socket, and restore the connection in it. Answer with
    /// [`Receiver::prepared`](super::Receiver::prepared).
    Create(OfferKey, SocketId, Box<HandoffInfo>),
    /// Order netguard to start the socket.
    Start(OfferKey, SocketId),
    /// Close the socket, if there is one, in repair mode, and order netguard to forget the flow.
    /// There is no result.
    Discard(OfferKey, SocketId),
    /// Order netguard to close the socket with RST.
    Reset(OfferKey, SocketId),
    Send(PeerId, Lccp),
    /// The connection belongs to this node: answer its request.
    Serve(OfferKey, SocketId),
    /// The connection was closed with RST: drop its state.
    Closed(OfferKey, SocketId),
}

/// The result of a [`ReceiverAction::Create`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Preparation {
    /// The connection is restored in a socket, which is silent and blocked.
    Restored,
    /// There is a socket, but the kernel did not accept the connection's state.
    NotRestored,
    /// This machine has no room for one more connection; netguard was not asked.
    NoRoom,
    /// Netguard created no socket, or this process has no room for its descriptor.
    NotCreated,
}

/// Counters since the start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReceiverCounters {
    /// Offers of which at least one fragment was received.
    pub offered: u64,
    /// Connections that are served here.
    pub served: u64,
    /// Offers that the donor aborted.
    pub aborted: u64,
    /// Connections closed with RST because the donor was silent.
    pub undecided: u64,
    /// Connections closed with RST because netguard could not start them.
    pub not_started: u64,
    /// GOs for connections that this node does not know.
    pub gone: u64,
    /// Offers that were refused, in the order of [`RefuseCause::ALL`].
    pub refused: [u64; RefuseCause::ALL.len()],
    /// Messages from an earlier process of a donor.
    pub stale: u64,
    /// Messages that a correct donor never sends.
    pub unexpected: u64,
}
