//! The thread that moves connections: both ends of handoffs, with netguard and the other nodes.

mod arrivals;
mod departures;
mod incoming;
mod orders;
mod pending_queries;
mod thread;

use std::os::fd::OwnedFd;
use std::time::Instant;

use skep_wire::handoff::SocketId;
use skep_wire::handoff::lccp::QueryKey;
use skep_wire::steer::NodeIndex;
use tokio::sync::{mpsc, oneshot};

pub use arrivals::{ArrivalQueue, ArrivedConnection};
pub use thread::{Mover, MoverParts};

/// A connection to be moved.
pub(crate) struct Moving {
    /// A copy of its descriptor.
    pub(crate) socket: OwnedFd,
    pub(crate) id: SocketId,
    /// Bytes that were read from it and not answered.
    pub(crate) received: Vec<u8>,
    /// Number of times that it has moved, including this one.
    pub(crate) moves: u8,
    /// The node that accepted it; `None`: this one.
    pub(crate) accepted_by: Option<NodeIndex>,
    pub(crate) to: NodeIndex,
    /// Time of its worker's request.
    pub(crate) since: Instant,
}

/// The outcome of a move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It belongs to another node, or was closed: it must not be used any more.
    Gone,
    /// It is unchanged.
    Kept,
}

/// Passes connections to the mover; for any worker.
#[derive(Clone)]
pub(crate) struct MoverHandle {
    commands: mpsc::Sender<Command>,
}

/// Requests of workers to the mover, each with the sender of the result.
enum Command {
    Move(Moving, oneshot::Sender<Outcome>),
    Ask(SocketId, QueryKey, oneshot::Sender<Option<NodeIndex>>),
}

impl MoverHandle {
    /// Hands a connection off. The caller keeps it if the queue is full or the mover has ended. If the mover ends after
    /// the move began, the connection counts as gone, since another node may be serving it.
    pub(crate) async fn hand_off(&self, moving: Moving) -> Outcome {
        let (done, outcome) = oneshot::channel();
        if self.commands.try_send(Command::Move(moving, done)).is_err() {
            return Outcome::Kept;
        }
        outcome.await.unwrap_or(Outcome::Gone)
    }

    /// Asks the active dispatcher which node should answer a request. `None`: this node, or no answer in
    /// time.
    pub(crate) async fn ask(&self, id: SocketId, key: QueryKey) -> Option<NodeIndex> {
        let (done, decision) = oneshot::channel();
        self.commands.try_send(Command::Ask(id, key, done)).ok()?;
        decision.await.ok()?
    }
}
