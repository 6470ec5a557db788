//! Connections that leave this node, by the id of their handoff.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Instant;

use skep_handoff::StayCause;
use skep_repair::{SnapshotLimits, snapshot};
use skep_wire::handoff::{HandoffId, HandoffInfo};
use skep_wire::limits::HANDOFF_QUEUE_BYTES_MAX;
use skep_wire::steer::NodeIndex;
use tokio::sync::oneshot;

use super::{Moving, Outcome};
use crate::counters::{HandoffTimings, MoveStep};

/// A connection that leaves.
struct DepartingConnection {
    /// `None` once its [socket is closed](Departures::close_socket).
    at_worker: Option<WorkerSide>,
    received: Vec<u8>,
    moves: u8,
    accepted_by: NodeIndex,
    to: NodeIndex,
    /// Time of its worker's request.
    since: Instant,
    /// Time at which its freeze was ordered.
    frozen_at: Instant,
    /// Time at which the last step ended.
    step_at: Instant,
}

/// The worker's side of a connection.
struct WorkerSide {
    socket: Arc<OwnedFd>,
    done: oneshot::Sender<Outcome>,
}

/// All leaving connections.
#[derive(Default)]
pub(super) struct Departures(HashMap<HandoffId, DepartingConnection>);

impl Departures {
    /// Adds a connection; `own` is this node's index.
    pub(super) fn begin(
        &mut self,
        id: HandoffId,
        moving: Moving,
        own: NodeIndex,
        done: oneshot::Sender<Outcome>,
    ) {
        let Moving { socket, received, moves, accepted_by, to, since, .. } = moving;
        let now = Instant::now();
        let connection = DepartingConnection {
            at_worker: Some(WorkerSide { socket: Arc::new(socket), done }),
            received,
            moves,
            accepted_by: accepted_by.unwrap_or(own),
            to,
            since,
            frozen_at: now,
            step_at: since,
        };
        self.0.insert(id, connection);
    }

    pub(super) fn socket(&self, id: HandoffId) -> Option<&Arc<OwnedFd>> {
        self.0.get(&id)?.at_worker.as_ref().map(|it| &it.socket)
    }

    /// Closes the descriptor, in repair mode, and lets the worker close its own: only the state that was read
    /// is then left of the connection.
    pub(super) fn close_socket(&mut self, id: HandoffId) {
        if let Some(it) = self.0.get_mut(&id).and_then(|connection| connection.at_worker.take()) {
            let _ = it.done.send(Outcome::Gone);
        }
    }

    pub(super) fn is_closed(&self, id: HandoffId) -> bool {
        self.0.get(&id).is_some_and(|connection| connection.at_worker.is_none())
    }

    /// Records the end of a step of a move.
    pub(super) fn lap(&mut self, id: HandoffId, step: MoveStep, times: &HandoffTimings) {
        if let Some(connection) = self.0.get_mut(&id) {
            times.lap(step, &mut connection.step_at);
            match step {
                MoveStep::Wait => connection.frozen_at = connection.step_at,
                MoveStep::Redirect => times.freeze.record(connection.frozen_at.elapsed()),
                _ => {}
            }
        }
    }

    /// Returns the state of a frozen connection that is sent to the receiver.
    ///
    /// # Errors
    /// The connection cannot be moved.
    pub(super) fn read(&mut self, id: HandoffId) -> Result<HandoffInfo, StayCause> {
        let connection = self.0.get_mut(&id).ok_or(StayCause::Unsuitable)?;
        let left = HANDOFF_QUEUE_BYTES_MAX.checked_sub(connection.received.len());
        let limits = SnapshotLimits { received_bytes_max: left.ok_or(StayCause::Unsuitable)? };
        let at_worker = connection.at_worker.as_ref().ok_or(StayCause::Unsuitable)?;
        let tcp = snapshot(&at_worker.socket, limits).map_err(|error| {
            tracing::debug!(%error, "a connection stays");
            StayCause::Unsuitable
        })?;
        Ok(HandoffInfo {
            tcp,
            // Cloned, since the connection may stay.
            read_ahead: connection.received.clone(),
            moves: connection.moves,
            accepted_by: connection.accepted_by,
        })
    }

    /// Drops the descriptor: it is closed in repair mode, without a packet, once its worker has closed its
    /// own.
    pub(super) fn end(&mut self, id: HandoffId, outcome: Outcome) -> Option<DepartedConnection> {
        let DepartingConnection { at_worker, since, to, moves, .. } = self.0.remove(&id)?;
        if let Some(WorkerSide { socket, done }) = at_worker {
            drop(socket);
            // A worker that is gone has closed its connections.
            let _ = done.send(outcome);
        }
        Some(DepartedConnection { to, moves, since })
    }
}

/// A connection whose handoff has ended.
pub(super) struct DepartedConnection {
    pub(super) to: NodeIndex,
    /// Number of times that it has moved.
    pub(super) moves: u8,
    /// Time of its worker's request.
    pub(super) since: Instant,
}
