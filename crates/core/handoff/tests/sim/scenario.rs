//! What a seed determines: machines, clients, faults.

use skep_handoff::limits::READY_MS_MAX;
use skep_units::Rng;

use crate::kernel::Id;

/// A fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The process dies, and is restarted after this many milliseconds.
    Crash(Id, u64),
    CrashNetguard(Id, u64),
    /// The process does not run for this many milliseconds.
    Pause(Id, u64),
    PauseNetguard(Id, u64),
    /// No messages from one machine reach the other, nor back if true, for this many milliseconds.
    Cut(Id, Id, bool, u64),
}

/// The machine that a fault at a step of a move hits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Victim {
    This,
    /// The other end of the move.
    Other,
}

/// A fault at the `nth` execution of `step`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Trap {
    pub(crate) step: &'static str,
    pub(crate) nth: u64,
    pub(crate) is_before: bool,
    pub(crate) victim: Victim,
    pub(crate) kind: u64,
    pub(crate) lasts_ms: u64,
}

/// Steps of a move at which faults happen.
pub(crate) const STEPS: [&str; 20] = [
    "frozen",
    "redirected",
    "thawed",
    "created",
    "started",
    "freeze",
    "redirect",
    "thaw",
    "reset",
    "release",
    "create",
    "start",
    "discard",
    "OFFER",
    "READY",
    "GO",
    "DONE",
    "ABORT",
    "ABORTED",
    "GONE",
];

#[derive(Clone, Debug)]
pub(crate) struct Scenario {
    pub(crate) machines: usize,
    /// How long each machine waits for READY as a donor.
    pub(crate) ready_ms: Vec<u64>,
    pub(crate) clients: usize,
    /// Faults and their times.
    pub(crate) faults: Vec<(u64, Fault)>,
    pub(crate) traps: Vec<Trap>,
    pub(crate) order_ms_max: u64,
    /// The percentage of orders refused, of those that a kernel may refuse without harm.
    pub(crate) refused_percent: u64,
}

/// From the shortest to the longest allowed; most often the default.
const READY_MS: [u64; 4] = [10, 50, 50, READY_MS_MAX];

/// Longer than a seed runs.
pub(crate) const FOR_EVER_MS: u64 = 100_000;

/// The end of moves and faults.
pub(crate) const FAULTS_END_MS: u64 = 2_000;

impl Scenario {
    pub(crate) fn new(rng: &mut Rng) -> Self {
        let machines = 2 + rng.below(3) as usize;
        let mut scenario = Self {
            machines,
            ready_ms: ready_ms(machines, rng),
            clients: 1 + rng.below(6) as usize,
            faults: Vec::new(),
            traps: Vec::new(),
            order_ms_max: [1, 1, 3, 10][rng.below(4) as usize],
            refused_percent: [0, 0, 0, 20][rng.below(4) as usize],
        };
        // Kinds and number of faults: many seeds have few, so that each has its full effect.
        let kinds: &[u64] =
            [&[][..], &[0], &[0, 1], &[0, 1, 2, 3], &[0, 1, 2, 3, 4], &[4], &[2, 3]]
                [rng.below(7) as usize];
        let count = if kinds.is_empty() { 0 } else { 1 + rng.below(6) };
        for _ in 0..count {
            let kind = kinds[rng.below(kinds.len() as u64) as usize];
            match rng.below(2) {
                0 => scenario.add_fault(kind, rng),
                _ => scenario.add_trap(kind, rng),
            }
        }
        if rng.below(16) == 0 {
            scenario.add_orphan(rng);
        }
        scenario.faults.sort_by_key(|(at, _)| *at);
        scenario
    }

    /// Whether there are no faults except those of the network.
    pub(crate) fn is_calm(&self) -> bool {
        self.faults.is_empty() && self.traps.is_empty()
    }

    /// Whether a restarted netguard may consider a process dead that is only paused.
    pub(crate) fn may_be_unblocked(&self) -> bool {
        let faults = self.faults.iter().map(|(_, fault)| fault);
        let has_pauses = faults.clone().any(|it| matches!(it, Fault::Pause(..)));
        let has_starts = faults.clone().any(|it| matches!(it, Fault::CrashNetguard(..)));
        let has_trap = |kind: u64| self.traps.iter().any(|trap| trap.kind == kind);
        (has_pauses || has_trap(2)) && (has_starts || has_trap(1))
    }

    /// Whether all faults are crashes.
    pub(crate) fn has_only_crashes(&self) -> bool {
        let is_crash = |fault: &Fault| matches!(fault, Fault::Crash(..));
        self.faults.iter().all(|(_, fault)| is_crash(fault))
            && self.traps.iter().all(|trap| trap.kind == 0)
    }

    fn add_fault(&mut self, kind: u64, rng: &mut Rng) {
        let at = rng.below(FAULTS_END_MS);
        let lasts_ms = lasts_ms(kind, rng);
        let machine = rng.below(self.machines as u64) as usize;
        let fault = fault(kind, machine, lasts_ms, self.machines, rng);
        self.faults.push((at, fault));
    }

    /// A process is paused while a connection is frozen, and netguard restarts meanwhile.
    fn add_orphan(&mut self, rng: &mut Rng) {
        let nth = 1 + rng.below(6);
        let of = |(kind, lasts_ms)| Trap {
            step: "frozen",
            nth,
            is_before: true,
            victim: Victim::This,
            kind,
            lasts_ms,
        };
        let both = [(1, lasts_ms(1, rng)), (2, 500 + rng.below(1_000))];
        self.traps.extend(both.map(of));
    }

    fn add_trap(&mut self, kind: u64, rng: &mut Rng) {
        let trap = Trap {
            step: STEPS[rng.below(STEPS.len() as u64) as usize],
            nth: 1 + rng.below(6),
            is_before: rng.below(2) == 0,
            victim: if rng.below(2) == 0 { Victim::This } else { Victim::Other },
            kind,
            lasts_ms: lasts_ms(kind, rng),
        };
        self.traps.push(trap);
    }
}

/// Usually the same for all machines; different while an operator changes it.
fn ready_ms(machines: usize, rng: &mut Rng) -> Vec<u64> {
    let of_all = READY_MS[rng.below(4) as usize];
    let is_same = rng.below(8) > 0;
    let mut of_one = || if is_same { of_all } else { READY_MS[rng.below(4) as usize] };
    (0..machines).map(|_| of_one()).collect()
}

/// How long a fault lasts: shorter than a deadline, or longer. Some processes stay dead.
fn lasts_ms(kind: u64, rng: &mut Rng) -> u64 {
    if kind == 0 && rng.below(4) == 0 {
        return FOR_EVER_MS;
    }
    let max = [20, 200, 1_500][rng.below(3) as usize];
    1 + rng.below(max)
}

/// A fault of a machine.
pub(crate) fn fault(kind: u64, machine: Id, ms: u64, machines: usize, rng: &mut Rng) -> Fault {
    match kind {
        0 => Fault::Crash(machine, ms),
        1 => Fault::CrashNetguard(machine, ms),
        2 => Fault::Pause(machine, ms),
        3 => Fault::PauseNetguard(machine, ms),
        _ => {
            let other = (machine + 1 + rng.below(machines as u64) as usize) % (machines + 1);
            Fault::Cut(machine, other, rng.below(2) == 0, ms)
        }
    }
}
