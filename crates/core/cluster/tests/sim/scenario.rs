//! What a seed determines: a cluster, and its faults.

use skep_units::Rng;

use crate::guard::Mode;
use crate::machine::Disk;
use crate::net::Id;

/// When misfortunes end, in milliseconds; then the cluster is mended.
pub(crate) const FAULTS_END_MS: u64 = 7_000;

/// When the simulation ends: time enough to be well again.
pub(crate) const END_MS: u64 = FAULTS_END_MS + 4_000;

/// The cluster of a seed.
#[derive(Clone, Debug)]
pub(crate) struct Scenario {
    pub(crate) dispatchers: usize,
    pub(crate) nodes: usize,
    pub(crate) preempt: bool,
    pub(crate) has_store: bool,
    /// Its replies take seconds.
    pub(crate) has_slow_store: bool,
    /// An operator changes weights at every tick, until the faults end.
    pub(crate) churns: bool,
    /// When what happens, in order.
    pub(crate) faults: Vec<(u64, Fault)>,
}

/// A misfortune, or its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    Crash(Id),
    Start(Id),
    /// Does not run for so many milliseconds.
    Pause(Id, u64),
    /// A node says that it stops.
    Leave(Id),
    /// A dispatcher stops in good order.
    Stop(Id),
    /// Those of the side and the others do not reach each other.
    Part(Vec<bool>),
    /// Nothing comes from one to another; nor back.
    Cut(Id, Id, bool),
    Heal,
    /// A dispatcher does not reach the store (or does again).
    Store(Id, bool),
    /// Nothing comes to a dispatcher; what it sends arrives.
    Deaf(Id),
    /// How a dispatcher's disk answers from now on.
    Disk(Id, Disk),
    /// How a dispatcher's netguard executes steps from now on.
    Guard(Id, Mode),
    /// Others remove a dispatcher's addresses, or its program.
    Meddle(Id, bool),
    /// A dispatcher's checks of a node fail, or pass again.
    Checks(Id, Id, bool),
    /// All is mended.
    Mend,
}

impl Scenario {
    pub(crate) fn new(rng: &mut Rng) -> Self {
        let dispatchers = 2 + rng.below(3) as usize;
        let nodes = match rng.below(8) {
            0 => 16,
            _ => 1 + rng.below(6) as usize,
        };
        let (preempt, has_store) = (rng.below(5) == 0, rng.below(4) == 0);
        let has_slow_store = rng.below(4) == 0;
        let churns = rng.below(4) == 0;
        let faults = Vec::new();
        let mut scenario =
            Self { dispatchers, nodes, preempt, has_store, has_slow_store, churns, faults };
        // Many seeds have few misfortunes, so that each has its full effect.
        let count = [0, 1, 1, 2, 3, 5, 8, 12][rng.below(8) as usize];
        for _ in 0..count {
            scenario.add_fault(rng);
        }
        scenario.faults.push((FAULTS_END_MS, Fault::Mend));
        scenario.faults.sort_by_key(|(at, _)| *at);
        scenario
    }

    /// Whether a dispatcher may be unable to steer for some time.
    pub(crate) fn hinders(&self) -> bool {
        self.faults.iter().any(|(_, fault)| matches!(fault, Fault::Guard(..)))
    }

    fn machines(&self) -> usize {
        self.dispatchers + self.nodes
    }

    fn add_fault(&mut self, rng: &mut Rng) {
        let at = rng.below(FAULTS_END_MS - 1_000);
        // Some last longer than a lease and the patience with it.
        let long_ms = if rng.below(6) == 0 { 7_000 } else { 3_000 };
        let until = (at + 20 + rng.below(long_ms)).min(FAULTS_END_MS - 1);
        let dispatcher = rng.below(self.dispatchers as u64) as usize;
        let node = self.dispatchers + rng.below(self.nodes as u64) as usize;
        let faults = &mut self.faults;
        match rng.below(19) {
            0 | 1 => {
                faults.extend([(at, Fault::Crash(dispatcher)), (until, Fault::Start(dispatcher))])
            }
            2 => faults.extend([(at, Fault::Stop(dispatcher)), (until, Fault::Start(dispatcher))]),
            3 | 4 => faults.push((at, Fault::Pause(dispatcher, 1 + rng.below(5_000)))),
            5 | 6 => {
                let side = (0..self.machines()).map(|_| rng.below(2) == 0).collect();
                self.faults.extend([(at, Fault::Part(side)), (until, Fault::Heal)]);
            }
            7 => {
                // One dispatcher alone.
                let side = (0..self.machines()).map(|machine| machine == dispatcher).collect();
                self.faults.extend([(at, Fault::Part(side)), (until, Fault::Heal)]);
            }
            8 => {
                let other = (dispatcher + 1) % self.dispatchers;
                let cut = Fault::Cut(dispatcher, other, rng.below(2) == 0);
                faults.extend([(at, cut), (until, Fault::Heal)]);
            }
            9 => faults.extend([(at, Fault::Crash(node)), (until, Fault::Start(node))]),
            10 => faults.extend([(at, Fault::Leave(node)), (until, Fault::Start(node))]),
            14 => {
                let mode = if rng.below(2) == 0 { Mode::Slow } else { Mode::Refusing };
                faults.push((at, Fault::Guard(dispatcher, mode)));
                faults.push((until, Fault::Guard(dispatcher, Mode::Fast)));
            }
            15 => faults.push((at, Fault::Meddle(dispatcher, rng.below(3) == 0))),
            16 => faults.extend([
                (at, Fault::Checks(dispatcher, node, false)),
                (until, Fault::Checks(dispatcher, node, true)),
            ]),
            13 => faults.extend([(at, Fault::Deaf(dispatcher)), (until, Fault::Heal)]),
            11 | 12 => {
                let disk = if rng.below(3) == 0 { Disk::Failing } else { Disk::Slow };
                faults.push((at, Fault::Disk(dispatcher, disk)));
                if rng.below(2) == 0 {
                    // What it has reserved does not outlive it.
                    let crash = until.min(FAULTS_END_MS - 1);
                    faults.extend([
                        (at + 10, Fault::Crash(dispatcher)),
                        (at + 20, Fault::Start(dispatcher)),
                        (crash, Fault::Crash(dispatcher)),
                        (crash + 10, Fault::Start(dispatcher)),
                    ]);
                }
            }
            _ if self.has_store => faults.extend([
                (at, Fault::Store(dispatcher, false)),
                (until, Fault::Store(dispatcher, true)),
            ]),
            _ => faults.push((at, Fault::Pause(node, 1 + rng.below(2_000)))),
        }
    }
}
