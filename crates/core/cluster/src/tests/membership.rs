//! The table of nodes: each rule by name, then random operations.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use proptest::prelude::*;
use skep_units::{NodeId, Now};

use super::SETTINGS;
use crate::{
    Change, Failure, HealthState, Membership, MembershipError, MembershipEvent, MembershipSettings,
    NAME_BYTES_MAX, NODES_MAX, WEIGHT_MAX,
};

fn address(port: u16) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], port))
}

fn empty() -> Membership {
    Membership::new(MembershipSettings { health: SETTINGS, ..MembershipSettings::default() })
}

/// A table with nodes n0, n1, ..., all up.
fn table(count: u16) -> Membership {
    let mut table = empty();
    for n in 0..count {
        let id = table.add(Now(0), &format!("n{n}"), address(1_000 + n), 1).unwrap().node;
        table.on_check(Now(0), id, Ok(()));
    }
    table
}

fn eligible(table: &Membership) -> Vec<u32> {
    table.view(Now(0)).filter(|node| node.eligible).map(|node| node.id.0).collect()
}

fn idle(_: NodeId) -> u64 {
    0
}

/// All nodes that are up receive requests.
fn all(_: NodeId) -> bool {
    true
}

/// Ids of the nodes that are ejected if each has enough failed requests.
fn fail_all(table: &mut Membership, failure: Failure) -> Vec<u32> {
    let ids: Vec<NodeId> = table.members().iter().map(|member| member.id()).collect();
    for _ in 0..2 * SETTINGS.passive_failures_max {
        for &id in &ids {
            table.on_request(Now(1), id, Err(failure), all);
        }
    }
    let left = eligible(table);
    ids.into_iter().map(|id| id.0).filter(|id| !left.contains(id)).collect()
}

#[test]
fn an_added_node_joins_and_gets_requests_after_its_check() {
    let mut table = empty();
    let event = table.add(Now(1), "web-1", address(80), 3).unwrap();
    assert_eq!(event.to_string(), "node web-1: added at 127.0.0.1:80, weight 3");
    assert_eq!(table.find("web-1").unwrap().health().state(), HealthState::Joining);
    assert!(eligible(&table).is_empty());
    let event = table.on_check(Now(2), event.node, Ok(())).unwrap();
    assert_eq!(event.to_string(), "node web-1: joining -> up");
    assert_eq!(eligible(&table), [0]);
}

#[test]
fn names_and_addresses_are_unique() {
    let mut table = table(2);
    let twin = table.add(Now(0), "n1", address(9), 1).unwrap_err();
    assert_eq!(twin, MembershipError::DuplicateName("n1".into()));
    let twin = table.add(Now(0), "n9", address(1_001), 1).unwrap_err();
    assert_eq!(twin.to_string(), "127.0.0.1:1001 is the address of node \"n1\" already");
    assert_eq!((table.members().len(), table.version()), (2, 2), "nothing changed");
}

#[test]
fn a_bad_name_or_weight_is_refused() {
    let mut table = table(1);
    let long = "x".repeat(NAME_BYTES_MAX + 1);
    for name in ["", "a b", "a\r\nb", "n\u{e4}", long.as_str()] {
        let refused = table.add(Now(0), name, address(9), 1).unwrap_err();
        assert_eq!(refused, MembershipError::BadName(name.into()));
    }
    for weight in [0, WEIGHT_MAX + 1] {
        let refused = MembershipError::BadWeight(weight);
        assert_eq!(table.add(Now(0), "n9", address(9), weight).unwrap_err(), refused);
        assert_eq!(table.set_weight(Now(0), NodeId(0), weight).unwrap_err(), refused);
    }
}

#[test]
fn the_table_has_a_bound() {
    let mut table = table(NODES_MAX as u16);
    let refused = table.add(Now(0), "one-more", address(1), 1).unwrap_err();
    assert_eq!(refused, MembershipError::TooManyNodes);
}

#[test]
fn only_the_set_and_the_weights_change_the_version() {
    let mut table = table(3);
    let version = table.version();
    table.on_request(Now(1), NodeId(0), Err(Failure::Refused), all).unwrap();
    table.drain(Now(1), NodeId(1)).unwrap();
    table.tick(Now(1), idle);
    table.resume(Now(1), NodeId(1)).unwrap();
    table.set_weight(Now(1), NodeId(1), 1).unwrap();
    table.remove(Now(1), NodeId(2), Now(9)).unwrap();
    assert_eq!(table.version(), version);
    table.tick(Now(1), idle);
    assert_eq!(table.version(), version + 1, "a node left");
    table.set_weight(Now(1), NodeId(1), 5).unwrap().unwrap();
    assert_eq!(table.version(), version + 2);
}

#[test]
fn a_drained_node_waits_for_its_requests() {
    let mut table = table(2);
    table.drain(Now(1), NodeId(0)).unwrap().unwrap();
    assert_eq!(table.drain(Now(1), NodeId(0)), Ok(None));
    assert_eq!(eligible(&table), [1]);
    assert!(table.tick(Now(2), |_| 3).is_empty());
    let events = table.tick(Now(3), idle);
    assert_eq!(events.len(), 1);
    assert_eq!(events[0].to_string(), "node n0: draining -> drained");
    assert!(table.resume(Now(4), NodeId(0)).unwrap().is_some());
    assert_eq!(eligible(&table), [0, 1]);
}

#[test]
fn a_removed_node_leaves_when_its_requests_are_done() {
    let mut table = table(2);
    let event = table.remove(Now(1), NodeId(0), Now(1_000)).unwrap();
    assert_eq!(event.change, Change::Removing { deadline: Now(1_000) });
    assert_eq!(eligible(&table), [1]);
    assert!(table.tick(Now(999), |_| 1).is_empty());
    let events = table.tick(Now(999), idle);
    assert_eq!(events[0].change, Change::Removed { abandoned_requests: 0 });
    assert!(table.get(NodeId(0)).is_none());
}

#[test]
fn due_removals_end_without_those_of_idle_nodes() {
    let mut table = table(2);
    table.remove(Now(1), NodeId(0), Now(1)).unwrap();
    table.remove(Now(1), NodeId(1), Now(1_000)).unwrap();
    let events = table.end_due_removals(Now(1), idle);
    assert_eq!((events.len(), events[0].node), (1, NodeId(0)));
    assert_eq!(events[0].change, Change::Removed { abandoned_requests: 0 });
    assert_eq!(table.tick(Now(2), idle)[0].node, NodeId(1));
}

#[test]
fn a_removed_node_leaves_at_the_deadline_whatever_it_does() {
    let mut table = table(2);
    table.remove(Now(1), NodeId(0), Now(1_000)).unwrap();
    table.remove(Now(1), NodeId(0), Now(5_000)).unwrap();
    let events = table.tick(Now(1_000), |_| 7);
    assert_eq!(events[0].to_string(), "node n0: removed with 7 requests in flight");
}

#[test]
fn a_removal_cannot_be_taken_back() {
    let mut table = table(1);
    table.remove(Now(1), NodeId(0), Now(9)).unwrap();
    let refused = table.resume(Now(2), NodeId(0)).unwrap_err();
    assert_eq!(refused, MembershipError::BeingRemoved("n0".into()));
}

#[test]
fn a_name_is_free_again_after_removal_and_gets_a_new_id() {
    let mut table = table(2);
    table.remove(Now(1), NodeId(1), Now(9)).unwrap();
    let early = table.add(Now(1), "n1", address(1_001), 1).unwrap_err();
    assert_eq!(early, MembershipError::BeingRemoved("n1".into()));
    table.tick(Now(1), idle);
    assert_eq!(table.add(Now(2), "n1", address(1_001), 1).unwrap().node, NodeId(2));
}

#[test]
fn news_of_a_node_that_is_gone_is_ignored_and_orders_are_refused() {
    let (mut table, gone) = (table(1), NodeId(9));
    assert!(table.on_check(Now(1), gone, Ok(())).is_none());
    assert!(table.on_request(Now(1), gone, Err(Failure::Refused), all).is_none());
    let refused = MembershipError::UnknownNode(gone);
    assert_eq!(table.drain(Now(1), gone).unwrap_err(), refused);
    assert_eq!(table.resume(Now(1), gone).unwrap_err(), refused);
    assert_eq!(table.remove(Now(1), gone, Now(1)).unwrap_err(), refused);
    assert_eq!(table.set_weight(Now(1), gone, 1).unwrap_err(), refused);
}

#[test]
fn a_cluster_without_a_live_node_fails_closed_unless_told_otherwise() {
    let mut table = table(3);
    table.drain(Now(1), NodeId(2)).unwrap();
    for (id, _) in [0, 1].into_iter().flat_map(|id| [(id, 1), (id, 2), (id, 3)]) {
        table.on_check(Now(1), NodeId(id), Err(Failure::Refused));
    }
    assert!(eligible(&table).is_empty() && !table.is_panicking());
    table.set_settings(MembershipSettings {
        health: SETTINGS,
        fail_open: true,
        ..MembershipSettings::default()
    });
    assert!(table.is_panicking());
    assert_eq!(eligible(&table), [0, 1], "never a drained one");
    table.on_check(Now(2), NodeId(1), Ok(()));
    table.on_check(Now(2), NodeId(1), Ok(()));
    assert_eq!(eligible(&table), [1], "the panic ends with the first node that is up");
}

#[test]
fn requests_that_fail_eject_a_share_of_the_nodes_and_never_the_last() {
    let with = |percent, nodes| {
        let mut table = table(nodes);
        table.set_settings(MembershipSettings {
            ejected_percent_max: percent,
            ..MembershipSettings { health: SETTINGS, ..MembershipSettings::default() }
        });
        table
    };
    for (percent, nodes, ejected) in
        [(10, 1, 0), (10, 2, 1), (10, 3, 1), (10, 20, 2), (50, 7, 3), (100, 5, 4), (0, 5, 0)]
    {
        let ids = fail_all(&mut with(percent, nodes), Failure::Reset);
        assert_eq!(ids.len(), ejected, "{percent} % of {nodes}");
    }
    for (percent, nodes, ejected) in [(10, 1, 0), (10, 5, 4), (0, 2, 1)] {
        let ids = fail_all(&mut with(percent, nodes), Failure::Refused);
        assert_eq!(ids.len(), ejected, "{nodes} that refuse connections");
    }
}

#[test]
fn who_gets_no_requests_is_nobody_to_fall_back_on() {
    let mut table = table(2);
    for _ in 0..9 {
        let event =
            table.on_request(Now(1), NodeId(0), Err(Failure::Refused), |it| it == NodeId(0));
        assert!(event.is_none_or(|event| matches!(event.change, Change::Spared(_))));
    }
    assert_eq!(eligible(&table), [0, 1]);
}

#[test]
fn that_a_node_is_spared_is_told_once() {
    let mut table = table(1);
    let told: Vec<MembershipEvent> = (0..20)
        .filter_map(|ms| table.on_request(Now(ms), NodeId(0), Err(Failure::Reset), all))
        .collect();
    assert_eq!(told.len(), 1);
    assert_eq!(
        told[0].to_string(),
        "node n0: requests failed: connection broken; not taken out, since too few others are up"
    );
}

#[test]
fn the_view_tells_share_weight_and_name_hash() {
    let mut table = table(1);
    table.set_weight(Now(0), NodeId(0), 7).unwrap();
    let node = table.view(Now(5_000)).next().unwrap();
    assert_eq!((node.weight, node.slow_start_permille, node.state), (7, 500, HealthState::Up));
    assert_eq!(node.name_hash, skep_units::stable_hash(b"n0", 0));
}

#[derive(Clone, Copy, Debug)]
enum Call {
    Add { name: u8, port: u8 },
    Remove { id: u8, grace_ms: u8 },
    Drain { id: u8 },
    Resume { id: u8 },
    Weight { id: u8, weight: u8 },
    Check { id: u8, ok: bool },
    Request { id: u8, ok: bool },
    Tick { busy: u8 },
}

fn call() -> impl Strategy<Value = Call> {
    let id = || 0..12u8;
    prop_oneof![
        4 => (0..8u8, 0..8u8).prop_map(|(name, port)| Call::Add { name, port }),
        1 => (id(), 0..50u8).prop_map(|(id, grace_ms)| Call::Remove { id, grace_ms }),
        1 => id().prop_map(|id| Call::Drain { id }),
        1 => id().prop_map(|id| Call::Resume { id }),
        1 => (id(), 0..4u8).prop_map(|(id, weight)| Call::Weight { id, weight }),
        8 => (id(), any::<bool>()).prop_map(|(id, ok)| Call::Check { id, ok }),
        4 => (id(), any::<bool>()).prop_map(|(id, ok)| Call::Request { id, ok }),
        3 => any::<u8>().prop_map(|busy| Call::Tick { busy }),
    ]
}

fn apply(table: &mut Membership, now: Now, call: Call) -> Vec<MembershipEvent> {
    let node = |id: u8| NodeId(u32::from(id));
    let result = |ok: bool| if ok { Ok(()) } else { Err(Failure::Refused) };
    match call {
        Call::Add { name, port } => {
            table.add(now, &format!("n{name}"), address(port.into()), 1).into_iter().collect()
        }
        Call::Remove { id, grace_ms } => {
            table.remove(now, node(id), now.plus_ms(grace_ms.into())).into_iter().collect()
        }
        Call::Drain { id } => table.drain(now, node(id)).into_iter().flatten().collect(),
        Call::Resume { id } => table.resume(now, node(id)).into_iter().flatten().collect(),
        Call::Weight { id, weight } => {
            table.set_weight(now, node(id), weight.into()).into_iter().flatten().collect()
        }
        Call::Check { id, ok } => table.on_check(now, node(id), result(ok)).into_iter().collect(),
        Call::Request { id, ok } => {
            table.on_request(now, node(id), result(ok), all).into_iter().collect()
        }
        Call::Tick { busy } => table.tick(now, |id| u64::from(busy >> (id.0 % 8) & 1)),
    }
}

/// The input of dispatch tables: the version must change with it.
fn shape(table: &Membership) -> BTreeMap<NodeId, u32> {
    table.members().iter().map(|member| (member.id(), member.weight())).collect()
}

proptest! {
    #[test]
    fn random_use_keeps_the_promises(
        calls in proptest::collection::vec(call(), 1..150),
        fail_open in any::<bool>(),
    ) {
        let mut table = Membership::new(MembershipSettings {
            health: SETTINGS,
            fail_open,
            ejected_percent_max: 100,
        });
        let mut ids_seen = BTreeSet::new();
        for (ms, call) in (0..).zip(calls) {
            let (before, version) = (shape(&table), table.version());
            let is_any_up = |table: &Membership| {
                table.members().iter().any(|member| member.health().eligible())
            };
            let was_any_up = is_any_up(&table);
            let events = apply(&mut table, Now(ms), call);
            prop_assert_eq!(before != shape(&table), version != table.version());
            for event in &events {
                let is_new = matches!(event.change, Change::Added { .. });
                prop_assert_eq!(is_new, ids_seen.insert(event.node), "an id is never reused");
                prop_assert_eq!(event.at, Now(ms));
            }
            let any_up = is_any_up(&table);
            let is_request = matches!(call, Call::Request { .. });
            prop_assert!(any_up || !was_any_up || !is_request, "requests eject the last one");
            for (view, member) in table.view(Now(ms)).zip(table.members()) {
                let may = match view.state {
                    HealthState::Up => true,
                    HealthState::Joining | HealthState::Down { .. } => fail_open && !any_up,
                    HealthState::Draining | HealthState::Drained => false,
                };
                prop_assert_eq!(view.eligible, may);
                prop_assert!(member.removal_deadline().is_none() || !view.eligible);
            }
        }
    }
}
