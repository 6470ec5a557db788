//! A load by one way, and its cost.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use skep_lab::load::{Mix, MixObject, MixReport, MixRunning};

use super::bed::{HandoffBed, Way};
use super::limits::{POLL_MS, REQUEST_MS, WINDOW_MS_MAX};
use super::outcomes::Outcomes;
use crate::experiments::Failure;
use crate::experiments::account::percent_of_cores;
use crate::experiments::cell::pause;

/// The clients' load: each sends the next request as soon as it has the reply.
pub(super) struct Load<'a> {
    pub(super) objects: &'a Arc<[MixObject]>,
    pub(super) order: &'a [u32],
    /// Maximum number of client processes, of which there is one for each node.
    pub(super) processes_max: usize,
    /// Clients in each process.
    pub(super) clients: usize,
    /// Requests on one connection.
    pub(super) per_connection: u64,
    /// Whether every byte is compared.
    pub(super) compares: bool,
    pub(super) settle_ms: u64,
    pub(super) window_ms: u64,
    /// The window lasts until this many requests have ended.
    pub(super) requests_min: u64,
}

/// The results of a load.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Sample {
    pub(super) seconds: f64,
    pub(super) requests: u64,
    pub(super) bytes: u64,
    pub(super) failed: u64,
    /// Descriptions of the first failures.
    pub(super) examples: Vec<String>,
    /// Connections that were to be handed off, by outcome.
    pub(super) handoffs: Outcomes,
    /// CPU time of client, dispatcher, nodes and their kernels.
    pub(super) cpu_s: f64,
    /// Utilisation of all cores by other processes.
    pub(super) others_percent: f64,
    pub(super) first_byte_p50_us: u64,
    pub(super) first_byte_p99_us: u64,
}

impl Sample {
    pub(super) fn per_s(&self) -> f64 {
        self.requests as f64 / self.seconds
    }

    pub(super) fn mbit_s(&self) -> f64 {
        self.bytes as f64 * 8e-6 / self.seconds
    }

    /// The number of connections that were handed off.
    pub(super) fn moved(&self) -> u64 {
        self.handoffs.moved()
    }

    /// The number of connections that were to be handed off and were not.
    pub(super) fn stayed(&self) -> u64 {
        self.handoffs.stayed()
    }

    /// Prints the results while the experiment runs; `what` is the position in it.
    pub(super) fn print(&self, what: &str) {
        println!(
            "  {what} {:>6.0} connections/s, {:>7.1} Mbit/s, {:>6.0} us CPU each, {} of {} moved, stayed: [{}], {} failed, others {:.0} %",
            self.per_s(),
            self.mbit_s(),
            self.cpu_us(),
            self.moved(),
            self.requests,
            self.handoffs.causes(),
            self.failed,
            self.others_percent,
        );
        self.examples.iter().take(3).for_each(|example| println!("    {example}"));
    }

    pub(super) fn cpu_us(&self) -> f64 {
        self.cpu_s * 1e6 / self.requests.max(1) as f64
    }
}

impl Load<'_> {
    /// Loads one way for a window.
    pub(super) fn run(&self, bed: &HandoffBed, way: Way) -> Result<Sample, Failure> {
        let mixes = self.start(bed, way)?;
        pause(self.settle_ms)?;
        let (outcomes, before) = (bed.outcomes()?, bed.account());
        mixes.iter().for_each(MixRunning::measure);
        pause(self.window_ms)?;
        self.await_requests(&mixes)?;
        let reports: Vec<MixReport> = mixes.iter().map(MixRunning::report).collect();
        let (cpu_ns, others_ns) = bed.account().since(before);
        let handoffs = bed.outcomes()?.since(&outcomes);
        for mix in mixes {
            mix.stop()?;
        }
        let mut sample = sum(&reports);
        sample.handoffs = handoffs;
        sample.cpu_s = cpu_ns as f64 / 1e9;
        sample.others_percent = percent_of_cores(others_ns, sample.seconds);
        Ok(sample)
    }

    fn await_requests(&self, mixes: &[MixRunning]) -> Result<(), Failure> {
        let end = Instant::now() + Duration::from_millis(WINDOW_MS_MAX);
        let ended = || -> u64 {
            let reports = mixes.iter().map(MixRunning::report);
            reports.map(|report| report.succeeded + report.failed).sum()
        };
        while ended() < self.requests_min {
            pause(POLL_MS)?;
            if Instant::now() > end {
                return Err(format!("{} requests after {WINDOW_MS_MAX} ms", ended()).into());
            }
        }
        Ok(())
    }

    /// Starts a client process for each node, as in the paper.
    fn start(&self, bed: &HandoffBed, way: Way) -> Result<Vec<MixRunning>, Failure> {
        let mut targets = bed.targets(way)?;
        targets.truncate(self.processes_max);
        let count = targets.len();
        let start = |(index, address)| {
            let mut order = self.order.to_vec();
            order.rotate_left(index * self.order.len() / count);
            let mix = Mix {
                address,
                objects: Arc::clone(self.objects),
                order: order.into(),
                clients: self.clients,
                per_connection: self.per_connection,
                compares: self.compares,
                timeout_ms: REQUEST_MS,
            };
            Ok(mix.start_in(bed.client()?)?)
        };
        targets.into_iter().enumerate().map(start).collect()
    }
}

fn sum(reports: &[MixReport]) -> Sample {
    let of = |part: fn(&MixReport) -> u64| reports.iter().map(part);
    let count = reports.len().max(1) as f64;
    let examples = reports.iter().flat_map(|report| report.examples.iter().cloned());
    Sample {
        seconds: of(|it| it.elapsed_ms).sum::<u64>() as f64 / 1000.0 / count,
        requests: of(|it| it.succeeded).sum(),
        bytes: of(|it| it.bytes.sum()).sum(),
        failed: of(|it| it.failed).sum(),
        examples: examples.take(10).collect(),
        first_byte_p50_us: middle(of(|it| it.first_byte_us.p50)),
        first_byte_p99_us: middle(of(|it| it.first_byte_us.p99)),
        ..Sample::default()
    }
}

fn middle(values: impl Iterator<Item = u64>) -> u64 {
    let mut values: Vec<u64> = values.collect();
    values.sort_unstable();
    values.get(values.len() / 2).copied().unwrap_or(0)
}

/// Median, minimum and maximum of figures.
pub(super) fn spread(values: impl Iterator<Item = f64>) -> (f64, f64, f64) {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    let at = |index: usize| values.get(index).copied().unwrap_or(0.0);
    (at(values.len() / 2), at(0), at(values.len().saturating_sub(1)))
}
