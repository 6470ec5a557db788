//! Failover and its epochs: those that it claims in, and those that it persists.

use std::collections::BTreeSet;

use skep_units::Rng;

use super::*;

#[test]
fn an_epoch_is_persisted_before_it_is_used_unless_the_disk_is_slow() {
    let mut bench = Bench::with_slow_disk(settings(0, 200), 0);
    assert_eq!(claimed(&bench.run(TAKEOVER_MS + 2 * TICK_MS)), [0; 0]);
    assert!(!bench.failover.has_epoch(bench.now) && bench.failover.epoch() == 0);
    bench.failover.epochs_persisted(EPOCHS_RESERVED);
    assert_eq!(claimed(&bench.run(TICK_MS)), [of(0, 0)], "at the next tick");

    let mut bench = Bench::with_slow_disk(settings(0, 200), 0);
    assert_eq!(claimed(&bench.run(2 * TAKEOVER_MS)).len(), 1, "a takeover waits");
}

#[test]
fn thirty_takeovers_need_no_disk() {
    let mut bench = Bench::new(settings(0, 200), 0);
    let mut persists = Vec::new();
    for takeover in 0..30 {
        let outputs = bench.run_with(100, &heartbeat("d1", Stage::Active, of(1, 2 * takeover)));
        persists.extend(persisting(&outputs));
        bench.hear(&heartbeat("d1", Stage::Leaving, of(1, 2 * takeover)));
        let outputs = bench.run(TAKEOVER_MS + TICK_MS);
        persists.extend(persisting(&outputs));
        assert_eq!(claimed(&outputs), [of(0, 2 * takeover + 1)], "takeover {takeover}");
    }
    assert_eq!(persists.len(), 1, "more are reserved ahead, once: {persists:?}");
}

#[test]
fn epochs_that_cannot_be_persisted_are_used_and_tried_again() {
    let mut bench = Bench::with_slow_disk(settings(0, 200), 0);
    bench.failover.epochs_not_persisted(bench.now);
    let outputs = bench.run(500);
    let [epoch] = claimed(&outputs)[..] else { panic!("{outputs:?}") };
    assert_eq!(persisting(&outputs), [0; 0]);
    let again = persisting(&bench.run(600));
    assert_eq!(again, [epoch + EPOCHS_RESERVED], "after a second");
}

/// The first epoch of a process that finds `stored` on its disk, whose writes may fail.
fn first_epoch(stored: u64, random: u64, fails: bool) -> u64 {
    let (mut failover, outputs) = Failover::new(settings(0, 200), Now(0), stored, random);
    match persisting(&outputs)[..] {
        [last] if !fails => failover.epochs_persisted(last),
        _ => failover.epochs_not_persisted(Now(0)),
    }
    let outputs: Vec<_> = (1..20).flat_map(|at| failover.tick(Now(at * TICK_MS))).collect();
    let [epoch] = claimed(&outputs)[..] else { panic!("{outputs:?}") };
    epoch
}

#[test]
fn processes_that_find_the_same_on_their_disk_begin_with_other_epochs() {
    for stored in [0, of(0, 9), of(1, 9)] {
        let epochs = [1, 2].map(|process| {
            let random = Rng::new(process).next_u64();
            [false, true].map(|fails| first_epoch(stored, random, fails))
        });
        assert_ne!(epochs[0], epochs[1], "one of them found an old copy, or nothing");
        let mut epochs = epochs.into_iter().flatten();
        assert!(epochs.all(|epoch| epoch > stored && owner(epoch) == dispatcher_number("d0")));
    }
}

#[test]
fn epochs_are_the_next_of_its_number() {
    // Epochs of earlier builds, numbered in steps of 8, are exceeded, too.
    for (dispatcher, seen) in
        [(0, 0), (1, 0), (1, of(1, 0)), (2, of(0, 7)), (0, of(2, 7)), (3, 520)]
    {
        let mut bench = Bench::new(settings(dispatcher, 100), seen);
        let claim = first_after(seen, dispatcher_number(&format!("d{dispatcher}")));
        assert_eq!(claimed(&bench.run(250)), [claim], "d{dispatcher}, seen {seen}");
    }
}

/// During the roll-out of a config that lists d3 first, all dispatchers claim independently.
#[test]
fn no_epoch_is_of_two_owners_in_a_rolling_restart() {
    let configs = [&[0, 1, 2][..], &[3, 0, 1, 2]];
    for restarted in 0..=3 {
        let config =
            |dispatcher: u8| configs[usize::from(dispatcher == 3 || dispatcher < restarted)];
        let claims = [3, 0, 1, 2].map(|dispatcher| {
            let place = config(dispatcher).iter().position(|it| *it == dispatcher).unwrap();
            let mut bench = Bench::new(of_config(config(dispatcher), place), of(0, 5));
            claimed(&bench.run(250))[0]
        });
        let distinct: BTreeSet<u64> = claims.into_iter().collect();
        assert_eq!(distinct.len(), claims.len(), "{restarted} restarted: {claims:?}");
    }
}

/// The settings in a config of the dispatcher at `place`.
fn of_config(dispatchers: &[u8], place: usize) -> FailoverSettings {
    settings(dispatchers[place], 100)
}

/// A table is no heartbeat of a node, either: a dispatcher that never received one may claim.
#[test]
fn a_claim_follows_the_term_of_a_table_whose_dispatcher_was_not_heard() {
    let mut bench = Bench::new(settings(0, 100), 0);
    bench.failover.table_heard(bench.now, TableVersion { epoch: of(1, 3), generation: 1 });
    bench.failover.set_hears_nodes(bench.now, false);
    let claims = claimed(&bench.run(4 * TAKEOVER_MS));
    assert!(matches!(claims[..], [epoch] if epoch > of(1, 3)), "{claims:?}");
}
