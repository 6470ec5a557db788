//! Connections that are coming, by the handoffs they are in.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use skep_engine::Arrival;
use skep_handoff::{OfferKey, Preparation};
use skep_repair::{allow_rebind, restore};
use skep_serve::{Admission, Permit};
use skep_wire::handoff::{HandoffInfo, SocketId};
use skep_wire::table::Table;

use super::arrivals::{ArrivedConnection, WorkerQueues};

/// All of them.
pub(super) struct Incoming {
    connections: HashMap<OfferKey, ComingConnection>,
    admission: Arc<Admission>,
    workers: WorkerQueues,
}

struct ComingConnection {
    info: HandoffInfo,
    accepted_by: Arc<str>,
    permit: Permit,
    /// Once it is created.
    socket: Option<Arc<OwnedFd>>,
}

impl Incoming {
    pub(super) fn new(admission: Arc<Admission>, workers: WorkerQueues) -> Self {
        Self { connections: HashMap::new(), admission, workers }
    }

    /// Takes note of a connection whose socket is to be created; false: there is no room for it.
    pub(super) fn admit(
        &mut self,
        key: OfferKey,
        id: &SocketId,
        info: HandoffInfo,
        table: &Table,
    ) -> bool {
        let Ok(permit) = self.admission.admit(id.client.ip()) else { return false };
        let acceptor = table.nodes.iter().find(|node| node.index == info.accepted_by);
        let accepted_by = Arc::from(acceptor.map_or("unknown", |node| node.name.as_str()));
        let connection = ComingConnection { info, accepted_by, permit, socket: None };
        self.connections.insert(key, connection);
        true
    }

    /// Restores a connection in the socket that netguard has created.
    pub(super) fn restore(
        &mut self,
        key: OfferKey,
        id: &SocketId,
        socket: Option<OwnedFd>,
    ) -> Preparation {
        let (Some(socket), Some(connection)) = (socket, self.connections.get_mut(&key)) else {
            return Preparation::NotCreated;
        };
        let restored = restore(&socket, id, &connection.info.tcp);
        connection.socket = Some(Arc::new(socket));
        match restored {
            Ok(()) => Preparation::Restored,
            Err(error) => {
                tracing::debug!(%error, client = %id.client, "a connection cannot be restored");
                Preparation::NotRestored
            }
        }
    }

    pub(super) fn socket(&self, key: OfferKey) -> Option<&Arc<OwnedFd>> {
        self.connections.get(&key)?.socket.as_ref()
    }

    /// It is this node's: a worker answers its request.
    pub(super) fn serve(&mut self, key: OfferKey, client: SocketAddr) {
        let Some(connection) = self.connections.remove(&key) else { return };
        let ComingConnection { info, accepted_by, permit, socket } = connection;
        // Nobody else has it: the order that it went with is done.
        let Some(socket) = socket.and_then(Arc::into_inner) else { return };
        let _ = allow_rebind(&socket);
        let arrival = Arrival { received: info.read_ahead, moves: info.moves, accepted_by };
        let arrived = ArrivedConnection { socket, client, permit, arrival };
        if self.workers.give(arrived).is_err() {
            tracing::warn!(%client, "a connection that came is closed: no worker has room for it");
        }
    }

    pub(super) fn drop(&mut self, key: OfferKey) {
        self.connections.remove(&key);
    }
}
