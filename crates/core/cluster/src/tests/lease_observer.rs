//! The lease observer: what it reads from a store and writes to it.

use skep_units::Now;
use skep_wire::seal::PeerId;

use crate::failover::LeaseView;
use crate::lease_observer::{LeaseObserver, LeaseRecord, SharedStore, StoreLeader};

const AGAIN_MS: u64 = 1_000;

/// A store in which the observer's own dispatcher leads, unless a test specifies otherwise.
struct Fake {
    leader: StoreLeader,
    active: Option<(PeerId, u64)>,
    campaigns: bool,
    /// The outcome of writes.
    outcome: Option<bool>,
    written: Vec<(LeaseRecord, u64)>,
}

impl SharedStore for Fake {
    fn leader(&mut self) -> StoreLeader {
        self.leader
    }

    fn campaign(&mut self, is_wanted: bool) {
        self.campaigns = is_wanted;
    }

    fn active(&mut self) -> Option<(PeerId, u64)> {
        self.active
    }

    fn write(&mut self, record: LeaseRecord, epoch: u64) {
        self.written.push((record, epoch));
    }

    fn outcome(&mut self, _: LeaseRecord) -> Option<bool> {
        self.outcome
    }
}

fn observer() -> LeaseObserver<Fake> {
    let fake = Fake {
        leader: StoreLeader::Me,
        active: None,
        campaigns: false,
        outcome: Some(true),
        written: Vec::new(),
    };
    LeaseObserver::new(fake, PeerId::of("d1"))
}

/// Polls at each tick of 25 ms for `ms`; returns the number of writes begun.
fn writes(observer: &mut LeaseObserver<Fake>, from_ms: u64, ms: u64, epoch: u64) -> usize {
    observer.store_mut().written.clear();
    for at in (from_ms..from_ms + ms).step_by(25) {
        observer.view(Now(at), Some(epoch), true);
    }
    observer.store().written.len()
}

#[test]
fn an_active_dispatcher_campaigns_and_writes_each_epoch_once() {
    let mut observer = observer();
    let own = PeerId::of("d1");
    let view = observer.view(Now(0), Some(8), true);
    assert_eq!(view, LeaseView::Held { leader: own, epoch: 8 });
    assert!(observer.store().campaigns);
    assert_eq!(observer.store().written, [(LeaseRecord::Epoch, 8), (LeaseRecord::Active, 8)]);
    assert_eq!(writes(&mut observer, 25, 5_000, 8), 0, "the store has them");
    assert_eq!(writes(&mut observer, 6_000, 5_000, 16), 2, "of another term");
    assert_eq!(observer.view(Now(12_000), None, false), LeaseView::Free, "it is being given back");
    assert!(!observer.store().campaigns);
    assert_eq!(writes(&mut observer, 13_000, 100, 24), 2);
}

#[test]
fn a_write_that_is_refused_is_repeated_and_no_flood() {
    let mut observer = observer();
    observer.store_mut().outcome = Some(false);
    let rounds = 10;
    let begun = writes(&mut observer, 0, rounds * AGAIN_MS, 8);
    assert!((2 * rounds as usize - 2..=2 * rounds as usize).contains(&begun), "{begun} writes");
    observer.store_mut().outcome = None;
    assert_eq!(writes(&mut observer, 60_000, 5_000, 8), 0, "they are under way");
    observer.store_mut().outcome = Some(true);
    assert_eq!(writes(&mut observer, 70_000, 5_000, 8), 0, "they have arrived");
}

#[test]
fn another_leader_is_named_with_the_epoch_that_it_wrote_itself() {
    let mut observer = observer();
    let (other, third) = (PeerId::of("d2"), PeerId::of("d3"));
    observer.store_mut().leader = StoreLeader::Other(other);
    observer.store_mut().active = Some((third, 40));
    let held = |epoch| LeaseView::Held { leader: other, epoch };
    assert_eq!(observer.view(Now(0), None, false), held(0), "that is the last leader's");
    observer.store_mut().active = Some((other, 41));
    assert_eq!(observer.view(Now(25), None, false), held(41));
    observer.store_mut().active = Some((other, u64::MAX));
    assert_eq!(observer.view(Now(40), None, false), held(0), "damage: none could be later");
    observer.store_mut().leader = StoreLeader::Unknown;
    assert_eq!(observer.view(Now(50), None, false), LeaseView::Unknown);
    assert_eq!(observer.store().written, [], "a standby writes nothing");
}
