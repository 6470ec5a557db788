//! The simulated world: events in order of time, machines, network, store.

mod misfortune;

use std::fmt;
use std::sync::Arc;

use skep_cluster::failover::{FailoverAction, StepDownReason};
use skep_cluster::reconciler::Step;
use skep_sim::{Agenda, StateChanges};
use skep_units::Rng;
use skep_wire::message::{Message, NodeHeartbeat, Stage};
use skep_wire::seal::PeerId;

use crate::body::{Arrived, Body, Said};
use crate::check::Check;
use crate::disk::DiskMode;
use crate::guard::Mode;
use crate::machine::{Dispatcher, NODE_INTERVAL_MS, Node, table_in};
use crate::net::{Id, Net, Release};
use crate::scenario::{Fault, Scenario};
use crate::store::{Etcd, Reply, SLOW_MS};
use crate::totals::Totals;

/// The events.
enum Event {
    Tick(Id, u64),
    Heartbeat(Id, u64),
    Arrive {
        from: Id,
        to: Id,
        said: Said,
    },
    Wake(Id),
    Fault(Fault),
    Persisted {
        id: Id,
        life: u64,
        last: u64,
        is_failure: bool,
    },
    /// Netguard has executed a step.
    Executed {
        id: Id,
        life: u64,
        step: Step,
    },
    /// Netguard's answer, to a process that was paused.
    Answered {
        id: Id,
        life: u64,
        step: Step,
        result: Result<(), String>,
    },
    Store(Id),
    StoreReplies {
        id: Id,
        life: u64,
        reply: Reply,
    },
}

pub(crate) struct World {
    pub(crate) at: u64,
    pub(crate) scenario: Scenario,
    pub(crate) net: Net,
    pub(crate) dispatchers: Vec<Dispatcher>,
    pub(crate) nodes: Vec<Node>,
    pub(crate) etcd: Etcd,
    rng: Rng,
    agenda: Agenda<Event>,
    /// Events that dispatchers process as soon as they run again.
    waiting: Vec<(Id, Event)>,
    check: Check,
    /// The invariant that a step for netguard violated.
    broken: Option<String>,
    totals: Totals,
    tells: bool,
    changes: StateChanges,
}

impl World {
    pub(crate) fn new(seed: u64, tells: bool) -> Self {
        let mut rng = Rng::new(seed);
        let scenario = Scenario::new(&mut rng);
        let net = Net::new(scenario.dispatchers + scenario.nodes, &mut rng);
        let nodes = (0..scenario.nodes).map(|number| Node::new(number, &mut rng)).collect();
        if tells {
            eprintln!("{scenario:#?}\nloss {} %, delay {} ms", net.loss_percent, net.delay_ms_max);
        }
        let mut world = Self {
            at: 0,
            check: Check::new(scenario.dispatchers),
            net,
            dispatchers: Vec::new(),
            nodes,
            etcd: Etcd::default(),
            rng,
            agenda: Agenda::default(),
            waiting: Vec::new(),
            broken: None,
            totals: Totals { seeds: 1, ..Totals::default() },
            tells,
            changes: StateChanges::default(),
            scenario,
        };
        world.start();
        world
    }

    /// Runs to the end; fails with the invariant that was violated.
    pub(crate) fn run(mut self) -> Result<Totals, String> {
        let mut checked_at = 0;
        while let Some((due, event)) = self.agenda.pop() {
            let at = due.at_ms;
            if at > self.scenario.end_ms() {
                break;
            }
            self.at = at;
            self.totals.events += 1;
            self.happen(event)?;
            self.tell_changes();
            if let Some(broken) = self.broken.take() {
                return Err(format!("at {at} ms: {broken}"));
            }
            if at == checked_at {
                continue;
            }
            checked_at = at;
            let mut check = std::mem::take(&mut self.check);
            let checked = check.now(&self);
            self.check = check;
            checked.map_err(|broken| format!("at {at} ms: {broken}"))?;
        }
        self.check.at_the_end(&self)?;
        self.check.fill(&mut self.totals);
        Ok(self.totals)
    }

    pub(crate) fn tell(&self, what: impl fmt::Display) {
        if self.tells {
            eprintln!("{:>6} {what}", self.at);
        }
    }

    /// Prints what the last event has changed.
    fn tell_changes(&mut self) {
        if !self.tells {
            return;
        }
        let dispatchers = self.dispatchers.iter().map(Dispatcher::summary).enumerate();
        let dispatchers = dispatchers.map(|(id, state)| (format!("d{id}"), state));
        let nodes = self.nodes.iter().map(Node::summary).enumerate();
        let nodes = nodes.map(|(number, state)| (format!("n{number}"), state));
        self.changes.tell(self.at, dispatchers.chain(nodes));
    }

    fn start(&mut self) {
        for (at, fault) in self.scenario.faults.clone() {
            self.schedule(at, Event::Fault(fault));
        }
        for place in 0..self.scenario.dispatchers {
            let (dispatcher, outputs) = Dispatcher::new(place, &self.scenario, &mut self.rng);
            self.dispatchers.push(dispatcher);
            let at = self.rng.below(25);
            self.schedule(at, Event::Tick(place, 1));
            // No machine listens yet: the heartbeat is lost.
            let persist = |output| match output {
                FailoverAction::PersistEpochs { last } => Some(last),
                _ => None,
            };
            let last = outputs.into_iter().find_map(persist).expect("there are none yet");
            self.persist(place, last);
        }
        for node in self.scenario.dispatchers..self.scenario.dispatchers + self.scenario.nodes {
            let at = self.rng.below(NODE_INTERVAL_MS);
            self.schedule(at, Event::Heartbeat(node, 1));
        }
        if self.scenario.has_store {
            (0..self.scenario.dispatchers).for_each(|id| self.schedule(0, Event::Store(id)));
        }
    }

    fn schedule(&mut self, at: u64, event: Event) {
        self.agenda.schedule(at, event);
    }

    fn happen(&mut self, event: Event) -> Result<(), String> {
        match event {
            Event::Tick(id, life) => self.tick(id, life),
            Event::Heartbeat(id, life) => self.node_heartbeat(id, life),
            Event::Arrive { from, to, said } => self.arrive(from, to, said),
            Event::Wake(id) => self.wake(id),
            Event::Fault(fault) => self.befall(&fault),
            Event::Persisted { id, life, last, is_failure } => {
                self.persisted(id, life, last, is_failure);
                Ok(())
            }
            Event::Executed { id, life, step } => self.executed(id, life, step),
            Event::Answered { id, life, step, result } => {
                self.answered(id, life, step, result);
                Ok(())
            }
            Event::Store(id) => {
                self.ask_store(id);
                Ok(())
            }
            Event::StoreReplies { id, life, reply } => {
                self.store_replies(id, life, reply);
                Ok(())
            }
        }
    }

    // --- dispatchers ---

    fn tick(&mut self, id: Id, life: u64) -> Result<(), String> {
        let at = self.at;
        let dispatcher = &mut self.dispatchers[id];
        if dispatcher.body.life != life || !dispatcher.body.is_alive {
            return Ok(());
        }
        let jitter_ms = self.rng.below(6);
        let next = dispatcher.failover.tick_ms() - 3 + jitter_ms;
        if dispatcher.body.runs(at) {
            self.turn(id)?;
        }
        self.schedule(at + next, Event::Tick(id, life));
        Ok(())
    }

    /// A tick of a dispatcher's event loop.
    fn turn(&mut self, id: Id) -> Result<(), String> {
        let at = self.at;
        let dispatcher = &mut self.dispatchers[id];
        dispatcher.sync_flows(at);
        let now = dispatcher.body.clock.at(at);
        if self.scenario.churns_at(at) {
            let node = self.rng.below(self.scenario.nodes as u64) as usize;
            let (name, weight) = (&self.nodes[node].body.name, 1 + self.rng.below(9) as u32);
            dispatcher.publisher.set_weight(name, weight);
        }
        dispatcher.publisher.tick(now);
        dispatcher.failover.set_hindered(now, dispatcher.reconciler.is_hindered());
        let mut outputs = dispatcher.observe_lease(at);
        outputs.extend(dispatcher.failover.tick(now));
        dispatcher.note_epoch(at);
        self.carry_out(id, outputs)?;
        self.publish(id);
        self.hand_table_over(id);
        self.dispatchers[id].want(at);
        self.dispatchers[id].want_announcement(at);
        self.reconcile(id);
        Ok(())
    }

    fn publish(&mut self, id: Id) {
        for update in self.dispatchers[id].publish(self.at) {
            for peer in update.to {
                self.send_table(id, peer, &update.message);
            }
        }
    }

    fn hand_table_over(&mut self, id: Id) {
        if let Some((to, message)) = self.dispatchers[id].table_to_hand_over(self.at) {
            self.send_table(id, to, &message);
        }
    }

    fn send_table(&mut self, from: Id, to: PeerId, message: &Arc<Message>) {
        let machines = self.dispatchers.len() + self.nodes.len();
        let Some(to) = (0..machines).find(|&id| self.peer(id) == to) else { return };
        match **message {
            Message::TableDelta(_) => self.totals.deltas += 1,
            _ => self.totals.wholes += 1,
        }
        self.send(from, to, Said::Table(Arc::clone(message)));
    }

    fn carry_out(&mut self, id: Id, outputs: Vec<FailoverAction>) -> Result<(), String> {
        for output in outputs {
            match output {
                FailoverAction::SendHeartbeat => self.dispatcher_heartbeat(id),
                FailoverAction::PersistEpochs { last } => self.persist(id, last),
                FailoverAction::Claim { epoch } => {
                    self.totals.claims += 1;
                    self.totals.takeovers += u64::from(self.at > 1_000);
                    let mut check = std::mem::take(&mut self.check);
                    let checked = check.claim(self, id, epoch);
                    self.check = check;
                    checked.map_err(|broken| format!("at {} ms: {broken}", self.at))?;
                    self.dispatchers[id].begin_term(epoch);
                    self.dispatchers[id].want(self.at);
                }
                FailoverAction::StepDown { why } => {
                    if matches!(why, StepDownReason::Lease { .. }) {
                        let mut check = std::mem::take(&mut self.check);
                        check.lost_lease(self, id);
                        self.check = check;
                    }
                    self.dispatchers[id].step_down();
                    self.hand_table_over(id);
                    self.dispatchers[id].want(self.at);
                }
                FailoverAction::Log(note) => self.tell(format_args!("d{id}: {note}")),
                FailoverAction::Announce => {
                    self.dispatchers[id].handover.announce();
                    self.dispatchers[id].want_announcement(self.at);
                }
                FailoverAction::Probe => {}
            }
        }
        self.reconcile(id);
        Ok(())
    }

    /// Lets netguard execute the next step, if one is due: like the executor, on a thread of its
    /// own.
    fn reconcile(&mut self, id: Id) {
        let dispatcher = &mut self.dispatchers[id];
        let Some(step) = dispatcher.next_step(self.at) else { return };
        self.broken = self.check.ordered(self, id, &step).err().or_else(|| self.broken.take());
        let dispatcher = &mut self.dispatchers[id];
        let life = dispatcher.body.life;
        let due = dispatcher.guard.done_at(self.at, &mut self.rng);
        self.schedule(due, Event::Executed { id, life, step });
    }

    fn executed(&mut self, id: Id, life: u64, step: Step) -> Result<(), String> {
        if self.dispatchers[id].body.is_suspended() {
            self.dispatchers[id].held_up.push((life, step));
            return Ok(());
        }
        let guard = &mut self.dispatchers[id].guard;
        let result = guard.execute(&step, &mut self.rng);
        let result = result.map_err(|broken| format!("at {} ms: d{id} {broken}", self.at))?;
        self.tell(format_args!("d{id}: {step:?}: {result:?}"));
        self.answered(id, life, step, result);
        Ok(())
    }

    fn answered(&mut self, id: Id, life: u64, step: Step, result: Result<(), String>) {
        let at = self.at;
        let dispatcher = &mut self.dispatchers[id];
        if dispatcher.body.life != life || !dispatcher.body.is_alive {
            return;
        }
        if !dispatcher.body.runs(at) {
            return self.waiting.push((id, Event::Answered { id, life, step, result }));
        }
        dispatcher.under_way = None;
        dispatcher.reconciler.done(dispatcher.body.clock.at(at), &step, result);
        self.reconcile(id);
    }

    fn persist(&mut self, id: Id, last: u64) {
        let dispatcher = &self.dispatchers[id];
        let (life, is_failure) = (dispatcher.body.life, dispatcher.disk.mode == DiskMode::Failing);
        let ms = match dispatcher.disk.mode {
            DiskMode::Fast => self.rng.below(10),
            DiskMode::Slow => 500 + self.rng.below(2_500),
            DiskMode::Failing => self.rng.below(200),
        };
        let now = dispatcher.body.clock.at(self.at);
        self.dispatchers[id].persists_since = Some(now);
        self.schedule(self.at + ms, Event::Persisted { id, life, last, is_failure });
    }

    fn persisted(&mut self, id: Id, life: u64, last: u64, is_failure: bool) {
        let at = self.at;
        let dispatcher = &mut self.dispatchers[id];
        let lives = dispatcher.body.life == life && dispatcher.body.is_alive;
        // If the process dies meanwhile, the write may or may not have completed.
        if !is_failure && (lives || self.rng.below(2) == 0) {
            dispatcher.disk.write(life, last);
        }
        if !lives {
            return;
        }
        if !dispatcher.body.runs(at) {
            return self.waiting.push((id, Event::Persisted { id, life, last, is_failure }));
        }
        (dispatcher.fails_to_persist, dispatcher.persists_since) = (is_failure, None);
        if is_failure {
            dispatcher.failover.epochs_not_persisted(dispatcher.body.clock.at(at));
        } else {
            dispatcher.failover.epochs_persisted(last);
        }
    }

    fn dispatcher_heartbeat(&mut self, id: Id) {
        let dispatcher = &mut self.dispatchers[id];
        let version = dispatcher.publisher.table().version;
        let heartbeat = dispatcher.failover.heartbeat(dispatcher.body.clock.at(self.at), version);
        if heartbeat.stage == Stage::Active {
            dispatcher.said_active_at = self.at;
        }
        self.broken = self.check.tells(self, id, &heartbeat).err().or_else(|| self.broken.take());
        let dispatcher = &mut self.dispatchers[id];
        let said = Said::Dispatcher(Arc::new(heartbeat), dispatcher.body.next_stamp());
        for to in 0..self.dispatchers.len() + self.nodes.len() {
            if to != id {
                self.send(id, to, said.clone());
            }
        }
    }

    fn dispatcher_hears(&mut self, id: Id, arrived: Arrived) -> Result<(), String> {
        let Arrived { at: arrived_at, now: arrived, from, said } = arrived;
        let (peer, release) = (self.peer(from), self.net.release(id));
        let dispatcher = &mut self.dispatchers[id];
        let now = dispatcher.body.clock.at(self.at);
        let theirs = match &said {
            Said::Dispatcher(heartbeat, _) => Some(heartbeat.table),
            Said::Node(heartbeat, _) => Some(heartbeat.table),
            Said::Table(_) => None,
        };
        let outputs = match said {
            Said::Dispatcher(heartbeat, stamp) => {
                self.check.heard(arrived_at, id, from, &heartbeat, stamp);
                if dispatcher.is_active && !dispatcher.publisher.knows(heartbeat.table) {
                    dispatcher.handover.await_table(now, &heartbeat.name, heartbeat.table);
                }
                dispatcher.failover.heard(arrived, &heartbeat, peer, stamp)
            }
            Said::Node(heartbeat, stamp) => {
                let outputs =
                    dispatcher.failover.witness(arrived, heartbeat.hears, heartbeat.table);
                dispatcher.publisher.heard(arrived, NodeHeartbeat::clone(&heartbeat), stamp);
                outputs
            }
            Said::Table(message) => {
                let table = table_in(&message, release, dispatcher.distributor.recent());
                if let Some(table) = table {
                    dispatcher.failover.table_heard(now, table.version);
                    dispatcher.offer(self.at, table);
                }
                Vec::new()
            }
        };
        self.carry_out(id, outputs)?;
        let dispatcher = &mut self.dispatchers[id];
        let message = theirs.and_then(|theirs| dispatcher.acknowledged(self.at, peer, theirs));
        if let Some(message) = message {
            self.send_table(id, peer, &message);
        }
        Ok(())
    }

    // --- nodes ---

    fn node_heartbeat(&mut self, id: Id, life: u64) -> Result<(), String> {
        let at = self.at;
        let node = &mut self.nodes[id - self.scenario.dispatchers];
        if node.body.life != life || !node.body.is_alive {
            return Ok(());
        }
        if node.body.runs(at) {
            let heartbeat = node.heartbeat(at);
            let stamp = node.body.next_stamp();
            Check::reports(self, id, &heartbeat)
                .map_err(|broken| format!("at {at} ms: {broken}"))?;
            let said = Said::Node(Arc::new(heartbeat), stamp);
            for to in 0..self.scenario.dispatchers {
                self.send(id, to, said.clone());
            }
        }
        let jitter_ms = self.rng.below(8);
        self.schedule(at + NODE_INTERVAL_MS - 4 + jitter_ms, Event::Heartbeat(id, life));
        Ok(())
    }

    fn node_hears(&mut self, id: Id, arrived: Arrived) {
        let Arrived { now, from, said, .. } = arrived;
        let (peer, release) = (self.peer(from), self.net.release(id));
        let node = &mut self.nodes[id - self.scenario.dispatchers];
        match &said {
            Said::Dispatcher(heartbeat, stamp) => {
                node.witness.heard(now, heartbeat, peer, *stamp);
            }
            Said::Table(message) => {
                if let Some(table) = table_in(message, release, &node.recent) {
                    node.offer(table);
                }
            }
            Said::Node(..) => {}
        }
    }

    // --- network ---

    fn send(&mut self, from: Id, to: Id, said: Said) {
        let delays: Vec<u64> = self.net.send(from, to, &mut self.rng).collect();
        for delay_ms in delays {
            self.schedule(self.at + delay_ms, Event::Arrive { from, to, said: said.clone() });
        }
    }

    fn arrive(&mut self, from: Id, to: Id, said: Said) -> Result<(), String> {
        let at = self.at;
        let body = self.body(to);
        if !body.is_alive {
            return Ok(());
        }
        if !body.runs(at) {
            body.keep(at, from, said);
            return Ok(());
        }
        let now = body.clock.at(at);
        self.hear(to, Arrived { at, now, from, said })
    }

    fn hear(&mut self, to: Id, arrived: Arrived) -> Result<(), String> {
        if to < self.scenario.dispatchers {
            return self.dispatcher_hears(to, arrived);
        }
        self.node_hears(to, arrived);
        Ok(())
    }

    /// Ends a pause. The executor, a queued datagram, or the tick may run first.
    fn wake(&mut self, id: Id) -> Result<(), String> {
        let at = self.at;
        if self.body(id).is_to_wake(at) { self.wake_up(id) } else { Ok(()) }
    }

    fn wake_up(&mut self, id: Id) -> Result<(), String> {
        let at = self.at;
        let mut inbox = self.body(id).wake(at);
        for (of, event) in std::mem::take(&mut self.waiting) {
            match of == id {
                true => self.schedule(at, event),
                false => self.waiting.push((of, event)),
            }
        }
        if let Some(dispatcher) = self.dispatchers.get_mut(id) {
            for (life, step) in std::mem::take(&mut dispatcher.held_up) {
                self.schedule(at, Event::Executed { id, life, step });
            }
        }
        if id < self.scenario.dispatchers {
            let first = self.rng.below(3);
            if first == 0 {
                self.reconcile(id);
            } else if first == 1
                && let Some(arrived) = inbox.pop_front()
            {
                self.hear(id, arrived)?;
            }
            self.turn(id)?;
        }
        for arrived in inbox {
            self.hear(id, arrived)?;
        }
        Ok(())
    }

    fn body(&mut self, id: Id) -> &mut Body {
        match id.checked_sub(self.scenario.dispatchers) {
            None => &mut self.dispatchers[id].body,
            Some(node) => &mut self.nodes[node].body,
        }
    }

    fn peer(&mut self, id: Id) -> PeerId {
        self.body(id).peer
    }

    // --- the store ---

    /// A dispatcher sends a request to etcd, and receives the reply some time later.
    fn ask_store(&mut self, id: Id) {
        let at = self.at;
        let dispatcher = &self.dispatchers[id];
        if dispatcher.body.runs(at) && dispatcher.reaches_store {
            let reply = self.etcd.ask(at, &dispatcher.store);
            let slow_ms = if self.scenario.has_slow_store { SLOW_MS } else { 20 };
            let life = dispatcher.body.life;
            let due = at + self.rng.below(slow_ms);
            self.schedule(due, Event::StoreReplies { id, life, reply });
        }
        let next = at + 150 + self.rng.below(100);
        self.schedule(next, Event::Store(id));
    }

    fn store_replies(&mut self, id: Id, life: u64, reply: Reply) {
        let dispatcher = &self.dispatchers[id];
        if dispatcher.body.life == life {
            dispatcher.store.take(reply);
        }
    }
}
