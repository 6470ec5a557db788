//! The time of a move and of its parts, one at a time; and the CPU cost of moves, many at a time.
//!
//! Two nodes and one object: its URL assigns it to one node, so that the other is the donor of all moves.

use serde::{Deserialize, Serialize};
use skep_lab::load::MixObject;

use super::Plan;
use super::bed::{BedPlan, HandoffBed, Way};
use super::load::{Load, Sample};
use crate::experiments::Failure;
use crate::experiments::account::{ByThread, threads_of};
use crate::experiments::metrics::{Buckets, Quantiles};
use crate::experiments::origin::Object;

/// The object, of the size of a small page.
const OBJECT: Object = Object { id: 1, bytes: 1024, period_ms: 0 };

/// The transports of LCCP.
const TRANSPORTS: [&str; 2] = ["ip", "udp"];

/// Concurrent clients of each of the two client processes, for many moves at a time.
const CLIENTS: usize = 16;

/// Parts of a move, named as in the metrics: of the donor, then of the receiver.
pub(super) const STEPS: [(&str, &str); 10] = [
    ("wait", "donor: until the mover has it"),
    ("freeze", "donor: netguard freezes"),
    ("read", "donor: reads the state"),
    ("offer", "donor: from OFFER to READY"),
    ("redirect", "donor: netguard redirects"),
    ("go", "donor: from GO to DONE"),
    ("create", "receiver: netguard creates"),
    ("restore", "receiver: writes the state"),
    ("ready", "receiver: from READY to GO"),
    ("start", "receiver: netguard starts"),
];

/// The results of this part.
#[derive(Serialize, Deserialize)]
pub(super) struct Moves {
    pub(super) runs: Vec<MovesRun>,
}

/// The results with one transport.
#[derive(Serialize, Deserialize)]
pub(super) struct MovesRun {
    pub(super) transport: String,
    /// One connection at a time.
    pub(super) alone: Sample,
    pub(super) freeze: Quantiles,
    pub(super) whole: Quantiles,
    /// In the order of [`STEPS`].
    pub(super) steps: Vec<Quantiles>,
    /// Many connections at a time, with and without moves.
    pub(super) many: Sample,
    pub(super) many_freeze: Quantiles,
    pub(super) direct: Sample,
    pub(super) donor: Threads,
    pub(super) receiver: Threads,
    pub(super) dispatcher: Threads,
}

/// Microseconds per move, by thread.
pub(super) type Threads = Vec<(String, f64)>;

impl MovesRun {
    /// CPU time of the whole bed per move, beyond that of a connection that is not moved, in microseconds.
    pub(super) fn cost_us(&self) -> f64 {
        let more_us = (self.many.cpu_us() - self.direct.cpu_us()) * self.many.requests as f64;
        more_us / self.many.moved().max(1) as f64
    }

    fn print(&self) {
        let Self { transport, alone, freeze, whole, many, direct, .. } = self;
        println!(
            "  moves, LCCP on {transport}: {} moved of {}, freeze {:.0} us at the median, move {:.0} us",
            alone.moved(),
            alone.requests,
            freeze.p50_us,
            whole.p50_us
        );
        for ((name, _), step) in STEPS.iter().zip(&self.steps) {
            println!("    {name:<9} {:>6.1} us, 90 % {:>6.1}", step.p50_us, step.p90_us);
        }
        println!(
            "    many at a time: {:.0} connections/s, {:.0} us CPU each, direct {:.0} us; a move {:.0} us",
            many.per_s(),
            many.cpu_us(),
            direct.cpu_us(),
            self.cost_us()
        );
    }
}

pub(super) fn measure(plan: &Plan) -> Result<Moves, Failure> {
    let runs = TRANSPORTS.iter().map(|transport| run(plan, transport));
    Ok(Moves { runs: runs.collect::<Result<_, _>>()? })
}

fn run(plan: &Plan, transport: &str) -> Result<MovesRun, Failure> {
    let bed_plan = BedPlan { nodes: 2, policy: "maglev-url", transport, objects: &[OBJECT] };
    let bed = HandoffBed::new(&bed_plan, plan)?;
    let objects: [MixObject; 1] = [OBJECT.for_mix()];
    let one = Load {
        objects: &objects.into(),
        order: &[0],
        processes_max: 1,
        clients: 1,
        per_connection: 1,
        compares: true,
        settle_ms: 500,
        window_ms: plan.pick(4_000, 1_000),
        requests_min: 0,
    };
    let (alone, times) = timed(&bed, &one)?;
    // Short: if a client reuses a port, the dispatcher may still have the flow's earlier node.
    let many =
        Load { processes_max: 2, clients: CLIENTS, window_ms: plan.pick(2_000, 1_000), ..one };
    let direct = many.run(&bed, Way::Direct)?;
    let (cpu, before) = (Cpu::of(&bed), donated(&bed)?);
    let (many, many_times) = timed(&bed, &many)?;
    let moved: Vec<u64> = donated(&bed)?.iter().zip(before).map(|(now, then)| now - then).collect();
    let [donor, receiver, dispatcher] = Cpu::of(&bed).for_each_move(&cpu, &moved);
    let run = MovesRun {
        transport: transport.to_owned(),
        alone,
        freeze: times.freeze.quantiles(),
        whole: times.whole.quantiles(),
        steps: times.steps.iter().map(Buckets::quantiles).collect(),
        many,
        many_freeze: many_times.freeze.quantiles(),
        direct,
        donor,
        receiver,
        dispatcher,
    };
    run.print();
    Ok(run)
}

/// Runs a load under which connections move, and measures the times of moves.
fn timed(bed: &HandoffBed, load: &Load<'_>) -> Result<(Sample, Times), Failure> {
    let before = Times::of(bed)?;
    let sample = load.run(bed, Way::Handoff)?;
    Ok((sample, Times::of(bed)?.since(&before)))
}

/// Moves so far away from each of the two nodes.
fn donated(bed: &HandoffBed) -> Result<[u64; 2], Failure> {
    let of = |index| -> Result<u64, Failure> {
        Ok(bed.metrics(index)?.value("skep_handoffs_total{outcome=\"moved\"}") as u64)
    };
    Ok([of(0)?, of(1)?])
}

/// Histograms summed over both nodes.
#[derive(Default)]
struct Times {
    freeze: Buckets,
    whole: Buckets,
    steps: Vec<Buckets>,
}

impl Times {
    fn of(bed: &HandoffBed) -> Result<Self, Failure> {
        let mut sum = Self { steps: vec![Buckets::default(); STEPS.len()], ..Self::default() };
        for index in 0..bed.nodes() {
            let metrics = bed.metrics(index)?;
            let add = |sum: &mut Buckets, name: &str, labels: &str| {
                *sum = std::mem::take(sum).with(&metrics.histogram(name, labels));
            };
            add(&mut sum.freeze, "skep_handoff_freeze_seconds", "");
            add(&mut sum.whole, "skep_handoff_move_seconds", "");
            for ((step, _), sum) in STEPS.iter().zip(&mut sum.steps) {
                add(sum, "skep_handoff_step_seconds", &format!("step=\"{step}\""));
            }
        }
        Ok(sum)
    }

    fn since(self, before: &Self) -> Self {
        let steps = self.steps.into_iter().zip(&before.steps);
        Self {
            freeze: self.freeze.since(&before.freeze),
            whole: self.whole.since(&before.whole),
            steps: steps.map(|(now, then)| now.since(then)).collect(),
        }
    }
}

/// CPU times of the threads of both nodes and the dispatcher, with their netguards.
struct Cpu(Vec<ByThread>);

impl Cpu {
    fn of(bed: &HandoffBed) -> Self {
        Self(bed.processes().into_iter().map(threads_of).collect())
    }

    /// Microseconds per move since `before`: of the donor, which moves connections away, of the other node,
    /// and of the dispatcher.
    fn for_each_move(&self, before: &Self, moved: &[u64]) -> [Threads; 3] {
        let donor = usize::from(moved.get(1) > moved.first());
        let moves = moved.get(donor).copied().unwrap_or(0).max(1) as f64;
        [donor, 1 - donor, 2].map(|index| {
            let [now, then] = [&self.0[index], &before.0[index]];
            let used = |(name, ns): (&String, &u64)| {
                let ns = ns.saturating_sub(then.get(name).copied().unwrap_or(0));
                (name.clone(), ns as f64 / 1e3 / moves)
            };
            now.iter().map(used).filter(|(_, us)| *us >= 0.05).collect()
        })
    }
}
