//! Requests to a coordinator and its answers.

use std::net::SocketAddr;

use skep_units::Now;
use skep_wire::cache::link::MemberId;
use skep_wire::cache::{CoordinatorAnswer, Held, LeaseId, ReplicaStatus, ToCoordinator, ToNode};
use skep_wire::limits::MEMBERS_MAX;
use skep_wire::message::Name;

use super::{held, name, whole_inventory};
use crate::limits::SETTLE_MS;
use crate::{Coordinator, CoordinatorSettings, Hello, NodeLinkId};

const TTL_MS: u64 = 1_000;

fn active() -> Coordinator {
    active_of(0)
}

/// One that has just started, in a cluster of so many nodes.
fn active_of(nodes: usize) -> Coordinator {
    let settings = CoordinatorSettings {
        holdings_max: 1_000,
        leases_max: 3,
        lease_ttl_ms: TTL_MS as u32,
        nodes,
        ..CoordinatorSettings::default()
    };
    let mut coordinator = Coordinator::new(settings, 7);
    coordinator.set_stage(Some(1));
    coordinator
}

fn hello(name: &str) -> Hello {
    let address = SocketAddr::from(([127, 0, 0, 1], 80));
    Hello { name: Name::new(name).unwrap(), address, capacity_bytes: 1_000 }
}

/// A node that holds these, each of 100 bytes, and has told so.
fn join(coordinator: &mut Coordinator, name: &str, holds: &[u64]) -> NodeLinkId {
    let link = coordinator.joined(hello(name)).unwrap().link;
    let holds: Vec<Held> = holds.iter().map(|&seed| held(seed, 100)).collect();
    whole_inventory(&holds).into_iter().for_each(|part| coordinator.heard(Now(0), link, part));
    coordinator.outbox().for_each(drop);
    link
}

fn ask(coordinator: &mut Coordinator, at: u64, link: NodeLinkId, seed: u64) -> CoordinatorAnswer {
    let question = ToCoordinator::Ask { ask: seed, name: name(seed), bytes: 100 };
    coordinator.heard(Now(at), link, question);
    match &coordinator.outbox().collect::<Vec<_>>()[..] {
        [.., (to, ToNode::Answer { ask, answer })] if *to == link && *ask == seed => answer.clone(),
        other => panic!("{other:?}"),
    }
}

fn grant(answer: CoordinatorAnswer) -> LeaseId {
    match answer {
        CoordinatorAnswer::Grant { lease } => lease,
        other => panic!("{other:?}"),
    }
}

fn have(answer: CoordinatorAnswer) -> Vec<MemberId> {
    match answer {
        CoordinatorAnswer::Have { holders } => holders,
        other => panic!("{other:?}"),
    }
}

fn busy(leader: NodeLinkId) -> CoordinatorAnswer {
    CoordinatorAnswer::Busy { leader: leader.member() }
}

#[test]
fn one_fills_and_then_holds_while_others_wait() {
    let mut it = active();
    let (a, b) = (join(&mut it, "a", &[]), join(&mut it, "b", &[]));
    let lease = grant(ask(&mut it, 0, a, 1));
    assert_eq!(lease.0 >> 40, 1, "the epoch is in it");
    assert_eq!(ask(&mut it, 1, b, 1), busy(a));
    it.heard(Now(2), a, ToCoordinator::Renew { lease });
    assert_eq!(ask(&mut it, 3, b, 1), busy(a));
    // Only its leader has a say in it.
    it.heard(Now(4), b, ToCoordinator::Ended { lease, is_held: true });
    assert_eq!(ask(&mut it, 4, b, 1), busy(a));
    it.heard(Now(5), a, ToCoordinator::Ended { lease, is_held: true });
    assert_eq!(have(ask(&mut it, 6, b, 1)), [a.member()]);
    let counters = it.counters();
    assert_eq!((counters.grant, counters.busy, counters.have), (1, 3, 1));
    assert_eq!((counters.leases, counters.entries, counters.holdings), (0, 1, 1));
}

#[test]
fn a_lease_that_is_not_renewed_goes_to_the_next_who_asks() {
    let mut it = active();
    let (a, b) = (join(&mut it, "a", &[]), join(&mut it, "b", &[]));
    let first = grant(ask(&mut it, 0, a, 1));
    it.heard(Now(TTL_MS - 1), a, ToCoordinator::Renew { lease: first });
    assert_eq!(ask(&mut it, 2 * TTL_MS - 2, b, 1), busy(a));
    let second = grant(ask(&mut it, 2 * TTL_MS - 1, b, 1));
    assert_ne!(first, second);
    // What the former leader says comes too late.
    let late = 2 * TTL_MS;
    it.heard(Now(late), a, ToCoordinator::Renew { lease: first });
    it.heard(Now(late), a, ToCoordinator::Ended { lease: first, is_held: true });
    assert_eq!(ask(&mut it, late, a, 1), busy(b));
    assert_eq!((it.counters().expired, it.counters().holdings), (1, 0));
    // Expired is expired, though nobody else has asked yet.
    let second_late = late + TTL_MS;
    it.heard(Now(second_late), b, ToCoordinator::Renew { lease: second });
    it.heard(Now(second_late), b, ToCoordinator::Ended { lease: second, is_held: true });
    assert_eq!((it.leader(Now(second_late), &name(1)), it.counters().holdings), (None, 0));
    it.tick(Now(9 * TTL_MS));
    assert_eq!((it.counters().expired, it.counters().leases), (2, 0));
}

#[test]
fn leases_end_when_their_leader_leaves_fails_or_asks_again() {
    let mut it = active();
    let (a, b) = (join(&mut it, "a", &[]), join(&mut it, "b", &[]));
    let first = grant(ask(&mut it, 0, a, 1));
    let again = grant(ask(&mut it, 0, a, 1));
    it.heard(Now(0), a, ToCoordinator::Ended { lease: first, is_held: false });
    assert_eq!(ask(&mut it, 0, b, 1), busy(a), "{first:?} is over, {again:?} is not");
    it.heard(Now(0), b, ToCoordinator::NotThere { name: name(1), holder: a.member() });
    assert_eq!(it.counters().broken, 1);
    grant(ask(&mut it, 0, b, 1));
    it.left(Now(0), b);
    it.outbox().for_each(drop);
    grant(ask(&mut it, 0, a, 1));
    // No more than the bound.
    grant(ask(&mut it, 0, a, 2));
    grant(ask(&mut it, 0, a, 3));
    assert_eq!(ask(&mut it, 0, a, 4), CoordinatorAnswer::Refused);
}

#[test]
fn holders_are_named_only_if_they_are_there_whole_and_others() {
    let mut it = active();
    let (a, b) = (join(&mut it, "a", &[1]), join(&mut it, "b", &[]));
    assert_eq!(have(ask(&mut it, 0, b, 1)), [a.member()]);
    // Who asks does not have it any more.
    let lease = grant(ask(&mut it, 0, a, 1));
    it.heard(Now(0), a, ToCoordinator::Ended { lease, is_held: true });
    // A new inventory: nothing counts until it is whole.
    let half = ToCoordinator::Inventory { is_first: true, is_last: false, held: vec![held(2, 1)] };
    it.heard(Now(0), a, half);
    grant(ask(&mut it, 0, b, 1));
    grant(ask(&mut it, 0, b, 2));
    let rest = ToCoordinator::Inventory { is_first: false, is_last: true, held: vec![held(3, 1)] };
    it.heard(Now(0), a, rest);
    assert_eq!(have(ask(&mut it, 0, b, 2)), [a.member()]);
    assert_eq!(have(ask(&mut it, 0, b, 3)), [a.member()]);
    // What it said wrongly.
    it.heard(Now(0), b, ToCoordinator::NotThere { name: name(2), holder: a.member() });
    assert_eq!(it.counters().directory_errors, 1);
    let delta = ToCoordinator::Delta { added: vec![held(4, 1)], removed: vec![name(3)] };
    it.heard(Now(0), a, delta);
    assert_eq!(have(ask(&mut it, 0, b, 4)), [a.member()]);
    grant(ask(&mut it, 0, b, 3));
    it.left(Now(0), a);
    it.outbox().for_each(drop);
    assert_eq!(it.holders(&name(4)).count(), 0);
}

#[test]
fn a_node_that_comes_back_replaces_itself() {
    let mut it = active();
    let old = join(&mut it, "a", &[1]);
    let joined = it.joined(hello("a")).unwrap();
    assert_eq!(joined.replaces, Some(old));
    assert!(it.outbox().all(|(link, _)| link == joined.link), "nothing for a link that is gone");
    // The old link is nobody, though its number may be the same.
    it.heard(Now(0), old, ToCoordinator::Ask { ask: 1, name: name(1), bytes: 1 });
    it.left(Now(0), old);
    assert_eq!(it.outbox().count(), 0);
    assert_eq!(it.members().count(), 1);
    assert_eq!(it.holders(&name(1)).count(), 0, "until it has told");
    for number in 1..MEMBERS_MAX {
        assert!(it.joined(hello(&format!("n{number}"))).is_some());
    }
    assert!(it.joined(hello("one too many")).is_none());
}

#[test]
fn nodes_hear_who_is_linked_before_anyone_is_named_to_them() {
    fn members(outbox: Vec<(NodeLinkId, ToNode)>, link: NodeLinkId) -> Option<usize> {
        let first = outbox.into_iter().find(|(to, _)| *to == link)?.1;
        let ToNode::Welcome { members, .. } = first else { panic!("{first:?}") };
        Some(members.len())
    }
    let said = |it: &mut Coordinator| it.outbox().collect::<Vec<_>>();
    let mut it = active();
    let (a, b) = (join(&mut it, "a", &[]), join(&mut it, "b", &[]));
    it.tick(Now(0));
    said(&mut it);
    let c = it.joined(hello("c")).unwrap().link;
    let outbox = said(&mut it);
    assert_eq!((outbox.len(), members(outbox, c)), (1, Some(3)), "itself at once");
    it.heard(Now(0), a, ToCoordinator::Ask { ask: 1, name: name(1), bytes: 100 });
    assert_eq!(members(said(&mut it), a), Some(3), "before the answer");
    it.left(Now(0), c);
    assert_eq!(said(&mut it).len(), 0);
    it.tick(Now(100));
    let outbox = said(&mut it);
    assert_eq!((outbox.len(), members(outbox, b)), (2, Some(2)), "all with the next tick");
    it.tick(Now(200));
    assert_eq!(said(&mut it).len(), 0, "once");
}

#[test]
fn the_less_loaded_of_two_is_named_first() {
    let mut it = active();
    let names: Vec<Name> = (0..4).map(|n| Name::new(&format!("n{n}")).unwrap()).collect();
    for name in &names {
        join(&mut it, name.as_str(), &[1]);
    }
    let asker = join(&mut it, "asker", &[]);
    for (place, name) in names.iter().enumerate() {
        it.loaded(Now(0), name, 1_000_000 * place as u64);
    }
    it.loaded(Now(0), &Name::new("nobody").unwrap(), 7);
    let mut first = [0; 4];
    for _ in 0..1_000 {
        let holders = have(ask(&mut it, 0, asker, 1));
        assert!(holders.len() == 2 && holders[0] < holders[1], "{holders:?}");
        first[usize::from(holders[0])] += 1;
    }
    // Of six pairs three, two, one and none.
    for (count, expected) in first.into_iter().zip([500, 333, 167, 0]) {
        assert!(i32::abs(count - expected) < 60, "{first:?}");
    }
    // What was sent there counts until the next news.
    let mut it = active();
    join(&mut it, "a", &[1]);
    join(&mut it, "b", &[1]);
    let asker = join(&mut it, "asker", &[]);
    let firsts: Vec<_> = (0..10).map(|_| have(ask(&mut it, 0, asker, 1))[0]).collect();
    assert_eq!(firsts.iter().filter(|&&first| first == 0).count(), 5, "{firsts:?}");
}

#[test]
fn a_load_that_is_told_no_more_is_forgotten() {
    let mut it = active();
    join(&mut it, "a", &[1]);
    join(&mut it, "b", &[1]);
    let asker = join(&mut it, "asker", &[]);
    let names = ["a", "b"].map(|name| Name::new(name).unwrap());
    let first = |it: &mut Coordinator| have(ask(it, 0, asker, 1))[0];
    it.loaded(Now(0), &names[0], 1_000_000);
    it.loaded(Now(400), &names[1], 10);
    it.tick(Now(500));
    assert_eq!((0..10).map(|_| first(&mut it)).sum::<u16>(), 10, "all at b");
    // The first's is too old to count, what b was given is not.
    it.tick(Now(501));
    assert_eq!(first(&mut it), 0);
    // Without news of anybody what was given counts, less and less.
    (0..20).for_each(|_| it.tick(Now(2_000)));
    let firsts: Vec<_> = (0..10).map(|_| first(&mut it)).collect();
    assert_eq!(firsts.iter().filter(|&&first| first == 0).count(), 5, "{firsts:?}");
}

#[test]
fn a_standby_knows_all_and_answers_nothing() {
    let mut it = active();
    it.set_stage(None);
    let (a, b) = (join(&mut it, "a", &[1]), join(&mut it, "b", &[]));
    assert_eq!(ask(&mut it, 0, b, 1), CoordinatorAnswer::Refused);
    it.set_stage(Some(2));
    let welcomes: Vec<_> = it.outbox().collect();
    assert_eq!(welcomes.len(), 2);
    for (_, welcome) in welcomes {
        let ToNode::Welcome { is_active: true, epoch: 2, members } = welcome else {
            panic!("{welcome:?}");
        };
        assert_eq!(members.len(), 2);
    }
    assert_eq!(have(ask(&mut it, 0, b, 1)), [a.member()]);
    let second = grant(ask(&mut it, 0, b, 2));
    it.set_stage(Some(3));
    it.outbox().for_each(drop);
    // Leases are of their epoch.
    let third = grant(ask(&mut it, 0, a, 2));
    assert_ne!(second, third);
    it.heard(Now(0), b, ToCoordinator::Ended { lease: second, is_held: true });
    assert_eq!(ask(&mut it, 0, b, 2), busy(a));
    // The same term again, after a moment as standby: numbers go on.
    it.set_stage(None);
    it.set_stage(Some(3));
    it.outbox().for_each(drop);
    assert_ne!(grant(ask(&mut it, 0, a, 2)), third);
}

#[test]
fn tails_are_told_who_else_has_them_and_the_roomiest() {
    let mut it = active();
    let (a, b) = (join(&mut it, "a", &[1, 2]), join(&mut it, "b", &[1]));
    let tail = |it: &mut Coordinator, link| {
        it.heard(Now(0), link, ToCoordinator::Tail { names: vec![name(1), name(2), name(3)] });
        match it.outbox().next_back() {
            Some((_, ToNode::Tail { replica_statuses, roomiest, .. })) => {
                (replica_statuses, roomiest)
            }
            other => panic!("{other:?}"),
        }
    };
    use ReplicaStatus::{Primary, Redundant, Sole};
    let primary = Primary { successor: b.member() };
    assert_eq!(tail(&mut it, a), (vec![primary, Sole, Sole], Some(b.member())));
    assert_eq!(tail(&mut it, b), (vec![Redundant, Redundant, Sole], Some(a.member())));
    let c = join(&mut it, "c", &[]);
    assert_eq!(tail(&mut it, b).1, Some(c.member()));
    assert_eq!(tail(&mut it, c).1, Some(b.member()));
    // Nobody has room: who holds most that others have held for longer.
    let fill = |it: &mut Coordinator, link, first: u64| {
        let added = (first..first + 10).map(|seed| held(seed, 100)).collect();
        it.heard(Now(0), link, ToCoordinator::Delta { added, removed: vec![] });
    };
    fill(&mut it, a, 10);
    fill(&mut it, b, 20);
    fill(&mut it, c, 20);
    assert_eq!(tail(&mut it, a).1, Some(c.member()));
    assert_eq!(tail(&mut it, c).1, Some(b.member()));
    let views: Vec<_> = it.members().map(|it| (it.held_bytes, it.shared_bytes)).collect();
    assert_eq!(views, [(1_200, 100), (1_100, 1_100), (1_000, 1_000)]);
}

#[test]
fn without_a_free_segment_anywhere_what_can_be_evicted_counts_as_room() {
    let mut it = active();
    join(&mut it, "a", &[1, 2, 3, 4, 5, 6, 7, 8, 9]);
    let holds: Vec<u64> = (10..20).collect();
    join(&mut it, "b", &holds);
    let c = join(&mut it, "c", &holds);
    let d = join(&mut it, "d", &[]);
    it.heard(Now(0), d, ToCoordinator::Tail { names: vec![] });
    match it.outbox().next_back() {
        // "a" has 100 bytes free, and "c" nothing but replicas that "b" has, too.
        Some((_, ToNode::Tail { names, roomiest, .. })) => {
            assert_eq!((names, roomiest), (vec![], Some(c.member())));
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn who_has_just_started_waits_for_all_nodes_but_not_for_ever() {
    let epochs = |it: &mut Coordinator| -> Vec<u64> {
        let welcomes = it.outbox().filter_map(|(_, said)| match said {
            ToNode::Welcome { epoch, .. } => Some(epoch),
            _ => None,
        });
        welcomes.collect()
    };
    let mut it = active_of(2);
    let a = join(&mut it, "a", &[1]);
    assert_eq!(ask(&mut it, 10, a, 2), CoordinatorAnswer::Later);
    let b = it.joined(hello("b")).unwrap().link;
    assert_eq!(epochs(&mut it), [0], "whoever else answers knows better");
    assert_eq!(have(ask(&mut it, 20, b, 1)), [a.member()], "what is known is told");
    let [first, last] = [(true, 2), (false, 3)].map(|(is_first, seed)| {
        let held = vec![held(seed, 100)];
        ToCoordinator::Inventory { is_first, is_last: !is_first, held }
    });
    it.heard(Now(30), b, first);
    assert_eq!(ask(&mut it, 30, a, 2), CoordinatorAnswer::Later);
    it.heard(Now(40), b, last);
    assert_eq!(epochs(&mut it), [1, 1]);
    assert_eq!(have(ask(&mut it, 40, a, 2)), [b.member()]);
    grant(ask(&mut it, 40, a, 4));
    it.left(Now(0), b);
    it.outbox().for_each(drop);
    grant(ask(&mut it, 50, a, 5));
    assert_eq!(it.counters().later, 2);

    let mut it = active_of(2);
    it.tick(Now(100));
    let a = join(&mut it, "a", &[]);
    it.tick(Now(100 + SETTLE_MS - 1));
    assert_eq!(ask(&mut it, 100 + SETTLE_MS - 1, a, 1), CoordinatorAnswer::Later);
    it.tick(Now(100 + SETTLE_MS));
    assert_eq!(epochs(&mut it), [1]);
    grant(ask(&mut it, 100 + SETTLE_MS, a, 1));
}

#[test]
fn what_a_node_had_that_left_is_out_of_memory_in_three_seconds_of_ticks() {
    let mut it = active();
    let link = join(&mut it, "a", &(0..1_000).collect::<Vec<_>>());
    it.left(Now(0), link);
    let holdings_after = |it: &mut Coordinator, ticks: usize| {
        (0..ticks).for_each(|_| it.tick(Now(0)));
        it.counters().holdings
    };
    let one = holdings_after(&mut it, 1);
    assert!((900..1_000).contains(&one), "{one}: no tick takes long");
    assert_eq!(holdings_after(&mut it, 31), 0);
    assert_eq!(it.counters().entries, 0);
}
