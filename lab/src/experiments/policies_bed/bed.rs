//! One run in the test bed: new processes with empty caches, a policy, a trace.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use skep_lab::load::{PlannedLoad, PlannedReport};
use skep_testbed::Machine;

use super::super::Failure;
use super::super::cell::{Busy, pause};
use super::super::data::DataSet;
use super::super::metrics::NodeMetrics;
use super::super::origin::{Object, Speed};
use super::super::rows::{TableRow, node_name};
use super::super::settings::Settings;
use super::super::stage::{ServingBed, StagePlan};
use super::RunFigures;
use super::cells::{BedCell, NODES, Trace};
use super::limits::{FRAME_BYTES, QUEUE_MS, RESPONSE_MS};

/// Object requested until the bed answers; not part of any trace.
const PROBE: Object = Object { id: u32::MAX, bytes: 64, period_ms: 0 };

/// Runs a trace under a policy.
pub(super) fn measure(
    (cell, policy): (&BedCell, &str),
    trace: &Trace,
    settings: &Settings,
) -> Result<RunFigures, Failure> {
    let stage = prepare(cell, settings)?;
    stage.control(&["policy", "set", "web", policy])?;
    let load = PlannedLoad {
        address: stage.target(),
        objects: trace.mix_objects(),
        plan: trace.requests.clone(),
        timeout_ms: RESPONSE_MS,
    };
    let load = load.start_in(stage.client()?)?;
    let at_us = |(at_us, _): (u64, u32)| load.begin() + Duration::from_micros(at_us);
    let measured = trace.measured();
    let (Some(first), Some(last)) = (measured.first(), measured.last()) else {
        return Err("nothing is measured".into());
    };
    pause_until(at_us(*first))?;
    let (before, busy) = (Fetched::so_far(&stage)?, Busy::now()?);
    pause_until(at_us(*last))?;
    let free_percent = busy.free_percent_since()?;
    let report = load.finish()?;
    let fetched = Fetched::so_far(&stage)?.since(&before);
    report.examples.iter().take(2).for_each(|example| println!("    {example}"));
    if !report.examples.is_empty() {
        println!("    nodes could not fetch: {:?}", fetch_errors(&stage)?);
    }
    Ok(figures(&report, trace, (&fetched, free_percent)))
}

/// Starts all processes, and limits links and sources.
fn prepare(cell: &BedCell, settings: &Settings) -> Result<ServingBed, Failure> {
    let scale = cell.site.scale();
    let stage = ServingBed::new(&StagePlan {
        row: TableRow::SkepProxy,
        nodes: NODES,
        spares: 0,
        cache_bytes: cell.site.memory_bytes(),
        link_mbit_s: scale.link_bits_s / 1_000_000,
        data: &DataSet::of(vec![PROBE]),
        settings,
    })?;
    stage.set_sources(scale.source)?;
    stage.set_node_rate(Some(scale.link_bits_s))?;
    for node in stage.node_machines() {
        // Otherwise one stream has up to 128 KiB in the queue, behind which short responses wait.
        let (device, rate, frames) = (node.device(), scale.link_bits_s, scale.frames_queued);
        let bytes = frames * FRAME_BYTES;
        node.set_kernel("net.ipv4.tcp_limit_output_bytes", &bytes.to_string())?;
        let limit = format!("rate {rate}bit burst {} latency {QUEUE_MS}ms", 2 * bytes);
        run(node, "tc", &format!("qdisc replace dev {device} root handle 1: tbf {limit}"))?;
        run(node, "ip", &format!("link set dev {device} gso_max_segs {frames}"))?;
    }
    Ok(stage)
}

fn run(machine: &Machine, program: &str, words: &str) -> Result<(), Failure> {
    let output = machine.command(program).args(words.split(' ')).output()?;
    match output.status.success() {
        true => Ok(()),
        false => {
            Err(format!("{program} {words}: {}", String::from_utf8_lossy(&output.stderr)).into())
        }
    }
}

/// What nodes fetched, in bytes.
#[derive(Clone, Copy, Debug)]
struct Fetched {
    from_source: u64,
    from_peers: u64,
}

impl Fetched {
    fn so_far(stage: &ServingBed) -> Result<Self, Failure> {
        let mut from_peers = 0;
        for index in 0..NODES {
            let metrics = NodeMetrics::new(stage.metrics(&node_name(index))?);
            from_peers += metrics.value("skep_peer_sent_bytes_total") as u64;
        }
        Ok(Self { from_source: stage.origin_counts()?.bytes, from_peers })
    }

    fn since(&self, before: &Self) -> Self {
        Self {
            from_source: self.from_source - before.from_source,
            from_peers: self.from_peers - before.from_peers,
        }
    }
}

/// Error replies of all nodes, by the place of the failure.
fn fetch_errors(stage: &ServingBed) -> Result<BTreeMap<String, f64>, Failure> {
    let mut errors = BTreeMap::new();
    for index in 0..NODES {
        let metrics = NodeMetrics::new(stage.metrics(&node_name(index))?);
        for (cause, count) in metrics.by_label("skep_fetch_errors_total", "cause") {
            *errors.entry(cause).or_default() += count;
        }
    }
    errors.retain(|_, count| *count > 0.0);
    Ok(errors)
}

fn figures(
    report: &PlannedReport,
    trace: &Trace,
    (fetched, free_percent): (&Fetched, f64),
) -> RunFigures {
    let measured = &report.responses[trace.warm_up..];
    let mut took_us: Vec<u64> = measured.iter().filter_map(|it| it.took_us).collect();
    let mut late_us: Vec<u64> = measured.iter().map(|it| it.late_us).collect();
    took_us.sort_unstable();
    late_us.sort_unstable();
    let at = |sorted: &[u64], share: f64| {
        let place = (sorted.len() as f64 * share).ceil() as usize;
        sorted.get(place.saturating_sub(1)).map_or(f64::NAN, |us| *us as f64 / 1e6)
    };
    let asked = trace.measured_bytes() as f64;
    RunFigures {
        mean_s: took_us.iter().sum::<u64>() as f64 / took_us.len() as f64 / 1e6,
        p99_s: at(&took_us, 0.99),
        hit_share: measured.iter().filter(|it| it.is_local).count() as f64 / measured.len() as f64,
        peer_share: fetched.from_peers as f64 / asked,
        source_share: fetched.from_source as f64 / asked,
        failed: report.responses.iter().filter(|it| it.took_us.is_none()).count() as u64,
        late_p99_s: at(&late_us, 0.99),
        free_percent,
    }
}

fn pause_until(at: Instant) -> Result<(), Failure> {
    pause(at.saturating_duration_since(Instant::now()).as_millis() as u64)
}

/// Settings in which only links and sources limit the rate.
pub(super) fn settings(skep: std::path::PathBuf) -> Settings {
    let usual = Settings::new(skep, false);
    let cores = f64::INFINITY;
    Settings {
        // What every kernel allows; links lose nothing, so it matters little which.
        congestion: Some("reno".to_owned()),
        node_cpu_cores: cores,
        dispatcher_cpu_cores: cores,
        origin_cpu_cores: cores,
        origin: Speed::default(),
        ..usual
    }
}
