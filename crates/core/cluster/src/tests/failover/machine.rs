//! Failover on its machine: address conflicts, and hindrances to steering.

use super::*;

#[test]
fn a_newcomer_claims_no_address_that_is_in_conflict() {
    let mut bench = Bench::new(settings(0, 200), 0);
    let conflict =
        AddressConflict { address: "192.0.2.1".parse().unwrap(), mac: [2, 0, 0, 0, 9, 9] };
    let outputs = bench.failover.conflict(bench.now, conflict, false);
    let note = FailoverNote::InUse { conflict, is_defended: false };
    assert!(note.to_string().contains("02:00:00:00:09:09"), "{note}");
    assert!(note.to_string().contains("192.0.2.1"), "{note}");
    assert_eq!(outputs, [FailoverAction::Log(note)]);
    assert_eq!(bench.failover.conflict(bench.now, conflict, false), [], "said once");
    assert_eq!(bench.failover.stage(), Stage::Leaving);
    assert_eq!(claimed(&bench.run(9_900)), [0; 0]);
    let outputs = bench.run(150);
    assert_eq!(count(&outputs, &FailoverAction::Probe), 1, "asks again first");
    assert_eq!(claimed(&bench.run(250)), [of(0, 0)], "nobody there any more");
}

#[test]
fn an_address_conflict_ends_when_the_machine_turns_out_to_be_of_the_cluster() {
    let ours = AddressConflict { address: "192.0.2.1".parse().unwrap(), mac: [2, 0, 0, 0, 0, 99] };
    // Ended by its heartbeat; it dies soon after.
    let mut bench = Bench::new(settings(0, 200), 0);
    bench.failover.conflict(bench.now, ours, false);
    assert_eq!(bench.failover.stage(), Stage::Leaving);
    bench.hear(&heartbeat("d1", Stage::Active, of(1, 0)));
    assert_eq!(bench.failover.stage(), Stage::Standby);
    assert_eq!(claimed(&bench.run(TAKEOVER_MS + 2 * TICK_MS)), [of(0, 1)]);
    // Ended by a table, since its process does not run.
    let mut bench = Bench::new(settings(0, 200), 0);
    bench.failover.conflict(bench.now, ours, false);
    bench.failover.end_conflict(|mac| mac == [2, 0, 0, 0, 9, 9]);
    assert_eq!(bench.failover.stage(), Stage::Leaving);
    bench.failover.end_conflict(|mac| mac == ours.mac);
    assert_eq!(bench.failover.stage(), Stage::Joining);
    assert_eq!(claimed(&bench.run(TAKEOVER_MS + 2 * TICK_MS)), [of(0, 0)]);
}

#[test]
fn of_two_running_clusters_the_higher_mac_steps_down() {
    for (last, steps_down) in [(9, true), (11, false)] {
        let mut bench = Bench::active();
        bench.run(2_000);
        let conflict =
            AddressConflict { address: "192.0.2.1".parse().unwrap(), mac: [2, 0, 0, 0, 0, last] };
        let outputs = bench.failover.conflict(bench.now, conflict, false);
        assert_eq!(stepped_down(&outputs).is_some(), steps_down);
        assert_eq!(count(&outputs, &FailoverAction::Announce), usize::from(!steps_down));
        let outputs = bench.failover.conflict(bench.now, conflict, false);
        assert_eq!(count(&outputs, &FailoverAction::Announce), 0, "RFC 5227, 2.4 (b): no war");
        let claims = claimed(&bench.run(9_000));
        assert_eq!(claims, [0; 0]);
    }
    // Machines of the cluster are no conflict.
    let mut bench = Bench::active();
    bench.hear(&heartbeat("d1", Stage::Standby, 8));
    let ours = AddressConflict { address: "192.0.2.1".parse().unwrap(), mac: [2, 0, 0, 0, 0, 99] };
    assert_eq!(bench.failover.conflict(bench.now, ours, false), []);
}

#[test]
fn who_cannot_steer_steps_down_for_a_standby_and_for_nobody_else() {
    let mut bench = Bench::active();
    let hinder = |bench: &mut Bench, is_hindered: bool, ms: u64, other: Stage| {
        let mut outputs = Vec::new();
        for _ in 0..ms / 50 {
            bench.failover.set_hindered(bench.now, is_hindered);
            outputs.extend(bench.run_with(50, &heartbeat("d1", other, 1)));
        }
        outputs
    };
    assert_eq!(stepped_down(&hinder(&mut bench, true, 5_000, Stage::Leaving)), None);
    hinder(&mut bench, false, 100, Stage::Standby);
    assert_eq!(stepped_down(&hinder(&mut bench, true, 1_900, Stage::Standby)), None);
    let outputs = hinder(&mut bench, true, 200, Stage::Standby);
    assert_eq!(stepped_down(&outputs), Some(&StepDownReason::Hindered));
    assert_eq!(bench.failover.stage(), Stage::Leaving);
    // The other dispatcher is active; later it dies.
    hinder(&mut bench, false, 1_000, Stage::Active);
    assert_eq!(claimed(&bench.run(1_100)), [0; 0], "others have their time");
    assert_eq!(claimed(&bench.run(200)).len(), 1, "better than nobody");
}

#[test]
fn machines_of_the_cluster_are_never_given_way_to() {
    let mut bench = Bench::active();
    bench.run(2_000);
    let other = AddressConflict { address: "192.0.2.1".parse().unwrap(), mac: [0; 6] };
    let outputs = bench.failover.conflict(bench.now, other, true);
    assert_eq!(outputs, [FailoverAction::Announce], "for those who believe it");
    assert_eq!(bench.failover.conflict(bench.now, other, true), [], "once a second");
    assert!(stepped_down(&bench.failover.conflict(bench.now, other, false)).is_some());
}
