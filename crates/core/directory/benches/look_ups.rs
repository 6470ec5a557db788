//! Lookups per second on one core, and memory per holding.
//!
//! `cargo bench -p skep-directory [-- SEGMENTS]`

#![allow(clippy::expect_used, reason = "a measurement")]

use std::hint::black_box;
use std::net::SocketAddr;
use std::time::Instant;

use skep_directory::{Coordinator, CoordinatorSettings, Hello, Inventory, NodeLinkId};
use skep_units::{Now, Rng, SEGMENT_BYTES};
use skep_wire::cache::{Held, SegmentName, ToCoordinator};
use skep_wire::message::Name;

const NODES: usize = 8;
const LOOK_UPS: usize = 2_000_000;

fn main() {
    let segments = std::env::args().nth(1).and_then(|it| it.parse().ok()).unwrap_or(1_000_000);
    for copies in [1, 2, 8] {
        measure(segments, copies);
    }
}

fn measure(segments: usize, copies: usize) {
    let mut rng = Rng::new(1);
    let names: Vec<SegmentName> = (0..segments).map(|_| name(&mut rng)).collect();
    let settings =
        CoordinatorSettings { holdings_max: usize::MAX, ..CoordinatorSettings::default() };
    let mut coordinator = Coordinator::new(settings, 1);
    let asker = join(&mut coordinator, "asker");
    let links: Vec<NodeLinkId> =
        (0..NODES).map(|node| join(&mut coordinator, &format!("node-{node}"))).collect();
    coordinator.set_stage(Some(1));
    let filling = Instant::now();
    for (node, &link) in links.iter().enumerate() {
        let is_its = |place: &usize| (place + NODES - node) % NODES < copies;
        let held = |&name: &SegmentName| Held { name, bytes: SEGMENT_BYTES as u32 };
        let held = |names: &[SegmentName]| names.iter().map(held).collect();
        let its = (0..segments).filter(is_its).map(|place| names[place]);
        let mut inventory = Inventory::new(its.collect());
        while let Some(part) = inventory.next_part(usize::MAX, held) {
            coordinator.heard(Now(0), link, part);
        }
    }
    let filled = filling.elapsed().as_secs_f64();
    coordinator.outbox().for_each(drop);

    let asked: Vec<SegmentName> =
        (0..LOOK_UPS).map(|_| names[rng.below(segments as u64) as usize]).collect();
    let (mut worst, start) = (0, Instant::now());
    for asks in asked.chunks(1_000) {
        let chunk = Instant::now();
        for (ask, &name) in asks.iter().enumerate() {
            let question =
                ToCoordinator::Ask { ask: ask as u64, name, bytes: SEGMENT_BYTES as u32 };
            coordinator.heard(Now(1), asker, question);
        }
        coordinator.outbox().for_each(|answer| drop(black_box(answer)));
        worst = worst.max(chunk.elapsed().as_micros());
    }
    let took = start.elapsed().as_secs_f64();
    let counters = coordinator.counters();
    assert_eq!(counters.have, LOOK_UPS as u64);
    println!(
        "{segments} segments, {copies} holder(s) each: {:.2} M look-ups/s (worst thousand: {worst} us), \
         {:.1} M holdings/s taken in, {:.1} bytes for each holding",
        LOOK_UPS as f64 / took / 1e6,
        counters.holdings as f64 / filled / 1e6,
        counters.memory_bytes as f64 / counters.holdings as f64,
    );
}

fn join(coordinator: &mut Coordinator, name: &str) -> NodeLinkId {
    let name = Name::new(name).expect("a short name");
    let address = SocketAddr::from(([127, 0, 0, 1], 1));
    let hello = Hello { name, address, capacity_bytes: u64::MAX };
    coordinator.joined(hello).expect("few members").link
}

fn name(rng: &mut Rng) -> SegmentName {
    SegmentName((u128::from(rng.next_u64()) << 64 | u128::from(rng.next_u64())).to_le_bytes())
}
