//! Connections from other nodes, on their way to the workers that answer them.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::rc::Rc;

use skep_engine::{Arrival, Engine, Handler};
use skep_serve::{Conn, Permit, Worker};
use tokio::sync::mpsc;

use crate::limits::ARRIVALS_WAITING_MAX;

/// A connection that another node has handed off to this one.
pub struct ArrivedConnection {
    pub(crate) socket: OwnedFd,
    pub(crate) client: SocketAddr,
    pub(crate) permit: Permit,
    pub(crate) arrival: Arrival,
}

/// The connections for one worker.
pub struct ArrivalQueue(mpsc::Receiver<ArrivedConnection>);

/// The queues of all workers, used in turn.
pub(super) struct WorkerQueues {
    queues: Vec<mpsc::Sender<ArrivedConnection>>,
    next: usize,
}

/// Creates queues for a number of workers.
pub(super) fn queues(workers: usize) -> (WorkerQueues, Vec<ArrivalQueue>) {
    let pairs = (0..workers).map(|_| mpsc::channel(ARRIVALS_WAITING_MAX));
    let (queues, receivers): (Vec<_>, Vec<_>) = pairs.unzip();
    (WorkerQueues { queues, next: 0 }, receivers.into_iter().map(ArrivalQueue).collect())
}

impl WorkerQueues {
    /// Passes a connection to the next worker with room; `Err`: none has.
    pub(super) fn give(&mut self, connection: ArrivedConnection) -> Result<(), ArrivedConnection> {
        let mut connection = connection;
        for _ in 0..self.queues.len() {
            self.next = (self.next + 1) % self.queues.len();
            match self.queues[self.next].try_send(connection) {
                Ok(()) => return Ok(()),
                Err(refused) => connection = refused.into_inner(),
            }
        }
        Err(connection)
    }
}

impl ArrivalQueue {
    /// Serves the connections on `worker`, until the mover ends.
    pub async fn serve<H: Handler>(mut self, worker: Rc<Worker>, engine: Rc<Engine<H>>) {
        while let Some(connection) = self.0.recv().await {
            let ArrivedConnection { socket, client, permit, arrival } = connection;
            match Conn::taken_over(&worker, socket, client, permit) {
                Ok(conn) => {
                    tokio::task::spawn_local(Rc::clone(&engine).take_over(conn, arrival));
                }
                // The connection is closed, which the client notices.
                Err(error) => tracing::warn!(%error, %client, "a received connection was lost"),
            }
        }
    }
}
