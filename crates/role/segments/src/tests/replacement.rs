//! Which segments the stores of a cluster hold together: real stores and a real coordinator,
//! seeded requests, no sockets.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::sync::Arc;

use skep_directory::keep::accepts;
use skep_directory::{Coordinator, CoordinatorSettings, Hello, NodeLinkId};
use skep_units::{Now, Rng};
use skep_wire::cache::{CoordinatorAnswer, LeaseId, ObjectName, PurgeStamp, ToCoordinator, ToNode};
use skep_wire::message::Name;

use crate::limits::SEGMENT_COST_BYTES;
use crate::segment::PeerFillSource;
use crate::store::{Acquired, Filler, SegmentStore, Wanted};

const OBJECTS: u32 = 2_000;

/// Mean number of requests per object before counting starts.
const WARM_UP: u32 = 12;

/// The number of requests after which changes are reported to coordinators, in place of a timer
/// tick.
const TICK_REQUESTS: u32 = 20;

struct Cluster {
    coordinator: Coordinator,
    nodes: Vec<(NodeLinkId, Name, Arc<SegmentStore>)>,
    counts: Counts,
}

/// Requests by the source of their bytes.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    local: u32,
    peer: u32,
    origin: u32,
}

impl Counts {
    fn share(&self, part: u32) -> f64 {
        f64::from(part) / f64::from(self.local + self.peer + self.origin)
    }
}

/// Returns the length of an object: 100 to 1,099 bytes, always the same.
fn bytes(object: u32) -> u32 {
    100 + (u64::from(object) * 2_654_435_761 % 1_000) as u32
}

fn wanted(object: u32) -> Wanted {
    let (path, bytes) = (object.to_le_bytes(), bytes(object));
    let name = ObjectName::new(b"site", &path, b"1", bytes.into(), PurgeStamp::NONE).segment(0);
    Wanted { name, bytes, has_more: false }
}

fn publish(filler: &Filler) {
    let chunk = vec![0; filler.segment().next_chunk_bytes()];
    filler.segment().publish(&chunk).unwrap();
}

impl Cluster {
    fn new(capacities: &[u64]) -> Self {
        let mut coordinator = Coordinator::new(CoordinatorSettings::default(), 7);
        coordinator.set_stage(Some(1));
        let node = |(index, &capacity_bytes): (usize, &u64)| {
            let name = Name::new(&format!("node-{index}")).unwrap();
            let address = ([127, 0, 0, 1], index as u16).into();
            let hello = Hello { name: name.clone(), address, capacity_bytes };
            let link = coordinator.joined(hello).unwrap().link;
            let inventory =
                ToCoordinator::Inventory { is_first: true, is_last: true, held: Vec::new() };
            coordinator.heard(Now(0), link, inventory);
            (link, name, SegmentStore::new(capacity_bytes, usize::MAX, true))
        };
        let nodes = capacities.iter().enumerate().map(node).collect();
        coordinator.outbox().for_each(drop);
        Self { coordinator, nodes, counts: Counts::default() }
    }

    /// Simulates a client's request to `node` for `object`.
    fn request(&mut self, node: usize, object: u32) {
        match self.nodes[node].2.acquire(wanted(object)) {
            Acquired::Ready(segment) => {
                skep_cache::CacheEntry::touch(&*segment);
                self.counts.local += 1;
            }
            Acquired::Growing(_) => panic!("nothing grows between requests"),
            Acquired::Fill(filler) => self.fill(node, &filler),
        }
        self.offer(node);
    }

    fn fill(&mut self, node: usize, filler: &Filler) {
        let (name, bytes) = (filler.name(), filler.segment().len());
        let link = self.nodes[node].0;
        loop {
            self.coordinator.heard(Now(0), link, ToCoordinator::Ask { ask: 1, name, bytes });
            let answer = self.coordinator.outbox().find_map(|(_, message)| match message {
                ToNode::Answer { answer, .. } => Some(answer),
                _ => None,
            });
            match answer.unwrap() {
                CoordinatorAnswer::Have { holders } => {
                    let holder = self.nodes.iter().position(|it| it.0.member() == holders[0]);
                    let (_, peer, store) = &self.nodes[holder.unwrap()];
                    if store.find(name).is_some() {
                        filler.segment().set_fill_source(PeerFillSource::Peer {
                            id: peer.peer(),
                            is_owner: false,
                        });
                        publish(filler);
                        self.counts.peer += 1;
                        return;
                    }
                    let gone = ToCoordinator::NotThere { name, holder: holders[0] };
                    self.coordinator.heard(Now(0), link, gone);
                }
                CoordinatorAnswer::Grant { lease } => {
                    return self.fill_from_origin(link, lease, filler);
                }
                other => panic!("{other:?}"),
            }
        }
    }

    fn fill_from_origin(&mut self, link: NodeLinkId, lease: LeaseId, filler: &Filler) {
        publish(filler);
        self.counts.origin += 1;
        let ended = ToCoordinator::Ended { lease, is_held: filler.is_kept() };
        self.coordinator.heard(Now(0), link, ended);
    }

    /// Offers the segments just evicted from `node` to their successor, otherwise to the other
    /// node with the most room.
    fn offer(&mut self, node: usize) {
        while let Some(offered) = self.nodes[node].2.next_leaving() {
            let wanted = Wanted { name: offered.name, bytes: offered.bytes, has_more: false };
            let room = |it: &usize| self.nodes[*it].2.room();
            let others = (0..self.nodes.len()).filter(|it| *it != node);
            let roomiest = others.max_by_key(|it| (room(it).free_bytes, room(it).redundant_bytes));
            let store = roomiest.map(|it| &self.nodes[it].2);
            let of_successor = |successor| self.nodes.iter().find(|it| it.0.member() == successor);
            let successor = offered.successor.and_then(of_successor);
            let is_promoted = successor.is_some_and(|it| it.2.promote_replica(&offered.name));
            if !is_promoted
                && let Some(store) = store.filter(|it| accepts(it.room(), offered.bytes))
                && let Acquired::Fill(filler) = store.acquire(wanted)
            {
                filler.segment().set_chances(offered.chances);
                publish(&filler);
            }
            self.nodes[node].2.left(&offered.name);
        }
    }

    /// Nodes report their changes and ask for the status of segments that may be evicted.
    fn tick(&mut self) {
        for (link, _, store) in &self.nodes {
            for delta in store.changes() {
                self.coordinator.heard(Now(0), *link, delta);
            }
        }
        for (link, _, store) in &self.nodes {
            let Some(names) = store.tail() else { continue };
            self.coordinator.heard(Now(0), *link, ToCoordinator::Tail { names });
            for (_, message) in self.coordinator.outbox() {
                if let ToNode::Tail { names, replica_statuses, roomiest } = message {
                    store.set_replica_statuses(&names, &replica_statuses, roomiest.is_some());
                }
            }
        }
    }

    /// Sends requests to the nodes in turn, for objects selected by `draw`; returns the counts
    /// of the last third.
    fn run(&mut self, mut draw: impl FnMut() -> u32) -> Counts {
        let mut measured = Counts::default();
        for part in 0..2 {
            self.counts = Counts::default();
            for number in 0..OBJECTS * WARM_UP / (part + 1) {
                let node = number as usize % self.nodes.len();
                self.request(node, draw());
                if number.is_multiple_of(TICK_REQUESTS) {
                    self.tick();
                }
            }
            measured = self.counts;
        }
        measured
    }

    /// After a tick, the directory matches the contents of the stores.
    fn check_directory(&mut self) {
        self.tick();
        for (link, _, store) in &self.nodes {
            for name in store.names() {
                let mut holders = self.coordinator.holders(&name);
                assert!(holders.any(|it| it == link.member()), "{name:?} of {link:?}");
            }
        }
        let held: usize = self.nodes.iter().map(|(_, _, store)| store.names().len()).sum();
        assert_eq!(self.coordinator.counters().holdings, held as u64);
    }
}

fn data_bytes() -> u64 {
    let charged = |object| crate::account::allocated(bytes(object) as usize) + SEGMENT_COST_BYTES;
    (0..OBJECTS).map(charged).sum()
}

/// A cluster in which each of `nodes` nodes can hold a fifth of the data.
fn fifths(nodes: usize) -> Cluster {
    Cluster::new(&vec![data_bytes() / 5; nodes])
}

fn uniform(seed: u64) -> impl FnMut() -> u32 {
    let mut rng = Rng::new(seed);
    move || rng.below(u64::from(OBJECTS)) as u32
}

/// Zipf-distributed with exponent 1.
fn zipf(seed: u64) -> impl FnMut() -> u32 {
    let mut rng = Rng::new(seed);
    let weights: Vec<f64> = (1..=OBJECTS).map(|rank| 1.0 / f64::from(rank)).collect();
    let sum: f64 = weights.iter().sum();
    move || {
        let mut at = rng.below(1 << 53) as f64 / (1u64 << 53) as f64 * sum;
        let rank = weights.iter().position(|weight| {
            at -= weight;
            at <= 0.0
        });
        rank.unwrap_or(0) as u32
    }
}

fn print(what: &str, counts: Counts) {
    let [local, peer, origin] =
        [counts.local, counts.peer, counts.origin].map(|part| 100.0 * counts.share(part));
    println!("FIGURE {what}: local {local:.1} %, peers {peer:.1} %, origin {origin:.1} %");
}

#[test]
fn memories_are_one_if_all_is_asked_for_alike() {
    // (nodes, share of the data that does not fit into the memories)
    for (nodes, cannot) in [(1, 0.8), (2, 0.6), (4, 0.2), (6, 0.0), (8, 0.0)] {
        let mut cluster = fifths(nodes);
        let counts = cluster.run(uniform(1));
        print(&format!("uniform, {nodes} nodes"), counts);
        assert!(counts.share(counts.origin) <= cannot + 0.06, "{nodes} nodes: {counts:?}");
        cluster.check_directory();
    }
}

#[test]
fn what_is_hot_is_copied_and_nothing_is_lost_for_it() {
    let mut alone = fifths(1);
    let alone = alone.run(zipf(2));
    for nodes in [2, 4, 8] {
        let mut cluster = fifths(nodes);
        let counts = cluster.run(zipf(2));
        print(&format!("Zipf, {nodes} nodes"), counts);
        assert!(counts.origin < alone.origin, "{nodes} nodes: {counts:?}, alone {alone:?}");
        // Each node holds more than its share of the popular objects.
        assert!(counts.share(counts.local) > 0.4, "{nodes} nodes: {counts:?}");
        cluster.check_directory();
    }
    let mut large = fifths(8);
    let counts = large.run(zipf(3));
    assert!(counts.share(counts.origin) < 0.01, "{counts:?}");
}

#[test]
fn sole_replicas_move_to_where_room_is() {
    // One node receives all requests; the other only has room.
    let mut cluster = Cluster::new(&[data_bytes() / 4, data_bytes()]);
    let mut draw = uniform(4);
    for number in 0..OBJECTS * WARM_UP {
        cluster.request(0, draw());
        if number.is_multiple_of(TICK_REQUESTS) {
            cluster.tick();
        }
        if number == OBJECTS * WARM_UP / 2 {
            cluster.counts = Counts::default();
        }
    }
    print("one node asked, another with room", cluster.counts);
    assert!(cluster.counts.share(cluster.counts.origin) < 0.1, "{:?}", cluster.counts);
    cluster.check_directory();
}
