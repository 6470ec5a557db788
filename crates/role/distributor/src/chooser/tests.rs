//! Selections by tables and digests in the form in which dispatchers send them.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeSet;

use skep_http::{FieldSlots, HeadLimits, parse_request};
use skep_wire::message::Name;
use skep_wire::steer::{DatapathService, Measure, Protocol};
use skep_wire::table::{Share, TableNode, TableService, TableVersion};

use super::*;

const NODES: u16 = 4;

fn vip() -> SocketAddr {
    "192.0.2.1:80".parse().unwrap()
}

fn connection(port: u16) -> SocketId {
    SocketId::new(([198, 51, 100, 7], port).into(), vip()).unwrap()
}

fn name(node: u16) -> String {
    format!("node-{node}")
}

/// A table of [`NODES`] nodes, of which `members` take new connections.
fn table(policy: &str, members: &[u16]) -> Table {
    let node = |index| TableNode {
        index,
        name: Name::new(&name(index)).unwrap(),
        address: ([10, 0, 0, index as u8 + 1], 8080).into(),
        weight: 1,
        state: match members.contains(&index) {
            true => ForwardingState::Up,
            false => ForwardingState::Draining,
        },
        is_drained: false,
        mac: [2, 0, 0, 0, 0, index as u8],
        mtu: 1500,
    };
    let service = DatapathService {
        id: 0,
        address: vip(),
        protocol: Protocol::Tcp,
        choices: 1,
        measure: Measure::First,
        by_address: false,
    };
    let policy = Name::new(policy).unwrap();
    Table {
        version: TableVersion { epoch: 1, generation: 1 },
        services: vec![TableService { service, policy, history: vec![0] }],
        nodes: (0..NODES).map(node).collect(),
        memberships: vec![members.iter().map(|&index| Share { index, weight: 1 }).collect()],
        ..Table::default()
    }
}

struct Scene {
    nodes: NodesView,
    now: Now,
}

impl Scene {
    fn new(policy: &str) -> Self {
        let nodes = NodesView {
            table: Arc::new(ArcSwap::from_pointee(table(policy, &[0, 1, 2, 3]))),
            digest: Arc::default(),
            served: Arc::default(),
            memory_bytes: 1 << 30,
            arms: Arc::default(),
            arm_counters: Arc::default(),
            active: Arc::default(),
            agents: Arc::default(),
        };
        Self { nodes, now: Now(1_000_000) }
    }

    fn chooser(&self, node: u16) -> Chooser {
        Chooser::new(name(node).into(), &self.nodes, vec![vip()], node.into())
    }

    /// Publishes a digest in which this node has `requests`, and the others none.
    fn busy(&self, node: NodeIndex, requests: u32) {
        let work = |index| NodeWork {
            node: index,
            connections: 0,
            requests: if index == node { requests } else { 0 },
            bytes: 0,
        };
        let digest = LoadDigest { interval_ms: 50, nodes: (0..NODES).map(work).collect() };
        self.nodes.digest.store(Arc::new((self.now, digest)));
    }
}

/// The node to which a connection moves; `None`: it stays.
fn choose(chooser: &mut Chooser, target: &str, now: Now) -> Option<NodeIndex> {
    let head = format!("GET {target} HTTP/1.1\r\nHost: Example.ORG\r\n\r\n");
    let mut slots = FieldSlots::new();
    let request = parse_request(&mut slots, head.as_bytes(), &HeadLimits::default()).unwrap();
    let node = chooser.choose(&request, connection(1), now)?;
    (!chooser.is_own(node)).then_some(node)
}

#[test]
fn all_machines_agree_on_the_node_of_a_url_which_keeps_it() {
    let scene = Scene::new("maglev-url");
    let mut choosers: Vec<Chooser> = (0..NODES).map(|node| scene.chooser(node)).collect();
    let mut owners = BTreeSet::new();
    for number in 0..100 {
        let target = format!("/f?{number}");
        let chosen: Vec<_> = choosers.iter_mut().map(|it| choose(it, &target, scene.now)).collect();
        let keepers: Vec<usize> = (0..chosen.len()).filter(|&at| chosen[at].is_none()).collect();
        let [keeper] = *keepers else { panic!("{target}: {chosen:?}") };
        assert!(chosen.iter().flatten().all(|node| usize::from(*node) == keeper), "{chosen:?}");
        owners.insert(keeper);
    }
    assert_eq!(owners.len(), usize::from(NODES), "each has some");
}

#[test]
fn other_spellings_of_a_url_have_the_same_node() {
    let scene = Scene::new("maglev-url");
    let mut chooser = scene.chooser(0);
    for number in 0..50 {
        let plain = choose(&mut chooser, &format!("/a/{number}"), scene.now);
        let odd = format!("/a/x/../%{:x}{}", b'0' + number / 10, number % 10);
        let odd = if number < 10 { format!("/./a/{number}") } else { odd };
        assert_eq!(choose(&mut chooser, &odd, scene.now), plain, "{odd}");
    }
}

#[test]
fn a_node_that_drains_is_chosen_by_nobody_and_gives_its_own_away() {
    let scene = Scene::new("maglev-url");
    let mut chooser = scene.chooser(2);
    assert!(!chooser.is_leaving(vip()) && !chooser.leaves_any());
    scene.nodes.table.store(Arc::new(table("maglev-url", &[0, 1, 3])));
    assert!(chooser.is_leaving(vip()) && chooser.leaves_any());
    for number in 0..50 {
        let chosen = choose(&mut chooser, &format!("/f?{number}"), scene.now);
        assert!(chosen.is_some_and(|node| node != 2), "{chosen:?}");
    }
}

#[test]
fn what_nodes_have_to_do_counts_as_long_as_it_is_news() {
    let scene = Scene::new("bounded-maglev-url");
    let mut chooser = scene.chooser(0);
    let targets: Vec<String> = (0..200).map(|number| format!("/f?{number}")).collect();
    let of_node_1 = |chooser: &mut Chooser, now| {
        let is_its = |target: &&String| choose(chooser, target, now) == Some(1);
        targets.iter().filter(is_its).count()
    };
    let idle = of_node_1(&mut chooser, scene.now);
    assert!(idle > 20, "{idle}");
    scene.busy(1, 1_000);
    assert_eq!(of_node_1(&mut chooser, scene.now), 0, "it has more than its share");
    let later = scene.now.plus_ms(60_000);
    assert!(of_node_1(&mut chooser, later) > 20, "nobody says so any more");
}

#[test]
fn requests_that_were_sent_on_count_until_the_next_digest() {
    let scene = Scene::new("least-outstanding");
    scene.busy(0, 0);
    let mut chooser = scene.chooser(0);
    let mut counts = [0; NODES as usize];
    for _ in 0..100 {
        let node = choose(&mut chooser, "/", scene.now).unwrap_or(0);
        counts[usize::from(node)] += 1;
    }
    assert_eq!(counts, [25; NODES as usize]);
}

#[test]
fn a_service_that_does_not_hand_off_has_no_destinations() {
    let scene = Scene::new("maglev-url");
    let mut chooser = Chooser::new(name(0).into(), &scene.nodes, Vec::new(), 1);
    assert!(!chooser.hands_off(vip()));
    assert!((0..20).all(|number| choose(&mut chooser, &format!("/{number}"), scene.now).is_none()));
}

#[test]
fn a_client_has_the_same_arm_at_all_nodes_and_strays_only_when_its_group_is_gone() {
    let scene = Scene::new("round-robin");
    let arm = |nodes: &[u16]| ToldArm {
        policy: Name::new("least-outstanding").unwrap(),
        weight: 1,
        nodes: nodes.iter().map(|node| PeerId::of(&name(*node))).collect(),
    };
    let arms = vec![arm(&[0, 1]), arm(&[2, 3])];
    let told = ServiceArms { addresses: vec![vip()], test: 5, arms };
    scene.nodes.arms.store(Arc::new(ArmsInForce { services: vec![told] }));
    let mut choosers = [0, 3].map(|node| scene.chooser(node));
    let mut pick = |client: u8, at: usize| {
        let id = SocketId::new(([198, 51, 100, client], 9).into(), vip()).unwrap();
        choosers[at].pick(b"", (b"/", None), id, scene.now).unwrap()
    };
    let mut sizes = [0; 2];
    for client in 0..100 {
        let arm = pick(client, 0) / 2;
        sizes[usize::from(arm)] += 1;
        assert!((0..4).all(|n| pick(client, n % 2) / 2 == arm), "{client}");
    }
    assert!(sizes.iter().all(|clients| *clients > 30), "{sizes:?}");
    // The second group is removed, then the test.
    scene.nodes.table.store(Arc::new(table("round-robin", &[0, 1])));
    assert!((0..100).all(|client| pick(client, 0) < 2));
    scene.nodes.table.store(Arc::new(table("round-robin", &[0, 1, 2, 3])));
    scene.nodes.arms.store(Arc::default());
    let nodes: BTreeSet<_> = (0..20).map(|_| pick(1, 0)).collect();
    assert_eq!(nodes.len(), 4);
}
