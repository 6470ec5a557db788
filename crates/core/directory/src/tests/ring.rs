//! Owners while no coordinator answers.

use std::collections::BTreeMap;

use skep_units::SEGMENT_BYTES;
use skep_wire::message::Name;

use super::name;
use crate::Ring;
use crate::limits::OWNER_LOAD_FLOOR_BYTES;

fn ring(weights: &[(u16, u32)]) -> Ring<u16> {
    let member = |&(id, weight)| (id, Name::new(&format!("n{id}")).unwrap(), weight);
    Ring::new(weights.iter().map(member))
}

fn shares(ring: &Ring<u16>) -> BTreeMap<u16, i32> {
    let mut shares = BTreeMap::new();
    for seed in 0..8_000 {
        *shares.entry(ring.owner(&name(seed), |_| 0).unwrap()).or_default() += 1;
    }
    shares
}

#[test]
fn owners_share_by_weight_and_agree_whatever_their_order() {
    let equal = ring(&[(0, 1), (1, 1), (2, 1), (3, 1)]);
    assert!(shares(&equal).values().all(|&it| i32::abs(it - 2_000) < 150), "{:?}", shares(&equal));
    let heavy = shares(&ring(&[(0, 1), (1, 3), (2, 4)]));
    for (found, expected) in heavy.values().zip([1_000, 3_000, 4_000]) {
        assert!(i32::abs(found - expected) < 150, "{heavy:?}");
    }
    let other = ring(&[(3, 1), (1, 1), (0, 1), (2, 1)]);
    for seed in 0..500 {
        let order = equal.candidates(&name(seed));
        assert_eq!(order, other.candidates(&name(seed)));
        assert_eq!(order.first().copied(), equal.owner(&name(seed), |_| 0));
    }
    assert_eq!(ring(&[]).owner(&name(1), |_| 0), None);
}

#[test]
fn who_leaves_moves_only_what_it_owned() {
    let (before, after) =
        (ring(&[(0, 2), (1, 1), (2, 1), (3, 1)]), ring(&[(0, 2), (1, 1), (3, 1)]));
    for seed in 0..2_000 {
        let mut order = before.candidates(&name(seed));
        order.retain(|&it| it != 2);
        assert_eq!(order, after.candidates(&name(seed)));
    }
}

#[test]
fn no_owner_gets_more_than_the_bound() {
    // All ask for one segment, and nothing is ever done.
    let ring = ring(&[(0, 1), (1, 1), (2, 1), (3, 1), (4, 4)]);
    let mut loads = BTreeMap::from([(0u16, 0u64), (1, 0), (2, 0), (3, 0), (4, 0)]);
    for asked in 1..=2_000u64 {
        let owner = ring.owner(&name(1), |it| loads[&it]).unwrap();
        *loads.get_mut(&owner).unwrap() += SEGMENT_BYTES;
        for (id, load) in &loads {
            let share = (asked + 1) * SEGMENT_BYTES * if *id == 4 { 4 } else { 1 } / 8;
            let bound = (share * 5 / 4).max(OWNER_LOAD_FLOOR_BYTES) + SEGMENT_BYTES;
            assert!(*load <= bound, "{id}: {load} of {bound} after {asked}");
        }
    }
    // Under little load all agree, whatever they know of it.
    let little = |it: u16| u64::from(it) * SEGMENT_BYTES;
    for seed in 0..200 {
        assert_eq!(ring.owner(&name(seed), little), ring.owner(&name(seed), |_| 0));
    }
}
