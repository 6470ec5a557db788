//! The simulated machines and their events.

mod actions;
mod faults;
mod traffic;

use std::collections::BTreeSet;

use skep_handoff::{MovedFlows, OrderResult};
use skep_sim::{Agenda, Due};
use skep_units::{Now, Rng};
use skep_wire::handoff::HandoffId;
use skep_wire::handoff::lccp::Lccp;
use skep_wire::seal::PeerId;

use crate::client::Client;
use crate::kernel::{Flow, Id, Kernel, Packet};
use crate::net::Net;
use crate::netguard::{Asker, Netguard, Order};
use crate::process::Process;
use crate::scenario::{FAULTS_END_MS, Fault, Scenario};
use crate::totals::Totals;

/// By then, after the last fault, each connection has an owner or is closed.
const JUDGED_MS: u64 = FAULTS_END_MS + 1_000;
/// By then, each client has received its replies.
const END_MS: u64 = JUDGED_MS + 2_000;
/// Clients of connections that lost both process and netguard send a packet.
const PROBED_MS: u64 = JUDGED_MS - 100;
/// Time after which a netguard without a process forgets blocked flows.
const ORPHANS_MS: u64 = 500;

pub(crate) struct Machine {
    pub(crate) kernel: Kernel,
    pub(crate) guard: Netguard,
    pub(crate) process: Process,
}

#[derive(Clone, Debug)]
pub(crate) enum Event {
    Fault(Fault),
    Restart(Id),
    RestartNetguard(Id),
    Heal,
    /// A sealed message, with the start of the sender, and that of the receiver as known to the
    /// sender.
    Message {
        from: Id,
        to: Id,
        start: u64,
        echo: u64,
        bytes: Vec<u8>,
    },
    /// The answer to a hello.
    Hello {
        to: Id,
        of: Id,
        start: u64,
    },
    Order {
        at: Id,
        guard: u64,
        process: u64,
        serial: u64,
        asker: Asker,
        order: Order,
    },
    Result {
        at: Id,
        process: u64,
        serial: u64,
        result: OrderResult,
    },
    /// The process notices that its netguard is gone, and ends.
    Disconnected {
        at: Id,
        process: u64,
    },
    /// Netguard notices that its process is gone.
    ClientGone {
        at: Id,
        guard: u64,
        process: u64,
    },
    Orphans {
        at: Id,
        guard: u64,
    },
    Tick {
        at: Id,
        process: u64,
    },
    App {
        at: Id,
        process: u64,
        flow: Flow,
    },
    Packet {
        at: Id,
        flow: Flow,
        packet: Packet,
        hops: u8,
    },
    Acknowledged {
        flow: Flow,
        sequence: u32,
    },
    Reply {
        flow: Flow,
        sequence: u32,
    },
    /// `None`: sent by a kernel, with the sequence number that the client's packet acknowledges.
    Rst {
        flow: Flow,
        sequence: Option<u32>,
    },
    Client(Flow),
    Probe,
    Judge,
}

pub(crate) struct World {
    pub(crate) rng: Rng,
    pub(crate) now: u64,
    pub(crate) scenario: Scenario,
    pub(crate) net: Net,
    pub(crate) machines: Vec<Machine>,
    pub(crate) clients: Vec<Client>,
    /// State of the dispatcher.
    learned: MovedFlows,
    agenda: Agenda<Event>,
    serial: u64,
    /// The number of process starts.
    starts: u64,
    /// Redirects that netguards have executed.
    pub(crate) committed: BTreeSet<(Id, HandoffId)>,
    /// How often each step was executed.
    steps: Vec<(&'static str, u64)>,
    pub(crate) violation: Option<String>,
    pub(crate) totals: Totals,
    tells: bool,
}

impl World {
    pub(crate) fn new(seed: u64, tells: bool) -> Self {
        let mut rng = Rng::new(seed);
        let scenario = Scenario::new(&mut rng);
        let machines = scenario.machines;
        let machine = |ready_ms: &u64| Machine {
            kernel: Kernel::default(),
            guard: Netguard::new(),
            process: Process::new(1, *ready_ms, machines),
        };
        let mut world = Self {
            net: Net::new(machines, &mut rng),
            machines: scenario.ready_ms.iter().map(machine).collect(),
            clients: Vec::new(),
            learned: MovedFlows::default(),
            agenda: Agenda::default(),
            serial: 0,
            starts: 1,
            committed: BTreeSet::new(),
            steps: Vec::new(),
            violation: None,
            totals: Totals { seeds: 1, ..Totals::default() },
            tells,
            now: 0,
            rng,
            scenario,
        };
        world.begin();
        world
    }

    fn begin(&mut self) {
        if self.tells {
            eprintln!("{:?}\n{:?}", self.scenario, self.net);
        }
        for id in 0..self.machines.len() {
            self.machines[id].process.known.fill(1);
            self.connect(id);
        }
        for (at, fault) in self.scenario.faults.clone() {
            self.agenda.schedule(at, Event::Fault(fault));
        }
        for flow in 0..self.scenario.clients {
            self.connect_client(flow);
        }
        self.agenda.schedule(PROBED_MS, Event::Probe);
        self.agenda.schedule(JUDGED_MS, Event::Judge);
    }

    /// Runs to the end.
    ///
    /// # Errors
    /// The invariant that was violated.
    pub(crate) fn run(mut self) -> Result<Totals, String> {
        while let Some((due, event)) = self.agenda.pop() {
            if due.at_ms > END_MS {
                break;
            }
            self.now = due.at_ms;
            if let Some(event) = self.put_off(due, event) {
                self.tell(&event);
                self.totals.events += 1;
                self.happen(event);
                self.check();
            }
            if let Some(violation) = self.violation.take() {
                return Err(format!("at {} ms: {violation}", self.now));
            }
        }
        self.check_end();
        match self.violation.take() {
            Some(violation) => Err(format!("at the end: {violation}")),
            None => Ok(self.sum()),
        }
    }

    pub(crate) fn violate(&mut self, what: impl Into<String>) {
        let what = what.into();
        self.violation.get_or_insert(what);
    }

    pub(crate) fn after(&mut self, ms: u64, event: Event) {
        self.agenda.schedule(self.now + ms, event);
    }

    pub(crate) fn now(&self) -> Now {
        Now(self.now)
    }

    /// Defers events of a paused process until the pause ends.
    fn put_off(&mut self, due: Due, event: Event) -> Option<Event> {
        let until = match &event {
            Event::Message { to: at, .. } if *at < self.machines.len() => {
                self.machines[*at].process.paused_until
            }
            Event::Hello { to: at, .. }
            | Event::Result { at, .. }
            | Event::Disconnected { at, .. }
            | Event::Tick { at, .. }
            | Event::App { at, .. } => self.machines[*at].process.paused_until,
            Event::Order { at, .. } | Event::ClientGone { at, .. } | Event::Orphans { at, .. } => {
                self.machines[*at].guard.paused_until
            }
            _ => 0,
        };
        if until <= self.now {
            return Some(event);
        }
        self.agenda.put_off(due, until, event);
        None
    }

    fn tell(&self, event: &Event) {
        if !self.tells {
            return;
        }
        match event {
            Event::Tick { .. } | Event::App { .. } | Event::Client(_) | Event::Reply { .. } => {}
            Event::Message { from, to, bytes, .. } => {
                let message = Lccp::decode(bytes).unwrap();
                let text: String = format!("{:?} {:?}", message.id, message.command);
                eprintln!(
                    "{:>5} {from} -> {to}: {}",
                    self.now,
                    text.chars().take(150).collect::<String>()
                );
            }
            other => eprintln!("{:>5} {other:?}", self.now),
        }
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Fault(fault) => self.strike(fault),
            Event::Restart(id) => self.restart(id),
            Event::RestartNetguard(id) => self.restart_netguard(id),
            Event::Heal => self.net.heal(),
            Event::Message { from, to, start, echo, bytes } => {
                self.message(from, to, start, echo, &bytes);
            }
            Event::Hello { to, of, start } => {
                let known = &mut self.machines[to].process.known[of];
                *known = start.max(*known);
            }
            Event::Order { at, guard, process, serial, asker, order } => {
                self.execute(at, guard, process, serial, asker, &order);
            }
            Event::Result { at, process, serial, result } => {
                self.result(at, process, serial, result);
            }
            Event::Disconnected { at, process } => self.disconnected(at, process),
            Event::ClientGone { at, guard, process } => self.client_gone(at, guard, process),
            Event::Orphans { at, guard } => self.orphans(at, guard),
            Event::Tick { at, process } => self.tick(at, process),
            Event::App { at, process, flow } => self.app(at, process, flow),
            Event::Packet { at, flow, packet, hops } => self.packet(at, flow, packet, hops),
            Event::Acknowledged { flow, sequence } => {
                let client = &mut self.clients[flow];
                client.acknowledged = client.acknowledged.max(sequence);
            }
            Event::Reply { flow, sequence } => {
                if let Err(what) = self.clients[flow].reply(sequence) {
                    self.violate(format!("connection {flow}: {what}"));
                }
            }
            Event::Rst { flow, sequence } => self.rst(flow, sequence),
            Event::Client(flow) => self.client(flow),
            Event::Probe => self.probe(),
            Event::Judge => self.judge(),
        }
    }

    pub(crate) fn is_current(&self, at: Id, process: u64) -> bool {
        let it = &self.machines[at].process;
        it.is_up && it.start == process
    }

    /// A message arrives at a machine, or at the dispatcher.
    fn message(&mut self, from: Id, to: Id, start: u64, echo: u64, bytes: &[u8]) {
        let message = Lccp::decode(bytes).unwrap();
        if to == self.machines.len() {
            return self.dispatcher_hears(from, &message);
        }
        let process = &mut self.machines[to].process;
        if !process.is_up {
            return;
        }
        if from == self.scenario.machines {
            process.reports.heard(&message);
            return self.drive(to);
        }
        if start < process.heard[from] {
            return;
        }
        process.heard[from] = start;
        process.known[from] = start;
        if echo != process.start {
            // A hello: the message was for a previous process.
            let (own, delay) = (process.start, self.net.delay(&mut self.rng));
            return self.after(delay, Event::Hello { to: from, of: to, start: own });
        }
        let (now, peer) = (self.now(), PeerId(from as u64));
        let process = &mut self.machines[to].process;
        match message.command.receptor() as u32 {
            1 => process.receiver.heard(now, peer, &message),
            _ => process.donor.heard(now, peer, &message),
        }
        self.drive(to);
    }

    fn tick(&mut self, at: Id, process: u64) {
        if !self.is_current(at, process) {
            return;
        }
        let now = self.now();
        let process = &mut self.machines[at].process;
        process.tick_at = None;
        process.donor.tick(now);
        process.receiver.tick(now);
        self.drive(at);
    }

    fn sum(mut self) -> Totals {
        for machine in &self.machines {
            let counters = machine.process.donor.counters();
            self.totals.silent += counters.silent;
            self.totals.refused += counters.refused.iter().sum::<u64>();
            let received = machine.process.receiver.counters();
            self.totals.undecided += received.undecided;
            self.totals.gone += received.gone;
            self.totals.learned += machine.process.reports.counters().learned;
        }
        for client in &self.clients {
            self.totals.served += u64::from(client.end == crate::client::End::Served);
            self.totals.reset += u64::from(client.end == crate::client::End::Reset);
            self.totals.bereft += u64::from(client.is_bereft);
        }
        self.totals
    }
}
