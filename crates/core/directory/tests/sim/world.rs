//! The clock, the links between nodes and coordinators, and what befalls them.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::fmt;
use std::net::SocketAddr;

use skep_directory::{Coordinator, Hello, Inventory, LinkId, Settings};
use skep_units::{Now, Rng};
use skep_wire::cache::{SegmentName, ToCoordinator, ToNode};
use skep_wire::message::Name;

use crate::check::Check;
use crate::node::{Link, Node};
use crate::origin::Origin;
use crate::peers::{Stream, StreamSays};
use crate::scenario::{END_MS, Fault, Scenario};

/// Small, so that both bounds are met.
pub(crate) const LEASE_TTL_MS: u64 = 500;
pub(crate) const LEASES_MAX: usize = 6;
const HOLDINGS_MAX: usize = 60;
const REPORT_MS: u64 = 50;
/// Longest way of a datagram: some overtake others.
const LOAD_WAY_MS: u64 = 120;
/// What was said on a link when it broke comes for so long, at most; more than a way.
const BROKEN_MS: u64 = 6;
/// Seldom, so that much happens between the end of a lease and its noticing.
const TICK_MS: u64 = 400;
/// Between two parts of an inventory, of so many segments each.
const INVENTORY_GAP_MS: u64 = 15;
const INVENTORY_PART: usize = 3;

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
    /// One end learns that the link is gone.
    CoordinatorDown {
        conn: u64,
    },
    NodeDown {
        conn: u64,
    },
    /// The time for the answer, the wait or the next bytes is over.
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
    /// The next part of the inventory.
    Inventory {
        conn: u64,
    },
    Report {
        node: usize,
        life: u64,
    },
    /// A datagram: so many bytes a node had to send.
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
    StepBack {
        coordinator: usize,
        life: u64,
    },
    TakeOver,
    Fault(Fault),
}

/// A link between a node and a coordinator.
#[derive(Clone, Debug)]
pub(crate) struct Conn {
    pub(crate) id: u64,
    pub(crate) node: usize,
    pub(crate) coordinator: usize,
    /// When it broke, what is under way still comes, until then.
    pub(crate) heard_until: Option<u64>,
    /// The coordinator has heard its end, or of another link of the node.
    pub(crate) is_closed: bool,
    pub(crate) link: Option<LinkId>,
    /// When the last thing said arrives, each way.
    last: [u64; 2],
}

impl Conn {
    fn is_up(&self) -> bool {
        self.heard_until.is_none()
    }

    /// Whether what arrives now was not lost with it.
    pub(crate) fn is_heard(&self, at: u64) -> bool {
        self.heard_until.is_none_or(|until| at <= until)
    }
}

pub(crate) struct Machine {
    pub(crate) core: Coordinator,
    pub(crate) is_alive: bool,
    pub(crate) life: u64,
    pub(crate) paused_until: u64,
}

pub(crate) struct World {
    pub(crate) at: u64,
    pub(crate) rng: Rng,
    pub(crate) scenario: Scenario,
    pub(crate) machines: Vec<Machine>,
    pub(crate) nodes: Vec<Node>,
    pub(crate) conns: BTreeMap<u64, Conn>,
    pub(crate) streams: BTreeMap<u64, Stream>,
    pub(crate) origin: Origin,
    /// Who waits since when at which node for what.
    pub(crate) clients: BTreeMap<u64, (u64, usize, SegmentName)>,
    pub(crate) cuts: Vec<(usize, usize)>,
    pub(crate) totals: Totals,
    pub(crate) parts: Vec<(usize, usize)>,
    queue: BinaryHeap<Reverse<(u64, u64)>>,
    events: BTreeMap<u64, Event>,
    scheduled: u64,
    numbers: u64,
    pub(crate) active: usize,
    epoch: u64,
    pub(crate) check: Check,
    tells: bool,
}

/// What came of it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Totals {
    pub(crate) seeds: u64,
    pub(crate) events: u64,
    pub(crate) served: u64,
    pub(crate) failed: u64,
    pub(crate) fills: u64,
    pub(crate) resumed: u64,
    pub(crate) unleased: u64,
    pub(crate) origin_chunks: u64,
    pub(crate) peer_chunks: u64,
    pub(crate) takeovers: u64,
    pub(crate) directory_errors: u64,
    pub(crate) expired: u64,
    pub(crate) wait_ms_max: u64,
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
        Self {
            at: 0,
            rng,
            scenario,
            machines: Vec::new(),
            nodes: Vec::new(),
            conns: BTreeMap::new(),
            streams: BTreeMap::new(),
            origin,
            clients: BTreeMap::new(),
            cuts: Vec::new(),
            totals: Totals { seeds: 1, ..Totals::default() },
            parts: Vec::new(),
            queue: BinaryHeap::new(),
            events: BTreeMap::new(),
            scheduled: 0,
            numbers: 0,
            active: 0,
            epoch: 0,
            check,
            tells,
        }
    }

    pub(crate) fn run(mut self) -> Result<Totals, String> {
        self.start();
        while let Some(Reverse((at, number))) = self.queue.pop() {
            if at > END_MS {
                break;
            }
            self.at = at;
            let event = self.events.remove(&number).expect("scheduled");
            let until = self.paused_until(&event);
            if until > at {
                // By its number it stays behind what came before it.
                self.events.insert(number, event);
                self.queue.push(Reverse((until, number)));
                continue;
            }
            self.totals.events += 1;
            self.happen(event).map_err(|broken| format!("at {at} ms: {broken}"))?;
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

    pub(crate) fn schedule(&mut self, at: u64, event: Event) {
        self.scheduled += 1;
        self.events.insert(self.scheduled, event);
        self.queue.push(Reverse((at, self.scheduled)));
    }

    pub(crate) fn number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }

    fn start(&mut self) {
        for coordinator in 0..self.scenario.coordinators {
            self.machines.push(Machine {
                core: Coordinator::new(self.settings(), self.rng.next_u64()),
                is_alive: true,
                life: 1,
                paused_until: 0,
            });
            self.schedule(TICK_MS, Event::Tick { coordinator, life: 1 });
        }
        let capacity_bytes = self.scenario.capacity_bytes;
        for node in 0..self.scenario.nodes {
            self.nodes.push(Node::new(capacity_bytes, 1));
            self.connect_all(node);
        }
        for (at, count) in self.scenario.herds.clone() {
            self.schedule(at, Event::Clients { count });
        }
        for (at, fault) in self.scenario.faults.clone() {
            self.schedule(at, Event::Fault(fault));
        }
        self.reign(0);
    }

    pub(crate) fn settings(&self) -> Settings {
        let lease_ttl_ms = LEASE_TTL_MS as u32;
        let (holdings_max, leases_max) = (HOLDINGS_MAX, LEASES_MAX);
        let nodes = self.scenario.nodes;
        Settings { holdings_max, leases_max, lease_ttl_ms, nodes, ..Settings::default() }
    }

    /// When `event` can happen, if its place does not run now.
    fn paused_until(&self, event: &Event) -> u64 {
        let of_conn = |conn: &u64| &self.conns[conn];
        let node = |node: usize| self.nodes[node].paused_until;
        match event {
            Event::ToCoordinator { conn, .. } | Event::CoordinatorDown { conn } => {
                self.machines[of_conn(conn).coordinator].paused_until
            }
            Event::Tick { coordinator, .. }
            | Event::StepBack { coordinator, .. }
            | Event::Load { coordinator, .. } => self.machines[*coordinator].paused_until,
            Event::ToNode { conn, .. } | Event::NodeDown { conn } | Event::Inventory { conn } => {
                node(of_conn(conn).node)
            }
            Event::Due { node: at, .. }
            | Event::OriginRead { node: at, .. }
            | Event::Connect { node: at, .. }
            | Event::Report { node: at, .. } => node(*at),
            Event::Fetch { stream } => node(self.streams[stream].server),
            Event::Stream { stream, .. } => node(self.streams[stream].client),
            Event::Clients { .. } | Event::TakeOver | Event::Fault(_) => 0,
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
            Event::Inventory { conn } => self.tell_inventory(conn),
            Event::Report { node, life } => self.report(node, life),
            Event::Load { coordinator, node, bytes } => self.loaded(coordinator, node, bytes),
            Event::Tick { coordinator, life } => return self.tick(coordinator, life),
            Event::Clients { count } => self.clients_come(count),
            Event::StepBack { coordinator, life } => return self.step_back(coordinator, life),
            Event::TakeOver => return self.take_over_if_vacant(),
            Event::Fault(fault) => return self.befall(fault),
        }
        self.check_budget()
    }

    pub(crate) fn lives(&self, node: usize, life: u64) -> bool {
        self.nodes[node].is_alive && self.nodes[node].life == life
    }

    fn check_budget(&self) -> Result<(), String> {
        for (place, node) in self.nodes.iter().enumerate() {
            let bytes: u64 = node.cached.values().map(|it| u64::from(it.bytes)).sum();
            if bytes != node.cached_bytes || bytes > node.capacity_bytes {
                return Err(format!("n{place} holds {bytes} bytes, counts {}", node.cached_bytes));
            }
        }
        Ok(())
    }

    // --- links ---

    pub(crate) fn connect_all(&mut self, node: usize) {
        let life = self.nodes[node].life;
        for coordinator in 0..self.scenario.coordinators {
            let at = self.at + 1 + self.rng.below(20);
            self.schedule(at, Event::Connect { node, coordinator, life });
        }
        self.schedule(self.at + REPORT_MS, Event::Report { node, life });
    }

    fn connect(&mut self, node: usize, coordinator: usize, life: u64) {
        if !self.lives(node, life) || self.nodes[node].links.contains_key(&coordinator) {
            return;
        }
        if !self.machines[coordinator].is_alive || self.parts.contains(&(node, coordinator)) {
            self.schedule(self.at + 50, Event::Connect { node, coordinator, life });
            return;
        }
        let id = self.number();
        let last = [self.at; 2];
        let (heard_until, is_closed, link) = (None, false, None);
        let conn = Conn { id, node, coordinator, heard_until, is_closed, link, last };
        self.conns.insert(id, conn);
        let link = Link {
            conn: id,
            changes: Default::default(),
            inventory: Inventory::new(self.nodes[node].cached.keys().copied().collect()),
            is_active: false,
            epoch: 0,
            members: BTreeMap::new(),
        };
        self.nodes[node].links.insert(coordinator, link);
        let hello = ToCoordinator::Hello {
            name: name_of(node),
            address: SocketAddr::from(([127, 0, 0, 1], node as u16)),
            capacity_bytes: self.nodes[node].capacity_bytes,
        };
        self.say(id, hello);
        self.tell_inventory(id);
    }

    /// In many parts and slowly: much comes and goes between them.
    fn tell_inventory(&mut self, conn: u64) {
        let node = self.conns[&conn].node;
        let (said, is_part) = self.nodes[node].holdings(conn, INVENTORY_PART);
        said.into_iter().for_each(|message| self.say(conn, message));
        if is_part {
            self.schedule(self.at + INVENTORY_GAP_MS, Event::Inventory { conn });
        }
    }

    /// A node says something on a link, which arrives in order, or never.
    pub(crate) fn say(&mut self, conn: u64, message: ToCoordinator) {
        let encoded = ToCoordinator::decode(&message.encode());
        assert_eq!(encoded.as_ref(), Ok(&message), "it does not travel");
        if let Some(at) = self.way(conn, 0) {
            self.schedule(at, Event::ToCoordinator { conn, message });
        }
    }

    fn way(&mut self, conn: u64, way: usize) -> Option<u64> {
        let delay = 1 + self.rng.below(4);
        let conn = self.conns.get_mut(&conn).filter(|conn| conn.is_up())?;
        conn.last[way] = conn.last[way].max(self.at + delay);
        Some(conn.last[way])
    }

    fn coordinator_hears(&mut self, id: u64, message: ToCoordinator) -> Result<(), String> {
        let conn = self.conns[&id].clone();
        let now = Now(self.at);
        if conn.is_closed || !conn.is_heard(self.at) || !self.machines[conn.coordinator].is_alive {
            return Ok(());
        }
        self.tell(|| format!("n{} to c{}: {message:?}", conn.node, conn.coordinator));
        let core = &mut self.machines[conn.coordinator].core;
        if let ToCoordinator::Hello { name, address, capacity_bytes } = message {
            let joined = core.joined(Hello { name, address, capacity_bytes }).expect("few nodes");
            self.conns.get_mut(&id).expect("checked").link = Some(joined.link);
            let coordinator = conn.coordinator;
            let replaced = |conn: &&Conn| {
                conn.coordinator == coordinator
                    && conn.link.is_some()
                    && conn.link == joined.replaces
            };
            if let Some(replaced) = self.conns.values_mut().find(|conn| replaced(&&**conn)) {
                replaced.is_closed = true;
                self.check.left(replaced);
            }
            self.check.joined(&conn, joined.link.member());
        } else if let Some(link) = conn.link {
            self.check.hears(self.at, &conn, &message);
            core.heard(now, link, message);
        }
        self.deliver(conn.coordinator)
    }

    /// Sends what a coordinator has to say.
    pub(crate) fn deliver(&mut self, coordinator: usize) -> Result<(), String> {
        let said: Vec<(LinkId, ToNode)> = self.machines[coordinator].core.outbox().collect();
        for (link, message) in said {
            let its = |conn: &&Conn| conn.coordinator == coordinator && conn.link == Some(link);
            let conn = self.conns.values().find(its).ok_or("a message to nobody")?.clone();
            self.tell(|| format!("c{coordinator} to n{}: {message:?}", conn.node));
            self.check.says(self.at, &conn, &message)?;
            if ToNode::decode(&message.encode()).as_ref() != Ok(&message) {
                return Err(format!("{message:?} does not travel"));
            }
            if let Some(at) = self.way(conn.id, 1) {
                self.schedule(at, Event::ToNode { conn: conn.id, message });
            }
        }
        let counters = self.machines[coordinator].core.counters();
        let is_bounded = counters.holdings <= HOLDINGS_MAX as u64;
        if is_bounded { Ok(()) } else { Err(format!("beyond its bounds: {counters:?}")) }
    }

    pub(crate) fn break_conn(&mut self, id: u64) {
        let until = self.at + self.rng.below(BROKEN_MS);
        let Some(conn) = self.conns.get_mut(&id).filter(|conn| conn.is_up()) else { return };
        conn.heard_until = Some(until);
        for event in [Event::CoordinatorDown { conn: id }, Event::NodeDown { conn: id }] {
            let at = self.at + self.rng.below(100);
            self.schedule(at, event);
        }
    }

    fn coordinator_down(&mut self, id: u64) -> Result<(), String> {
        let conn = self.conns.get_mut(&id).expect("a link");
        conn.is_closed = true;
        let conn = conn.clone();
        let Some(link) = conn.link.filter(|_| self.machines[conn.coordinator].is_alive) else {
            return Ok(());
        };
        self.machines[conn.coordinator].core.left(link);
        self.check.left(&conn);
        // The link's number is nobody's from now on.
        self.deliver(conn.coordinator)
    }

    fn node_down(&mut self, id: u64) {
        let Conn { node, coordinator, .. } = self.conns[&id];
        let is_it = |link: &Link| link.conn == id;
        if self.nodes[node].is_alive && self.nodes[node].links.get(&coordinator).is_some_and(is_it)
        {
            self.nodes[node].links.remove(&coordinator);
            let life = self.nodes[node].life;
            self.schedule(self.at + 20, Event::Connect { node, coordinator, life });
        }
    }

    fn report(&mut self, node: usize, life: u64) {
        if !self.lives(node, life) {
            return;
        }
        self.tell_load(node);
        let tail = self.nodes[node].tail();
        let mut said = Vec::new();
        for link in self.nodes[node].links.values_mut() {
            said.extend(link.changes.drain().into_iter().map(|delta| (link.conn, delta)));
            if link.is_active {
                said.push((link.conn, tail.clone()));
            }
        }
        said.into_iter().for_each(|(conn, message)| self.say(conn, message));
        self.schedule(self.at + REPORT_MS, Event::Report { node, life });
    }

    /// In datagrams: some are lost, some come twice, later ones overtake them.
    fn tell_load(&mut self, node: usize) {
        let bytes = self.nodes[node].streams as u64 * 65_536;
        let reached: Vec<usize> = self.nodes[node].links.keys().copied().collect();
        for coordinator in reached {
            let is_cut = self.parts.contains(&(node, coordinator));
            let copies = [0, 0, 2, 1, 1, 1, 1, 1][self.rng.below(8) as usize];
            for _ in 0..if is_cut { 0 } else { copies } {
                let at = self.at + self.rng.below(LOAD_WAY_MS);
                self.schedule(at, Event::Load { coordinator, node, bytes });
            }
        }
    }

    fn loaded(&mut self, coordinator: usize, node: usize, bytes: u64) {
        let machine = &mut self.machines[coordinator];
        if machine.is_alive {
            machine.core.loaded(Now(self.at), &name_of(node), bytes);
        }
    }

    fn tick(&mut self, coordinator: usize, life: u64) -> Result<(), String> {
        let machine = &mut self.machines[coordinator];
        if !machine.is_alive || machine.life != life {
            return Ok(());
        }
        machine.core.tick(Now(self.at));
        self.schedule(self.at + TICK_MS, Event::Tick { coordinator, life });
        self.deliver(coordinator)
    }

    // --- who is active ---

    pub(crate) fn reign(&mut self, coordinator: usize) {
        self.epoch += 1;
        self.active = coordinator;
        self.machines[coordinator].core.set_stage(Some(self.epoch));
        self.check.stage(coordinator, Some(self.epoch));
        self.totals.takeovers += u64::from(self.epoch > 1);
    }

    fn step_back(&mut self, coordinator: usize, life: u64) -> Result<(), String> {
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
        let Some(heir) = self.machines.iter().position(|it| it.is_alive) else { return Ok(()) };
        self.reign(heir);
        self.deliver(heir)
    }
}

/// What a node is called.
pub(crate) fn name_of(node: usize) -> Name {
    Name::new(&format!("n{node}")).expect("short")
}

impl Totals {
    /// What is to happen now and then, and never did.
    pub(crate) fn never(&self) -> Vec<&'static str> {
        let Self { served, fills, resumed, unleased, peer_chunks, .. } = *self;
        let counts = [
            ("client served", served),
            ("fill", fills),
            ("fill at an offset", resumed),
            ("fill without a lease", unleased),
            ("chunk of a peer", peer_chunks),
            ("takeover", self.takeovers),
            ("directory error", self.directory_errors),
            ("lease expired", self.expired),
        ];
        counts.iter().filter(|(_, count)| *count == 0).map(|(what, _)| *what).collect()
    }

    pub(crate) fn add(&mut self, other: &Self) {
        self.seeds += other.seeds;
        self.events += other.events;
        self.served += other.served;
        self.failed += other.failed;
        self.fills += other.fills;
        self.resumed += other.resumed;
        self.unleased += other.unleased;
        self.origin_chunks += other.origin_chunks;
        self.peer_chunks += other.peer_chunks;
        self.takeovers += other.takeovers;
        self.directory_errors += other.directory_errors;
        self.expired += other.expired;
        self.wait_ms_max = self.wait_ms_max.max(other.wait_ms_max);
    }
}

impl fmt::Display for Totals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { seeds, events, served, failed, fills, resumed, unleased, .. } = self;
        let Self { origin_chunks, peer_chunks, takeovers, directory_errors, expired, .. } = self;
        write!(
            f,
            "{seeds} seeds, {events} events, {served} clients served, {failed} not; {fills} fills \
             ({resumed} of them at an offset, {unleased} without a lease), {origin_chunks} chunks \
             of the origin, {peer_chunks} of peers; {takeovers} takeovers, {directory_errors} \
             directory errors, {expired} leases expired; at most {} ms of waiting",
            self.wait_ms_max
        )
    }
}
