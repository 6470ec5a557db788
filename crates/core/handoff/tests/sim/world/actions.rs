//! Executes the actions of the cores, and reports the results to them.

use skep_handoff::{
    DonorAction, MoveOutcome, OfferKey, OrderResult, Preparation, ReceiverAction, StayCause,
};
use skep_units::Now;
use skep_wire::handoff::lccp::{Lccp, LccpCommand, MovedFlow};
use skep_wire::handoff::tcp::{TcpOptions, TcpState, TcpWindow};
use skep_wire::handoff::{HandoffId, HandoffInfo, SocketId};

use super::{Event, World};
use crate::client::End;
use crate::kernel::{Flow, Id};
use crate::netguard::{Asker, Executed, Netguard, Order};

/// The first port of the clients.
const PORT: u16 = 1_000;
/// How long a client waits for a move that fails, if no process is paused, beyond the deadline of
/// the redirect: netguard's queue.
const STAY_MS_MAX: u64 = 120;

pub(crate) fn socket(flow: Flow) -> SocketId {
    let client = std::net::SocketAddr::from(([10, 0, 0, 9], PORT + flow as u16));
    SocketId::new(client, "10.0.0.80:80".parse().unwrap()).unwrap()
}

pub(crate) fn flow_of(socket: SocketId) -> Flow {
    usize::from(socket.client.port() - PORT)
}

/// The name of a message's step in traps.
fn step(command: &LccpCommand) -> &'static str {
    match command {
        LccpCommand::Offer(..) => "OFFER",
        LccpCommand::Ready(_) => "READY",
        LccpCommand::Go(_) => "GO",
        LccpCommand::Done(_) => "DONE",
        LccpCommand::Abort(_) => "ABORT",
        LccpCommand::Aborted(_) => "ABORTED",
        LccpCommand::Gone(_) => "GONE",
        _ => "another",
    }
}

impl World {
    /// Executes the actions of a machine's cores.
    pub(crate) fn drive(&mut self, at: Id) {
        let start = self.machines[at].process.start;
        loop {
            let process = &mut self.machines[at].process;
            let donor: Vec<_> = process.donor.actions().collect();
            let receiver: Vec<_> = process.receiver.actions().collect();
            if donor.is_empty() && receiver.is_empty() {
                break;
            }
            for action in donor {
                self.donor_acts(at, start, action);
            }
            for action in receiver {
                self.receiver_acts(at, start, action);
            }
            if !self.is_current(at, start) {
                return;
            }
        }
        self.report(at);
        self.schedule_tick(at);
    }

    /// Sends reports of moved flows to the dispatcher.
    fn report(&mut self, at: Id) {
        let now = self.now();
        for message in self.machines[at].process.reports.due(now) {
            self.post(at, self.machines.len(), &message);
        }
    }

    fn schedule_tick(&mut self, at: Id) {
        let process = &mut self.machines[at].process;
        let due =
            [process.donor.next_due(), process.receiver.next_due(), process.reports.next_due()];
        let Some(Now(due)) = due.into_iter().flatten().min() else { return };
        let due = due.max(self.now + 1);
        if process.tick_at.is_some_and(|it| it <= due && it > self.now) {
            return;
        }
        process.tick_at = Some(due);
        let event = Event::Tick { at, process: process.start };
        self.after(due - self.now, event);
    }

    fn donor_acts(&mut self, at: Id, start: u64, action: DonorAction) {
        let (name, other) = match &action {
            DonorAction::Freeze(..) => ("freeze", None),
            DonorAction::Redirect(id, ..) => ("redirect", self.receiver_of(at, *id)),
            DonorAction::Thaw(id, ..) => ("thaw", self.receiver_of(at, *id)),
            DonorAction::Reset(id, ..) => ("reset", self.receiver_of(at, *id)),
            DonorAction::Release(id, ..) => ("release", self.receiver_of(at, *id)),
            DonorAction::Send(to, message) => (step(&message.command), Some(to.0 as Id)),
            DonorAction::Ended(..) => ("another", None),
        };
        self.trap(name, true, at, other);
        if !self.is_current(at, start) {
            return;
        }
        match action {
            DonorAction::Freeze(id, socket) => {
                self.order(at, Asker::Donor(id), Order::Freeze(flow_of(socket)));
            }
            DonorAction::Redirect(id, socket, to) => {
                let offered = self.machines[at].process.offered_at[&id];
                if self.now - offered > self.scenario.ready_ms[at] {
                    self.violate(format!("{id:?} is redirected {} ms late", self.now - offered));
                }
                let order = Order::Redirect(flow_of(socket), usize::from(to));
                self.order(at, Asker::Donor(id), order);
            }
            DonorAction::Thaw(id, socket) => {
                self.order(at, Asker::Donor(id), Order::Thaw(flow_of(socket)));
            }
            DonorAction::Reset(id, socket) => {
                self.order(at, Asker::Donor(id), Order::Reset(flow_of(socket)));
            }
            DonorAction::Release(_, socket) => {
                let flow = flow_of(socket);
                if let Some(socket) = self.machines[at].kernel.sockets.get_mut(&flow) {
                    socket.process = 0;
                }
                self.order(at, Asker::Nobody, Order::Release(flow));
            }
            DonorAction::Send(to, message) => {
                self.check_donors_word(at, &message);
                self.post(at, to.0 as Id, &message);
            }
            DonorAction::Ended(id, socket, outcome) => self.ended(at, id, flow_of(socket), outcome),
        }
        self.trap(name, false, at, other);
    }

    /// Checks that GO is sent only for redirected flows, and ABORT only for others.
    fn check_donors_word(&mut self, at: Id, message: &Lccp) {
        let is_committed = self.committed.contains(&(at, message.id));
        match message.command {
            LccpCommand::Go(_) if !is_committed => self.violate("GO before the redirect"),
            LccpCommand::Abort(_) if is_committed => self.violate("ABORT after the redirect"),
            LccpCommand::Offer(..) => {
                let now = self.now;
                self.machines[at].process.offered_at.entry(message.id).or_insert(now);
            }
            _ => {}
        }
    }

    fn ended(&mut self, at: Id, id: HandoffId, flow: Flow, outcome: MoveOutcome) {
        let (now, process) = (self.now(), &mut self.machines[at].process);
        let Some((_, to, begun)) = process.moving.remove(&id) else {
            return self.violate(format!("{id:?} has ended twice"));
        };
        match outcome {
            MoveOutcome::Stays(_) => {
                self.totals.stayed += 1;
                let ready_ms = self.scenario.ready_ms[at];
                if self.scenario.is_calm() && now.0 - begun > ready_ms + STAY_MS_MAX {
                    self.violate(format!("{id:?} stays, after {} ms", now.0 - begun));
                }
                self.serve(at, flow);
            }
            MoveOutcome::Moved => {
                self.totals.moved += 1;
                let moves = self.clients[flow].moves;
                let moved = MovedFlow { socket: socket(flow), node: to as u16, moves };
                process.reports.push(now, moved);
            }
            MoveOutcome::Closed => self.totals.closed += 1,
        }
    }

    fn receiver_acts(&mut self, at: Id, start: u64, action: ReceiverAction) {
        let (name, other) = match &action {
            ReceiverAction::Create(key, ..) => ("create", Some(key.donor.0 as Id)),
            ReceiverAction::Start(key, _) => ("start", Some(key.donor.0 as Id)),
            ReceiverAction::Discard(key, _) => ("discard", Some(key.donor.0 as Id)),
            ReceiverAction::Reset(key, _) => ("reset", Some(key.donor.0 as Id)),
            ReceiverAction::Send(to, message) => (step(&message.command), Some(to.0 as Id)),
            ReceiverAction::Serve(..) | ReceiverAction::Closed(..) => ("another", None),
        };
        self.trap(name, true, at, other);
        if !self.is_current(at, start) {
            return;
        }
        match action {
            ReceiverAction::Create(key, socket, info) => {
                self.create(at, key, flow_of(socket), *info)
            }
            ReceiverAction::Start(key, socket) => {
                self.order(at, Asker::Receiver(key), Order::Start(flow_of(socket)));
            }
            ReceiverAction::Discard(key, socket) => self.discard(at, key, flow_of(socket)),
            ReceiverAction::Reset(key, socket) => {
                self.machines[at].process.let_go.insert(key);
                self.order(at, Asker::Receiver(key), Order::Reset(flow_of(socket)));
            }
            ReceiverAction::Send(to, message) => {
                self.note_receivers_word(at, OfferKey { donor: to, id: message.id }, &message);
                self.post(at, to.0 as Id, &message);
            }
            ReceiverAction::Serve(_, socket) => self.serve(at, flow_of(socket)),
            ReceiverAction::Closed(..) => {}
        }
        self.trap(name, false, at, other);
    }

    fn note_receivers_word(&mut self, at: Id, key: OfferKey, message: &Lccp) {
        let process = &mut self.machines[at].process;
        match message.command {
            LccpCommand::Ready(_) => {
                process.ready.insert(key);
            }
            LccpCommand::Aborted(_)
                if process.ready.contains(&key) && !process.let_go.contains(&key) =>
            {
                self.violate(format!("{key:?} is said to be aborted, and is kept"));
            }
            LccpCommand::Aborted(_) | LccpCommand::Gone(_) | LccpCommand::Refuse(..) => {
                self.totals.declined += 1;
                process.declined.insert(key);
            }
            _ => {}
        }
    }

    fn create(&mut self, at: Id, key: OfferKey, flow: Flow, info: HandoffInfo) {
        let (send_next, receive_next) = (info.tcp.send_next, info.tcp.receive_next);
        let before = self.machines[at].process.created.insert(key, info);
        if before.is_some() {
            self.violate(format!("{key:?} is created twice"));
        }
        if self.machines[at].process.declined.contains(&key) {
            self.violate(format!("{key:?} is created, and was declined before"));
        }
        self.order(at, Asker::Receiver(key), Order::Create(flow, send_next, receive_next));
    }

    fn discard(&mut self, at: Id, key: OfferKey, flow: Flow) {
        let is_given = self.committed.contains(&(key.donor.0 as Id, key.id));
        if is_given && self.machines[at].process.ready.contains(&key) {
            self.violate(format!("{key:?} is discarded, and was given"));
        }
        self.machines[at].process.let_go.insert(key);
        if let Some(socket) = self.machines[at].kernel.sockets.get_mut(&flow) {
            if !socket.is_in_repair {
                return self.violate("a running socket is discarded");
            }
            socket.process = 0;
        }
        self.close_sockets(at);
        self.order(at, Asker::Nobody, Order::Forget(flow));
    }

    fn receiver_of(&self, at: Id, id: HandoffId) -> Option<Id> {
        self.machines[at].process.moving.get(&id).map(|(_, to, _)| *to)
    }

    /// Sends a sealed message.
    pub(crate) fn post(&mut self, from: Id, to: Id, message: &Lccp) {
        let bytes = message.encode();
        let machine = self.machines.get(from);
        let start = machine.map_or(0, |it| it.process.start);
        let echo = machine.and_then(|it| it.process.known.get(to)).copied().unwrap_or(0);
        for delay in self.net.send(from, to, &mut self.rng) {
            let event = Event::Message { from, to, start, echo, bytes: bytes.clone() };
            self.after(delay, event);
        }
    }

    /// Sends an order to netguard.
    fn order(&mut self, at: Id, asker: Asker, order: Order) {
        self.serial += 1;
        let serial = self.serial;
        let machine = &mut self.machines[at];
        let process = machine.process.start;
        if asker != Asker::Nobody {
            machine.process.outstanding.push_back((serial, asker, order.clone()));
        }
        let guard = &mut machine.guard;
        if !guard.is_up || guard.client != Some(process) {
            // The process will notice, and end.
            return;
        }
        let taken = self.rng.below(self.scenario.order_ms_max);
        guard.busy_until = guard.busy_until.max(self.now + taken);
        let (wait, guard) = (guard.busy_until - self.now, guard.start);
        self.after(wait, Event::Order { at, guard, process, serial, asker, order });
    }

    /// Netguard executes an order.
    pub(crate) fn execute(
        &mut self,
        at: Id,
        guard: u64,
        process: u64,
        serial: u64,
        asker: Asker,
        order: &Order,
    ) {
        let machine = &mut self.machines[at];
        let guarding = &machine.guard;
        if !guarding.is_up || guarding.start != guard || guarding.client != Some(process) {
            return;
        }
        let may_refuse =
            matches!(order, Order::Freeze(_) | Order::Redirect(..) | Order::Create(..));
        let executed = if may_refuse && self.rng.below(100) < self.scenario.refused_percent {
            Executed { result: OrderResult::Refused, reset: None }
        } else {
            Netguard::execute(&mut machine.kernel, process, order)
        };
        self.check_order(at, asker, order, executed.result);
        self.trap(order.name(), true, at, None);
        if let Some((flow, sequence)) = executed.reset {
            self.send_rst(flow, Some(sequence));
        }
        self.close_sockets(at);
        if asker != Asker::Nobody {
            let taken = self.rng.below(self.scenario.order_ms_max);
            let result = executed.result;
            self.after(taken, Event::Result { at, process, serial, result });
        }
    }

    /// Checks that a redirected connection is never taken back, and that nothing is started without
    /// a redirect.
    fn check_order(&mut self, at: Id, asker: Asker, order: &Order, result: OrderResult) {
        match (asker, order, result) {
            (Asker::Donor(id), Order::Redirect(..), OrderResult::Done) => {
                self.committed.insert((at, id));
            }
            (Asker::Donor(id), Order::Thaw(_), OrderResult::Done)
                if self.committed.contains(&(at, id)) =>
            {
                self.violate(format!("{id:?} is thawed after its redirect"));
            }
            (Asker::Receiver(key), Order::Start(_), OrderResult::Done)
                if !self.committed.contains(&(key.donor.0 as Id, key.id)) =>
            {
                self.violate(format!("{key:?} is started, and was not given"));
            }
            _ => {}
        }
    }

    /// The process receives the result of an order.
    pub(crate) fn result(&mut self, at: Id, process: u64, serial: u64, result: OrderResult) {
        if !self.is_current(at, process) {
            return;
        }
        let process = &mut self.machines[at].process;
        let Some(place) = process.outstanding.iter().position(|it| it.0 == serial) else { return };
        let (_, asker, order) = process.outstanding.remove(place).unwrap();
        self.tell_result(at, asker, &order, result);
        self.drive(at);
    }

    pub(crate) fn tell_result(&mut self, at: Id, asker: Asker, order: &Order, result: OrderResult) {
        let now = self.now();
        match (asker, order) {
            (Asker::Donor(id), Order::Freeze(flow)) => self.frozen(at, id, *flow, result),
            (Asker::Donor(id), _) => self.machines[at].process.donor.ordered(now, id, result),
            (Asker::Receiver(key), Order::Create(..)) => {
                let preparation = match result {
                    OrderResult::Done if self.rng.below(30) == 0 => Preparation::NotRestored,
                    OrderResult::Done => Preparation::Restored,
                    _ => Preparation::NotCreated,
                };
                self.machines[at].process.receiver.prepared(now, key, preparation);
            }
            (Asker::Receiver(key), _) => {
                self.machines[at].process.receiver.ordered(now, key, result);
            }
            (Asker::Nobody, _) => {}
        }
    }

    /// A connection is frozen or not: its state is read.
    fn frozen(&mut self, at: Id, id: HandoffId, flow: Flow, result: OrderResult) {
        let now = self.now();
        let is_suitable = self.rng.below(30) > 0;
        let queue = [0, 100, 4_000][self.rng.below(3) as usize];
        let machine = &mut self.machines[at];
        let socket = machine.kernel.sockets.get(&flow).filter(|it| it.is_in_repair);
        match (result, socket) {
            (OrderResult::Done, Some(socket)) if is_suitable => {
                let moves = self.clients[flow].moves;
                let info = info(socket.send_next, socket.receive_next, moves, queue);
                machine.process.donor.frozen(now, id, &info);
            }
            (OrderResult::Done, _) => {
                machine.process.donor.not_frozen(now, id, StayCause::Unsuitable);
            }
            _ => machine.process.donor.not_frozen(now, id, StayCause::NotFrozen),
        }
    }

    /// Adds a connection to the event loop of a process.
    pub(crate) fn serve(&mut self, at: Id, flow: Flow) {
        let is_there =
            self.machines[at].kernel.sockets.get(&flow).is_some_and(|it| !it.is_in_repair);
        if !is_there && self.clients[flow].end == End::Open && !self.clients[flow].is_touched {
            self.violate(format!("connection {flow} is served at {at} without a running socket"));
        }
        let process = &mut self.machines[at].process;
        process.serving.insert(flow);
        let event = Event::App { at, process: process.start, flow };
        self.after(1, event);
    }
}

fn info(send_next: u32, receive_next: u32, moves: u8, queue: usize) -> HandoffInfo {
    let window = TcpWindow {
        send_updated_at: 0,
        send: 65_535,
        send_max: 65_535,
        receive: 65_535,
        receive_updated_at: receive_next,
    };
    let options = TcpOptions { sack: true, window_scales: None, timestamp: None };
    let tcp = TcpState {
        send_next,
        receive_next,
        mss_clamp: 1_460,
        options,
        window,
        congestion_window: 10,
        rtt_us: 300,
        received: vec![b'x'; queue],
    };
    HandoffInfo { tcp, read_ahead: Vec::new(), moves, accepted_by: 0 }
}
