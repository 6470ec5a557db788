//! The simulated world: clock, state and events.

use std::collections::BTreeMap;

use skep_directory::{Coordinator, CoordinatorCounters, CoordinatorSettings};
use skep_sim::{Agenda, StateChanges, StateSummary};
use skep_units::{Now, Rng};
use skep_wire::cache::{SegmentName, ToCoordinator, ToNode};

use crate::check::Check;
use crate::clients::{Client, HeadAsk, HeadStep};
use crate::files::{Files, LOST_NODE_MS};
use crate::links::Conn;
use crate::node::Node;
use crate::offers::{Offer, OfferStep};
use crate::origin::Origin;
use crate::peers::{Stream, StreamSays};
use crate::purging::{Purging, Stamps};
use crate::scenario::{END_MS, Fault, Scenario};
use crate::totals::Totals;

/// Small, so that both bounds are reached.
pub(crate) const LEASE_TTL_MS: u64 = 500;
pub(crate) const LEASES_MAX: usize = 6;
pub(crate) const HOLDINGS_MAX: usize = 60;
/// Long, so that much happens between the end of a lease and its noticing.
const TICK_MS: u64 = 400;

pub(crate) enum Event {
    Connect {
        node: usize,
        coordinator: usize,
        life: u64,
    },
    ToCoordinator {
        conn: u64,
        message: ToCoordinator,
    },
    ToNode {
        conn: u64,
        message: ToNode,
    },
    /// One end notices the loss of a link.
    CoordinatorDown {
        conn: u64,
    },
    NodeDown {
        conn: u64,
    },
    /// The timeout for the answer, the wait or the next bytes has passed.
    Due {
        node: usize,
        life: u64,
        name: SegmentName,
        attempt: u64,
        filled: u32,
    },
    OriginRead {
        node: usize,
        life: u64,
        name: SegmentName,
        attempt: u64,
    },
    Fetch {
        stream: u64,
    },
    Stream {
        stream: u64,
        says: StreamSays,
    },
    /// Announces the next files; `told` were announced before.
    Announce {
        conn: u64,
        told: usize,
    },
    SeekFile,
    /// Sends the next part of the inventory.
    Inventory {
        conn: u64,
    },
    Report {
        node: usize,
        life: u64,
    },
    /// A load report, a datagram: the bytes that a node had to send.
    Load {
        coordinator: usize,
        node: usize,
        bytes: u64,
    },
    Tick {
        coordinator: usize,
        life: u64,
    },
    Clients {
        count: u64,
    },
    Head {
        ask: HeadAsk,
        step: HeadStep,
    },
    /// An operator's command.
    Purge(u64),
    StepDown {
        coordinator: usize,
        life: u64,
    },
    TakeOver,
    Fault(Fault),
    Offer {
        offer: u64,
        step: OfferStep,
    },
    /// A node continues to offer what it evicts.
    Offering {
        node: usize,
        life: u64,
    },
}

pub(crate) struct Machine {
    pub(crate) core: Coordinator,
    pub(crate) stamps: Stamps,
    pub(crate) is_alive: bool,
    pub(crate) life: u64,
    pub(crate) paused_until: u64,
}

impl Machine {
    /// Its state, as printed in the story of a seed.
    fn summary(&self) -> StateSummary {
        let (is_active, epoch) = self.core.stage();
        let CoordinatorCounters { leases, holdings, files, nodes_unsure, .. } =
            self.core.counters();
        StateSummary::default()
            .with("lives", self.is_alive)
            .with("active", is_active)
            .with("epoch", epoch)
            .with("members", self.core.members().count())
            .with("leases", leases)
            .with("holdings", holdings)
            .with("files", files)
            .with("unsure of", nodes_unsure)
            .with("newest purge", self.stamps.newest())
    }
}

pub(crate) struct World {
    pub(crate) at: u64,
    pub(crate) rng: Rng,
    pub(crate) scenario: Scenario,
    pub(crate) machines: Vec<Machine>,
    pub(crate) nodes: Vec<Node>,
    pub(crate) conns: BTreeMap<u64, Conn>,
    pub(crate) streams: BTreeMap<u64, Stream>,
    pub(crate) offers: BTreeMap<u64, Offer>,
    pub(crate) origin: Origin,
    pub(crate) clients: BTreeMap<u64, Client>,
    pub(crate) purging: Purging,
    pub(crate) files: Files,
    pub(crate) cuts: Vec<(usize, usize)>,
    pub(crate) totals: Totals,
    pub(crate) parts: Vec<(usize, usize)>,
    agenda: Agenda<Event>,
    numbers: u64,
    pub(crate) active: usize,
    epoch: u64,
    pub(crate) check: Check,
    tells: bool,
    changes: StateChanges,
}

impl World {
    pub(crate) fn new(seed: u64, tells: bool) -> Self {
        let mut rng = Rng::new(seed);
        let scenario = Scenario::new(&mut rng);
        if tells {
            eprintln!("seed {seed}: {scenario:?}");
        }
        let origin = Origin::new(&mut rng);
        let check = Check::new(scenario.nodes);
        let purging = Purging::new(scenario.nodes);
        Self {
            at: 0,
            rng,
            scenario,
            machines: Vec::new(),
            nodes: Vec::new(),
            conns: BTreeMap::new(),
            streams: BTreeMap::new(),
            offers: BTreeMap::new(),
            origin,
            clients: BTreeMap::new(),
            purging,
            files: Files::new(seed),
            cuts: Vec::new(),
            totals: Totals { seeds: 1, ..Totals::default() },
            parts: Vec::new(),
            agenda: Agenda::default(),
            numbers: 0,
            active: 0,
            epoch: 0,
            check,
            tells,
            changes: StateChanges::default(),
        }
    }

    pub(crate) fn run(mut self) -> Result<Totals, String> {
        self.start();
        while let Some((due, event)) = self.agenda.pop() {
            let at = due.at_ms;
            if at > END_MS {
                break;
            }
            self.at = at;
            let until = self.paused_until(&event);
            if until > at {
                self.agenda.put_off(due, until, event);
                continue;
            }
            self.totals.events += 1;
            self.happen(event).map_err(|broken| format!("at {at} ms: {broken}"))?;
            self.tell_changes();
        }
        self.at_the_end()?;
        for machine in &self.machines {
            let counters = machine.core.counters();
            self.totals.directory_errors += counters.directory_errors;
            self.totals.expired += counters.expired;
        }
        Ok(self.totals)
    }

    pub(crate) fn tell(&self, what: impl FnOnce() -> String) {
        if self.tells {
            eprintln!("{:>6} {}", self.at, what());
        }
    }

    /// Prints what the last event has changed.
    fn tell_changes(&mut self) {
        if !self.tells {
            return;
        }
        let coordinators = self.machines.iter().map(Machine::summary).enumerate();
        let coordinators = coordinators.map(|(place, state)| (format!("c{place}"), state));
        let nodes = self.nodes.iter().map(Node::summary).enumerate();
        let nodes = nodes.map(|(node, state)| (format!("n{node}"), state));
        self.changes.tell(self.at, coordinators.chain(nodes));
    }

    pub(crate) fn schedule(&mut self, at: u64, event: Event) {
        self.agenda.schedule(at, event);
    }

    pub(crate) fn number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }

    fn start(&mut self) {
        for coordinator in 0..self.scenario.coordinators {
            let machine = self.machine(coordinator, 1);
            self.machines.push(machine);
            self.schedule(TICK_MS, Event::Tick { coordinator, life: 1 });
        }
        for node in 0..self.scenario.nodes {
            self.nodes.push(Node::new(self.scenario.capacities[node], 1));
            self.connect_all(node);
        }
        for (at, count) in self.scenario.herds.clone() {
            self.schedule(at, Event::Clients { count });
        }
        for (at, random) in self.scenario.purges.clone() {
            self.schedule(at, Event::Purge(random));
        }
        for (at, fault) in self.scenario.faults.clone() {
            self.schedule(at, Event::Fault(fault));
        }
        self.schedule(0, Event::SeekFile);
        self.begin_term(0);
    }

    /// A coordinator that has just started.
    pub(crate) fn machine(&mut self, coordinator: usize, life: u64) -> Machine {
        let core = Coordinator::new(self.settings(), self.rng.next_u64());
        let stamps = Stamps::new(coordinator, self.rng.next_u64());
        Machine { core, stamps, is_alive: true, life, paused_until: 0 }
    }

    fn settings(&self) -> CoordinatorSettings {
        let lease_ttl_ms = LEASE_TTL_MS as u32;
        let (holdings_max, leases_max) = (HOLDINGS_MAX, LEASES_MAX);
        let nodes = self.scenario.nodes;
        CoordinatorSettings {
            holdings_max,
            files_max: self.files.files_max,
            lost_node_ms: LOST_NODE_MS,
            leases_max,
            lease_ttl_ms,
            nodes,
            ..CoordinatorSettings::default()
        }
    }

    /// When `event` can happen, if its process is paused.
    fn paused_until(&self, event: &Event) -> u64 {
        let of_conn = |conn: &u64| &self.conns[conn];
        let node = |node: usize| self.nodes[node].paused_until;
        match event {
            Event::ToCoordinator { conn, .. } | Event::CoordinatorDown { conn } => {
                self.machines[of_conn(conn).coordinator].paused_until
            }
            Event::Tick { coordinator, .. }
            | Event::StepDown { coordinator, .. }
            | Event::Load { coordinator, .. } => self.machines[*coordinator].paused_until,
            Event::ToNode { conn, .. }
            | Event::NodeDown { conn }
            | Event::Announce { conn, .. }
            | Event::Inventory { conn } => node(of_conn(conn).node),
            Event::Due { node: at, .. }
            | Event::OriginRead { node: at, .. }
            | Event::Connect { node: at, .. }
            | Event::Report { node: at, .. } => node(*at),
            Event::Offering { node: at, .. } => node(*at),
            Event::Offer { offer, step } => node(self.place_of_offer(*offer, *step)),
            Event::Fetch { stream } => node(self.streams[stream].server),
            Event::Stream { stream, .. } => node(self.streams[stream].client),
            Event::Head { step: HeadStep::Asked { peer }, .. } => node(*peer),
            Event::Head { ask, .. } => node(ask.node),
            Event::SeekFile => 0,
            Event::Clients { .. } | Event::TakeOver | Event::Fault(_) | Event::Purge(_) => 0,
        }
    }

    fn happen(&mut self, event: Event) -> Result<(), String> {
        match event {
            Event::Connect { node, coordinator, life } => self.connect(node, coordinator, life),
            Event::ToCoordinator { conn, message } => return self.coordinator_hears(conn, message),
            Event::ToNode { conn, message } => self.node_hears(conn, message),
            Event::CoordinatorDown { conn } => return self.coordinator_down(conn),
            Event::NodeDown { conn } => self.node_down(conn),
            Event::Due { node, life, name, attempt, filled } if self.lives(node, life) => {
                self.due(node, name, attempt, filled);
            }
            Event::OriginRead { node, life, name, attempt } if self.lives(node, life) => {
                self.origin_read(node, name, attempt);
            }
            Event::Due { .. } | Event::OriginRead { .. } => {}
            Event::Fetch { stream } => self.fetch_arrives(stream),
            Event::Stream { stream, says } => self.stream_says(stream, says),
            Event::Announce { conn, told } => self.announce(conn, told),
            Event::SeekFile => self.seek_file(),
            Event::Inventory { conn } => self.tell_inventory(conn),
            Event::Report { node, life } => self.report(node, life),
            Event::Load { coordinator, node, bytes } => self.loaded(coordinator, node, bytes),
            Event::Tick { coordinator, life } => return self.tick(coordinator, life),
            Event::Clients { count } => self.clients_come(count),
            Event::Head { ask, step } => self.head_steps(ask, step),
            Event::Purge(random) => self.purge(random),
            Event::StepDown { coordinator, life } => return self.step_down(coordinator, life),
            Event::TakeOver => return self.take_over_if_vacant(),
            Event::Fault(fault) => return self.befall(fault),
            Event::Offer { offer, step } => self.offer_steps(offer, step),
            Event::Offering { node, life } if self.lives(node, life) => self.offer_next(node),
            Event::Offering { .. } => {}
        }
        Ok(())
    }

    pub(crate) fn lives(&self, node: usize, life: u64) -> bool {
        self.nodes[node].is_alive && self.nodes[node].life == life
    }

    // --- coordinators ---

    fn tick(&mut self, coordinator: usize, life: u64) -> Result<(), String> {
        let machine = &mut self.machines[coordinator];
        if !machine.is_alive || machine.life != life {
            return Ok(());
        }
        machine.core.tick(Now(self.at));
        self.report_purges(coordinator);
        self.schedule(self.at + TICK_MS, Event::Tick { coordinator, life });
        self.deliver(coordinator)
    }

    pub(crate) fn begin_term(&mut self, coordinator: usize) {
        self.epoch += 1;
        self.active = coordinator;
        self.machines[coordinator].core.set_stage(Some(self.epoch));
        self.check.stage(coordinator, Some(self.epoch));
        self.totals.takeovers += u64::from(self.epoch > 1);
    }

    fn step_down(&mut self, coordinator: usize, life: u64) -> Result<(), String> {
        let machine = &mut self.machines[coordinator];
        if machine.life == life && machine.is_alive && self.active != coordinator {
            machine.core.set_stage(None);
            self.check.stage(coordinator, None);
            return self.deliver(coordinator);
        }
        Ok(())
    }

    fn take_over_if_vacant(&mut self) -> Result<(), String> {
        if self.machines[self.active].is_alive && self.machines[self.active].core.stage().0 {
            return Ok(());
        }
        let Some(next) = self.machines.iter().position(|it| it.is_alive) else { return Ok(()) };
        self.begin_term(next);
        self.deliver(next)
    }
}
