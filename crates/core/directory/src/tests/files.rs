//! A coordinator's answers about files: never "nobody" while a node may have the file.

use std::net::SocketAddr;

use skep_units::Now;
use skep_wire::cache::{FileAnswer, Held, ToCoordinator, ToNode};
use skep_wire::limits::POSSIBLE_HOLDERS_MAX;
use skep_wire::message::Name;

use super::{held, name, whole_inventory};
use crate::{Coordinator, CoordinatorSettings, Hello, NodeLinkId};

const LOST_MS: u64 = 1_000;
const HOLDINGS_MAX: usize = 20;
const FILES_MAX: usize = 40;

/// A coordinator that has just started, in a cluster of this many nodes.
fn active_of(nodes: usize) -> Coordinator {
    let settings = CoordinatorSettings {
        holdings_max: HOLDINGS_MAX,
        files_max: FILES_MAX,
        lost_node_ms: LOST_MS,
        nodes,
        ..CoordinatorSettings::default()
    };
    let mut coordinator = Coordinator::new(settings, 7);
    coordinator.set_stage(Some(1));
    coordinator
}

/// Links a node that has announced nothing.
fn link(coordinator: &mut Coordinator, name: &str) -> NodeLinkId {
    let address = SocketAddr::from(([127, 0, 0, 1], 80));
    let hello = Hello { name: Name::new(name).unwrap(), address, capacity_bytes: 1_000 };
    let link = coordinator.joined(hello).unwrap().link;
    coordinator.outbox().for_each(drop);
    link
}

fn announce(it: &mut Coordinator, link: NodeLinkId, files: &[u64], is_complete: bool) {
    let added = files.iter().map(|&seed| name(seed)).collect();
    let removed = Vec::new();
    it.heard(Now(0), link, ToCoordinator::Announce { added, removed, is_complete });
}

/// Links a node that has exactly these files.
fn join(it: &mut Coordinator, name: &str, files: &[u64]) -> NodeLinkId {
    let link = link(it, name);
    announce(it, link, files, true);
    link
}

fn left(it: &mut Coordinator, at: u64, link: NodeLinkId) {
    it.left(Now(at), link);
    it.outbox().for_each(drop);
}

fn find(it: &mut Coordinator, at: u64, link: NodeLinkId, file: u64) -> FileAnswer {
    it.heard(Now(at), link, ToCoordinator::FindFile { ask: file, name: name(file) });
    match &it.outbox().collect::<Vec<_>>()[..] {
        // The list of members may be sent first.
        [.., (to, ToNode::FileAnswer { ask, answer })] if *to == link && *ask == file => {
            answer.clone()
        }
        other => panic!("{other:?}"),
    }
}

fn have(node: NodeLinkId) -> FileAnswer {
    FileAnswer::Have { holders: vec![node.member()] }
}

/// The names of the nodes that may have the file, and whether others may, too.
fn unsure(answer: FileAnswer) -> (Vec<String>, bool) {
    let FileAnswer::Unsure { nodes, are_all } = answer else { panic!("{answer:?}") };
    (nodes.iter().map(|node| node.name.to_string()).collect(), !are_all)
}

fn only(node: &str) -> (Vec<String>, bool) {
    (vec![node.to_owned()], false)
}

#[test]
fn files_are_known_before_the_inventory_and_beside_whatever_is_in_memory() {
    let mut it = active_of(0);
    let (a, b) = (link(&mut it, "a"), join(&mut it, "b", &[]));
    announce(&mut it, a, &[1, 2], false);
    assert_eq!(find(&mut it, 0, b, 1), have(a));
    assert_eq!(unsure(find(&mut it, 0, b, 3)), only("a"), "it may have more");
    announce(&mut it, a, &[], true);
    assert_eq!(find(&mut it, 0, b, 3), FileAnswer::Nobody);
    // More segments than the directory may hold.
    let many: Vec<Held> = (100..200).map(|seed| held(seed, 100)).collect();
    whole_inventory(&many).into_iter().for_each(|part| it.heard(Now(0), b, part));
    assert_eq!(it.counters().holdings, HOLDINGS_MAX as u64);
    assert_eq!(it.counters().forgotten, 80);
    assert_eq!([1, 2].map(|file| find(&mut it, 0, b, file)), [have(a), have(a)]);
    assert_eq!((it.counters().files, it.counters().files_refused), (2, 0));
}

#[test]
fn a_node_that_finds_no_room_is_asked_itself() {
    let mut it = active_of(0);
    let (a, b) = (link(&mut it, "a"), join(&mut it, "b", &[]));
    let files: Vec<u64> = (0..FILES_MAX as u64 + 10).collect();
    announce(&mut it, a, &files, true);
    assert_eq!(it.counters().files_refused, 10);
    let last = *files.last().unwrap();
    assert_eq!(find(&mut it, 0, b, 0), have(a), "nothing was forgotten for it");
    assert_eq!(unsure(find(&mut it, 0, b, last)), only("a"));
    // A node itself knows which files it has.
    assert_eq!(find(&mut it, 0, a, 1_000), FileAnswer::Nobody);
    // On its next link it has fewer.
    left(&mut it, 0, a);
    it.tick(Now(LOST_MS));
    (0..100).for_each(|_| it.tick(Now(LOST_MS)));
    join(&mut it, "a", &[1]);
    assert_eq!(find(&mut it, LOST_MS, b, last), FileAnswer::Nobody);
}

#[test]
fn of_a_node_that_is_lost_its_files_are_remembered_for_a_time() {
    let mut it = active_of(2);
    let (a, b) = (join(&mut it, "a", &[1, 2]), join(&mut it, "b", &[2]));
    let c = join(&mut it, "c", &[]);
    left(&mut it, 500, a);
    assert_eq!(unsure(find(&mut it, 500, c, 1)), only("a"));
    assert_eq!(find(&mut it, 500, c, 2), have(b), "another node has it");
    assert_eq!(find(&mut it, 500, c, 3), FileAnswer::Nobody, "it never had it");
    assert_eq!(it.counters().nodes_unsure, 1);
    it.tick(Now(500 + LOST_MS - 1));
    assert_eq!(unsure(find(&mut it, 500 + LOST_MS - 1, c, 1)), only("a"));
    it.tick(Now(500 + LOST_MS));
    assert_eq!(find(&mut it, 500 + LOST_MS, c, 1), FileAnswer::Nobody);
    (0..100).for_each(|_| it.tick(Now(500 + LOST_MS)));
    assert_eq!((it.counters().files, it.counters().nodes_unsure), (1, 0));
}

#[test]
fn of_a_node_that_is_lost_before_it_has_announced_all_anything_may_be() {
    let mut it = active_of(0);
    let (a, b) = (link(&mut it, "a"), join(&mut it, "b", &[]));
    announce(&mut it, a, &[1], false);
    left(&mut it, 0, a);
    assert_eq!(unsure(find(&mut it, 0, b, 1)), only("a"));
    assert_eq!(unsure(find(&mut it, 0, b, 2)), only("a"));
    it.tick(Now(LOST_MS));
    assert_eq!(find(&mut it, LOST_MS, b, 1), FileAnswer::Nobody);
}

#[test]
fn after_a_blip_files_are_known_while_they_are_announced_anew() {
    let mut it = active_of(0);
    let (a, b) = (join(&mut it, "a", &[1, 2, 3]), join(&mut it, "b", &[]));
    left(&mut it, 0, a);
    let a = link(&mut it, "a");
    assert_eq!(find(&mut it, 0, b, 1), have(a));
    // Once more, during the announcement.
    announce(&mut it, a, &[2], false);
    left(&mut it, 0, a);
    let a = link(&mut it, "a");
    assert_eq!(find(&mut it, 0, b, 3), have(a));
    // Without notice of the loss: the new link replaces the old one.
    announce(&mut it, a, &[1, 4], false);
    let a = link(&mut it, "a");
    assert_eq!(find(&mut it, 0, b, 1), have(a));
    let removed = vec![name(1)];
    let is_complete = false;
    it.heard(Now(0), a, ToCoordinator::Announce { added: vec![], removed, is_complete });
    assert_eq!(unsure(find(&mut it, 0, b, 1)), only("a"), "it is gone");
    it.heard(Now(0), b, ToCoordinator::NotThere { name: name(2), holder: a.member() });
    assert_eq!(unsure(find(&mut it, 0, b, 2)), only("a"), "it was not there");
    announce(&mut it, a, &[5], true);
    assert_eq!(find(&mut it, 0, b, 5), have(a));
    assert_eq!(find(&mut it, 0, b, 3), FileAnswer::Nobody);
    (0..100).for_each(|_| it.tick(Now(0)));
    assert_eq!((it.counters().files, it.counters().directory_errors), (1, 1));
}

#[test]
fn one_that_has_just_started_does_not_know_who_is_away() {
    let mut it = active_of(2);
    it.tick(Now(100));
    let a = join(&mut it, "a", &[]);
    assert_eq!(unsure(find(&mut it, 100, a, 1)), (vec![], true));
    assert_eq!(unsure(find(&mut it, 100 + LOST_MS - 1, a, 1)), (vec![], true));
    assert_eq!(find(&mut it, 100 + LOST_MS, a, 1), FileAnswer::Nobody);
    let mut it = active_of(2);
    let a = join(&mut it, "a", &[]);
    join(&mut it, "b", &[]);
    assert_eq!(find(&mut it, 0, a, 1), FileAnswer::Nobody);
}

#[test]
fn who_asks_has_it_not_and_a_standby_does_not_answer() {
    let mut it = active_of(0);
    let a = join(&mut it, "a", &[1]);
    assert_eq!(find(&mut it, 0, a, 1), FileAnswer::Nobody);
    assert_eq!(it.counters().files, 0);
    it.set_stage(None);
    it.outbox().for_each(drop);
    assert_eq!(find(&mut it, 0, a, 1), FileAnswer::Refused);
}

#[test]
fn no_more_nodes_are_named_than_a_message_holds() {
    let mut it = active_of(0);
    let a = join(&mut it, "a", &[]);
    for number in 0..POSSIBLE_HOLDERS_MAX {
        link(&mut it, &format!("n{number}"));
    }
    let (named, are_others) = unsure(find(&mut it, 0, a, 1));
    assert_eq!((named.len(), are_others), (POSSIBLE_HOLDERS_MAX, false));
    link(&mut it, "one more");
    let (named, are_others) = unsure(find(&mut it, 0, a, 1));
    assert_eq!((named.len(), are_others), (POSSIBLE_HOLDERS_MAX, true));
}
