//! The table: its members, versions, indexes and histories.

use skep_units::Now;
use skep_wire::limits::HISTORY_MAX;
use skep_wire::message::{Message, Name, NodeHeartbeat};
use skep_wire::seal::Stamp;
use skep_wire::steer::{
    ForwardingState, Measure, NODES_MAX, NodeIndex, Protocol, SERVICES_MAX, service_hash,
};
use skep_wire::table::{Share, Table, TableService, TableVersion};

use super::{heartbeat, name, service_address};
use crate::failure_detector::{FailureDetectorSettings, Liveness};
use crate::limits::{TABLE_INTERVAL_MS_MIN, TABLES_AT_ONCE_MAX};
use crate::table_publisher::{NodePlan, ServicePlan, TableNote, TablePlan, TablePublisher};

/// Longer than the interval of tables of any cluster here.
const TURN_MS: u64 = 130;

fn node(number: usize, weight: u32) -> NodePlan {
    NodePlan { name: name(number), address: ([10, 0, 0, 1], 80).into(), weight, is_open: true }
}

fn service(number: u16, nodes: impl IntoIterator<Item = usize>) -> ServicePlan {
    ServicePlan {
        address: service_address(number),
        protocol: Protocol::Tcp,
        choices: 1,
        measure: Measure::First,
        by_address: false,
        policy: Name::new("maglev").unwrap(),
        nodes: nodes.into_iter().collect(),
    }
}

pub(super) fn plan(count: usize) -> TablePlan {
    plan_of(0..count)
}

/// A plan with one service on these nodes.
fn plan_of(numbers: impl IntoIterator<Item = usize>) -> TablePlan {
    let nodes: Vec<NodePlan> = numbers.into_iter().map(|number| node(number, 1)).collect();
    TablePlan { services: vec![service(0, 0..nodes.len())], nodes, dispatchers: vec![[1; 6]] }
}

/// A publisher with a clock, and nodes that send heartbeats.
pub(super) struct Bench {
    pub(super) publisher: TablePublisher,
    pub(super) now: Now,
    sequence: u64,
}

impl Bench {
    pub(super) fn new(plan: TablePlan) -> Self {
        let mut publisher = TablePublisher::new(FailureDetectorSettings::default());
        publisher.set_plan(plan);
        publisher.tick(Now(0));
        Self { publisher, now: Now(0), sequence: 0 }
    }

    /// A bench with `count` nodes, all up, in term 8.
    pub(super) fn up(count: usize) -> Self {
        let mut bench = Self::new(plan(count));
        bench.publisher.begin_term(8);
        bench.run(600, 0..count);
        bench
    }

    /// A heartbeat is received, followed by a tick at which a table may be made.
    pub(super) fn hear(&mut self, heartbeat: NodeHeartbeat) -> Vec<TableNote> {
        let notes = self.heartbeat(heartbeat);
        self.turn();
        notes
    }

    fn heartbeat(&mut self, heartbeat: NodeHeartbeat) -> Vec<TableNote> {
        self.sequence += 1;
        let stamp = Stamp { incarnation: 1, sequence: self.sequence };
        self.publisher.heard(self.now, heartbeat, stamp)
    }

    /// Advances to the next tick at which any table may be made.
    fn turn(&mut self) {
        self.now = self.now.plus_ms(TURN_MS);
        assert_eq!(self.publisher.tick(self.now), []);
    }

    fn set_drained(&mut self, numbers: &[usize]) {
        self.publisher.set_drained(&numbers.iter().map(|&it| name(it)).collect());
        self.turn();
    }

    fn set_weight(&mut self, number: usize, weight: u32) {
        assert!(self.publisher.set_weight(&name(number), weight));
        self.turn();
    }

    fn set_plan(&mut self, plan: TablePlan) {
        self.publisher.set_plan(plan);
        self.turn();
    }

    /// Advances the time while some nodes send heartbeats.
    pub(super) fn run(
        &mut self,
        ms: u64,
        heartbeating: impl IntoIterator<Item = usize> + Clone,
    ) -> Vec<TableNote> {
        let mut notes = Vec::new();
        for step in 0..ms / 25 {
            self.now = self.now.plus_ms(25);
            if step % 4 == 0 {
                notes.extend(
                    heartbeating.clone().into_iter().flat_map(|it| self.heartbeat(heartbeat(it))),
                );
            }
            notes.extend(self.publisher.tick(self.now));
        }
        let table = Message::Table(Table::clone(self.publisher.table()));
        assert_eq!(Message::decode(&table.encode()), Ok(table), "every table is sound");
        notes
    }

    pub(super) fn table(&self) -> &Table {
        self.publisher.table()
    }

    fn service(&self, number: u16) -> Option<&TableService> {
        let address = service_address(number);
        self.table().services.iter().find(|service| service.service.address == address)
    }

    /// The id of a service.
    fn id(&self, number: u16) -> Option<u16> {
        self.service(number).map(|service| service.service.id)
    }

    /// The nodes that receive new flows of the first service.
    pub(super) fn present(&self) -> Vec<NodeIndex> {
        self.present_of(0)
    }

    /// The same for another service.
    fn present_of(&self, number: u16) -> Vec<NodeIndex> {
        let present = self.table().history(self.service(number).unwrap()).next();
        present.into_iter().flatten().map(|share| share.index).collect()
    }

    pub(super) fn history(&self) -> Vec<Vec<Share>> {
        self.table().history(self.service(0).unwrap()).cloned().collect()
    }

    pub(super) fn state(&self, number: usize) -> ForwardingState {
        self.table().node(name(number).as_str()).unwrap().state
    }

    pub(super) fn index(&self, number: usize) -> Option<NodeIndex> {
        self.table().node(name(number).as_str()).map(|node| node.index)
    }
}

#[test]
fn a_node_gets_connections_of_services_at_whose_addresses_it_listens() {
    let mut bench = Bench::up(3);
    assert_eq!(bench.present(), [0, 1, 2]);
    // By a reload that the second node's process has not made.
    let mut moved = plan(3);
    moved.services = vec![service(0, [0, 2]), service(1, [1, 2])];
    bench.publisher.set_plan(moved.clone());
    let listening = |number, ids: &[u16]| NodeHeartbeat {
        services: ids.iter().map(|&id| service_hash(service_address(id))).collect(),
        ..heartbeat(number)
    };
    let notes = bench.hear(listening(1, &[0]));
    let note = TableNote::NotListening { name: name(1), address: service_address(1) };
    assert_eq!(notes, [note], "once");
    assert_eq!(bench.hear(listening(1, &[0])), []);
    assert_eq!(bench.present_of(1), [2], "the other node's");
    assert_eq!(bench.state(1), ForwardingState::Up, "it keeps what it has");
    // The node has restarted without missing a heartbeat.
    bench.hear(listening(1, &[1]));
    assert_eq!((bench.present(), bench.present_of(1)), (vec![0, 2], vec![1, 2]));
    // A dispatcher that takes over continues with that membership until it receives the node's
    // heartbeat.
    bench.hear(listening(1, &[0]));
    let mut next = Bench::new(moved);
    next.publisher.adopt(bench.table().clone());
    next.publisher.begin_term(16);
    assert_eq!((next.present(), next.present_of(1)), (vec![0, 2], vec![2]));
    next.hear(listening(1, &[1]));
    assert_eq!(next.present_of(1), [1, 2]);
}

/// A rolling restart with a config that lists another address before the old one.
#[test]
fn a_service_keeps_its_id_whatever_the_config_of_the_next_dispatcher() {
    let mut old = Bench::up(2);
    let id = old.id(0);
    assert!(id.is_some());
    let mut changed = plan(2);
    // As many services as there are ids: for some, the preferred id is that of another address.
    let services = (0..SERVICES_MAX as u16).rev().map(|number| service(number, [0, 1]));
    changed.services = services.collect();
    let mut new = Bench::new(changed.clone());
    new.publisher.adopt(old.table().clone());
    new.publisher.begin_term(16);
    assert_eq!((new.id(0), new.present()), (id, vec![0, 1]));
    let ids: Vec<u16> = new.table().services.iter().map(|it| it.service.id).collect();
    assert_eq!(ids, (0..SERVICES_MAX as u16).collect::<Vec<_>>());
    let ids_of_all = |bench: &Bench| (0..64).map(|number| bench.id(number)).collect::<Vec<_>>();
    let given = ids_of_all(&new);
    changed.services.reverse();
    new.set_plan(changed);
    assert_eq!(ids_of_all(&new), given, "the order is nothing");
    // The dispatcher with the old config takes over once more, then the other one.
    old.publisher.step_down();
    old.publisher.adopt(new.table().clone());
    old.publisher.begin_term(24);
    assert_eq!((old.id(0), old.table().services.len()), (id, 1));
    new.publisher.step_down();
    new.publisher.adopt(old.table().clone());
    new.publisher.begin_term(32);
    assert_eq!(ids_of_all(&new), given, "it remembers them");
}

#[test]
fn nodes_come_as_they_are_heard_and_generations_count_changes() {
    let mut bench = Bench::new(plan(3));
    bench.publisher.begin_term(8);
    assert_eq!(bench.table().version, TableVersion { epoch: 8, generation: 1 });
    assert_eq!(bench.hear(heartbeat(1)), [TableNote::Came(name(1))]);
    assert_eq!(bench.table().version.generation, 2);
    assert_eq!(bench.hear(heartbeat(1)), [], "no news");
    assert_eq!(bench.table().version.generation, 2);
    bench.hear(heartbeat(0));
    assert_eq!(bench.present(), [0, 1]);
    assert_eq!((bench.index(1), bench.index(0), bench.index(2)), (Some(0), Some(1), None));
    let moved = NodeHeartbeat { mac: [9; 6], ..heartbeat(0) };
    bench.hear(moved);
    assert_eq!(bench.table().version.generation, 4, "frames go elsewhere now");
}

#[test]
fn a_node_takes_flows_once_it_has_a_table() {
    let mut bench = Bench::up(2);
    let bare = NodeHeartbeat { table: TableVersion::default(), ..heartbeat(1) };
    bench.hear(bare.clone());
    assert_eq!((bench.present(), bench.state(1)), (vec![0], ForwardingState::Down));
    bench.hear(NodeHeartbeat { table: bench.table().version, ..bare });
    assert_eq!((bench.present(), bench.state(1)), (vec![0, 1], ForwardingState::Up));
}

#[test]
fn the_silent_are_out_within_a_second_and_back_with_a_heartbeat() {
    let mut bench = Bench::up(3);
    assert_eq!(bench.present(), [0, 1, 2]);
    let dead = TableNote::Dead { name: name(1), ms: 525 };
    assert_eq!(bench.run(400, [0, 2]), []);
    assert_eq!(bench.run(300, [0, 2]), [dead]);
    assert_eq!((bench.present(), bench.state(1)), (vec![0, 2], ForwardingState::Down));
    assert_eq!(bench.publisher.detector().life(&name(1)), Liveness::Dead);
    assert_eq!(bench.run(100, [0, 1, 2]), [TableNote::Back(name(1))]);
    assert_eq!((bench.present(), bench.index(1)), (vec![0, 1, 2], Some(1)));
    // This dispatcher itself was paused.
    bench.now = bench.now.plus_ms(5_000);
    assert_eq!(bench.run(100, [0, 1, 2]), []);
}

#[test]
fn who_hears_nobody_steers_on_as_before() {
    let mut bench = Bench::up(3);
    assert_eq!(bench.run(700, [0, 2]).len(), 1);
    assert_eq!(bench.present(), [0, 2]);
    // The last heartbeats of the nodes are up to an interval apart.
    bench.now = bench.now.plus_ms(40);
    bench.hear(heartbeat(2));
    assert_eq!(bench.run(10_000, []), []);
    assert_eq!(bench.present(), [0, 2], "its own cable, rather than both at once");
    bench.set_drained(&[2]);
    assert_eq!(bench.present(), [0], "what an operator wants holds");
    bench.set_drained(&[]);
    // The cable is back: nodes whose heartbeats arrive are alive, and the others have their time.
    assert_eq!(bench.run(200, [2]), []);
    assert_eq!(bench.present(), [0, 2]);
    assert_eq!(bench.run(700, [2]).len(), 1);
    assert_eq!(bench.present(), [2]);
    bench.hear(NodeHeartbeat { is_leaving: true, ..heartbeat(2) });
    bench.run(700, []);
    assert_eq!(bench.present(), [], "it said that it goes");
}

#[test]
fn a_standby_that_never_heard_a_node_believes_the_table_it_took_over() {
    let mut active = Bench::up(2);
    let mut standby = Bench::new(plan(2));
    assert!(standby.publisher.adopt(Table::clone(active.table())));
    standby.run(2_000, []);
    standby.publisher.begin_term(9);
    standby.run(2_000, []);
    assert_eq!(standby.present(), [0, 1]);
    standby.run(1_500, [0]);
    assert_eq!(standby.present(), [0]);
    active.run(25, [0]);
}

#[test]
fn the_leaving_the_drained_and_the_removed_keep_their_flows() {
    let mut bench = Bench::up(4);
    let leaving = NodeHeartbeat { is_leaving: true, ..heartbeat(0) };
    assert_eq!(bench.hear(leaving), [TableNote::Leaving(name(0))]);
    bench.set_drained(&[1, 99]);
    bench.set_plan(plan_of([0, 1, 3]));
    assert_eq!(bench.present(), [3]);
    assert_eq!(
        [0, 1, 2, 3].map(|it| bench.state(it)),
        [
            ForwardingState::Draining,
            ForwardingState::Draining,
            ForwardingState::Draining,
            ForwardingState::Up
        ]
    );
    bench.run(700, [1, 3]);
    assert_eq!((bench.state(0), bench.state(2)), (ForwardingState::Down, ForwardingState::Down));
    bench.set_drained(&[]);
    assert_eq!(bench.present(), [1, 3]);
}

#[test]
fn weights_of_the_operator_stay_until_the_config_says_otherwise() {
    let mut bench = Bench::up(2);
    let weights = |bench: &Bench| -> Vec<u32> {
        bench.history()[0].iter().map(|share| share.weight).collect()
    };
    bench.set_weight(0, 5);
    assert_eq!(weights(&bench), [5, 1]);
    bench.set_plan(plan(2));
    assert_eq!(weights(&bench), [5, 1], "the config has not changed");
    let mut heavier = plan(2);
    heavier.nodes[0].weight = 3;
    bench.set_plan(heavier);
    assert_eq!(weights(&bench), [3, 1]);
    bench.set_weight(0, 0);
    assert_eq!((bench.present(), bench.state(0)), (vec![1], ForwardingState::Draining));
}

#[test]
fn history_is_distinct_newest_first_and_bounded() {
    let mut bench = Bench::up(2);
    let before = bench.history();
    for _ in 0..20 {
        bench.set_drained(&[0]);
        bench.set_drained(&[]);
    }
    let history = bench.history();
    assert_eq!((history.len(), &history[0]), (before.len() + 1, &before[0]), "{history:?}");
    for weight in 2..30 {
        bench.set_weight(0, weight);
    }
    let weights: Vec<u32> = bench.history().iter().map(|shares| shares[0].weight).collect();
    assert_eq!(weights, (30 - HISTORY_MAX as u32..30).rev().collect::<Vec<_>>());
    // Without nodes the current membership is empty, and is not added to the history.
    for number in [0, 1] {
        bench.hear(NodeHeartbeat { is_leaving: true, ..heartbeat(number) });
    }
    assert_eq!(bench.history()[0], []);
    bench.run(100, [0, 1]);
    assert!(bench.history().iter().all(|shares| !shares.is_empty()));
}

#[test]
fn an_index_is_not_given_anew_while_a_history_names_it() {
    let mut bench = Bench::up(3);
    bench.set_plan(plan_of([0, 2, 3]));
    bench.run(100, [0, 2, 3]);
    assert_eq!(bench.index(3), Some(3), "1 is still remembered");
    for weight in 2..12 {
        bench.set_weight(0, weight);
    }
    assert_eq!(bench.index(1), None, "forgotten");
    bench.set_plan(plan(5));
    bench.run(100, [4]);
    assert_eq!(bench.index(4), Some(1));
}

#[test]
fn when_indexes_run_out_histories_are_shortened_and_then_nodes_stay_out() {
    let mut bench = Bench::up(NODES_MAX);
    assert_eq!(bench.present().len(), NODES_MAX);
    bench.set_plan(plan_of((0..=NODES_MAX).filter(|&number| number != 7)));
    // Tables for this many nodes are made rarely.
    bench.run(1_200, [NODES_MAX]);
    assert_eq!(bench.index(NODES_MAX), Some(7), "for that the past was forgotten");
    bench.set_plan(plan(NODES_MAX + 1));
    let notes = [TableNote::Came(name(7)), TableNote::NoIndex(name(7))];
    assert_eq!(bench.run(300, [7]), notes, "said once");
    let stray = NodeHeartbeat { name: Name::new("stray").unwrap(), ..heartbeat(0) };
    assert_eq!(bench.hear(stray.clone()), [TableNote::Unplanned(stray.name.clone())]);
    assert_eq!(bench.hear(stray), []);
}

#[test]
fn what_the_checks_of_one_dispatcher_say_does_not_bind_the_next() {
    let mut active = Bench::up(2);
    active.set_weight(0, 7);
    let mut shut = plan(2);
    shut.nodes[0].is_open = false;
    active.set_plan(shut);
    assert_eq!((active.present(), active.state(0)), (vec![1], ForwardingState::Draining));
    let mut standby = Bench::new(plan(2));
    assert!(standby.publisher.adopt(Table::clone(active.table())));
    standby.publisher.begin_term(9);
    standby.run(600, 0..2);
    assert_eq!(standby.present(), [0, 1]);
    assert_eq!(standby.history()[0][0].weight, 7);
    active.set_plan(plan(2));
    assert_eq!(active.present(), [0, 1]);
}

#[test]
fn a_standby_goes_on_where_the_active_one_was() {
    let mut active = Bench::up(3);
    active.set_drained(&[0]);
    active.set_weight(2, 7);
    let table = Table::clone(active.table());
    let mut standby = Bench::new(plan(3));
    assert!(standby.publisher.adopt(table.clone()));
    assert!(!standby.publisher.adopt(table.clone()), "not later than what it has");
    assert_eq!(standby.table(), &table);
    // It takes over before it has received a heartbeat itself.
    standby.publisher.begin_term(17);
    assert_eq!(standby.table().version, TableVersion { epoch: 17, generation: 1 });
    let same = Table { version: table.version, ..standby.table().clone() };
    assert_eq!(same, table, "nothing else has changed");
    assert!(!standby.publisher.adopt(active.table().clone()), "it is the author now");
    standby.run(700, [0, 1]);
    assert_eq!(standby.state(2), ForwardingState::Down, "it listened, and n2 was not there");
    assert_eq!(
        (standby.state(0), standby.state(1)),
        (ForwardingState::Draining, ForwardingState::Up)
    );
    standby.publisher.step_down();
    let later = TableVersion { epoch: 24, generation: 1 };
    assert!(standby.publisher.adopt(Table { version: later, ..table }));
}

#[test]
fn after_all_was_lost_nodes_tell_their_indexes_and_versions() {
    let mut bench = Bench::new(plan(3));
    bench.hear(NodeHeartbeat { index: Some(2), ..heartbeat(0) });
    bench.hear(NodeHeartbeat { index: Some(2), ..heartbeat(1) });
    bench.publisher.begin_term(8);
    let mut indexes = [bench.index(0), bench.index(1)];
    indexes.sort();
    assert_eq!(indexes, [Some(0), Some(2)], "one of them has it");
    let version = TableVersion { epoch: 8, generation: 50 };
    bench.hear(NodeHeartbeat { table: version, ..heartbeat(0) });
    assert_eq!(bench.table().version, TableVersion { epoch: 8, generation: 51 });
}

#[test]
fn late_heartbeats_of_before_change_nothing() {
    let mut bench = Bench::up(1);
    let stamp = |sequence| Stamp { incarnation: 2, sequence };
    let leaving = NodeHeartbeat { is_leaving: true, ..heartbeat(0) };
    bench.publisher.heard(bench.now, leaving, stamp(2));
    assert_eq!(bench.publisher.heard(bench.now, heartbeat(0), stamp(1)), []);
    bench.turn();
    assert_eq!(bench.state(0), ForwardingState::Draining);
}

#[test]
fn many_changes_make_one_table_but_flows_stop_at_once() {
    let mut bench = Bench::up(64);
    bench.run(1_000, 0..64);
    let generation = |bench: &Bench| bench.table().version.generation;
    let before = generation(&bench);
    bench.publisher.set_weight(&name(0), 2);
    bench.publisher.tick(bench.now);
    assert_eq!(generation(&bench), before + 1, "the first change goes at once");
    for weight in 3..40 {
        bench.publisher.set_weight(&name(1), weight);
        bench.publisher.tick(bench.now);
    }
    assert_eq!(generation(&bench), before + 1);
    bench.publisher.set_drained(&[name(2)].into());
    bench.publisher.tick(bench.now);
    assert_eq!(generation(&bench), before + 2);
    assert_eq!(bench.state(2), ForwardingState::Draining);
    bench.turn();
    assert_eq!(generation(&bench), before + 2, "with it came what had waited");
    assert_eq!(bench.history()[0][1].weight, 39);
}

#[test]
fn a_death_is_in_the_next_table_while_everything_changes() {
    let mut bench = Bench::up(8);
    let (mut died_at, mut tables) = (None, Vec::new());
    for step in 0..400 {
        bench.now = bench.now.plus_ms(25);
        let lives = |it: &usize| *it != 7 || step < 200;
        if step % 2 == 0 {
            (0..8).filter(lives).for_each(|it| drop(bench.heartbeat(heartbeat(it))));
        }
        bench.publisher.set_weight(&name(step % 7), 1 + step as u32);
        let before = bench.table().version;
        let notes = bench.publisher.tick(bench.now);
        if notes.iter().any(|note| matches!(note, TableNote::Dead { .. })) {
            died_at = Some(step);
            assert_eq!(bench.state(7), ForwardingState::Down, "at the tick that finds it");
        }
        if bench.table().version != before {
            tables.push(bench.now);
        }
    }
    assert!(died_at.is_some());
    // 40 changes per second.
    for window in 1..=10 {
        let in_it = |at: &&Now| at.since_ms(Now(0)) / 1_000 == window;
        let count = tables.iter().filter(in_it).count() as u64;
        assert!(count <= 1_000 / TABLE_INTERVAL_MS_MIN + TABLES_AT_ONCE_MAX, "{count}");
    }
}
