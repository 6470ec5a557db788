//! What stays and what leaves.

use skep_units::Now;

use crate::keep::*;

const fn last(bytes: u32) -> Candidate {
    Candidate { bytes, copies: 1, chances: 2, is_first: false, passes: 0 }
}

const DUPLICATE: Candidate = Candidate { copies: 2, ..last(10) };

#[test]
fn duplicates_leave_first_and_last_copies_are_offered() {
    use Verdict::{Drop, Offer, Pass, Stay};
    let tail = [last(10), DUPLICATE, last(10), DUPLICATE];
    assert_eq!(victims(&tail, 10, true), [Stay, Drop, Stay, Stay]);
    assert_eq!(victims(&tail, 11, true), [Stay, Drop, Stay, Drop]);
    assert_eq!(victims(&tail, 30, true), [Offer { chances: 1 }, Drop, Stay, Drop]);
    assert_eq!(victims(&tail, 30, false), [Drop, Drop, Stay, Drop]);
    assert_eq!(victims(&tail, 999, true).iter().filter(|it| **it == Drop).count(), 2);
    // Nobody wants it: no chances left. Nobody knows: the coordinator is silent.
    let spent = Candidate { chances: 0, ..last(10) };
    let unknown = Candidate { copies: 0, ..last(10) };
    assert_eq!(victims(&[spent, unknown], 20, true), [Drop, Drop]);
    // First segments are passed over, so often.
    let first = Candidate { is_first: true, ..last(10) };
    assert_eq!(victims(&[first, last(10)], 10, true), [Pass, Offer { chances: 1 }]);
    assert_eq!(victims(&[first, last(10)], 11, false), [Drop, Drop]);
    let passed = Candidate { passes: 2, ..first };
    assert_eq!(victims(&[passed, last(10)], 10, false), [Drop, Stay]);
    assert_eq!(victims(&[], 10, true), []);
}

#[test]
fn offers_take_room_or_the_oldest_duplicate() {
    let tail = [last(10), DUPLICATE, DUPLICATE];
    assert_eq!(accept(10, 10, &[]), Acceptance::Room);
    assert_eq!(accept(10, 9, &tail), Acceptance::Instead(1));
    assert_eq!(accept(11, 9, &tail), Acceptance::No);
    assert_eq!(accept(10, 9, &[last(10)]), Acceptance::No);
}

#[test]
fn demand_is_a_rate_that_fades() {
    let mut demand = Demand::default();
    for second in 0..1_200 {
        demand.hit(Now(second * 1_000));
    }
    let rate = demand.hits_per_min(Now(1_200_000));
    assert!((rate - 60.0).abs() < 1.0, "{rate}");
    assert!((demand.hits_per_min(Now(1_259_000)) - rate / 2.0).abs() < 1.0);
    // Time that goes backwards does no harm.
    demand.hit(Now(0));
    assert!(demand.hits_per_min(Now(1_200_000)) >= rate);
}

#[test]
fn copies_are_kept_where_there_is_room_or_demand() {
    let full = Share { copied_bytes: 0, free_bytes: 0, capacity_bytes: 1_000 };
    assert!(keep_copy(100, 0.0, 7, 1, Share { free_bytes: 100, ..full }));
    assert!(!keep_copy(100, 1.9, 1, 1, full));
    assert!(keep_copy(100, 2.0, 1, 1, full));
    // Below the share.
    assert!(keep_copy(100, 2.0, 1, 1, Share { copied_bytes: 150, ..full }));
    assert!(!keep_copy(100, 9e9, 1, 1, Share { copied_bytes: 151, ..full }));
    // Each surplus copy must be twice as hot.
    assert!(!keep_copy(100, 3.9, 2, 1, full) && keep_copy(100, 4.0, 2, 1, full));
    assert!(!keep_copy(100, 7.9, 3, 1, full) && keep_copy(100, 8.0, 3, 1, full));
    assert!(keep_copy(100, 2.0, 3, 3, full));
    assert!(!keep_copy(100, 1e9, u16::MAX - 1, 1, full));
}

#[test]
fn as_many_copies_are_wanted_as_links_are_needed() {
    for (demanded, copies) in [(0, 1), (1, 1), (500, 1), (501, 2), (1_500, 3), (1 << 60, u16::MAX)]
    {
        assert_eq!(copies_wanted(demanded, 1_000), copies, "{demanded}");
    }
    assert_eq!(copies_wanted(5, 0), 5);
}

#[test]
fn readers_are_read_ahead_of() {
    let mut reader = Reader::default();
    assert!(!reader.is_sequential());
    // What the reply needs, whoever reads.
    assert_eq!(prefetch(0, 9, 9, reader), 1..3);
    assert_eq!(prefetch(8, 9, 9, reader), 9..10);
    assert!(prefetch(9, 9, 9, reader).is_empty());
    assert!(prefetch(4, 4, 9, reader).is_empty());
    // Beyond it for those who read on.
    reader.reads(4);
    assert!(!reader.is_sequential());
    reader.reads(5);
    reader.reads(5);
    assert!(reader.is_sequential());
    assert_eq!(prefetch(5, 5, 9, reader), 6..8);
    assert_eq!(prefetch(9, 9, 9, reader), 10..10);
    reader.reads(2);
    assert!(!reader.is_sequential());
    reader.reads(u32::MAX);
    assert!(prefetch(u32::MAX, u32::MAX, u32::MAX, reader).is_empty());
}
