//! Connections that arrive at this node, by the key of their offer.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Instant;

use skep_engine::Arrival;
use skep_handoff::{OfferKey, Preparation};
use skep_repair::restore;
use skep_serve::{Admission, Permit};
use skep_wire::handoff::{HandoffInfo, SocketId};
use skep_wire::table::Table;

use super::arrivals::{ArrivedConnection, WorkerQueues};
use crate::counters::{HandoffTimings, MoveStep};

/// All arriving connections.
pub(super) struct Incoming {
    connections: HashMap<OfferKey, IncomingConnection>,
    admission: Arc<Admission>,
    workers: WorkerQueues,
}

struct IncomingConnection {
    info: HandoffInfo,
    accepted_by: Arc<str>,
    permit: Permit,
    /// `None` until it is created.
    socket: Option<Arc<OwnedFd>>,
    /// Time at which the last step ended.
    step_at: Instant,
}

impl Incoming {
    pub(super) fn new(admission: Arc<Admission>, workers: WorkerQueues) -> Self {
        Self { connections: HashMap::new(), admission, workers }
    }

    /// Records a connection whose socket is about to be created; false: there is no room for it.
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
        let connection =
            IncomingConnection { info, accepted_by, permit, socket: None, step_at: Instant::now() };
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

    /// Records the end of a step of a move.
    pub(super) fn lap(&mut self, key: OfferKey, step: MoveStep, times: &HandoffTimings) {
        if let Some(connection) = self.connections.get_mut(&key) {
            times.lap(step, &mut connection.step_at);
        }
    }

    pub(super) fn socket(&self, key: OfferKey) -> Option<&Arc<OwnedFd>> {
        self.connections.get(&key)?.socket.as_ref()
    }

    /// Closes the socket, in repair mode, so that another one can be created.
    pub(super) fn close_socket(&mut self, key: OfferKey) {
        if let Some(connection) = self.connections.get_mut(&key) {
            connection.socket = None;
        }
    }

    /// Passes the connection to a worker, which answers its request: it now belongs to this node.
    pub(super) fn serve(&mut self, key: OfferKey, client: SocketAddr) {
        let Some(connection) = self.connections.remove(&key) else { return };
        let IncomingConnection { info, accepted_by, permit, socket, .. } = connection;
        // The only reference: the order that had another one is done.
        let Some(socket) = socket.and_then(Arc::into_inner) else { return };
        let arrival = Arrival { received: info.read_ahead, moves: info.moves, accepted_by };
        let arrived = ArrivedConnection { socket, client, permit, arrival };
        if self.workers.give(arrived).is_err() {
            tracing::warn!(%client, "closed a received connection: no worker has room for it");
        }
    }

    pub(super) fn drop(&mut self, key: OfferKey) {
        self.connections.remove(&key);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use std::net::TcpListener;

    use skep_serve::AdmissionLimits;
    use skep_wire::handoff::HandoffId;
    use skep_wire::handoff::tcp::{TcpOptions, TcpState, TcpWindow};
    use skep_wire::seal::PeerId;

    use super::super::arrivals::queues;
    use super::*;

    fn info() -> HandoffInfo {
        let options = TcpOptions { sack: false, window_scales: None, timestamp: None };
        let window = TcpWindow {
            send_updated_at: 0,
            send: 0,
            send_max: 0,
            receive: 0,
            receive_updated_at: 0,
        };
        let tcp = TcpState {
            send_next: 1,
            receive_next: 1,
            mss_clamp: 1460,
            options,
            window,
            congestion_window: 10,
            rtt_us: 100,
            received: Vec::new(),
        };
        HandoffInfo { tcp, read_ahead: b"GET".to_vec(), moves: 1, accepted_by: 1 }
    }

    #[test]
    fn a_connection_that_does_not_come_has_no_place() {
        let limits =
            AdmissionLimits { connections_max: 1, per_address_max: 1, ipv6_prefix_bits: 64 };
        let (workers, _queues) = queues(1);
        let mut incoming = Incoming::new(Admission::new(limits), workers);
        let ends = ("192.0.2.1:40000".parse().unwrap(), "198.51.100.1:80".parse().unwrap());
        let (id, table) = (SocketId::new(ends.0, ends.1).unwrap(), Table::default());
        let key = |number| OfferKey {
            donor: PeerId::of("comb-2"),
            id: HandoffId { incarnation: 1, number },
        };
        // Netguard refuses to create the socket.
        assert!(incoming.admit(key(1), &id, info(), &table));
        assert!(!incoming.admit(key(2), &id, info(), &table), "there is one place");
        assert_eq!(incoming.restore(key(1), &id, None), Preparation::NotCreated);
        incoming.drop(key(1));
        // The kernel refuses the restore, as the socket is not a connection. The socket must be
        // reset.
        assert!(incoming.admit(key(3), &id, info(), &table));
        let socket = TcpListener::bind("127.0.0.1:0").unwrap().into();
        assert_eq!(incoming.restore(key(3), &id, Some(socket)), Preparation::NotRestored);
        incoming.drop(key(3));
        assert!(incoming.admit(key(4), &id, info(), &table));
    }
}
