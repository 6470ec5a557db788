//! What a receiver asks of its node.

use skep_wire::handoff::lccp::{Lccp, RefuseCause};
use skep_wire::handoff::{HandoffId, HandoffInfo, SocketId};
use skep_wire::seal::PeerId;

/// A move, among all of a receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OfferKey {
    pub donor: PeerId,
    pub id: HandoffId,
}

/// Something to do. Orders go to netguard in the order of the actions; each but a discard gets one
/// result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReceiverAction {
    /// Order netguard to create the socket, and restore the connection in it. Answer with
    /// [`Receiver::prepared`](super::Receiver::prepared).
    Create(OfferKey, SocketId, Box<HandoffInfo>),
    /// Order netguard to start the socket.
    Start(OfferKey, SocketId),
    /// Close the socket, if there is one, in repair mode, and order netguard to forget the flow. No result
    /// is awaited.
    Discard(OfferKey, SocketId),
    /// Order netguard to close the socket with RST.
    Reset(OfferKey, SocketId),
    Send(PeerId, Lccp),
    /// The connection is this node's: answer its request.
    Serve(OfferKey, SocketId),
    /// The connection was closed with RST: drop what belongs to it.
    Closed(OfferKey, SocketId),
}

/// What came of a [`ReceiverAction::Create`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Preparation {
    /// The connection is restored in a socket, which is silent and blocked.
    Restored,
    /// There is a socket, but the kernel did not take the connection's state.
    NotRestored,
    /// This machine has no room for one more connection; netguard was not asked.
    NoRoom,
    /// Netguard made no socket, or this process has no room for its descriptor.
    NotCreated,
}

/// What has happened so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReceiverCounters {
    /// Offers of which something came.
    pub offered: u64,
    /// Connections that are served here.
    pub served: u64,
    /// Offers that the donor took back.
    pub aborted: u64,
    /// Connections that were closed with RST, as no word of the donor came.
    pub undecided: u64,
    /// The same, as netguard could not start them.
    pub not_started: u64,
    /// Connections given to this node that it does not know.
    pub gone: u64,
    /// Offers that were refused, in the order of [`RefuseCause::ALL`].
    pub refused: [u64; RefuseCause::ALL.len()],
    /// Messages of a donor's earlier process.
    pub stale: u64,
    /// Messages that no donor should send.
    pub unexpected: u64,
}
