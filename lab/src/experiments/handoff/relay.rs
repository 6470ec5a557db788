//! Packets of clients are lost, duplicated and reordered while connections move: whether a byte is wrong, a
//! request hangs, or a connection is reset.
//!
//! A relay between the client and the cluster causes the faults (`skep_testbed::RelayFaults`). Clients are
//! not told about lost packets: each request has the time that TCP needs for retransmissions, and every
//! request that ends without the right bytes is a failure.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use skep_lab::load::{Mix, MixObject, MixReport, MixRunning};
use skep_testbed::{RelayCounts, RelayFaults};

use super::Plan;
use super::bed::{BedPlan, HandoffBed, Way};
use super::kernels::Kernels;
use super::limits::{HANG_MS, RELAY_POLL_MS, RELAY_SAY_MS, STALL_MS_MAX};
use super::outcomes::Outcomes;
use crate::experiments::Failure;
use crate::experiments::account::{CpuAccount, percent_of_cores};
use crate::experiments::cell::pause;
use crate::experiments::origin::Object;

const NODES: usize = 4;

/// Threads of clients.
const THREADS: usize = 2;

/// Clients per thread: enough that the cores are busy while most of them wait for retransmissions.
const CLIENTS: usize = 96;

const MOVES: u64 = 1_000_000;
const QUICK_MOVES: u64 = 300;

/// From one packet to a hundred and forty, so that any part of a connection may be lost.
const OBJECTS: [Object; 3] = [
    Object { id: 1, bytes: 1 << 10, period_ms: 0 },
    Object { id: 2, bytes: 20 << 10, period_ms: 0 },
    Object { id: 3, bytes: 200 << 10, period_ms: 0 },
];

/// Indexes of `OBJECTS`: the larger ones less often, so that not only small ones wait.
const ORDER: [u32; 10] = [0, 1, 0, 0, 1, 0, 2, 0, 1, 0];

const FAULTS: RelayFaults = RelayFaults {
    seed: 1,
    lost_percent: 1.0,
    doubled_percent: 1.0,
    late_percent: 2.0,
    late_us_min: 1_000,
    late_us_max: 10_000,
};

/// The results of this part.
#[derive(Serialize, Deserialize)]
pub(super) struct RelayFigures {
    pub(super) nodes: usize,
    /// The total number.
    pub(super) clients: usize,
    pub(super) hang_ms: u64,
    /// Their sizes, and the number of requests in the order for each.
    pub(super) objects: Vec<(u64, usize)>,
    pub(super) faults: RelayFaults,
    pub(super) packets: RelayCounts,
    /// Segments retransmitted by the nodes' kernels, and by the client's.
    pub(super) sent_again: [u64; 2],
    pub(super) seconds: f64,
    pub(super) requests: Requests,
    pub(super) handoffs: Outcomes,
    /// Why nodes closed connections: a connection that ends before its response was closed by a node.
    #[serde(default)]
    pub(super) closings: Outcomes,
    /// Established connections of the client's kernel that ended with an RST.
    pub(super) client_resets: u64,
    /// RSTs sent by the cluster's machines. If a late copy of a reply arrives after the end, the client's
    /// kernel answers with an RST, which ends the node's TIME_WAIT (RFC 1337); packets of the client that are
    /// still in flight are then answered with RSTs, which no socket receives.
    pub(super) resets_sent: u64,
    pub(super) cpu_s: f64,
    pub(super) others_percent: f64,
}

/// The clients' results.
#[derive(Clone, Default, Serialize, Deserialize)]
pub(super) struct Requests {
    pub(super) succeeded: u64,
    pub(super) bytes: u64,
    /// Bytes or lengths that are not those of the object.
    pub(super) wrong: u64,
    /// No complete answer within `hang_ms`.
    pub(super) hung: u64,
    /// The connection was reset or refused.
    pub(super) reset: u64,
    /// All failures, by cause.
    pub(super) failures: BTreeMap<String, u64>,
    /// Descriptions of the first failures.
    pub(super) examples: Vec<String>,
    pub(super) first_byte_p50_us: u64,
    pub(super) first_byte_p99_us: u64,
}

impl RelayFigures {
    pub(super) fn per_s(&self) -> f64 {
        self.requests.succeeded as f64 / self.seconds
    }

    fn print(&self) {
        let Requests { succeeded, wrong, hung, reset, .. } = self.requests;
        let stayed = self.handoffs.stayed();
        println!(
            "  {} moved, {stayed} stayed, {succeeded} requests in {:.0} s ({:.0}/s): {wrong} wrong, {hung} hung, {reset} \
             reset, {} failed otherwise; others {:.0} %\n  packets: {:?}",
            self.handoffs.moved(),
            self.seconds,
            self.per_s(),
            self.requests.others(),
            self.others_percent,
            self.packets,
        );
        println!("  closed by nodes: {}", self.closings.words());
        self.requests.examples.iter().for_each(|example| println!("    {example}"));
    }
}

impl Requests {
    pub(super) fn failed(&self) -> u64 {
        self.failures.values().sum()
    }

    /// Failures with a cause other than the three that are counted separately.
    pub(super) fn others(&self) -> u64 {
        self.failed() - self.wrong - self.hung - self.reset
    }

    fn of(reports: &[MixReport]) -> Self {
        let mut sum = Self::default();
        for report in reports {
            sum.succeeded += report.succeeded;
            sum.bytes += report.bytes.sum();
            sum.wrong += report.wrong;
            sum.hung += report.hung;
            sum.reset += report.reset;
            for (cause, count) in &report.failures {
                *sum.failures.entry(cause.clone()).or_default() += count;
            }
            sum.examples.extend(report.examples.iter().cloned());
            sum.first_byte_p50_us = sum.first_byte_p50_us.max(report.first_byte_us.p50);
            sum.first_byte_p99_us = sum.first_byte_p99_us.max(report.first_byte_us.p99);
        }
        sum
    }
}

pub(super) fn measure(plan: &Plan) -> Result<RelayFigures, Failure> {
    let moves = plan.relay_moves.unwrap_or(plan.pick(MOVES, QUICK_MOVES));
    let bed_plan =
        BedPlan { nodes: NODES, policy: "round-robin", transport: "ip", objects: &OBJECTS };
    let bed = HandoffBed::behind_router(&bed_plan, plan)?;
    bed.machines().set_relay(Some(FAULTS))?;
    let before = Before {
        outcomes: bed.outcomes()?,
        closings: bed.closings()?,
        kernels: Kernels::of(&bed)?,
        cpu: bed.account(),
    };
    let begin = Instant::now();
    let mixes = start(&bed)?;
    await_moves(&bed, &mixes, &before.outcomes, moves)?;
    let ended = mixes.into_iter().map(MixRunning::finish).collect::<Result<Vec<_>, _>>()?;
    let seconds = begin.elapsed().as_secs_f64();
    let relayed = before.summed_up(&bed, seconds, Requests::of(&ended))?;
    relayed.print();
    Ok(relayed)
}

fn start(bed: &HandoffBed) -> Result<Vec<MixRunning>, Failure> {
    let objects: Arc<[MixObject]> = OBJECTS.map(Object::for_mix).into();
    let address = *bed.targets(Way::Handoff)?.first().ok_or("the bed has no nodes")?;
    let start = |_| {
        let mix = Mix {
            address,
            objects: Arc::clone(&objects),
            order: ORDER.into(),
            clients: CLIENTS,
            per_connection: 1,
            compares: true,
            timeout_ms: HANG_MS,
        };
        Ok(mix.start_in(bed.client()?)?)
    };
    (0..THREADS).map(start).collect()
}

/// Waits until this many connections have moved, and reports failures meanwhile.
fn await_moves(
    bed: &HandoffBed,
    mixes: &[MixRunning],
    before: &Outcomes,
    moves: u64,
) -> Result<(), Failure> {
    let begin = Instant::now();
    let (mut said, mut said_at) = (BTreeSet::new(), begin);
    let (mut last, mut last_at) = (0, begin);
    while last < moves {
        pause(RELAY_POLL_MS)?;
        for (thread, mix) in mixes.iter().enumerate() {
            for example in mix.report().examples {
                if said.insert((thread, example.clone())) {
                    println!("  thread {thread}: {example}");
                }
            }
        }
        let now = bed.outcomes()?.since(before).moved();
        if now > last {
            (last, last_at) = (now, Instant::now());
        }
        if said_at.elapsed() >= Duration::from_millis(RELAY_SAY_MS) {
            said_at = Instant::now();
            println!("  {now} of {moves} moved in {:.0} s", begin.elapsed().as_secs_f64());
        }
        if last_at.elapsed() > Duration::from_millis(STALL_MS_MAX) {
            return Err(format!("no connection has moved for {STALL_MS_MAX} ms").into());
        }
    }
    Ok(())
}

/// The counters before the load.
struct Before {
    outcomes: Outcomes,
    closings: Outcomes,
    kernels: Kernels,
    cpu: CpuAccount,
}

impl Before {
    fn summed_up(
        self,
        bed: &HandoffBed,
        seconds: f64,
        requests: Requests,
    ) -> Result<RelayFigures, Failure> {
        let (cpu_ns, others_ns) = bed.account().since(self.cpu);
        let now = Kernels::of(bed)?;
        let client = now.client.since(self.kernels.client);
        let cluster = now.cluster.since(self.kernels.cluster);
        let share = |(place, object): (usize, &Object)| {
            (object.bytes, ORDER.iter().filter(|&&it| it as usize == place).count())
        };
        Ok(RelayFigures {
            nodes: NODES,
            clients: THREADS * CLIENTS,
            hang_ms: HANG_MS,
            objects: OBJECTS.iter().enumerate().map(share).collect(),
            faults: FAULTS,
            packets: bed.machines().relay_counts()?,
            sent_again: [cluster.sent_again, client.sent_again],
            seconds,
            requests,
            handoffs: bed.outcomes()?.since(&self.outcomes),
            closings: bed.closings()?.since(&self.closings),
            client_resets: client.resets_seen,
            resets_sent: cluster.resets_sent,
            cpu_s: cpu_ns as f64 / 1e9,
            others_percent: percent_of_cores(others_ns, seconds),
        })
    }
}
