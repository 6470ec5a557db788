//! One cell of a table: warms up, measures, counts.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use skep_lab::load::{Mix, MixReport, MixRunning};

use super::data::{DataSet, PopularityLaw};
use super::limits::{POLL_MS, WARM_UP_MS};
use super::origin::OriginCounts;
use super::page::percent;
use super::rows::TableRow;
use super::settings::Settings;
use super::stage::{ServingBed, StagePlan};
use super::{Failure, interrupted};

/// Requests of an order, which is then repeated. More than are sent.
const ORDER_REQUESTS: usize = 1_000_000;

/// The results of one row with one number of nodes.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Cell {
    pub(crate) row: TableRow,
    pub(crate) nodes: usize,
    pub(crate) popularity: PopularityLaw,
    pub(crate) data_bytes: u64,
    pub(crate) cache_bytes: u64,
    /// The clients' results in the measured window.
    pub(crate) report: MixReport,
    /// The origin's counts in the window.
    pub(crate) origin: OriginCounts,
    /// The origin's counts from the beginning, including the warm-up.
    pub(crate) origin_in_all: OriginCounts,
    /// Bytes that each node sent in the window, to clients and to other nodes.
    pub(crate) sent_bytes: Vec<u64>,
    /// Objects in a node's cache, if they are files that can be counted.
    pub(crate) cached_objects: usize,
    /// Utilisation of all cores of this machine in the window, in percent.
    pub(crate) busy_percent: f64,
}

/// The load of a cell.
pub(super) struct Load<'a> {
    pub(super) row: TableRow,
    pub(super) nodes: usize,
    pub(super) popularity: PopularityLaw,
    pub(super) data: &'a DataSet,
    pub(super) cache_bytes: u64,
}

impl Cell {
    /// Prints the results while the experiment runs; `what` is the part of it.
    pub(super) fn print(&self, what: &str) {
        let what = if what.is_empty() { String::new() } else { format!("{what}: ") };
        println!(
            "  {what}{:<26} {} nodes, {:<8} {:>6.0} requests/s {:>6.2} MB/s, origin {} %, peer {} %, \
             busiest {:.2}, {} failed, cores {:.0} %, {} files",
            self.row.name(),
            self.nodes,
            self.popularity.name(),
            self.requests_per_s(),
            self.mb_per_s(),
            percent(self.report.requests.origin, self.report.succeeded),
            percent(self.report.requests.peer, self.report.succeeded),
            self.busiest(),
            self.report.failed,
            self.busy_percent,
            self.cached_objects,
        );
        self.report.examples.iter().take(2).for_each(|example| println!("    {example}"));
    }

    pub(crate) fn requests_per_s(&self) -> f64 {
        per_s(self.report.succeeded, self.report.elapsed_ms)
    }

    pub(crate) fn mb_per_s(&self) -> f64 {
        per_s(self.report.bytes.sum(), self.report.elapsed_ms) / 1e6
    }

    /// Bytes sent by the busiest node over the mean of all nodes.
    pub(crate) fn busiest(&self) -> f64 {
        let sum: u64 = self.sent_bytes.iter().sum();
        let most = self.sent_bytes.iter().copied().max().unwrap_or(0);
        most as f64 * self.sent_bytes.len() as f64 / sum.max(1) as f64
    }

    /// Bytes sent by the origin over those of distinct objects, from the beginning.
    pub(crate) fn redundancy(&self) -> f64 {
        self.origin_in_all.bytes as f64 / self.origin_in_all.unique_bytes.max(1) as f64
    }
}

fn per_s(count: u64, elapsed_ms: u64) -> f64 {
    count as f64 * 1000.0 / elapsed_ms.max(1) as f64
}

/// Starts everything, measures, and stops everything.
pub(super) fn measure(load: &Load<'_>, settings: &Settings) -> Result<Cell, Failure> {
    let &Load { row, nodes, popularity, data, cache_bytes } = load;
    let stage = ServingBed::new(&StagePlan {
        row,
        nodes,
        spares: 0,
        cache_bytes,
        link_mbit_s: 0,
        data,
        settings,
    })?;
    let mix = warm_up(&stage, load, settings)?;
    let (origin, sent, busy) = (stage.origin_counts()?, stage.sent_bytes()?, Busy::now()?);
    mix.measure();
    pause(settings.window_ms)?;
    let report = mix.report();
    let origin_in_all = stage.origin_counts()?;
    let sent_bytes = stage.sent_bytes()?.iter().zip(&sent).map(|(now, then)| now - then).collect();
    let busy_percent = busy.percent_since()?;
    let cached_objects = stage.files_per_node();
    mix.stop()?;
    Ok(Cell {
        row,
        nodes,
        popularity,
        data_bytes: data.bytes(),
        cache_bytes,
        report,
        origin: origin_in_all.since(origin),
        origin_in_all,
        sent_bytes,
        cached_objects,
        busy_percent,
    })
}

/// Fills the caches at full speed, then lets everything settle at the measured speeds.
pub(super) fn warm_up(
    stage: &ServingBed,
    load: &Load<'_>,
    settings: &Settings,
) -> Result<MixRunning, Failure> {
    let mix = stage.start_mix(Mix {
        address: stage.target(),
        objects: load.data.mix_objects(),
        order: load.data.order(load.popularity, ORDER_REQUESTS),
        clients: settings.clients,
        per_connection: settings.per_connection,
        compares: true,
        timeout_ms: 10_000,
    })?;
    let wanted = (load.data.count() as f64 * settings.warm_up_rounds) as u64;
    let deadline = Instant::now() + Duration::from_millis(WARM_UP_MS);
    while mix.begun() < wanted {
        pause(POLL_MS)?;
        if Instant::now() > deadline {
            let report = mix.report();
            let seen = (mix.begun(), report.failed, report.examples);
            return Err(format!("no warm-up in {WARM_UP_MS} ms: {seen:?}").into());
        }
    }
    stage.set_slow(true)?;
    pause(settings.settle_ms)?;
    Ok(mix)
}

/// Waits, unless a signal arrives.
pub(super) fn pause(ms: u64) -> Result<(), Failure> {
    let end = Instant::now() + Duration::from_millis(ms);
    while let Some(left) = end.checked_duration_since(Instant::now()) {
        interrupted()?;
        thread::sleep(left.min(Duration::from_millis(POLL_MS)));
    }
    Ok(())
}

/// Ticks of all cores since boot (proc(5)).
pub(super) struct Busy {
    busy: u64,
    /// Of processes that yield to others.
    nice: u64,
    all: u64,
}

impl Busy {
    pub(super) fn now() -> Result<Self, Failure> {
        let text = fs::read_to_string("/proc/stat")?;
        let line = text.lines().next().unwrap_or_default();
        let ticks: Vec<u64> = line.split_whitespace().filter_map(|it| it.parse().ok()).collect();
        let all = ticks.iter().take(8).sum();
        // Idle, and idle while waiting for a disk.
        let idle: u64 = ticks.iter().skip(3).take(2).sum();
        let nice = ticks.get(1).copied().unwrap_or(0);
        Ok(Self { busy: all - idle, nice, all })
    }

    /// Percent of all cores' time since then.
    pub(super) fn percent_since(&self) -> Result<f64, Failure> {
        let now = Self::now()?;
        Ok((now.busy - self.busy) as f64 * 100.0 / (now.all - self.all).max(1) as f64)
    }

    /// The rest, and what processes got that yield to others.
    pub(super) fn free_percent_since(&self) -> Result<f64, Failure> {
        let now = Self::now()?;
        let taken = (now.busy - self.busy).saturating_sub(now.nice - self.nice);
        Ok(100.0 - taken as f64 * 100.0 / (now.all - self.all).max(1) as f64)
    }
}
