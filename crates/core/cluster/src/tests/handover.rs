//! The handover between two active dispatchers: which tables apply, and when the addresses are
//! announced.

use skep_units::{DISPATCHER_NUMBER_BITS, Now, dispatcher_number};
use skep_wire::message::{Name, NodeHeartbeat};
use skep_wire::seal::Stamp;
use skep_wire::steer::ForwardingState;
use skep_wire::table::{Table, TableNode, TableVersion};

use super::{heartbeat, name};
use crate::failure_detector::{FailureDetector, FailureDetectorSettings};
use crate::handover::{Handover, LastTable};
use crate::limits::{HANDOVER_MS_MAX, LAST_TABLE_MS_MAX, LAST_TABLE_RESEND_MS};

fn version(generation: u64) -> TableVersion {
    TableVersion { epoch: 9, generation }
}

/// A table whose nodes have these states.
fn table(generation: u64, states: &[ForwardingState]) -> Table {
    let node = |(number, &state): (usize, &ForwardingState)| TableNode {
        index: number as u16,
        name: name(number),
        address: ([10, 0, 0, 1], 80).into(),
        weight: 1,
        state,
        is_drained: false,
        mac: [2, 0, 0, 0, 0, number as u8],
        mtu: 1_500,
    };
    let nodes = states.iter().enumerate().map(node).collect();
    Table { version: version(generation), nodes, ..Table::default() }
}

/// The version of the first table of a dispatcher's term.
fn of_term(dispatcher: &Name, term: u64) -> TableVersion {
    let number = u64::from(dispatcher_number(dispatcher.as_str()));
    TableVersion { epoch: term << DISPATCHER_NUMBER_BITS | number, generation: 1 }
}

fn dispatcher(number: usize) -> Name {
    Name::new(&format!("d{number}")).unwrap()
}

#[test]
fn the_last_table_is_kept_until_the_next_has_its_nodes() {
    use ForwardingState::{Down, Draining, Up};
    let mut last = LastTable::new(table(1, &[Up, Down, Draining]).into());
    assert!(!last.yields_to(Now(0), &table(2, &[Down, Up, Up])), "it would lose those of node 0");
    assert!(!last.yields_to(Now(50), &table(2, &[Up, Up])), "node 2 is not in it");
    assert!(last.yields_to(Now(50), &table(3, &[Draining, Down, Up])));
    let late = Now(LAST_TABLE_MS_MAX);
    assert!(!last.yields_to(Now(late.0 - 1), &table(4, &[Down])));
    assert!(last.yields_to(late, &table(4, &[Down])), "they are gone");
}

#[test]
fn the_last_table_is_sent_again_at_a_bounded_rate() {
    let mut last = LastTable::new(table(1, &[]).into());
    let sent = (0..1_000).filter(|&ms| last.due(Now(ms)).is_some()).count() as u64;
    assert_eq!(sent, 1_000 / LAST_TABLE_RESEND_MS);
}

#[test]
fn an_announcement_waits_for_nobody_unless_another_hands_over() {
    let detector = FailureDetector::new(FailureDetectorSettings::default());
    let table = table(1, &[ForwardingState::Up]);
    let mut handover = Handover::default();
    let may = |handover: &mut Handover, ms| {
        handover.may_announce(Now(ms), &table, TableVersion::default(), &detector)
    };
    assert!(!may(&mut handover, 0), "there is none");
    handover.announce();
    handover.announce();
    assert!(may(&mut handover, 0) && !may(&mut handover, 0), "both at once");
    // A standby reports a table that another dispatcher made: it hands nothing over.
    let (d1, d2) = (dispatcher(1), dispatcher(2));
    handover.await_table(Now(0), &d1, of_term(&d2, 1));
    handover.announce();
    assert!(may(&mut handover, 0));
    // A dispatcher returns whose table is known.
    handover.await_table(Now(0), &d1, of_term(&d1, 1));
    handover.announce();
    assert!(!may(&mut handover, 10));
    handover.known(of_term(&d1, 1));
    assert!(may(&mut handover, 10));
    // A dispatcher that never sends its own table.
    handover.await_table(Now(100), &d1, of_term(&d1, 2));
    handover.announce();
    handover.await_table(Now(200), &d1, of_term(&d1, 2));
    handover.known(of_term(&d1, 1));
    assert!(!may(&mut handover, 100 + HANDOVER_MS_MAX - 1));
    assert!(may(&mut handover, 100 + HANDOVER_MS_MAX));
    // It continues to report that table, but its term was waited for already.
    handover.await_table(Now(200), &d1, of_term(&d1, 2));
    handover.announce();
    assert!(may(&mut handover, 100 + HANDOVER_MS_MAX));
    handover.announce();
    handover.step_down();
    assert!(!may(&mut handover, 1_000), "it is no longer its own");
}

#[test]
fn an_announcement_waits_until_all_nodes_steer_by_the_merged_table() {
    use ForwardingState::{Down, Draining, Up};
    let mut detector = FailureDetector::new(FailureDetectorSettings::default());
    let mut sequence = 0;
    let mut hear = |detector: &mut FailureDetector, number, generation| {
        sequence += 1;
        let stamp = Stamp { incarnation: 1, sequence };
        assert!(detector.heard(
            Now(0),
            NodeHeartbeat { table: version(generation), ..heartbeat(number) },
            stamp
        ));
    };
    let (before, merged) = (table(4, &[Up, Down, Down]), table(5, &[Up, Draining, Down]));
    hear(&mut detector, 0, 4);
    let mut handover = Handover::default();
    let d1 = dispatcher(1);
    handover.await_table(Now(0), &d1, of_term(&d1, 1));
    handover.merged(Now(0), of_term(&d1, 1), version(4));
    handover.known(of_term(&d1, 1));
    handover.announce();
    assert!(!handover.may_announce(Now(1), &before, version(4), &detector), "not published");
    assert!(!handover.may_announce(Now(1), &merged, version(4), &detector), "nor applied");
    assert!(!handover.may_announce(Now(1), &merged, version(5), &detector));
    hear(&mut detector, 0, 5);
    assert!(!handover.may_announce(Now(1), &merged, version(5), &detector), "1 was not heard");
    hear(&mut detector, 1, 3);
    assert!(!handover.may_announce(Now(1), &merged, version(5), &detector), "1 is behind");
    let mut late = handover.clone();
    assert!(late.may_announce(Now(HANDOVER_MS_MAX), &merged, version(5), &detector));
    hear(&mut detector, 1, 5);
    assert!(handover.may_announce(Now(1), &merged, version(5), &detector));
}

#[test]
fn an_announcement_waits_for_all_who_hand_over() {
    let detector = FailureDetector::new(FailureDetectorSettings::default());
    let table = table(5, &[]);
    let mut handover = Handover::default();
    let [d1, d2, d3] = [1, 2, 3].map(dispatcher);
    for sender in [&d1, &d2, &d3] {
        handover.await_table(Now(0), sender, of_term(sender, 1));
    }
    handover.announce();
    let may = |handover: &mut Handover, ms| {
        handover.may_announce(Now(ms), &table, table.version, &detector)
    };
    handover.known(of_term(&d1, 1));
    assert!(!may(&mut handover, 10), "d2 and d3 have not sent theirs");
    handover.merged(Now(20), of_term(&d2, 1), version(4));
    assert!(!may(&mut handover, 30), "d3 has not");
    handover.merged(Now(40), of_term(&d3, 1), version(4));
    assert!(may(&mut handover, 50));
    for number in 0..100 {
        let sender = dispatcher(number);
        handover.await_table(Now(100), &sender, of_term(&sender, 2));
    }
    handover.announce();
    assert!(may(&mut handover, 100 + HANDOVER_MS_MAX), "a bounded number, for a bounded time");
}
