//! The directory of holders, against a simple model; and its memory.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::name;
use crate::coordinator::directory::Directory;
use crate::coordinator::holders::Holder;
use crate::limits::SHARDS;

/// The requirement of the cluster cache, in bytes per holding.
const BYTES_PER_HOLDING_MAX: f64 = 96.0;

#[derive(Clone, Debug)]
enum Change {
    Add(u64, usize),
    Remove(u64, usize),
    Retire(usize),
    Sweep(usize),
}

fn change() -> impl Strategy<Value = Change> {
    prop_oneof![
        8 => (0..30u64, 0..9usize).prop_map(|(name, node)| Change::Add(name, node)),
        4 => (0..30u64, 0..9usize).prop_map(|(name, node)| Change::Remove(name, node)),
        1 => (0..9usize).prop_map(Change::Retire),
        1 => (0..SHARDS * 2).prop_map(Change::Sweep),
    ]
}

/// Length of a segment, determined by its name.
fn bytes(name: u64) -> u32 {
    name as u32 * 1_000 + 1
}

fn compare(directory: &Directory, nodes: &[Holder], model: &BTreeMap<u64, BTreeSet<usize>>) {
    for seed in 0..30 {
        let found: BTreeSet<Holder> = directory.holders(&name(seed)).collect();
        let expected = model.get(&seed).into_iter().flatten().map(|&node| nodes[node]).collect();
        assert_eq!(found, expected, "{seed}");
    }
    for (node, &holder) in nodes.iter().enumerate() {
        let its = model.iter().filter(|(_, holders)| holders.contains(&node));
        let sum: u64 = its.clone().map(|(&name, _)| u64::from(bytes(name))).sum();
        let account = directory.account(holder);
        assert_eq!((account.segments, account.bytes), (its.count() as u64, sum));
        assert!(account.shared_bytes <= account.bytes);
    }
}

proptest! {
    #[test]
    fn it_is_a_map_of_sets_whatever_happens(changes in prop::collection::vec(change(), 1..200)) {
        let mut directory = Directory::new(usize::MAX);
        let mut nodes: Vec<Holder> = (0..9).map(|_| directory.new_holder()).collect();
        let mut model: BTreeMap<u64, BTreeSet<usize>> = BTreeMap::new();
        for change in changes {
            match change {
                Change::Add(seed, node) => {
                    directory.add(name(seed), bytes(seed), nodes[node]);
                    model.entry(seed).or_default().insert(node);
                }
                Change::Remove(seed, node) => {
                    let was_there = model.entry(seed).or_default().remove(&node);
                    assert_eq!(directory.remove(&name(seed), nodes[node]), was_there);
                }
                Change::Retire(node) => {
                    directory.retire(nodes[node]);
                    nodes[node] = directory.new_holder();
                    model.values_mut().for_each(|holders| {
                        holders.remove(&node);
                    });
                }
                Change::Sweep(shards) => (0..shards).for_each(|_| directory.sweep()),
            }
            compare(&directory, &nodes, &model);
        }
        (0..SHARDS).for_each(|_| directory.sweep());
        let entries = model.values().filter(|holders| !holders.is_empty());
        assert_eq!(directory.entries(), entries.clone().count());
        assert_eq!(directory.holdings(), entries.map(BTreeSet::len).sum::<usize>());
        // After a full sweep, shared bytes are exact.
        for (node, &holder) in nodes.iter().enumerate() {
            let shared = model.iter().filter(|(_, it)| it.contains(&node) && it.len() > 1);
            let shared: u64 = shared.map(|(&name, _)| u64::from(bytes(name))).sum();
            let account = directory.account(holder);
            assert_eq!(account.shared_bytes, shared);
            let is_redundant =
                |seed: &u64| directory.holders(&name(*seed)).skip(1).any(|it| it == holder);
            let redundant = (0..30).filter(is_redundant).map(|seed| u64::from(bytes(seed)));
            assert_eq!(account.redundant_bytes, redundant.sum::<u64>());
        }
    }
}

#[test]
fn over_its_bound_it_forgets_and_counts() {
    let mut directory = Directory::new(1_000);
    let (a, b) = (directory.new_holder(), directory.new_holder());
    for seed in 0..5_000 {
        directory.add(name(seed), 1, a);
        directory.add(name(seed), 1, b);
        assert!(directory.holdings() <= 1_000);
        assert_eq!(directory.holders(&name(seed)).count(), 2, "the newest is there");
    }
    let known = directory.holdings() as u64;
    assert_eq!(known + directory.forgotten(), 10_000);
    assert_eq!(directory.account(a).segments + directory.account(b).segments, known);
}

#[test]
fn numbers_are_used_again_after_a_round_and_never_before() {
    let mut directory = Directory::new(usize::MAX);
    let first = directory.new_holder();
    directory.add(name(1), 1, first);
    directory.retire(first);
    (0..SHARDS - 1).for_each(|_| directory.sweep());
    assert_ne!(directory.new_holder(), first);
    directory.sweep();
    assert_eq!((directory.entries(), directory.new_holder()), (0, first));
    // More inventories than numbers, and no explicit sweep.
    for inventory in 0..200_000u64 {
        let holder = directory.new_holder();
        directory.add(name(inventory), 1, holder);
        directory.retire(holder);
        assert_eq!(directory.holders(&name(inventory)).count(), 0);
    }
}

#[test]
fn it_takes_little_memory_whatever_its_size() {
    let mut most: f64 = 0.0;
    let mut directory = Directory::new(usize::MAX);
    let nodes: Vec<Holder> = (0..8).map(|_| directory.new_holder()).collect();
    for seed in 0..200_000u64 {
        directory.add(name(seed), 1, nodes[(seed % 8) as usize]);
        // Fixed costs dominate small directories.
        if seed % 10_000 == 0 && seed >= 50_000 {
            most = most.max(directory.memory_bytes() as f64 / directory.holdings() as f64);
        }
    }
    assert!(most <= BYTES_PER_HOLDING_MAX, "{most:.1} bytes for each holding");
    // One more replica on each of the eight nodes takes less per holding, not more.
    for seed in 0..200_000u64 {
        nodes.iter().for_each(|&node| directory.add(name(seed), 1, node));
    }
    let crowded = directory.memory_bytes() as f64 / directory.holdings() as f64;
    assert!(crowded <= most, "{crowded:.1} bytes");
    eprintln!("{most:.1} bytes for each holding at most; {crowded:.1} with eight holders each");
}
