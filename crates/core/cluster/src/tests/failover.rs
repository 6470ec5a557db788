//! Failover between dispatchers: which one claims when, and which one steps down.

mod epochs;
mod machine;

use skep_units::{DISPATCHER_NUMBER_BITS, Now, dispatcher_number};
use skep_wire::message::{DispatcherHeartbeat, Hears, Name, Stage};
use skep_wire::seal::{PeerId, Stamp};
use skep_wire::table::TableVersion;

use crate::epoch::{first_after, owner};
use crate::failover::{
    AddressConflict, Failover, FailoverAction, FailoverNote, FailoverSettings, LeaseView,
    StepDownReason, TakeoverReason, WitnessState,
};
use crate::limits::EPOCHS_RESERVED;

const TICK_MS: u64 = 25;
const TAKEOVER_MS: u64 = 175;

/// The epoch of `d{dispatcher}` in its term `term`. The epochs of d0, d1 and d2 increase in this
/// order.
fn of(dispatcher: u8, term: u64) -> u64 {
    term << DISPATCHER_NUMBER_BITS | u64::from(dispatcher_number(&format!("d{dispatcher}")))
}

fn settings(dispatcher: u8, priority: u32) -> FailoverSettings {
    FailoverSettings {
        name: Name::new(&format!("d{dispatcher}")).unwrap(),
        priority,
        mac: [2, 0, 0, 0, 0, 10 + dispatcher],
        interval_ms: 50,
        missed_max: 3,
        preempt: false,
        lease_patience_ms: 6_000,
    }
}

/// One dispatcher with its clock; the tests play the others.
struct Bench {
    failover: Failover,
    now: Now,
    sequence: u64,
}

impl Bench {
    fn new(settings: FailoverSettings, epoch: u64) -> Self {
        let mut bench = Self::with_slow_disk(settings, epoch);
        bench.failover.epochs_persisted(epoch + EPOCHS_RESERVED);
        bench
    }

    /// Its first epochs are not persisted yet.
    fn with_slow_disk(settings: FailoverSettings, epoch: u64) -> Self {
        let (failover, outputs) = Failover::new(settings, Now(1_000), epoch, 0);
        let persist = FailoverAction::PersistEpochs { last: epoch + EPOCHS_RESERVED };
        assert_eq!(outputs, [FailoverAction::Probe, persist, FailoverAction::SendHeartbeat]);
        assert_eq!((failover.stage(), failover.takeover_ms()), (Stage::Joining, TAKEOVER_MS));
        Self { failover, now: Now(1_000), sequence: 0 }
    }

    /// It has the highest priority, and is active in its first term.
    fn active() -> Self {
        let mut bench = Self::new(settings(0, 200), 0);
        assert_eq!(claimed(&bench.run(200)), [of(0, 0)]);
        bench
    }

    /// Advances the time while listening.
    fn run(&mut self, ms: u64) -> Vec<FailoverAction> {
        let mut outputs = Vec::new();
        for _ in 0..ms / TICK_MS {
            self.now = self.now.plus_ms(TICK_MS);
            outputs.extend(self.failover.tick(self.now));
        }
        outputs
    }

    /// The same, with or without heartbeats of nodes.
    fn hears_nodes(&mut self, hears_nodes: bool, ms: u64) -> Vec<FailoverAction> {
        let mut outputs = Vec::new();
        for _ in 0..ms / TICK_MS {
            self.failover.set_hears_nodes(self.now.plus_ms(TICK_MS), hears_nodes);
            outputs.extend(self.run(TICK_MS));
        }
        outputs
    }

    /// The same, while another dispatcher sends heartbeats.
    fn run_with(&mut self, ms: u64, heartbeat: &DispatcherHeartbeat) -> Vec<FailoverAction> {
        let mut outputs = Vec::new();
        for _ in 0..ms / 50 {
            outputs.extend(self.hear(heartbeat));
            outputs.extend(self.run(50));
        }
        outputs
    }

    fn hear(&mut self, heartbeat: &DispatcherHeartbeat) -> Vec<FailoverAction> {
        self.sequence += 1;
        self.hear_as(heartbeat, Stamp { incarnation: 1, sequence: self.sequence })
    }

    fn hear_as(&mut self, heartbeat: &DispatcherHeartbeat, stamp: Stamp) -> Vec<FailoverAction> {
        self.failover.heard(self.now, heartbeat, heartbeat.name.peer(), stamp)
    }

    fn witness(&mut self, dispatcher: &str, epoch: u64, ago_ms: u32) -> Vec<FailoverAction> {
        let hears = Hears { dispatcher: PeerId::of(dispatcher), epoch, ago_ms };
        self.failover.witness(self.now, Some(hears), TableVersion::default())
    }
}

fn heartbeat(name: &str, stage: Stage, epoch: u64) -> DispatcherHeartbeat {
    DispatcherHeartbeat {
        name: Name::new(name).unwrap(),
        stage,
        epoch,
        priority: 100,
        flows_synced: false,
        table: TableVersion::default(),
        hears: None,
        mac: [2, 0, 0, 0, 0, 99],
    }
}

fn claimed(outputs: &[FailoverAction]) -> Vec<u64> {
    let epoch = |output: &FailoverAction| match output {
        FailoverAction::Claim { epoch } => Some(*epoch),
        _ => None,
    };
    outputs.iter().filter_map(epoch).collect()
}

fn persisting(outputs: &[FailoverAction]) -> Vec<u64> {
    let last = |output: &FailoverAction| match output {
        FailoverAction::PersistEpochs { last } => Some(*last),
        _ => None,
    };
    outputs.iter().filter_map(last).collect()
}

fn stepped_down(outputs: &[FailoverAction]) -> Option<&StepDownReason> {
    outputs.iter().find_map(|output| match output {
        FailoverAction::StepDown { why } => Some(why),
        _ => None,
    })
}

fn count(outputs: &[FailoverAction], wanted: &FailoverAction) -> usize {
    outputs.iter().filter(|output| *output == wanted).count()
}

#[test]
fn alone_it_listens_claims_and_announces_twice() {
    let mut bench = Bench::new(settings(3, 100), 0);
    assert_eq!(claimed(&bench.run(TAKEOVER_MS)), [0; 0]);
    let outputs = bench.run(TICK_MS);
    let claim = [
        FailoverAction::Claim { epoch: of(3, 0) },
        FailoverAction::Announce,
        FailoverAction::SendHeartbeat,
        FailoverAction::Log(FailoverNote::Claimed {
            epoch: of(3, 0),
            cause: TakeoverReason::Vacancy,
        }),
    ];
    assert_eq!(outputs[..4], claim);
    assert_eq!(bench.failover.stage(), Stage::Active);
    let outputs = bench.run(3_000);
    assert_eq!(count(&outputs, &FailoverAction::Announce), 1, "once more after a second");
    assert_eq!(count(&outputs, &FailoverAction::SendHeartbeat), 60);
    assert_eq!(claimed(&outputs), [0; 0]);
}

#[test]
fn it_follows_an_active_one_and_takes_over_from_silence() {
    let mut bench = Bench::new(settings(0, 200), 0);
    let outputs = bench.run_with(2_000, &heartbeat("d1", Stage::Active, of(1, 0)));
    assert_eq!(claimed(&outputs), [0; 0], "whatever the priority");
    assert_eq!(bench.failover.active(), Some(PeerId::of("d1")));
    // The last heartbeat is 50 ms old.
    assert_eq!(claimed(&bench.run(TAKEOVER_MS - 50)), [0; 0]);
    assert_eq!(claimed(&bench.run(TICK_MS)), [of(0, 1)]);
}

#[test]
fn it_takes_over_at_once_from_one_that_lets_go() {
    for stage in [Stage::Leaving, Stage::Standby, Stage::Joining] {
        let mut bench = Bench::new(settings(0, 200), 0);
        bench.run_with(500, &heartbeat("d1", Stage::Active, of(1, 0)));
        bench.hear(&heartbeat("d1", Stage::Leaving, of(1, 0)));
        let outputs = bench.run(TICK_MS);
        assert_eq!(claimed(&outputs), [of(0, 1)], "{stage:?}");
    }
}

#[test]
fn the_fittest_of_several_goes_first() {
    // The other standby's priority and flows, and whether it is waited for.
    for (priority, is_synced, is_waited) in
        [(200, false, true), (50, true, true), (50, false, false)]
    {
        let mut bench = Bench::new(settings(0, 100), 0);
        let active = heartbeat("d1", Stage::Active, of(1, 0));
        let other = DispatcherHeartbeat {
            priority,
            flows_synced: is_synced,
            ..heartbeat("d2", Stage::Standby, of(1, 0))
        };
        bench.run_with(500, &active);
        let outputs = bench.run_with(250, &other);
        assert_eq!(claimed(&outputs).is_empty(), is_waited, "{priority} {is_synced}");
        // It is alive but does not claim: it must be faulty.
        let outputs = bench.run_with(200, &other);
        assert_eq!(!claimed(&outputs).is_empty(), is_waited, "{priority} {is_synced}");
    }
}

#[test]
fn a_pause_of_its_own_is_no_silence_of_others() {
    let mut bench = Bench::new(settings(0, 200), 0);
    bench.run_with(500, &heartbeat("d1", Stage::Active, of(1, 0)));
    bench.now = bench.now.plus_ms(5_000);
    assert_eq!(claimed(&bench.failover.tick(bench.now)), [0; 0]);
    assert_eq!(claimed(&bench.run(50)), [0; 0]);
    assert_eq!(claimed(&bench.run(TAKEOVER_MS)), [of(0, 1)], "it listened now");
}

#[test]
fn the_better_claim_stays_and_announces_again() {
    for (epoch, priority, name, is_better) in [
        (of(1, 0), 1, "d1", true),
        (of(0, 0) - 1, 250, "d1", false),
        (of(0, 0), 250, "d1", true),
        (of(0, 0), 1, "d1", false),
    ] {
        let mut bench = Bench::active();
        bench.run(2_000);
        let other = DispatcherHeartbeat { priority, ..heartbeat(name, Stage::Active, epoch) };
        let outputs = bench.hear(&other);
        let why = stepped_down(&outputs);
        assert_eq!(
            why,
            is_better.then_some(&StepDownReason::Outranked { epoch }),
            "{epoch} {priority}"
        );
        if is_better {
            assert!(outputs.contains(&FailoverAction::SendHeartbeat), "says so at once");
            assert_eq!(bench.failover.active(), Some(PeerId::of(name)));
            continue;
        }
        assert!(
            outputs.contains(&FailoverAction::Announce)
                && outputs.contains(&FailoverAction::SendHeartbeat)
        );
        let outputs = bench.run_with(900, &other);
        assert_eq!(count(&outputs, &FailoverAction::Announce), 0, "once a second is enough");
        assert_eq!(count(&bench.run(200), &FailoverAction::Announce), 1);
    }
}

#[test]
fn the_active_one_announces_again_to_whoever_it_had_lost() {
    let mut bench = Bench::active();
    let standby = heartbeat("d2", Stage::Standby, bench.failover.epoch());
    assert_eq!(
        count(&bench.hear(&standby), &FailoverAction::Announce),
        1,
        "it may have been active"
    );
    bench.run_with(2_000, &standby);
    assert_eq!(count(&bench.hear(&standby), &FailoverAction::Announce), 0, "heard all the time");
    bench.run(500);
    assert_eq!(count(&bench.hear(&standby), &FailoverAction::Announce), 1, "lost and found");
    assert_eq!(count(&bench.run(1_100), &FailoverAction::Announce), 1, "once more after a second");
}

#[test]
fn late_heartbeats_of_before_change_nothing() {
    let mut bench = Bench::new(settings(0, 200), 0);
    let stamp = |sequence| Stamp { incarnation: 5, sequence };
    bench.hear_as(&heartbeat("d1", Stage::Active, of(1, 0)), stamp(10));
    bench.hear_as(&heartbeat("d1", Stage::Leaving, of(1, 0)), stamp(9));
    assert_eq!(bench.failover.active(), Some(PeerId::of("d1")));
    // A later start counts, whatever its sequence number.
    let later = Stamp { incarnation: 6, sequence: 1 };
    bench.hear_as(&heartbeat("d1", Stage::Joining, of(1, 0)), later);
    assert_eq!(bench.failover.active(), None);
}

#[test]
fn witnesses_hold_it_back_until_their_word_is_old() {
    let mut bench = Bench::new(settings(0, 200), 0);
    bench.run_with(500, &heartbeat("d1", Stage::Active, of(1, 0)));
    for _ in 0..20 {
        assert_eq!(claimed(&bench.run(100)), [0; 0], "a node hears d1");
        bench.witness("d1", of(1, 0), 30);
    }
    let outputs = bench.run(150);
    assert_eq!(claimed(&outputs), [of(0, 1)], "30 ms and 150");
    // Late reports about the previous term do not affect this one.
    assert_eq!(stepped_down(&bench.witness("d1", of(1, 0), 170)), None);
}

#[test]
fn hearsay_of_a_later_reign_is_believed_and_of_one_that_ended_is_not() {
    let mut bench = Bench::active();
    assert_eq!(stepped_down(&bench.witness("d1", of(1, 0), 200)), None, "too old");
    let outputs = bench.witness("d1", of(1, 1), 20);
    assert_eq!(stepped_down(&outputs), Some(&StepDownReason::Outranked { epoch: of(1, 1) }));
    bench.hear(&heartbeat("d1", Stage::Leaving, of(1, 1)));
    bench.witness("d1", of(1, 1), 40);
    assert_eq!(claimed(&bench.run(TICK_MS)), [of(0, 2)], "d1 itself said that it left");
}

#[test]
fn later_epochs_without_anybody_active_make_it_claim_anew() {
    let mut bench = Bench::active();
    bench.failover.witness(bench.now, None, TableVersion { epoch: of(1, 3), generation: 4 });
    let outputs = bench.run(TAKEOVER_MS + TICK_MS);
    let note = FailoverAction::Log(FailoverNote::Claimed {
        epoch: of(0, 4),
        cause: TakeoverReason::LaterEpoch,
    });
    assert_eq!(claimed(&outputs), [of(0, 4)]);
    assert!(outputs.contains(&note));
    assert_eq!(stepped_down(&outputs), None);
}

#[test]
fn heartbeats_that_waited_in_a_pause_are_no_return_and_no_life() {
    let mut bench = Bench::new(settings(0, 200), 0);
    let active = heartbeat("d1", Stage::Active, of(1, 0));
    bench.run_with(1_000, &active);
    let paused = bench.now;
    bench.now = paused.plus_ms(5_000);
    let mut outputs = bench.failover.tick(bench.now);
    // The active dispatcher dies a second after the pause began.
    for ms in (0..1_000).step_by(50) {
        bench.sequence += 1;
        let stamp = Stamp { incarnation: 1, sequence: bench.sequence };
        let arrived = paused.plus_ms(ms);
        outputs.extend(bench.failover.heard(arrived, &active, PeerId::of("d1"), stamp));
    }
    let is_note =
        |output: &&FailoverAction| matches!(output, FailoverAction::Log(FailoverNote::Heard(_)));
    assert_eq!(outputs.iter().filter(is_note).count(), 0, "{outputs:?}");
    assert_eq!(claimed(&outputs), [0; 0]);
    // Heartbeats from before the pause count, and so does the listening time since then.
    assert_eq!(claimed(&bench.run(50)), [0; 0]);
    assert_eq!(claimed(&bench.run(100 + 2 * TICK_MS)), [of(0, 1)]);
}

#[test]
fn preemption_wants_permission_priority_flows_and_time() {
    for (preempt, priority, is_synced, takes) in [
        (true, 200, true, true),
        (false, 200, true, false),
        (true, 100, true, false),
        (true, 200, false, false),
    ] {
        let mut bench = Bench::new(FailoverSettings { preempt, ..settings(0, priority) }, 0);
        let active = heartbeat("d1", Stage::Active, of(1, 0));
        // It can have the flows only of an active dispatcher that it follows.
        assert_eq!(claimed(&bench.run_with(50, &active)), [0; 0], "it follows");
        bench.failover.set_flows_synced(is_synced);
        assert_eq!(claimed(&bench.run_with(950, &active)), [0; 0], "not at once");
        let outputs = bench.run_with(200, &active);
        assert_eq!(!claimed(&outputs).is_empty(), takes, "{preempt} {priority} {is_synced}");
    }
}

#[test]
fn the_store_restrains_and_its_silence_does_not() {
    let others = |epoch| LeaseView::Held { leader: PeerId::of("d1"), epoch };
    // A later epoch in the store: another dispatcher took over unnoticed.
    let mut bench = Bench::active();
    let outputs = bench.failover.lease(bench.now, others(of(1, 0)));
    assert_eq!(stepped_down(&outputs), Some(&StepDownReason::Lease { epoch: of(1, 0) }));
    assert_eq!(claimed(&bench.run(3_000)), [0; 0], "it leads, though unheard");
    bench.run_with(100, &heartbeat("d1", Stage::Active, of(1, 0)));
    assert_eq!(claimed(&bench.run(200)), [0; 0], "some of its heartbeats are lost");
    bench.run_with(1_200, &heartbeat("d1", Stage::Active, of(1, 0)));
    assert_eq!(
        claimed(&bench.run(200)),
        [of(0, 1)],
        "heard, and then silent: no waiting for the lease"
    );
    // An earlier epoch: the lease of a dispatcher that is dead or cut off.
    let mut bench = Bench::active();
    assert_eq!(stepped_down(&bench.failover.lease(bench.now, others(1))), None);
    assert_eq!(stepped_down(&bench.run(5_900)), None);
    assert!(stepped_down(&bench.run(200)).is_some(), "patience has an end");
    assert_eq!(claimed(&bench.run(3_000)), [0; 0]);
    bench.failover.lease(bench.now, LeaseView::Free);
    assert_eq!(claimed(&bench.run(50)), [of(0, 1)], "nobody leads there");
}

#[test]
fn who_lost_the_lease_does_not_claim_while_another_holds_it() {
    let others = LeaseView::Held { leader: PeerId::of("d1"), epoch: of(1, 0) };
    let mut bench = Bench::active();
    assert!(bench.failover.wants_lease());
    assert!(stepped_down(&bench.failover.lease(bench.now, others)).is_some());
    assert!(!bench.failover.wants_lease());
    for _ in 0..100 {
        // A standby observes the lease, too.
        let outputs = bench.failover.lease(bench.now, others);
        assert_eq!(claimed(&outputs), [0; 0]);
        assert_eq!(claimed(&bench.run(100)), [0; 0]);
    }
    // The store is silent: for the lifetime of a lease, the other one is assumed to hold it.
    for _ in 0..60 {
        bench.failover.lease(bench.now, LeaseView::Unknown);
        assert_eq!(claimed(&bench.run(100)), [0; 0]);
    }
    let outputs: Vec<_> = (0..3)
        .flat_map(|_| {
            bench.failover.lease(bench.now, LeaseView::Unknown);
            bench.run(100)
        })
        .collect();
    assert_eq!(claimed(&outputs), [of(0, 1)], "without a store, heartbeats decide");
}

#[test]
fn a_standby_that_hears_no_node_any_more_does_not_claim() {
    let mut bench = Bench::new(settings(0, 200), 0);
    bench.run_with(100, &heartbeat("d1", Stage::Active, 1));
    bench.hears_nodes(true, 50);
    // Its receive path fails: it receives nothing, but others would receive its claim.
    assert_eq!(claimed(&bench.hears_nodes(false, 5_000)), [0; 0]);
    assert_eq!(claimed(&bench.hears_nodes(true, 100)), [of(0, 0)]);
    // If no node's heartbeat was ever received, there may be no nodes yet.
    let mut bench = Bench::new(settings(0, 200), 0);
    assert_eq!(claimed(&bench.hears_nodes(false, 200)), [of(0, 0)]);
}

#[test]
fn nobody_who_does_not_hear_the_leader_claims_in_its_place() {
    let others = LeaseView::Held { leader: PeerId::of("d2"), epoch: of(1, 0) };
    // A dispatcher that has just started.
    let mut bench = Bench::new(settings(0, 200), 0);
    bench.failover.lease(bench.now, others);
    assert_eq!(claimed(&bench.run(5_000)), [0; 0]);
    bench.failover.lease(bench.now, LeaseView::Free);
    assert_eq!(claimed(&bench.run(100)), [of(0, 1)]);
    // A third dispatcher, when the second steps down because the first holds the lease.
    let mut bench = Bench::new(settings(0, 200), 0);
    bench.failover.lease(bench.now, others);
    bench.run_with(500, &heartbeat("d1", Stage::Active, of(1, 1)));
    bench.hear(&heartbeat("d1", Stage::Standby, of(1, 1)));
    assert_eq!(claimed(&bench.run(5_000)), [0; 0]);
    // The leader itself steps down.
    let mut bench = Bench::new(settings(0, 200), 0);
    bench.failover.lease(bench.now, others);
    bench.run_with(500, &heartbeat("d2", Stage::Active, of(1, 0)));
    bench.hear(&heartbeat("d2", Stage::Leaving, of(1, 0)));
    assert_eq!(claimed(&bench.run(100)), [of(0, 1)]);
}

#[test]
fn patience_does_not_begin_anew_at_each_silence_of_the_store() {
    let others = LeaseView::Held { leader: PeerId::of("d1"), epoch: 1 };
    let mut bench = Bench::active();
    for round in 0..6 {
        assert_eq!(stepped_down(&bench.failover.lease(bench.now, others)), None, "{round}");
        assert_eq!(stepped_down(&bench.run(1_000)), None, "{round}");
        bench.failover.lease(bench.now, LeaseView::Unknown);
        assert_eq!(stepped_down(&bench.run(3_000)), None, "its silence does not count");
    }
    bench.failover.lease(bench.now, others);
    assert!(stepped_down(&bench.run(100)).is_some(), "six seconds of it");
}

#[test]
fn who_cannot_serve_leaves_the_lease_to_others() {
    let mut bench = Bench::active();
    bench.hears_nodes(true, 100);
    bench.hears_nodes(false, 900);
    assert!(bench.failover.wants_lease(), "some heartbeats are lost");
    assert_eq!(stepped_down(&bench.hears_nodes(false, 10_000)), None, "nobody else leads");
    assert!(!bench.failover.wants_lease());
    bench.failover.lease(bench.now, LeaseView::Held { leader: PeerId::of("d1"), epoch: 0 });
    assert_eq!(stepped_down(&bench.run(5_900)), None);
    assert!(stepped_down(&bench.run(200)).is_some(), "another one leads");
}

#[test]
fn who_stops_says_so_once() {
    let mut bench = Bench::active();
    let outputs = bench.failover.stop(bench.now);
    assert_eq!(stepped_down(&outputs), Some(&StepDownReason::Stopping));
    assert_eq!(outputs.last(), Some(&FailoverAction::SendHeartbeat));
    let last = bench.failover.heartbeat(bench.now, TableVersion::default());
    assert_eq!((last.stage, last.epoch), (Stage::Leaving, of(0, 0)));
    assert_eq!(bench.run(1_000), []);
    assert_eq!(bench.hear(&heartbeat("d1", Stage::Active, 3)), []);
}

#[test]
fn dispatchers_are_bounded() {
    let mut bench = Bench::active();
    for number in 0..100 {
        bench.hear(&heartbeat(&format!("x{number}"), Stage::Standby, 0));
    }
    let crowd = heartbeat("one-more", Stage::Active, 1_000);
    assert_eq!(bench.hear(&crowd), [], "one of more than there can be");
}

#[test]
fn a_witness_tells_of_the_latest_epoch_that_it_hears_now() {
    let mut witness = WitnessState::default();
    let hear = |witness: &mut WitnessState, at, name: &str, stage, epoch, sequence| {
        let stamp = Stamp { incarnation: 1, sequence };
        witness.heard(Now(at), &heartbeat(name, stage, epoch), PeerId::of(name), stamp)
    };
    assert_eq!(witness.hears(Now(0), 175), None);
    assert!(hear(&mut witness, 100, "d0", Stage::Active, 8, 2));
    assert!(!hear(&mut witness, 100, "d0", Stage::Standby, 8, 1), "said before");
    assert!(hear(&mut witness, 120, "d1", Stage::Active, 17, 1));
    let d1 = Hears { dispatcher: PeerId::of("d1"), epoch: 17, ago_ms: 80 };
    assert_eq!(witness.hears(Now(200), 175), Some(d1));
    assert!(hear(&mut witness, 300, "d0", Stage::Active, 8, 3));
    let d0 = Hears { dispatcher: PeerId::of("d0"), epoch: 8, ago_ms: 10 };
    assert_eq!(witness.hears(Now(310), 175), Some(d0), "d1 is silent");
    assert!(hear(&mut witness, 320, "d0", Stage::Standby, 17, 4));
    assert_eq!(witness.hears(Now(400), 175), None, "d0 has stepped down, d1 is silent");
    assert_eq!(witness.hears(Now(400), 280).map(|hears| hears.epoch), Some(17));
}
