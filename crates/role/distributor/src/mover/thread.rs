//! The mover's thread: drives the state machines of donor and receiver.
//!
//! ```text
//!   workers --Moving--> Donor ----+--> actions --> orders to netguard, LCCP, snapshot, restore
//!   LCCP ----messages-> Receiver -+                     |
//!        <----------------------------------------------'  results
//! ```
//!
//! A node may hand off to itself, to measure what a move costs: see [`to_self`].

mod to_self;

use std::collections::HashMap;
use std::future::poll_fn;
use std::io;
use std::os::fd::OwnedFd;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::Duration;

use arc_swap::Cache;
use skep_config::AGENT_PORT;
use skep_guard::{GuardError, HandoffGuard};
use skep_handoff::{
    Donor, DonorAction, MoveOutcome, MoveTarget, MovedReports, OfferKey, OrderResult, Preparation,
    Receiver, ReceiverAction, StayCause,
};
use skep_peer::{
    LccpBatch, LccpReceived, LccpSocket, Pulse, Readiness, RealtimeWork, Watchdog,
    spawn_realtime_thread,
};
use skep_serve::{Admission, boottime_ms};
use skep_units::Now;
use skep_wire::handoff::HandoffId;
use skep_wire::handoff::guard::{HandoffOrder, HandoffResult};
use skep_wire::handoff::lccp::{Lccp, MovedFlow, Receptor};
use skep_wire::seal::PeerId;
use skep_wire::steer::{NO_NODE, NodeIndex};
use skep_wire::table::Table;
use tokio::sync::{mpsc, oneshot};

use super::arrivals::{ArrivalQueue, queues};
use super::departures::Departures;
use super::incoming::Incoming;
use super::orders::{OrderSource, Orders};
use super::pending_queries::PendingQueries;
use super::{Command, MoverHandle, Moving, Outcome};
use crate::chooser::NodesView;
use crate::counters::{HandoffCounters, MoveStep};
use crate::limits::{HEARD_BATCHES_MAX, MOVER_STALL_S_MAX, MOVES_WAITING_MAX, TURN_MS_MAX};
use to_self::ToSelf;

/// What the mover needs to start.
pub struct MoverParts {
    /// Name of this node.
    pub name: String,
    pub guard: HandoffGuard,
    pub lccp: LccpSocket,
    pub nodes: NodesView,
    /// Dispatchers' names in LCCP, by the sender of their heartbeats.
    pub dispatchers: HashMap<PeerId, PeerId>,
    /// The dispatcher of this process, whose heartbeats are not received.
    pub own_dispatcher: Option<PeerId>,
    /// Admission of clients: each arriving connection takes a slot.
    pub admission: Arc<Admission>,
    /// Number of workers that answer arriving connections.
    pub workers: usize,
    /// Time for another node to accept a connection, in milliseconds.
    pub ready_timeout_ms: u64,
    /// Called when netguard has ended.
    pub on_guard_gone: Box<dyn Fn() + Send>,
    pub counters: Arc<HandoffCounters>,
    pub watchdog: Arc<Watchdog>,
}

/// The mover of a node. Its thread ends when this is dropped.
pub struct Mover {
    handle: MoverHandle,
    is_leaving: Arc<AtomicBool>,
}

/// The thread's state.
struct MoverThread {
    name: String,
    donor: Donor,
    receiver: Receiver,
    reports: MovedReports,
    queries: PendingQueries,
    departures: Departures,
    incoming: Incoming,
    orders: Orders,
    lccp: LccpSocket,
    messages: Vec<LccpReceived>,
    to_self: ToSelf,
    commands: mpsc::Receiver<Command>,
    nodes: NodesView,
    dispatchers: HashMap<PeerId, PeerId>,
    own_dispatcher: Option<PeerId>,
    table: Cache<Arc<arc_swap::ArcSwap<Table>>, Arc<Table>>,
    table_in_force: Arc<Table>,
    active: Option<PeerId>,
    counters: Arc<HandoffCounters>,
    /// Whether this node is about to stop.
    is_leaving: Arc<AtomicBool>,
    on_guard_gone: Box<dyn Fn() + Send>,
}

/// Why a turn begins.
struct Woken {
    /// Netguard has answered.
    by_answers: bool,
    /// Other nodes have sent messages.
    by_messages: bool,
    /// All handles of the mover were dropped.
    has_ended: bool,
}

impl Mover {
    /// Starts the thread. The queues are for the workers.
    ///
    /// # Errors
    /// The system could not start the thread, or register the sockets.
    pub fn start(parts: MoverParts) -> io::Result<(Self, Vec<ArrivalQueue>)> {
        let (commands, receiver) = mpsc::channel(MOVES_WAITING_MAX);
        let (worker_queues, arrivals) = queues(parts.workers);
        let pulse = parts.watchdog.watch("skep-mover", MOVER_STALL_S_MAX);
        let is_leaving = Arc::<AtomicBool>::default();
        let leaving = Arc::clone(&is_leaving);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        spawn_realtime_thread("skep-mover", RealtimeWork::Moves, move |priority| {
            tracing::info!("moves of connections have {priority}");
            runtime.block_on(async {
                match ready(&parts) {
                    Ok(ready) => {
                        let thread = MoverThread::new(parts, worker_queues, receiver, leaving);
                        thread.run(&ready, &pulse).await;
                    }
                    // The process exits: otherwise other nodes would wait for this one in vain.
                    Err(error) => {
                        tracing::error!(%error, "connections cannot be moved");
                        (parts.on_guard_gone)();
                    }
                }
            });
        })?;
        Ok((Self { handle: MoverHandle { commands }, is_leaving }, arrivals))
    }

    /// Refuses connections of other nodes from now on, since this one is about to stop.
    pub fn leave(&self) {
        self.is_leaving.store(true, Ordering::Relaxed);
    }

    pub(crate) fn handle(&self) -> MoverHandle {
        self.handle.clone()
    }
}

impl MoverThread {
    fn new(
        parts: MoverParts,
        workers: super::arrivals::WorkerQueues,
        commands: mpsc::Receiver<Command>,
        is_leaving: Arc<AtomicBool>,
    ) -> Self {
        let MoverParts { name, guard, lccp, nodes, dispatchers, own_dispatcher, .. } = parts;
        let incarnation = lccp.incarnation();
        Self {
            name,
            donor: Donor::new(parts.ready_timeout_ms, incarnation),
            receiver: Receiver::new(parts.ready_timeout_ms),
            reports: MovedReports::new(incarnation),
            queries: PendingQueries::new(incarnation),
            departures: Departures::default(),
            incoming: Incoming::new(parts.admission, workers),
            orders: Orders::new(guard),
            lccp,
            messages: Vec::new(),
            to_self: ToSelf::default(),
            commands,
            table: Cache::new(Arc::clone(&nodes.table)),
            nodes,
            dispatchers,
            own_dispatcher,
            table_in_force: Arc::default(),
            active: None,
            counters: parts.counters,
            is_leaving,
            on_guard_gone: parts.on_guard_gone,
        }
    }

    async fn run(mut self, ready: &[Readiness; 2], pulse: &Pulse) {
        self.orders.give(OrderSource::Nobody, HandoffOrder::ForgetOrphans, None);
        let mut woken = Woken { by_answers: true, by_messages: true, has_ended: false };
        while !woken.has_ended {
            pulse.tick();
            let has_more = match self.turn(&woken) {
                Ok(has_more) => has_more,
                Err(error) => {
                    tracing::error!(%error, "netguard does not answer the mover");
                    self.keep_unbegun();
                    return (self.on_guard_gone)();
                }
            };
            woken = self.wait(ready, has_more).await;
        }
    }

    /// Moves that were not begun stay with their workers. One that was begun may belong to another node: its
    /// dropped sender tells the worker so.
    fn keep_unbegun(&mut self) {
        self.commands.close();
        while let Ok(command) = self.commands.try_recv() {
            if let Command::Move(_, done) = command {
                let _ = done.send(Outcome::Kept);
            }
        }
    }

    /// Waits until there is something to do, and begins the moves that workers request.
    async fn wait(&mut self, [answers, messages]: &[Readiness; 2], has_more: bool) -> Woken {
        let wait = Duration::from_millis(self.next_due_ms().min(TURN_MS_MAX));
        let mut pause = pin!(tokio::time::sleep(wait));
        poll_fn(|context| {
            let mut woken = Woken {
                by_answers: answers.poll_taken(context).is_ready(),
                by_messages: messages.poll_taken(context).is_ready() || has_more,
                has_ended: false,
            };
            let mut is_asked = false;
            // At most as many as may wait: each turn is then bounded, and the watchdog sees that this thread
            // runs.
            for _ in 0..MOVES_WAITING_MAX {
                let Poll::Ready(command) = self.commands.poll_recv(context) else { break };
                is_asked = true;
                match command {
                    Some(command) => self.obey(command),
                    None => {
                        woken.has_ended = true;
                        break;
                    }
                }
            }
            let is_due = pause.as_mut().poll(context).is_ready();
            if woken.by_answers || woken.by_messages || is_asked || is_due {
                Poll::Ready(woken)
            } else {
                Poll::Pending
            }
        })
        .await
    }

    /// Handles what has arrived; true if there may be more messages.
    fn turn(&mut self, woken: &Woken) -> Result<bool, GuardError> {
        self.follow_table();
        self.donor.raise_incarnation(self.lccp.incarnation());
        self.receiver.set_open(!self.is_leaving.load(Ordering::Relaxed));
        if woken.by_answers || self.orders.are_overdue() {
            for (source, order, answer) in self.orders.results()? {
                self.ordered(source, &order, answer.result, answer.socket);
            }
        }
        let has_more = (woken.by_messages || self.is_due()) && self.hear_queued();
        self.donor.tick(now());
        self.receiver.tick(now());
        self.queries.tick(now()).iter().for_each(|message| self.tell_dispatcher(message));
        while self.act() {}
        self.recreate_due();
        self.orders.flush(now())?;
        self.report();
        self.counters.take(
            self.donor.counters(),
            self.receiver.counters(),
            self.reports.counters(),
            self.queries.counters(),
        );
        Ok(has_more)
    }

    fn obey(&mut self, command: Command) {
        match command {
            Command::Move(moving, done) => self.begin(moving, done),
            Command::Ask(id, key, done) => {
                if let Some(message) = self.queries.ask(now(), id, key, done) {
                    self.tell_dispatcher(&message);
                }
            }
        }
    }

    fn begin(&mut self, moving: Moving, done: oneshot::Sender<Outcome>) {
        let own = self.own_index();
        let target = self.table_in_force.nodes.iter().find(|node| node.index == moving.to);
        let target = target.map(|node| MoveTarget { peer: node.name.peer(), node: node.index });
        let begun = target.ok_or(()).and_then(|to| self.donor.begin(moving.id, to).map_err(drop));
        match begun {
            Ok(id) => self.departures.begin(id, moving, own, done),
            Err(()) => drop(done.send(Outcome::Kept)),
        }
    }

    fn ordered(
        &mut self,
        source: OrderSource,
        order: &HandoffOrder,
        result: HandoffResult,
        socket: Option<OwnedFd>,
    ) {
        if let HandoffResult::Refused(why) = &result {
            tracing::debug!(why, "netguard refused an order of a handoff");
        }
        match (source, order) {
            (OrderSource::Donor(id), HandoffOrder::Freeze(_)) => {
                self.departures.lap(id, MoveStep::Freeze, self.counters.times());
                self.frozen(id, &result);
            }
            (OrderSource::Donor(id), order) => {
                if matches!(order, HandoffOrder::Redirect(..)) {
                    self.departures.lap(id, MoveStep::Redirect, self.counters.times());
                }
                self.donor.ordered(now(), id, order_result(&result));
            }
            (
                OrderSource::Receiver(key),
                HandoffOrder::Create(socket_id) | HandoffOrder::Recreate(socket_id),
            ) => {
                if result == HandoffResult::Created && socket.is_none() {
                    // This process can open no more descriptors. The block belongs to no handoff and must be
                    // removed.
                    self.orders.give(OrderSource::Nobody, HandoffOrder::Forget(*socket_id), None);
                }
                self.incoming.lap(key, MoveStep::Create, self.counters.times());
                let prepared = self.incoming.restore(key, socket_id, socket);
                self.incoming.lap(key, MoveStep::Restore, self.counters.times());
                if !self.recreate(key, *socket_id, prepared) {
                    self.prepared(key, prepared);
                }
            }
            (OrderSource::Receiver(key), order) => {
                if matches!(order, HandoffOrder::Start(_)) {
                    self.incoming.lap(key, MoveStep::Start, self.counters.times());
                }
                self.receiver.ordered(now(), key, order_result(&result));
            }
            (OrderSource::Nobody, _) => {}
        }
    }

    fn prepared(&mut self, key: OfferKey, prepared: Preparation) {
        if prepared == Preparation::NotCreated {
            // Nothing was created that would have to be discarded.
            self.incoming.drop(key);
        }
        self.receiver.prepared(now(), key, prepared);
    }

    fn frozen(&mut self, id: HandoffId, result: &HandoffResult) {
        if *result != HandoffResult::Done {
            return self.donor.not_frozen(now(), id, StayCause::NotFrozen);
        }
        let read = self.departures.read(id);
        self.departures.lap(id, MoveStep::Read, self.counters.times());
        match read {
            Ok(info) => self.donor.frozen(now(), id, &info),
            Err(cause) => self.donor.not_frozen(now(), id, cause),
        }
    }

    /// Whether a deadline of a move has passed.
    fn is_due(&self) -> bool {
        let due = [self.donor.next_due(), self.receiver.next_due()];
        due.into_iter().flatten().any(|due| due <= now())
    }

    /// Reads messages of other nodes before the clock is read: a message that is queued has arrived in time,
    /// however long this thread did not run. False if the queue is empty.
    fn hear_queued(&mut self) -> bool {
        (0..HEARD_BATCHES_MAX).all(|_| self.hear())
    }

    /// Reads a batch of messages; false if the queue is empty.
    fn hear(&mut self) -> bool {
        let mut messages = std::mem::take(&mut self.messages);
        let received = self.lccp.receive(&mut messages);
        if let Err(error) = &received {
            tracing::warn!(%error, "messages of other nodes cannot be received");
        }
        for LccpReceived { from, body, .. } in messages.drain(..) {
            let Ok(message) = Lccp::decode(&body) else {
                self.counters.malformed();
                continue;
            };
            self.take(from, &message);
        }
        self.messages = messages;
        matches!(received, Ok(LccpBatch::Full))
    }

    fn take(&mut self, from: PeerId, message: &Lccp) {
        match message.command.receptor() {
            Receptor::Receiver => self.receiver.heard(now(), from, message),
            Receptor::Donor => self.donor.heard(now(), from, message),
            Receptor::Distributor => {
                self.reports.heard(message);
                self.queries.heard(message);
            }
            // Sent by nodes to dispatchers only.
            Receptor::Dispatcher => self.counters.malformed(),
        }
    }

    /// Executes the actions of the state machines; false if there are none.
    fn act(&mut self) -> bool {
        let donor: Vec<DonorAction> = self.donor.actions().collect();
        let receiver: Vec<ReceiverAction> = self.receiver.actions().collect();
        let has_acted = !donor.is_empty() || !receiver.is_empty();
        donor.into_iter().for_each(|action| self.act_as_donor(action));
        receiver.into_iter().for_each(|action| self.act_as_receiver(action));
        self.hear_self() || has_acted
    }

    fn act_as_donor(&mut self, action: DonorAction) {
        let Some(action) = self.donor_action_to_self(action) else { return };
        let (id, order) = match action {
            DonorAction::Freeze(id, socket) => {
                self.departures.lap(id, MoveStep::Wait, self.counters.times());
                (id, HandoffOrder::Freeze(socket))
            }
            DonorAction::Redirect(id, socket, node) => {
                self.departures.lap(id, MoveStep::Offer, self.counters.times());
                (id, HandoffOrder::Redirect(socket, node))
            }
            DonorAction::Thaw(id, socket) => (id, HandoffOrder::Thaw(socket)),
            DonorAction::Reset(id, socket) => (id, HandoffOrder::Reset(socket)),
            DonorAction::Release(_, socket) => {
                return self.orders.give_later(now(), HandoffOrder::Release(socket));
            }
            DonorAction::Send(to, message) => return self.send(to, &message),
            DonorAction::Ended(id, socket, outcome) => {
                let is_kept = matches!(outcome, MoveOutcome::Stays(_));
                if outcome == MoveOutcome::Moved {
                    self.departures.lap(id, MoveStep::Go, self.counters.times());
                }
                let node =
                    self.departures.end(id, if is_kept { Outcome::Kept } else { Outcome::Gone });
                if let (MoveOutcome::Moved, Some(left)) = (outcome, node) {
                    self.counters.times().whole.record(left.since.elapsed());
                    if left.to != self.own_index() {
                        let moved = MovedFlow { socket, node: left.to, moves: left.moves };
                        self.reports.push(now(), moved);
                    }
                }
                return;
            }
        };
        self.orders.give(OrderSource::Donor(id), order, self.departures.socket(id));
    }

    fn act_as_receiver(&mut self, action: ReceiverAction) {
        let Some(action) = self.receiver_action_to_self(action) else { return };
        let (key, order) = match action {
            ReceiverAction::Create(key, socket, info) => {
                let table = &self.table_in_force;
                if !self.incoming.admit(key, &socket, *info, table) {
                    return self.receiver.prepared(now(), key, Preparation::NoRoom);
                }
                (key, self.creation(key, socket))
            }
            ReceiverAction::Start(key, socket) => {
                self.incoming.lap(key, MoveStep::Ready, self.counters.times());
                (key, HandoffOrder::Start(socket))
            }
            ReceiverAction::Reset(key, socket) => (key, HandoffOrder::Reset(socket)),
            ReceiverAction::Discard(key, socket) => {
                // Closed in repair mode, before packets can arrive again.
                self.incoming.drop(key);
                return self.orders.give(OrderSource::Nobody, HandoffOrder::Forget(socket), None);
            }
            ReceiverAction::Send(to, message) => return self.send(to, &message),
            ReceiverAction::Serve(key, socket) => return self.incoming.serve(key, socket.client),
            ReceiverAction::Closed(key, _) => return self.incoming.drop(key),
        };
        self.orders.give(OrderSource::Receiver(key), order, self.incoming.socket(key));
    }

    fn send(&mut self, to: PeerId, message: &Lccp) {
        if to == self.lccp.own() {
            return self.to_self.messages.push_back(message.clone());
        }
        // A lost message is repeated, and a counter counts errors.
        let _ = self.lccp.send(to, &message.encode());
    }

    /// A lost message is repeated, to the dispatcher that is active then.
    fn tell_dispatcher(&mut self, message: &Lccp) {
        if let Some(active) = self.active {
            self.send(active, message);
        }
    }

    /// Reports to the active dispatcher which flows have moved to another node.
    fn report(&mut self) {
        let heard = self.nodes.active.load().as_deref().copied();
        let active = match heard {
            Some(heard) => self.dispatchers.get(&heard).copied(),
            None => self.own_dispatcher,
        };
        if active != self.active {
            self.active = active;
            self.reports.dispatcher_changed();
        }
        let Some(active) = active else { return self.reports.give_up(now()) };
        for message in self.reports.due(now()) {
            self.send(active, &message);
        }
    }

    /// Takes over the nodes of a new table.
    fn follow_table(&mut self) {
        let table = self.table.load();
        if Arc::ptr_eq(table, &self.table_in_force) {
            return;
        }
        self.table_in_force = Arc::clone(table);
        let lccp = &mut self.lccp;
        for node in self.table_in_force.nodes.iter().filter(|it| it.name.as_str() != self.name) {
            let address = self.nodes.agents.get(node.name.as_str()).copied();
            let usual = (node.address.ip(), AGENT_PORT).into();
            lccp.set_peer(node.name.as_str(), address.unwrap_or(usual));
            // The first message after a start is refused by its receiver: let it be this one.
            let _ = lccp.greet(node.name.peer());
        }
    }

    fn own_index(&self) -> NodeIndex {
        self.table_in_force.node(&self.name).map_or(NO_NODE, |node| node.index)
    }

    fn next_due_ms(&self) -> u64 {
        // Reports wait until there is an active dispatcher.
        let reports = self.active.and_then(|_| self.reports.next_due());
        let (donor, receiver) = (self.donor.next_due(), self.receiver.next_due());
        let (queries, orders) = (self.queries.next_due(), self.orders.next_due());
        let due = [donor, receiver, reports, queries, orders, self.to_self.next_due()];
        due.into_iter().flatten().min().map_or(u64::MAX, |due| due.since_ms(now()).max(1))
    }
}

/// The readiness of netguard's answers and of other nodes' messages.
fn ready(parts: &MoverParts) -> io::Result<[Readiness; 2]> {
    Ok([Readiness::of(&parts.guard)?, Readiness::of(&parts.lccp)?])
}

fn order_result(result: &HandoffResult) -> OrderResult {
    match result {
        HandoffResult::Done | HandoffResult::Created => OrderResult::Done,
        HandoffResult::Refused(_) => OrderResult::Refused,
    }
}

fn now() -> Now {
    Now(boottime_ms())
}
