//! What a seed determines: a cluster, and its faults.

use skep_units::Rng;

use crate::disk::{DiskMode, FileLoss};
use crate::guard::{Meddling, Mode};
use crate::net::{Id, Release};

/// End of the faults, in milliseconds; then the cluster is repaired. In some seeds faults last
/// longer.
const FAULTS_END_MS: [u64; 8] = [7_000, 7_000, 7_000, 7_000, 7_000, 7_000, 7_000, 25_000];

/// Time from then to the end of the simulation: enough to recover.
const RECOVERY_MS: u64 = 4_000;

/// Time without changes at the end, so that all machines have the last table.
const CALM_MS: u64 = 1_000;

/// Faults drawn per kind, so that some of rare kinds are among them.
const DRAWS_PER_KIND: usize = 200;

/// The cluster of a seed.
#[derive(Clone, Debug)]
pub(crate) struct Scenario {
    pub(crate) dispatchers: usize,
    pub(crate) nodes: usize,
    pub(crate) preempt: bool,
    pub(crate) has_store: bool,
    /// The replies of the store take seconds.
    pub(crate) has_slow_store: bool,
    /// An operator changes weights at every tick, almost to the end.
    pub(crate) churns: bool,
    /// When the last fault has ended.
    pub(crate) faults_end_ms: u64,
    /// The faults and their times, in order.
    pub(crate) faults: Vec<(u64, Fault)>,
}

/// A fault, or its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    Crash(Id),
    Start(Id),
    /// The process does not run for this many milliseconds.
    Pause(Id, u64),
    /// The whole machine is suspended for this long: no datagrams reach it.
    Suspend(Id, u64),
    /// A virtual machine is paused by its host for this long: its clock stands still.
    Freeze(Id, u64),
    /// A machine's clock jumps ahead by this many milliseconds.
    Leap(Id, u64),
    /// A machine restarts with another release.
    Upgrade(Id, Release),
    /// A node reports that it is stopping.
    Leave(Id),
    /// A dispatcher stops gracefully.
    Stop(Id),
    /// Machines on different sides do not reach each other.
    Part(Vec<u64>),
    /// No datagrams from one machine reach the other; if true, nor back.
    Cut(Id, Id, bool),
    Heal,
    /// A dispatcher does not reach the store, or reaches it again.
    Store(Id, bool),
    /// No datagrams reach a dispatcher; those that it sends arrive.
    Deaf(Id),
    /// How a dispatcher's disk behaves from now on.
    Disk(Id, DiskMode),
    /// A dispatcher loses its persisted state, unless it is running.
    Lose(Id, FileLoss),
    /// How a dispatcher's netguard executes steps from now on.
    Guard(Id, Mode),
    /// Another program changes a dispatcher's machine.
    Meddle(Id, Meddling),
    /// A dispatcher's checks of a node fail, or pass again.
    Checks(Id, Id, bool),
    /// All faults are repaired.
    Mend,
}

impl Fault {
    /// The name of the variant.
    fn kind(&self) -> String {
        let all = format!("{self:?}");
        all.split('(').next().unwrap_or_default().to_owned()
    }
}

impl Scenario {
    pub(crate) fn new(rng: &mut Rng) -> Self {
        let dispatchers = [2, 2, 3, 3, 3, 4][rng.below(6) as usize];
        let nodes = match rng.below(24) {
            0 => 32,
            1 | 2 => 16,
            _ => 1 + rng.below(6) as usize,
        };
        let nodes =
            std::env::var("SKEP_SIM_NODES").map_or(nodes, |it| it.parse().expect("a number"));
        let faults_end_ms = FAULTS_END_MS[rng.below(8) as usize];
        let (preempt, has_store) = (rng.below(5) == 0, rng.below(4) == 0);
        let has_slow_store = rng.below(4) == 0;
        let churns = rng.below(4) == 0;
        let faults = Vec::new();
        let mut scenario = Self {
            dispatchers,
            nodes,
            preempt,
            has_store,
            has_slow_store,
            churns,
            faults_end_ms,
            faults,
        };
        // Many seeds have few faults, so that each has its full effect.
        let count = [0, 1, 1, 2, 3, 5, 8, 12][rng.below(8) as usize];
        for _ in 0..count {
            scenario.add_fault(rng);
        }
        scenario.restrict(count, rng);
        scenario.faults.push((faults_end_ms, Fault::Mend));
        scenario.faults.sort_by_key(|(at, _)| *at);
        scenario
    }

    /// Replaces the faults by as many of the kinds listed in `SKEP_SIM_FAULTS`, as in
    /// `Crash,Start`.
    fn restrict(&mut self, count: usize, rng: &mut Rng) {
        let Ok(kinds) = std::env::var("SKEP_SIM_FAULTS") else { return };
        let kinds: Vec<&str> = kinds.split(',').collect();
        let draws = if count == 0 { 0 } else { DRAWS_PER_KIND };
        (0..draws).for_each(|_| self.add_fault(rng));
        self.faults.retain(|(_, fault)| kinds.contains(&fault.kind().as_str()));
        self.faults.truncate(2 * count);
    }

    fn machines(&self) -> usize {
        self.dispatchers + self.nodes
    }

    /// When the simulation ends.
    pub(crate) fn end_ms(&self) -> u64 {
        self.faults_end_ms + RECOVERY_MS
    }

    /// Whether an operator changes weights at this time.
    pub(crate) fn churns_at(&self, at: u64) -> bool {
        self.churns && at < self.end_ms() - CALM_MS
    }

    /// Some last longer than a lease plus the patience.
    fn long_ms(&self, rng: &mut Rng) -> u64 {
        let is_long = rng.below(6) == 0;
        if is_long { self.faults_end_ms / 2 } else { 3_000 }
    }

    /// Upgrades all machines, one after the other.
    fn upgrade_all(&mut self, at: u64, rng: &mut Rng) {
        let gap_ms = 50 + rng.below(self.faults_end_ms / 10);
        // Nodes first, as the manual recommends.
        let mut order: Vec<Id> = (0..self.machines()).rev().collect();
        if rng.below(3) == 0 {
            order.reverse();
        }
        for (turn, id) in order.into_iter().enumerate() {
            let at = at + turn as u64 * gap_ms;
            if at < self.faults_end_ms {
                self.faults.push((at, Fault::Upgrade(id, Release::Other)));
            }
        }
    }

    /// One dispatcher, or all of them, restart without what they had persisted. Some receive
    /// others' heartbeats only some time after their start, since their network comes up later.
    fn lose_files(&mut self, at: u64, until: u64, rng: &mut Rng) {
        let count = self.dispatchers as u64;
        let first = rng.below(count) as usize;
        let those = if rng.below(3) == 0 { 0..self.dispatchers } else { first..first + 1 };
        let heal = (until + rng.below(1_000)).min(self.faults_end_ms - 1);
        if rng.below(2) == 0 {
            let side = |id| if those.contains(&id) { 1 + id as u64 } else { 0 };
            let side = (0..self.machines()).map(side).collect();
            self.faults.extend([(until, Fault::Part(side)), (heal, Fault::Heal)]);
        }
        for id in those {
            let how = if rng.below(2) == 0 { FileLoss::OldCopy } else { FileLoss::Gone };
            self.faults.extend([
                (at, Fault::Crash(id)),
                (until, Fault::Lose(id, how)),
                (until, Fault::Start(id)),
            ]);
        }
    }

    fn add_fault(&mut self, rng: &mut Rng) {
        if rng.below(4) == 0 {
            return self.add_fault_of_machine(rng);
        }
        let last = self.faults_end_ms - 1;
        let at = rng.below(self.faults_end_ms - 1_000);
        let long_ms = self.long_ms(rng);
        let until = (at + 20 + rng.below(long_ms)).min(last);
        let dispatcher = rng.below(self.dispatchers as u64) as usize;
        let node = self.dispatchers + rng.below(self.nodes as u64) as usize;
        let pause_ms_max = self.faults_end_ms / 2;
        let faults = &mut self.faults;
        match rng.below(19) {
            0 | 1 => {
                faults.extend([(at, Fault::Crash(dispatcher)), (until, Fault::Start(dispatcher))])
            }
            2 => faults.extend([(at, Fault::Stop(dispatcher)), (until, Fault::Start(dispatcher))]),
            3 | 4 => faults.push((at, Fault::Pause(dispatcher, 1 + rng.below(pause_ms_max)))),
            5 | 6 => {
                // Two or three sides.
                let sides = 2 + rng.below(2);
                let side = (0..self.machines()).map(|_| rng.below(sides)).collect();
                self.faults.extend([(at, Fault::Part(side)), (until, Fault::Heal)]);
            }
            7 => {
                // One dispatcher alone.
                let side = (0..self.machines()).map(|machine| u64::from(machine == dispatcher));
                let side = side.collect();
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
            15 => faults.push((at, Fault::Meddle(dispatcher, Meddling::any(rng)))),
            16 => faults.extend([
                (at, Fault::Checks(dispatcher, node, false)),
                (until, Fault::Checks(dispatcher, node, true)),
            ]),
            13 => faults.extend([(at, Fault::Deaf(dispatcher)), (until, Fault::Heal)]),
            11 | 12 => {
                let disk = if rng.below(3) == 0 { DiskMode::Failing } else { DiskMode::Slow };
                faults.push((at, Fault::Disk(dispatcher, disk)));
                if rng.below(2) == 0 {
                    // The epochs that it has reserved are lost with the process.
                    let crash = until.min(last);
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

    /// Adds a fault of a whole machine: its clock, its power, its release.
    fn add_fault_of_machine(&mut self, rng: &mut Rng) {
        let at = rng.below(self.faults_end_ms - 1_000);
        let long_ms = self.long_ms(rng);
        let until = (at + 20 + rng.below(long_ms)).min(self.faults_end_ms - 1);
        // Faults of dispatchers have more effect.
        let of = if rng.below(2) == 0 { self.dispatchers } else { self.machines() };
        let id = rng.below(of as u64) as usize;
        let faults = &mut self.faults;
        match rng.below(7) {
            0 => faults.push((at, Fault::Suspend(id, 1 + rng.below(self.faults_end_ms / 2)))),
            1 => faults.push((at, Fault::Freeze(id, 1 + rng.below(self.faults_end_ms / 2)))),
            2 => faults.push((at, Fault::Leap(id, 1 + rng.below(20_000)))),
            3 => faults.extend([
                (at, Fault::Upgrade(id, Release::WithoutDeltas)),
                (until, Fault::Upgrade(id, Release::Present)),
            ]),
            4 => faults.extend([
                (at, Fault::Upgrade(id, Release::Other)),
                (until, Fault::Upgrade(id, Release::Present)),
            ]),
            5 => self.upgrade_all(at, rng),
            _ => self.lose_files(at, until, rng),
        }
    }
}
