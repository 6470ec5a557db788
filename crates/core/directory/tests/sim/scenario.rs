//! What a seed determines: a cluster, its clients, and its faults.

use skep_units::Rng;

/// The end of faults and clients, in milliseconds; after it, everything is repaired.
pub(crate) const FAULTS_END_MS: u64 = 4_000;

/// The end of the simulation: no client waits that long.
pub(crate) const END_MS: u64 = FAULTS_END_MS + 6_000;

/// Longest fault that ends by itself, in milliseconds.
pub(crate) const MISFORTUNE_MS_MAX: u64 = 1_500;

/// A node's memory that is never full, in bytes.
pub(crate) const ROOMY: u64 = 1 << 30;

#[derive(Clone, Debug)]
pub(crate) struct Scenario {
    pub(crate) coordinators: usize,
    pub(crate) nodes: usize,
    /// Capacity of each node's memory: enough that nothing is evicted, or for some segments, or for
    /// one or two; or only one node has room.
    pub(crate) capacities: Vec<u64>,
    /// The times at which several clients ask for the same segment, and random numbers that select
    /// it.
    pub(crate) herds: Vec<(u64, u64)>,
    /// The times of purges, and random numbers that select what is purged.
    pub(crate) purges: Vec<(u64, u64)>,
    pub(crate) faults: Vec<(u64, Fault)>,
}

/// A fault, or its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// A node's link to a coordinator breaks.
    Break(usize, usize),
    CrashNode(usize),
    StartNode(usize),
    /// The node does not run for this many milliseconds.
    PauseNode(usize, u64),
    CrashCoordinator(usize),
    StartCoordinator(usize),
    PauseCoordinator(usize, u64),
    /// The other one becomes active; the previous one notices this many milliseconds later.
    TakeOver(u64),
    /// Two nodes do not reach each other.
    Cut(usize, usize),
    /// A node and a coordinator do not reach each other.
    Part(usize, usize),
    Heal,
    OriginFails(u64),
    OriginStalls(u64),
    NewVersion(u64),
    Mend,
}

impl Scenario {
    pub(crate) fn new(rng: &mut Rng) -> Self {
        let coordinators = 1 + rng.below(2) as usize;
        let nodes = [1, 2, 3, 4, 6, 12][rng.below(6) as usize];
        let mut capacities =
            vec![[ROOMY, ROOMY, 2 << 20, 700_000, 700_000][rng.below(5) as usize]; nodes];
        if rng.below(3) == 0 {
            capacities[0] = ROOMY;
        }
        let (herds, faults) = (Vec::new(), Vec::new());
        let purges = [0, 0, 1, 2, 4, 12][rng.below(6) as usize];
        let purges = (0..purges).map(|_| (100 + rng.below(FAULTS_END_MS), rng.next_u64()));
        let mut purges: Vec<_> = purges.collect();
        // Sometimes the other coordinator receives the same purge at once.
        let twice = purges.clone().into_iter().filter(|(_, random)| random >> 62 == 0);
        purges.extend(twice.map(|(at, random)| (at + random % 3, random ^ 1 << 8)));
        let mut scenario = Self { coordinators, nodes, capacities, herds, purges, faults };
        for _ in 0..10 + rng.below(60) {
            let clients = if rng.below(4) == 0 { 2 + rng.below(12) } else { 1 };
            scenario.herds.push((50 + rng.below(FAULTS_END_MS - 50), clients));
        }
        // Many seeds have few faults, so that each has its full effect.
        let count = [0, 0, 1, 1, 2, 4, 8, 16][rng.below(8) as usize];
        for _ in 0..count {
            scenario.add_fault(rng);
        }
        scenario.faults.push((FAULTS_END_MS, Fault::Mend));
        scenario.faults.sort_by_key(|(at, _)| *at);
        scenario
    }

    /// Whether the scenario has no faults.
    pub(crate) fn is_calm(&self) -> bool {
        self.faults.len() == 1
    }

    /// Whether no node ever has to evict anything.
    pub(crate) fn is_roomy(&self) -> bool {
        self.capacities.iter().all(|bytes| *bytes == ROOMY)
    }

    fn add_fault(&mut self, rng: &mut Rng) {
        let at = rng.below(FAULTS_END_MS - 500);
        let until = at + 20 + rng.below(MISFORTUNE_MS_MAX);
        let node = rng.below(self.nodes as u64) as usize;
        let other = rng.below(self.nodes as u64) as usize;
        let coordinator = rng.below(self.coordinators as u64) as usize;
        let ms = 1 + rng.below(MISFORTUNE_MS_MAX);
        let faults = &mut self.faults;
        match rng.below(12) {
            0 | 1 => faults.push((at, Fault::Break(node, coordinator))),
            2 | 3 => faults.extend([(at, Fault::CrashNode(node)), (until, Fault::StartNode(node))]),
            4 => faults.push((at, Fault::PauseNode(node, ms))),
            5 => faults.extend([
                (at, Fault::CrashCoordinator(coordinator)),
                (until, Fault::StartCoordinator(coordinator)),
            ]),
            6 => faults.push((at, Fault::PauseCoordinator(coordinator, ms))),
            7 => faults.push((at, Fault::TakeOver(rng.below(500)))),
            8 => faults.extend([(at, Fault::Cut(node, other)), (until, Fault::Heal)]),
            9 => faults.extend([(at, Fault::Part(node, coordinator)), (until, Fault::Heal)]),
            10 => match rng.below(2) {
                0 => faults.push((at, Fault::OriginFails(ms / 4))),
                _ => faults.push((at, Fault::OriginStalls(ms))),
            },
            _ => faults.push((at, Fault::NewVersion(rng.next_u64()))),
        }
    }
}
