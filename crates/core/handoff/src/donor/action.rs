//! The actions of a donor for its node, and the outcomes of moves.

use skep_wire::handoff::lccp::{Lccp, RefuseCause};
use skep_wire::handoff::{HandoffId, SocketId};
use skep_wire::seal::PeerId;
use skep_wire::steer::NodeIndex;

/// A node that a connection is offered to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MoveTarget {
    pub peer: PeerId,
    /// Its index in the tables: packets are redirected to it.
    pub node: NodeIndex,
}

/// An action for the node. Orders go to netguard in the order of the actions; each except a release
/// has exactly one result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DonorAction {
    /// Take the connection out of the event loop, order netguard to freeze it, and read its state. Answer
    /// with [`Donor::frozen`](super::Donor::frozen) or [`Donor::not_frozen`](super::Donor::not_frozen).
    Freeze(HandoffId, SocketId),
    /// Order netguard to redirect the flow.
    Redirect(HandoffId, SocketId, NodeIndex),
    /// Order netguard to thaw the connection.
    Thaw(HandoffId, SocketId),
    /// Order netguard to close the connection with RST.
    Reset(HandoffId, SocketId),
    /// Close the descriptor, in repair mode, and order netguard to release its own. There is no
    /// result.
    Release(HandoffId, SocketId),
    Send(PeerId, Lccp),
    /// The move has ended with this outcome.
    Ended(HandoffId, SocketId, MoveOutcome),
}

/// How a move has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MoveOutcome {
    /// The connection is thawed and served here.
    Stays(StayCause),
    /// The receiver serves it.
    Moved,
    /// The connection was closed with RST.
    Closed,
}

/// Why a connection stays at the donor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StayCause {
    /// Netguard did not freeze it.
    NotFrozen,
    /// Its state does not allow a move: unacknowledged bytes, or too many received ones.
    Unsuitable,
    /// The receiver refused it.
    Refused(RefuseCause),
    /// The receiver was not ready in time.
    Silent,
    /// The receiver does not know the offer any more: it has restarted, or given up.
    Gone,
    /// Netguard did not redirect the flow.
    NotRedirected,
}

impl StayCause {
    /// Its name in metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::NotFrozen => "not_frozen",
            Self::Unsuitable => "unsuitable",
            Self::Refused(cause) => cause.name(),
            Self::Silent => "silent",
            Self::Gone => "gone",
            Self::NotRedirected => "not_redirected",
        }
    }
}

/// Why a move is not started; the connection is then served here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotBegun {
    #[error("as many moves are in flight as there may be")]
    Full,
    #[error("this connection is being moved already")]
    Busy,
}

/// Counters since the start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DonorCounters {
    /// Moves begun.
    pub begun: u64,
    /// Moves that were not started because too many were in flight.
    pub full: u64,
    /// Connections that the receiver serves.
    pub moved: u64,
    /// Connections that were closed with RST.
    pub closed: u64,
    /// Connections that stayed, by [`StayCause`].
    pub not_frozen: u64,
    pub unsuitable: u64,
    pub silent: u64,
    pub gone: u64,
    pub not_redirected: u64,
    /// Connections that stayed because the receiver refused, in the order of [`RefuseCause::ALL`].
    pub refused: [u64; RefuseCause::ALL.len()],
    /// Offers, GOs and ABORTs that were repeated.
    pub repeated: u64,
    /// Messages that a correct receiver never sends.
    pub unexpected: u64,
}

impl DonorCounters {
    pub(super) fn stays(&mut self, cause: StayCause) {
        let count = match cause {
            StayCause::NotFrozen => &mut self.not_frozen,
            StayCause::Unsuitable => &mut self.unsuitable,
            StayCause::Silent => &mut self.silent,
            StayCause::Gone => &mut self.gone,
            StayCause::NotRedirected => &mut self.not_redirected,
            StayCause::Refused(cause) => &mut self.refused[cause as usize - 1],
        };
        *count += 1;
    }
}
