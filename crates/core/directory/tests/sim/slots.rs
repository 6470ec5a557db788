//! Slots of servers: nodes never use more than there are, and nodes that want some get some.

mod turns;

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::net::SocketAddr;
use std::ops::Range;

use skep_units::{Now, Rng};
use skep_wire::cache::{ServerKey, SlotReport, ToCoordinator, ToNode};
use skep_wire::message::Name;

use skep_directory::limits::{
    SLOT_TURN_MS, SLOTS_FIRST_MS, SLOTS_KEPT_MS, SLOTS_LOST_MS, SLOTS_SILENT_MS, SLOTS_WANTED_MS,
};
use skep_directory::{Coordinator, CoordinatorSettings, Hello, NodeLinkId, SlotHolder};
use skep_sim::{SeedTotals, Simulation};

const SERVER: ServerKey = ServerKey(7);
const TICK_MS: u64 = 20;

/// Interval of the coordinators' checks.
const LOOK_MS: u64 = 100;
const DELAY_MS_MAX: u64 = 60;

/// How long requests last unless a test sets another length.
const LASTS_MS: Range<u64> = 5..205;

/// The longest time to move a slot: the coordinator checks and withdraws it from its node, which
/// checks whether it still uses it, and answers; then it is granted to the other node.
const MOVE_MS: u64 = LOOK_MS + TICK_MS + 3 * DELAY_MS_MAX;

/// A node and its requests at the server.
struct Node {
    name: Name,
    holder: SlotHolder,
    /// Requests, by the time of their end.
    requests: Vec<u64>,
    waiting: u32,
    /// Requests that its clients begin per second.
    rate: u64,
    /// Clients that send the next request as soon as the last one is answered.
    clients: u32,
    lasts_ms: Range<u64>,
    served: u64,
    /// Since when clients have waited and none was served.
    starves_since: Option<u64>,
    starved_ms_max: u64,
    /// Since when a request has waited.
    hungry_since: Option<u64>,
    /// Whether the active coordinator has granted it slots by a link that has not been cut since.
    is_granted: bool,
    links: BTreeMap<usize, Link>,
}

/// Both directions of a link with a coordinator, in order.
struct Link {
    id: NodeLinkId,
    serial: u64,
    to_node: VecDeque<(u64, ToNode)>,
    to_coordinator: VecDeque<(u64, ToCoordinator)>,
    epoch: Option<u64>,
    acknowledged: u64,
    told: Option<SlotReport>,
}

struct World {
    seed: u64,
    rng: Rng,
    now: u64,
    slots: u32,
    share: u32,
    coordinators: Vec<Coordinator>,
    nodes: Vec<Node>,
    epoch: u64,
    /// Of the last link.
    serial: u64,
    totals: Totals,
}

/// Counters of a run.
#[derive(Debug, Default)]
struct Totals {
    seeds: u64,
    served: u64,
    takeovers: u64,
    cuts: u64,
}

impl SeedTotals for Totals {
    fn add(&mut self, other: &Self) {
        self.seeds += other.seeds;
        self.served += other.served;
        self.takeovers += other.takeovers;
        self.cuts += other.cuts;
    }
}

impl fmt::Display for Totals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { seeds, served, takeovers, cuts } = self;
        write!(f, "{seeds} seeds: {served} requests, {takeovers} takeovers, {cuts} links cut")
    }
}

impl World {
    fn new(seed: u64, nodes: usize, slots: u32) -> Self {
        let settings = CoordinatorSettings { nodes, ..CoordinatorSettings::default() };
        let mut coordinators: Vec<_> = (0..2).map(|it| Coordinator::new(settings, it)).collect();
        coordinators[0].set_stage(Some(1));
        let share = (slots / nodes as u32).max(1);
        let node = |number: usize| Node {
            name: Name::new(&format!("node-{number}")).unwrap(),
            holder: SlotHolder::new(Now(0), slots, share),
            requests: Vec::new(),
            waiting: 0,
            rate: 0,
            clients: 0,
            lasts_ms: LASTS_MS,
            served: 0,
            starves_since: None,
            starved_ms_max: 0,
            hungry_since: None,
            is_granted: false,
            links: BTreeMap::new(),
        };
        let nodes = (0..nodes).map(node).collect();
        let rng = Rng::new(seed);
        Self {
            seed,
            rng,
            now: 0,
            slots,
            share,
            coordinators,
            nodes,
            epoch: 1,
            serial: 0,
            totals: Totals::default(),
        }
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.rng.next_u64() % bound
    }

    fn due(&mut self, last: Option<u64>) -> u64 {
        let due = self.now + self.below(DELAY_MS_MAX);
        last.map_or(due, |last| due.max(last))
    }

    fn link(&mut self, node: usize, coordinator: usize) {
        let hello = Hello {
            name: self.nodes[node].name.clone(),
            address: SocketAddr::from(([127, 0, 0, 1], 80)),
            capacity_bytes: 1_000,
        };
        let joined = self.coordinators[coordinator].joined(hello).unwrap();
        self.serial += 1;
        let link = Link {
            id: joined.link,
            serial: self.serial,
            to_node: VecDeque::new(),
            to_coordinator: VecDeque::new(),
            epoch: None,
            acknowledged: 0,
            told: None,
        };
        self.nodes[node].links.insert(coordinator, link);
        self.post(coordinator);
    }

    /// Both ends notice at once; messages in flight are lost.
    fn cut(&mut self, node: usize, coordinator: usize) {
        self.nodes[node].is_granted = false;
        if let Some(link) = self.nodes[node].links.remove(&coordinator) {
            self.totals.cuts += 1;
            self.coordinators[coordinator].left(Now(self.now), link.id);
        }
    }

    fn take_over(&mut self) {
        self.totals.takeovers += 1;
        self.nodes.iter_mut().for_each(|node| node.is_granted = false);
        self.epoch += 1;
        let new = (self.epoch + 1) as usize % 2;
        self.coordinators[1 - new].set_stage(None);
        self.coordinators[new].set_stage(Some(self.epoch));
        (0..2).for_each(|it| self.post(it));
    }

    /// Sends a coordinator's messages on their links.
    fn post(&mut self, coordinator: usize) {
        let messages: Vec<_> = self.coordinators[coordinator].outbox().collect();
        for (to, message) in messages {
            for node in 0..self.nodes.len() {
                let link = self.nodes[node].links.get(&coordinator);
                let Some(link) = link.filter(|link| link.id == to) else { continue };
                let due = self.due(link.to_node.back().map(|(due, _)| *due));
                let link = self.nodes[node].links.get_mut(&coordinator).unwrap();
                link.to_node.push_back((due, message.clone()));
            }
        }
    }

    fn step(&mut self) {
        self.now += 1;
        for node in 0..self.nodes.len() {
            for coordinator in 0..2 {
                self.deliver(node, coordinator);
            }
            self.serve(node);
            if (self.now + node as u64).is_multiple_of(TICK_MS) {
                self.look(node);
            }
        }
        if self.now.is_multiple_of(LOOK_MS) {
            for coordinator in 0..2 {
                self.coordinators[coordinator].tick(Now(self.now));
                self.post(coordinator);
            }
        }
        let in_use: usize = self.nodes.iter().map(|node| node.requests.len()).sum();
        assert!(in_use <= self.slots as usize, "seed {}: {in_use} at {} ms", self.seed, self.now);
    }

    fn deliver(&mut self, node: usize, coordinator: usize) {
        let now = self.now;
        let mut is_granted = false;
        loop {
            let followed = self.nodes[node].followed();
            let Some(link) = self.nodes[node].links.get_mut(&coordinator) else { return };
            let Some((_, message)) = link.to_node.pop_front_if(|(due, _)| *due <= now) else {
                break;
            };
            match message {
                ToNode::Welcome { is_active, epoch, .. } => link.epoch = is_active.then_some(epoch),
                ToNode::Slots { number, grants } => {
                    link.acknowledged = number;
                    if followed == Some(coordinator) {
                        let by = link.serial;
                        grants.iter().for_each(|it| self.nodes[node].holder.granted(it.slots, by));
                        self.nodes[node].is_granted |= !grants.is_empty();
                    }
                    is_granted = true;
                }
                _ => {}
            }
        }
        let link = self.nodes[node].links.get_mut(&coordinator).unwrap();
        let (id, mut came) = (link.id, Vec::new());
        while link.to_coordinator.front().is_some_and(|(due, _)| *due <= now) {
            came.push(link.to_coordinator.pop_front().unwrap().1);
        }
        for message in came {
            self.coordinators[coordinator].heard(Now(now), id, message);
            self.post(coordinator);
        }
        if is_granted {
            self.look(node);
        }
    }

    /// Begins, queues and ends requests.
    fn serve(&mut self, node: usize) {
        let (now, rate) = (self.now, self.nodes[node].rate);
        let is_new = self.below(1_000) < rate;
        let Range { start, end } = self.nodes[node].lasts_ms;
        let lasts_ms = start + self.below(end - start);
        let node = &mut self.nodes[node];
        node.requests.retain(|ends| now < *ends);
        node.waiting = (node.waiting + u32::from(is_new)).min(50);
        if node.clients > 0 {
            node.waiting = node.clients.saturating_sub(node.requests.len() as u32);
        }
        if node.waiting > 0 && (node.requests.len() as u32) < node.holder.limit() {
            node.waiting -= 1;
            node.served += 1;
            node.requests.push(now + lasts_ms);
            node.hungry_since = None;
        }
        if node.waiting > 0 {
            node.hungry_since.get_or_insert(now);
        }
        if node.waiting > 0 && node.requests.is_empty() {
            let since = *node.starves_since.get_or_insert(now);
            node.starved_ms_max = node.starved_ms_max.max(now - since);
        } else {
            node.starves_since = None;
        }
    }

    /// The periodic work of a node, also done after each grant.
    fn look(&mut self, number: usize) {
        let now = self.now;
        let node = &mut self.nodes[number];
        let followed = node.followed();
        let in_use = node.requests.len() as u32;
        let link = followed.map(|it| node.links[&it].serial);
        node.holder.look(Now(now), link, in_use, node.waiting);
        let servers = vec![node.holder.report(SERVER)];
        for coordinator in 0..2 {
            let Some(link) = self.nodes[number].links.get(&coordinator) else { continue };
            let is_followed = followed == Some(coordinator);
            let report = SlotReport {
                acknowledged: link.acknowledged,
                is_followed,
                servers: servers.clone(),
            };
            if link.told.as_ref() == Some(&report) {
                continue;
            }
            let due = self.due(link.to_coordinator.back().map(|(due, _)| *due));
            let link = self.nodes[number].links.get_mut(&coordinator).unwrap();
            link.told = Some(report.clone());
            link.to_coordinator.push_back((due, ToCoordinator::Slots(report)));
        }
    }

    fn run(&mut self, ms: u64) {
        (0..ms).for_each(|_| self.step());
    }
}

impl Node {
    /// The active coordinator of the latest epoch.
    fn followed(&self) -> Option<usize> {
        let active = self.links.iter().filter_map(|(&it, link)| Some((link.epoch?, it)));
        active.max().map(|(_, coordinator)| coordinator)
    }
}

/// Nodes join, links break, coordinators change, demand moves: the number of requests never exceeds
/// the slots; and in quiet times all slots are in use while there is work, and no node waits
/// forever.
fn simulate(seed: u64) -> Totals {
    let mut rng = Rng::new(seed);
    let (nodes, slots) = (1 + rng.next_u64() % 6, 1 + rng.next_u64() % 12);
    let mut world = World::new(seed, nodes as usize, slots as u32);
    let lasts_ms = if rng.next_u64().is_multiple_of(2) { LASTS_MS } else { 5..2 * SLOT_TURN_MS };
    world.nodes.iter_mut().for_each(|node| node.lasts_ms = lasts_ms.clone());
    for node in 0..nodes as usize {
        (0..2).for_each(|coordinator| world.link(node, coordinator));
    }
    // A node without a coordinator by then uses its fixed share, which is not counted.
    world.run(SLOTS_FIRST_MS);
    let mut relinks = Vec::new();
    for _ in 0..40 {
        let node = world.below(nodes) as usize;
        match world.below(6) {
            0 => world.take_over(),
            // Shorter than the time after which the node uses its fixed share, which is not counted.
            1 | 2 if relinks.is_empty() && world.nodes[node].is_granted => {
                let coordinator = world.below(2) as usize;
                world.cut(node, coordinator);
                relinks.push((world.now + world.below(SLOTS_KEPT_MS - 200), node, coordinator));
            }
            _ => world.nodes[node].rate = world.below(3) * world.below(300),
        }
        for _ in 0..world.below(600) {
            let now = world.now;
            if let Some((_, node, coordinator)) = relinks.pop_if(|(due, ..)| *due <= now) {
                world.link(node, coordinator);
            }
            world.step();
        }
    }
    relinks.into_iter().for_each(|(_, node, coordinator)| world.link(node, coordinator));
    world.nodes.iter_mut().for_each(|node| node.rate = 500);
    world.run(SLOTS_LOST_MS + SLOTS_WANTED_MS + 1_000);
    let (served, at) = (total(&world), world.now);
    world.run(10_000);
    // The average length of a request; some time passes before the next one can begin.
    let most = slots * 10_000 / lasts_ms.start.midpoint(lasts_ms.end);
    let done = total(&world) - served;
    assert!(done * 100 >= most * 60, "seed {seed}: {done} of {most} from {at} ms on");
    let waits_ms_max = nodes.div_ceil(slots) * (SLOT_TURN_MS + lasts_ms.end + MOVE_MS);
    for node in &world.nodes {
        let waits_ms = node.hungry_since.map_or(0, |since| world.now - since);
        assert!(waits_ms < waits_ms_max, "seed {seed}: {} waits for {waits_ms} ms", node.name);
    }
    Totals { seeds: 1, served: total(&world), ..world.totals }
}

fn total(world: &World) -> u64 {
    world.nodes.iter().map(|node| node.served).sum()
}

const SIMULATION: Simulation = Simulation { package: "skep-directory", test: "sim", seeds: 1_000 };

#[test]
fn no_slot_is_used_twice_and_none_is_idle_while_somebody_waits() {
    let Some(totals) = SIMULATION.run(|seed, _| Ok(simulate(seed))) else { return };
    assert!(totals.served > 0 && totals.takeovers > 0 && totals.cuts > 0, "{totals}");
}

#[test]
fn idle_nodes_have_their_share_and_lend_it() {
    let mut world = World::new(1, 4, 8);
    for node in 0..4 {
        (0..2).for_each(|coordinator| world.link(node, coordinator));
    }
    assert_eq!(world.nodes[0].holder.limit(), 0, "it has just started");
    world.run(500);
    let limits = |world: &World| world.nodes.iter().map(|it| it.holder.limit()).collect::<Vec<_>>();
    assert_eq!(limits(&world), [2, 2, 2, 2]);
    world.nodes[2].rate = 1_000;
    world.run(2_000);
    assert_eq!(limits(&world), [0, 0, 8, 0]);
    world.nodes[2].rate = 0;
    world.nodes[0].rate = 30;
    world.run(4_000);
    assert!(world.nodes[0].holder.limit() >= 4, "{:?}", limits(&world));
    assert!(world.nodes[0].served > 60);
}

#[test]
fn without_a_coordinator_a_node_keeps_what_it_has_and_then_its_share() {
    let mut world = World::new(1, 2, 8);
    (0..2).for_each(|node| world.link(node, 0));
    world.nodes[0].rate = 1_000;
    world.run(2_000);
    assert_eq!(world.nodes[0].holder.limit(), 8);
    (0..2).for_each(|node| world.cut(node, 0));
    world.run(SLOTS_KEPT_MS - 500);
    assert_eq!(world.nodes[0].holder.limit(), 8, "static stability");
    world.nodes[0].rate = 0;
    world.run(1_000);
    assert_eq!(world.nodes[0].holder.limit(), world.share);
    let mut alone = SlotHolder::new(Now(0), 10, 5);
    alone.look(Now(SLOTS_FIRST_MS - 1), None, 0, 1);
    assert_eq!(alone.limit(), 0);
    alone.look(Now(SLOTS_FIRST_MS), None, 0, 1);
    assert_eq!(alone.limit(), 5);
    let mut ignored = SlotHolder::new(Now(0), 10, 5);
    ignored.look(Now(10), Some(1), 0, 1);
    ignored.look(Now(SLOTS_SILENT_MS - 1), Some(1), 0, 1);
    assert_eq!(ignored.limit(), 0);
    ignored.look(Now(SLOTS_SILENT_MS), Some(1), 0, 1);
    assert_eq!(ignored.limit(), 5, "it counts no slots");
}

#[test]
fn a_node_that_was_paused_does_not_go_on_with_what_it_had() {
    let look = |holder: &mut SlotHolder, now, epoch| holder.look(Now(now), epoch, 0, 0);
    let granted = || {
        let mut holder = SlotHolder::new(Now(0), 8, 2);
        look(&mut holder, 0, Some(1));
        holder.granted(8, 1);
        look(&mut holder, 1_000, Some(1));
        holder
    };
    let mut holder = granted();
    look(&mut holder, 1_000 + SLOTS_KEPT_MS, None);
    assert_eq!(holder.limit(), 2, "others may have its slots");
    // The coordinator may not have noticed: the old grant applies only if it is granted again.
    look(&mut holder, 4_000, Some(1));
    assert_eq!(holder.limit(), 2);
    let mut holder = granted();
    look(&mut holder, 1_600, None);
    assert_eq!(holder.limit(), 8);
    look(&mut holder, 1_700, Some(1));
    assert_eq!(holder.limit(), 8, "a short pause");

    let mut world = World::new(1, 2, 8);
    (0..2).for_each(|node| world.link(node, 0));
    world.run(1_000);
    assert_eq!(world.nodes[0].holder.limit(), 4);
    // The node has lost its grant, on the same link.
    world.nodes[0].holder = SlotHolder::new(Now(0), 8, 1);
    world.nodes[0].holder.look(Now(world.now), None, 0, 0);
    assert_eq!(world.nodes[0].holder.limit(), 1);
    world.run(500);
    assert_eq!(world.nodes[0].holder.limit(), 4, "it is granted anew");
}

#[test]
fn two_coordinators_at_once_do_not_starve_the_nodes_of_one() {
    let mut world = World::new(1, 3, 9);
    // As where all coordinators are active, by rank.
    world.coordinators[1].set_stage(Some(9));
    for node in 0..3 {
        (0..2).for_each(|coordinator| world.link(node, coordinator));
    }
    world.nodes[0].rate = 1_000;
    world.run(2_000);
    assert_eq!(world.nodes[0].holder.limit(), 9);
    world.nodes[2].rate = 1_000;
    world.run(2_000);
    world.cut(2, 1);
    // Its slots go to the other nodes; it has its share.
    world.slots += world.share;
    world.run(2 * SLOTS_LOST_MS);
    assert_eq!(world.nodes[2].holder.limit(), world.share);
    let others = world.nodes[0].holder.limit() + world.nodes[1].holder.limit();
    assert_eq!(others, 9);
    world.link(2, 1);
    world.run(2_000);
    world.slots -= world.share;
    world.run(2_000);
    let all: u32 = world.nodes.iter().map(|node| node.holder.limit()).sum();
    assert_eq!(all, 9);
}

#[test]
fn a_coordinator_to_which_nodes_come_back_one_by_one_grants_nothing_twice() {
    let mut world = World::new(1, 3, 9);
    world.coordinators[1].set_stage(Some(9));
    for node in 0..3 {
        (0..2).for_each(|coordinator| world.link(node, coordinator));
    }
    world.run(2_000);
    world.nodes[1].rate = 1_000;
    (0..3).for_each(|node| world.cut(node, 1));
    world.run(6_000);
    assert_eq!(world.nodes[1].holder.limit(), 9, "the other one grants");
    // Meanwhile the first one stays active.
    for node in [0, 2, 1] {
        world.nodes[node].rate = 1_000;
        world.link(node, 1);
        world.run(700);
    }
    world.run(4_000);
    let all: u32 = world.nodes.iter().map(|node| node.holder.limit()).sum();
    assert_eq!(all, 9);
}
