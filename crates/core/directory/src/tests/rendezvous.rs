//! Owners while no coordinator answers, by rendezvous hashing.

use std::collections::BTreeMap;

use skep_units::SEGMENT_BYTES;
use skep_wire::message::Name;

use super::name;
use crate::RendezvousHash;
use crate::limits::OWNER_LOAD_FLOOR_BYTES;

fn rendezvous(members: &[u16]) -> RendezvousHash<u16> {
    let member = |&id: &u16| (id, Name::new(&format!("n{id}")).unwrap());
    RendezvousHash::new(members.iter().map(member))
}

fn shares(rendezvous: &RendezvousHash<u16>) -> BTreeMap<u16, i32> {
    let mut shares = BTreeMap::new();
    for seed in 0..8_000 {
        *shares.entry(rendezvous.owner(&name(seed), |_| 0).unwrap()).or_default() += 1;
    }
    shares
}

#[test]
fn owners_share_alike_and_agree_whatever_their_order() {
    let equal = rendezvous(&[0, 1, 2, 3]);
    assert!(shares(&equal).values().all(|&it| i32::abs(it - 2_000) < 150), "{:?}", shares(&equal));
    let other = rendezvous(&[3, 1, 0, 2]);
    for seed in 0..500 {
        let order = equal.candidates(&name(seed));
        assert_eq!(order, other.candidates(&name(seed)));
        assert_eq!(order.first().copied(), equal.owner(&name(seed), |_| 0));
    }
    assert_eq!(rendezvous(&[]).owner(&name(1), |_| 0), None);
}

#[test]
fn who_leaves_moves_only_what_it_owned() {
    let (before, after) = (rendezvous(&[0, 1, 2, 3]), rendezvous(&[0, 1, 3]));
    for seed in 0..2_000 {
        let mut order = before.candidates(&name(seed));
        order.retain(|&it| it != 2);
        assert_eq!(order, after.candidates(&name(seed)));
    }
}

#[test]
fn no_owner_gets_more_than_the_bound() {
    // All ask for the same segment, and no transfer ever ends.
    let rendezvous = rendezvous(&[0, 1, 2, 3, 4]);
    let mut loads = BTreeMap::from([(0u16, 0u64), (1, 0), (2, 0), (3, 0), (4, 0)]);
    for asked in 1..=2_000u64 {
        let owner = rendezvous.owner(&name(1), |it| loads[&it]).unwrap();
        *loads.get_mut(&owner).unwrap() += SEGMENT_BYTES;
        for (id, load) in &loads {
            let share = (asked + 1) * SEGMENT_BYTES / 5;
            let bound = (share * 5 / 4).max(OWNER_LOAD_FLOOR_BYTES) + SEGMENT_BYTES;
            assert!(*load <= bound, "{id}: {load} of {bound} after {asked}");
        }
    }
    // Under little load all nodes agree, whatever loads they know.
    let little = |it: u16| u64::from(it) * SEGMENT_BYTES;
    for seed in 0..200 {
        assert_eq!(rendezvous.owner(&name(seed), little), rendezvous.owner(&name(seed), |_| 0));
    }
}
