//! Distribution: which machines are sent deltas and which the whole table, and how often.

use skep_units::Now;
use skep_wire::message::Message;
use skep_wire::seal::PeerId;
use skep_wire::table::{Table, TableVersion};

use crate::limits::TABLES_RECENT_MAX;
use crate::table_distribution::{RecentTables, TableDistributor};

const HEARTBEAT_MS: u64 = 50;
const NONE: TableVersion = TableVersion { epoch: 0, generation: 0 };

fn version(generation: u64) -> TableVersion {
    TableVersion { epoch: 8, generation }
}

/// A table without nodes, with empty memberships.
fn table(generation: u64) -> Table {
    let dispatchers = (0..8).map(|number| [number, generation as u8, 0, 0, 0, 1]).collect();
    Table { version: version(generation), dispatchers, ..Table::default() }
}

fn base(message: &Message) -> Option<TableVersion> {
    match message {
        Message::TableDelta(delta) => Some(delta.base),
        Message::Table(_) => None,
        other => panic!("{other:?}"),
    }
}

/// A distributor that has published tables up to the given generation, without peers.
fn distributor(heartbeat_ms: u64, generation: u64) -> TableDistributor {
    let mut distributor = TableDistributor::new(heartbeat_ms);
    for generation in 1..=generation {
        assert_eq!(distributor.publish(Now(0), table(generation).into(), []), []);
    }
    distributor
}

#[test]
fn who_has_acknowledged_a_table_is_sent_what_has_changed_since() {
    let mut distributor = distributor(HEARTBEAT_MS, 2);
    let peers = [(1, version(2)), (2, version(1)), (3, NONE), (4, version(2)), (5, version(77))];
    let peers = peers.map(|(peer, has)| (PeerId(peer), has));
    let updates = distributor.publish(Now(0), table(3).into(), peers);
    let shown: Vec<(Option<u64>, Vec<u64>)> = updates
        .iter()
        .map(|update| {
            let base = base(&update.message).map(|base| base.generation);
            (base, update.to.iter().map(|peer| peer.0).collect())
        })
        .collect();
    // It reports a table that was never made here, so it is sent the whole table.
    assert_eq!(shown, [(None, vec![3, 5]), (Some(1), vec![2]), (Some(2), vec![1, 4])]);
    for update in &updates {
        let mut recent = RecentTables::default();
        (1..=2).for_each(|generation| recent.keep(table(generation).into()));
        if let Message::TableDelta(delta) = &*update.message {
            assert_eq!(recent.apply(delta), Some(table(3)));
            assert_eq!(RecentTables::default().apply(delta), None);
        }
    }
}

/// The transmissions caused by 30 heartbeats that all report the same table: times in units of two
/// heartbeats, for deltas and for whole tables.
fn sent_in_vain(
    distributor: &mut TableDistributor,
    heartbeat_ms: u64,
    (peer, has): (PeerId, TableVersion),
) -> [Vec<u64>; 2] {
    let mut sent = [Vec::new(), Vec::new()];
    for heartbeat in 0..30 {
        if let Some(message) = distributor.heard(Now(heartbeat * heartbeat_ms), peer, has) {
            sent[usize::from(base(&message).is_none())].push(heartbeat / 2);
        }
    }
    sent
}

#[test]
fn what_is_not_acknowledged_is_sent_again_and_then_whole() {
    // A thousand nodes may have slower heartbeats: one that reports the previous table once is not
    // stuck.
    for heartbeat_ms in [HEARTBEAT_MS, 20 * HEARTBEAT_MS] {
        let mut distributor = distributor(heartbeat_ms, 1);
        let peers = [(PeerId(1), version(1)), (PeerId(2), NONE)];
        distributor.publish(Now(0), table(2).into(), peers);
        let [deltas, wholes] = sent_in_vain(&mut distributor, heartbeat_ms, peers[0]);
        assert_eq!(wholes, [4, 5, 7, 11], "whole ones are ever rarer");
        assert_eq!(deltas, [1, 2, 3, 6, 8, 9, 10, 12, 13, 14]);
        let [deltas, wholes] = sent_in_vain(&mut distributor, heartbeat_ms, peers[1]);
        assert_eq!((deltas, wholes), (vec![], vec![1, 3, 7, 11]), "it has no base");
    }
}

#[test]
fn who_has_the_latest_or_was_just_sent_it_gets_nothing() {
    let mut distributor = distributor(HEARTBEAT_MS, 2);
    assert_eq!(distributor.heard(Now(0), PeerId(1), version(2)), None);
    assert_eq!(distributor.heard(Now(0), PeerId(1), version(3)), None, "a later one");
    let first = distributor.heard(Now(0), PeerId(1), version(1)).unwrap();
    assert_eq!(base(&first), Some(version(1)));
    assert_eq!(distributor.heard(Now(50), PeerId(1), version(1)), None);
    distributor.publish(Now(60), table(3).into(), [(PeerId(1), version(1))]);
    assert_eq!(distributor.heard(Now(100), PeerId(1), version(2)), None, "it moves on");
    assert!(distributor.heard(Now(160), PeerId(1), version(2)).is_some());
}

#[test]
fn who_understands_no_delta_gets_whole_tables_however_fast_they_change() {
    let mut distributor = distributor(HEARTBEAT_MS, 1);
    let peer = (PeerId(1), version(1));
    let mut wholes = Vec::new();
    for generation in 2..30 {
        let now = Now(generation * 100);
        let updates = distributor.publish(now, table(generation).into(), [peer]);
        if updates.iter().any(|update| base(&update.message).is_none()) {
            wholes.push(generation - 2);
        }
    }
    assert_eq!(wholes[..4], [4, 5, 7, 11]);
    assert!(wholes.len() < 10, "{wholes:?}");
}

#[test]
fn a_new_author_goes_on_from_the_tables_of_the_last_one() {
    let mut standby = TableDistributor::new(HEARTBEAT_MS);
    standby.adopted(table(1).into());
    let own = Table { version: TableVersion { epoch: 17, generation: 1 }, ..table(1) };
    let updates = standby.publish(Now(0), own.clone().into(), [(PeerId(1), version(1))]);
    assert_eq!(base(&updates[0].message), Some(version(1)));
    let Message::TableDelta(delta) = &*updates[0].message else { panic!("a delta") };
    let mut node = RecentTables::default();
    node.keep(table(1).into());
    assert_eq!(node.apply(delta), Some(own));
}

#[test]
fn old_tables_are_forgotten() {
    let last = TABLES_RECENT_MAX as u64 + 2;
    let mut distributor = distributor(HEARTBEAT_MS, last);
    let base_of = |distributor: &mut TableDistributor, has| {
        base(&distributor.heard(Now(0), PeerId(has), version(has)).unwrap())
    };
    assert_eq!(base_of(&mut distributor, 2), None);
    assert_eq!(base_of(&mut distributor, 3), Some(version(3)));
}
