//! Connections that are leaving, by the handoffs they are in.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use skep_handoff::StayCause;
use skep_repair::{SnapshotLimits, allow_rebind, snapshot};
use skep_wire::handoff::{HandoffId, HandoffInfo};
use skep_wire::limits::HANDOFF_QUEUE_BYTES_MAX;
use skep_wire::steer::NodeIndex;
use tokio::sync::oneshot;

use super::{Moving, Outcome};

/// One of them.
struct LeavingConnection {
    socket: Arc<OwnedFd>,
    received: Vec<u8>,
    moves: u8,
    accepted_by: NodeIndex,
    to: NodeIndex,
    done: oneshot::Sender<Outcome>,
    begun: Instant,
}

/// All of them.
#[derive(Default)]
pub(super) struct Departures(HashMap<HandoffId, LeavingConnection>);

impl Departures {
    /// `own` is this node.
    pub(super) fn begin(
        &mut self,
        id: HandoffId,
        moving: Moving,
        own: NodeIndex,
        done: oneshot::Sender<Outcome>,
    ) {
        let Moving { socket, received, moves, accepted_by, to, .. } = moving;
        let connection = LeavingConnection {
            socket: Arc::new(socket),
            received,
            moves,
            accepted_by: accepted_by.unwrap_or(own),
            to,
            done,
            begun: Instant::now(),
        };
        self.0.insert(id, connection);
    }

    pub(super) fn socket(&self, id: HandoffId) -> Option<&Arc<OwnedFd>> {
        self.0.get(&id).map(|connection| &connection.socket)
    }

    /// What travels of a connection that is frozen now.
    ///
    /// # Errors
    /// It cannot travel.
    pub(super) fn read(&mut self, id: HandoffId) -> Result<HandoffInfo, StayCause> {
        let connection = self.0.get_mut(&id).ok_or(StayCause::Unsuitable)?;
        let left = HANDOFF_QUEUE_BYTES_MAX.checked_sub(connection.received.len());
        let limits = SnapshotLimits { received_bytes_max: left.ok_or(StayCause::Unsuitable)? };
        let tcp = snapshot(&connection.socket, limits).map_err(|error| {
            tracing::debug!(%error, "a connection stays");
            StayCause::Unsuitable
        })?;
        Ok(HandoffInfo {
            tcp,
            // It is kept, too: the connection may stay.
            read_ahead: connection.received.clone(),
            moves: connection.moves,
            accepted_by: connection.accepted_by,
        })
    }

    /// The descriptor is not needed any more: in repair mode it closes without a packet, once its worker
    /// has closed its own.
    pub(super) fn end(&mut self, id: HandoffId, outcome: Outcome) -> Option<LeftConnection> {
        let LeavingConnection { socket, done, begun, to, moves, .. } = self.0.remove(&id)?;
        if outcome == Outcome::Kept {
            // Repair mode has taken it away.
            let _ = allow_rebind(&socket);
        }
        drop(socket);
        let took = begun.elapsed();
        // A worker that is gone has closed its connections.
        let _ = done.send(outcome);
        Some(LeftConnection { to, moves, took })
    }
}

/// A connection whose handoff has ended.
pub(super) struct LeftConnection {
    pub(super) to: NodeIndex,
    /// How often it has moved.
    pub(super) moves: u8,
    /// From the worker's request to the receiver's last word.
    pub(super) took: Duration,
}
