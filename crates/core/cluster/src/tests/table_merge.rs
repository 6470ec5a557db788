//! Merging the tables of dispatchers that were active at the same time.

use skep_wire::limits::{DISPATCHERS_MAX, HISTORY_MAX};
use skep_wire::message::NodeHeartbeat;
use skep_wire::steer::ForwardingState;
use skep_wire::table::{Share, Table, TableVersion};

use super::table_publisher::{Bench, plan};
use super::{heartbeat, name};
use crate::table_publisher::TableNote;

#[test]
fn what_the_other_side_of_a_split_had_is_merged() {
    use ForwardingState::{Down, Draining, Up};
    let whole = Bench::up(4);
    let side = |epoch, living: [usize; 3]| {
        let mut bench = Bench::new(plan(6));
        assert!(bench.publisher.adopt(whole.table().clone()));
        bench.publisher.begin_term(epoch);
        bench.run(700, living);
        bench
    };
    let (lesser, mut better) = (side(17, [0, 1, 4]), side(27, [2, 3, 5]));
    assert_eq!((lesser.index(4), better.index(5)), (Some(4), Some(4)), "new on either side");
    assert_eq!([0, 1].map(|it| better.state(it)), [Down; 2]);

    assert!(better.publisher.knows(whole.table().version));
    let theirs = lesser.table();
    assert!(!better.publisher.knows(theirs.version));
    assert!(better.publisher.merge(better.now, theirs));
    assert!(better.publisher.knows(theirs.version));
    assert!(!better.publisher.merge(better.now, theirs), "once");
    better.run(25, []);
    assert_eq!([0, 1, 4].map(|it| better.state(it)), [Draining; 3], "they keep their flows");
    assert_eq!((better.index(4), better.index(5)), (Some(5), Some(4)));
    let indexes = |shares: &Vec<Share>| shares.iter().map(|it| it.index).collect::<Vec<_>>();
    let history: Vec<_> = better.history().iter().map(indexes).collect();
    let both = [vec![2, 3, 4], vec![0, 1, 5]];
    assert!(both.iter().all(|side| history.contains(side)), "{history:?}");
    assert!(history[2..].contains(&vec![0, 1, 2, 3]), "{history:?}");
    assert!(history.len() <= HISTORY_MAX);

    assert_eq!(better.run(400, [0, 2, 3, 5]), [TableNote::Came(name(0))]);
    assert_eq!([0, 1, 4].map(|it| better.state(it)), [Up, Draining, Draining]);
    better.run(600, [0, 2, 3, 5]);
    assert_eq!([0, 1, 4].map(|it| better.state(it)), [Up, Down, Down], "who is not heard is out");
}

#[test]
fn a_merge_of_all_three_sides_of_a_split_has_the_nodes_of_all() {
    use ForwardingState::{Draining, Up};
    let whole = Bench::up(6);
    let side = |epoch, living: [usize; 2]| {
        let mut bench = Bench::new(plan(6));
        assert!(bench.publisher.adopt(whole.table().clone()));
        bench.publisher.begin_term(epoch);
        bench.run(700, living);
        bench
    };
    let (one, other, mut best) = (side(17, [0, 1]), side(18, [2, 3]), side(19, [4, 5]));
    assert!(best.publisher.merge(best.now, one.table()));
    assert!(!best.publisher.knows(other.table().version));
    best.run(25, []);
    assert!(best.publisher.merge(best.now, other.table()));
    best.run(25, []);
    let states: Vec<_> = (0..6).map(|it| best.state(it)).collect();
    assert_eq!(states, [Draining, Draining, Draining, Draining, Up, Up]);
    assert!([&one, &other].iter().all(|it| best.publisher.knows(it.table().version)));
}

/// The other side begins its term only now, with a table in which the node is still alive.
#[test]
fn a_merge_brings_no_dead_node_back() {
    use ForwardingState::{Down, Draining, Up};
    let whole = Bench::up(3);
    let side = |epoch| {
        let mut bench = Bench::new(plan(3));
        assert!(bench.publisher.adopt(whole.table().clone()));
        bench.publisher.begin_term(epoch);
        bench
    };
    let (lesser, mut better) = (side(17), side(27));
    better.run(700, [1, 2]);
    let leaving = NodeHeartbeat { is_leaving: true, mac: [9; 6], ..heartbeat(2) };
    better.hear(leaving);
    assert_eq!([0, 1, 2].map(|it| better.state(it)), [Down, Up, Draining]);
    assert_eq!([0, 1, 2].map(|it| lesser.state(it)), [Up; 3]);
    better.publisher.merge(better.now, lesser.table());
    better.run(25, []);
    assert_eq!([0, 1, 2].map(|it| better.state(it)), [Draining, Up, Draining]);
    assert_eq!(better.present(), [1], "new flows go to nodes that are heard");
    let row = better.table().node(name(2).as_str()).unwrap();
    assert_eq!(row.mac, [9; 6], "it is heard, and says itself where it is");
}

#[test]
fn who_merges_before_it_has_heard_nodes_keeps_those_that_it_has() {
    let whole = Bench::up(2);
    let mut lesser = Bench::new(plan(2));
    lesser.publisher.adopt(whole.table().clone());
    lesser.publisher.begin_term(17);
    lesser.run(700, [0]);
    let mut better = Bench::new(plan(2));
    better.publisher.adopt(whole.table().clone());
    better.publisher.begin_term(27);
    assert!(better.publisher.merge(better.now, lesser.table()));
    better.run(25, []);
    assert_eq!(better.present(), [0, 1], "it has not listened for long enough");
}

#[test]
fn tables_that_were_merged_are_remembered_of_few_dispatchers() {
    let mut bench = Bench::new(plan(1));
    for author in 0..100 {
        let version = TableVersion { epoch: 1 << 16 | author, generation: 1 };
        assert!(bench.publisher.adopt(Table { version, ..Table::default() }));
    }
    bench.publisher.begin_term(2 << 16);
    let knows = |author| {
        bench.publisher.knows(TableVersion { epoch: (1u64 << 16) | author, generation: 1 })
    };
    assert_eq!((1..100).filter(|&author| knows(author)).count(), DISPATCHERS_MAX);
}

#[test]
fn only_the_table_of_an_earlier_term_is_merged() {
    let (mut active, mut other) = (Bench::up(2), Bench::new(plan(2)));
    other.publisher.begin_term(17);
    assert!(!active.publisher.merge(active.now, other.table()), "its claim is the better one");
    let table = active.table().clone();
    assert!(other.publisher.merge(other.now, &table));
    other.publisher.step_down();
    let later = TableVersion { generation: 99, ..table.version };
    assert!(!other.publisher.merge(other.now, &Table { version: later, ..table }), "no author");
}
