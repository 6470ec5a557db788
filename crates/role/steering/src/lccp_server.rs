//! The dispatcher's end of LCCP: answers nodes that ask which node should answer a request, and receives
//! their reports of flows that have moved to another node.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use skep_handoff::MovedFlows;
use skep_peer::{LccpBatch, LccpReceived, LccpSocket, Pulse};
use skep_policy::ServedLog;
use skep_units::Now;
use skep_wire::handoff::lccp::{Lccp, LccpCommand, MovedFlow, QueryKey, Receptor};
use skep_wire::handoff::{HandoffId, SocketId};
use skep_wire::message::{ArmsInForce, LoadDigest, Name, Stage};
use skep_wire::seal::PeerId;
use skep_wire::steer::{Flow, NodeIndex, OwnerChange};
use skep_wire::table::Table;

use crate::clock::now;
use crate::limits::{LCCP_BATCHES_MAX, LCCP_WAIT_MS};
use crate::load_digests::OwnView;
use crate::netguard_executor::Job;
use crate::queue::Queue;
use crate::status::Shared;

/// Selects the node that answers a request.
pub type Decide = Box<dyn FnMut(&SocketId, &QueryKey) -> Option<NodeIndex> + Send>;

/// The parts that a dispatcher needs to answer nodes about handoffs.
pub struct LccpServerParts {
    pub socket: LccpSocket,
    pub decide: Decide,
    /// The inputs of `decide`, which are kept up to date.
    pub table: Arc<ArcSwap<Table>>,
    pub digest: Arc<ArcSwap<(Now, LoadDigest)>>,
    pub served: Arc<ArcSwap<ServedLog>>,
    pub arms: Arc<ArcSwap<ArmsInForce>>,
    /// Port of nodes if the messages are carried by UDP.
    pub port: u16,
}

pub(crate) struct LccpServer {
    socket: LccpSocket,
    decide: Decide,
    /// Agents of the configured nodes, by name.
    agents: BTreeMap<Name, SocketAddr>,
    port: u16,
    /// The table whose nodes are set as peers of the socket.
    table: Arc<Table>,
    /// Recently learned flows.
    moved: MovedFlows,
    shared: Arc<Shared>,
    jobs: Arc<Queue<Job>>,
    stop: Arc<AtomicBool>,
}

impl LccpServerParts {
    /// The view to which the information for nodes is written as well.
    pub(crate) fn own_view(&self) -> OwnView {
        OwnView {
            table: Arc::clone(&self.table),
            digest: Arc::clone(&self.digest),
            served: Arc::clone(&self.served),
            arms: Arc::clone(&self.arms),
        }
    }
}

impl LccpServer {
    /// `agents` are those of the configured nodes, by name.
    pub(crate) fn new(
        parts: LccpServerParts,
        agents: BTreeMap<Name, SocketAddr>,
        shared: Arc<Shared>,
        jobs: Arc<Queue<Job>>,
        stop: Arc<AtomicBool>,
    ) -> Self {
        let LccpServerParts { socket, decide, port, .. } = parts;
        let (table, moved) = (Arc::default(), MovedFlows::default());
        Self { socket, decide, agents, port, table, moved, shared, jobs, stop }
    }

    /// Runs until stopped.
    pub(crate) fn run(mut self, pulse: &Pulse) {
        let mut received = Vec::new();
        while !self.stop.load(Ordering::Relaxed) {
            pulse.tick();
            if let Err(error) = self.turn(&mut received) {
                tracing::error!(%error, "messages about handoffs cannot be received");
                std::thread::sleep(Duration::from_millis(LCCP_WAIT_MS));
            }
        }
    }

    fn turn(&mut self, received: &mut Vec<LccpReceived>) -> io::Result<()> {
        wait(&self.socket)?;
        self.follow_table();
        // The rest is left to the next turn: however much arrives, the watchdog sees that this thread runs.
        for _ in 0..LCCP_BATCHES_MAX {
            if self.socket.receive(received)? == LccpBatch::Drained {
                break;
            }
        }
        let mut moved = Vec::new();
        for LccpReceived { from, body, .. } in received.drain(..) {
            let message = Lccp::decode(&body);
            let message = message.ok().filter(|it| it.command.receptor() == Receptor::Dispatcher);
            if let Some(message) = message {
                self.hear(from, message, &mut moved);
            }
        }
        self.learn(moved);
        Ok(())
    }

    /// Sets the nodes of a new table as peers.
    fn follow_table(&mut self) {
        let table = &self.shared.view().table;
        if Arc::ptr_eq(table, &self.table) {
            return;
        }
        self.table = Arc::clone(table);
        for node in &self.table.nodes {
            let agent = self.agents.get(&node.name).map_or(node.address.ip(), SocketAddr::ip);
            self.socket.set_peer(node.name.as_str(), (agent, self.port).into());
        }
    }

    /// Answers a query. Reports of moved flows are added to `moved`.
    fn hear(&mut self, from: PeerId, Lccp { id, command }: Lccp, moved: &mut Vec<Report>) {
        // A dispatcher that is not active any more does not answer; nodes send their queries and reports to
        // the next one.
        if self.shared.view().stage != Stage::Active {
            return;
        }
        match command {
            LccpCommand::Moved(flows) => moved.push(Report { from, id, flows }),
            LccpCommand::Query(socket, key) => {
                let node = (self.decide)(&socket, &key);
                self.send(from, id, LccpCommand::Decision(socket, node));
            }
            _ => {}
        }
    }

    /// Updates the flow table, here and at the standbys, so that flows are steered to their new nodes. A
    /// report that finds no room is repeated.
    fn learn(&mut self, moved: Vec<Report>) {
        let table = Arc::clone(&self.shared.view().table);
        let mut changes = Vec::new();
        for report in &moved {
            let taken = self.moved.take(now(), &report.flows);
            changes.extend(taken.iter().filter_map(|flow| change_of(report.from, flow, &table)));
        }
        if !changes.is_empty() && self.jobs.try_push(Job::ChangeOwners(changes)).is_err() {
            return;
        }
        for Report { from, id, .. } in moved {
            self.send(from, id, LccpCommand::MovedTaken);
        }
    }

    fn send(&mut self, to: PeerId, id: HandoffId, command: LccpCommand) {
        // A lost answer is requested again.
        let _ = self.socket.send(to, &Lccp { id, command }.encode());
    }
}

/// A node's report of flows that it has moved.
struct Report {
    from: PeerId,
    id: HandoffId,
    flows: Vec<MovedFlow>,
}

/// The change of owner for a moved flow; `None`: the node or the service is gone. A later move may be
/// reported before the first one, so the change applies whichever owner is known.
fn change_of(by: PeerId, moved: &MovedFlow, table: &Table) -> Option<OwnerChange> {
    let donor = table.nodes.iter().find(|node| node.name.peer() == by)?.index;
    let server = moved.socket.server;
    let service = table.services.iter().find(|it| it.service.address == server)?;
    let (client, node) = (moved.socket.client, moved.node);
    let flow = Flow { client, service: service.service.id, node };
    Some(OwnerChange { flow, from: (moved.moves <= 1).then_some(donor) })
}

fn wait(socket: &LccpSocket) -> io::Result<()> {
    let timeout = Duration::from_millis(LCCP_WAIT_MS);
    let timeout = Timespec::try_from(timeout).map_err(|_| io::ErrorKind::InvalidInput)?;
    match poll(&mut [PollFd::new(socket, PollFlags::IN)], Some(&timeout)) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}
