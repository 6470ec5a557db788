//! The table of orders about servers.

use skep_units::Rng;
use skep_wire::cache::{AddedServer, OrderStamp, ServerChange, ServerOrder};
use skep_wire::limits::SERVER_ORDERS_MAX;
use skep_wire::message::Name;

use crate::OrderTable;

/// The clock of the merging machine, in milliseconds since 1970.
const NOW_MS: u64 = 1_000;

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

fn order(server: &str, change: ServerChange, stamp: u64) -> ServerOrder {
    let stamp = OrderStamp(stamp);
    ServerOrder { pool: name("app"), server: name(server), change, stamp }
}

fn add() -> ServerChange {
    ServerChange::Add(Box::new(AddedServer {
        address: "127.0.0.1:1".parse().unwrap(),
        weight: 1,
        connections_max: 1,
        connections_scope: name("auto"),
        status_address: None,
    }))
}

#[test]
fn the_latest_order_stands_and_earlier_ones_are_no_news() {
    let mut table = OrderTable::default();
    let (drain, resume) = (order("a", ServerChange::Drain, 5), order("a", ServerChange::Resume, 6));
    assert_eq!(
        table.learn(NOW_MS, vec![resume.clone(), drain.clone()]),
        std::slice::from_ref(&resume)
    );
    assert_eq!(table.learn(NOW_MS, vec![drain, resume.clone()]), []);
    let weight = order("a", ServerChange::Weight { weight: 2, filed: None }, 4);
    assert_eq!(
        table.learn(NOW_MS, vec![weight.clone()]),
        std::slice::from_ref(&weight),
        "another aspect"
    );
    assert_eq!(table.all(), [weight, resume]);
    assert!(table.next_stamp(0, 1) > OrderStamp(6));
    let (first, second) = (table.next_stamp(9, 1), table.next_stamp(9, 1));
    assert!(second > first, "none is given twice");
}

#[test]
fn a_server_that_is_added_again_is_a_new_one() {
    let mut table = OrderTable::default();
    let drained = order("a", ServerChange::Drain, 1);
    let removed = order("a", ServerChange::Remove { timeout_ms: 0 }, 2);
    let added = order("a", add(), 3);
    table.learn(NOW_MS, vec![drained.clone(), removed.clone(), added.clone()]);
    assert_eq!(table.all(), std::slice::from_ref(&added));
    assert_eq!(table.learn(NOW_MS, vec![drained.clone(), removed]), [], "whatever comes late");
    let other = order("b", ServerChange::Drain, 1);
    assert_eq!(table.learn(NOW_MS, vec![other.clone()]), [other], "of another server");
}

#[test]
fn tables_agree_in_whatever_order_news_come() {
    for seed in 0..50 {
        let mut rng = Rng::new(seed);
        let change = |number: u64| match number {
            0 => ServerChange::Drain,
            1 => ServerChange::Resume,
            2 => ServerChange::Weight { weight: 3, filed: Some(1) },
            3 => ServerChange::Remove { timeout_ms: 1 },
            _ => add(),
        };
        let mut orders: Vec<_> = (1..40)
            .map(|stamp| {
                let server = ["a", "b", "c"][rng.below(3) as usize];
                order(server, change(rng.below(5)), stamp)
            })
            .collect();
        let mut tables = [OrderTable::default(), OrderTable::default()];
        for table in &mut tables {
            for at in (1..orders.len()).rev() {
                orders.swap(at, rng.below(at as u64 + 1) as usize);
            }
            orders.chunks(3).for_each(|some| drop(table.learn(NOW_MS, some.to_vec())));
        }
        assert_eq!(tables[0].all(), tables[1].all(), "seed {seed}");
    }
}

#[test]
fn an_order_from_far_ahead_blocks_no_later_one() {
    let mut table = OrderTable::default();
    let far = order("a", ServerChange::Drain, u64::MAX / 2);
    assert_eq!(table.learn(NOW_MS, vec![far]), []);
    let next = table.next_stamp(NOW_MS, 1);
    let resume = order("a", ServerChange::Resume, next.0);
    assert_eq!(table.learn(NOW_MS, vec![resume.clone()]), [resume]);
}

#[test]
fn there_is_a_bound_and_the_oldest_go() {
    let mut table = OrderTable::default();
    let count = SERVER_ORDERS_MAX as u64 + 5;
    for number in 1..=count {
        table.learn(NOW_MS, vec![order(&format!("s{number}"), ServerChange::Drain, number)]);
    }
    let all = table.all();
    assert_eq!((all.len(), all[0].stamp), (SERVER_ORDERS_MAX, OrderStamp(6)));
}
