//! Millions of replies, each compared byte for byte with the expected content, while nodes are killed,
//! drained and added and objects change: none may be wrong.
//!
//! A third of the objects change by the clock, some of them twice a second; a reply must be completely of one
//! version, the one that its entity tag names, and not an old one. One object of two segments changes, too.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Args;
use serde::{Deserialize, Serialize};
use skep_lab::load::{Mix, MixReport, MixRunning};

use super::cell::pause;
use super::churn::Event;
use super::data::{DataSet, PopularityLaw};
use super::limits::POLL_MS;
use super::machine::MachineDescription;
use super::origin::Object;
use super::page::{Page, percent, texts};
use super::rows::TableRow;
use super::settings::Settings;
use super::stage::{ServingBed, StagePlan};
use super::{Failure, interrupted};

/// The report's kind of failure for replies that end with the node that sends them.
const CUT: &str = "ended within the body";

/// Nodes in use at the beginning; one more is added.
const NODES: usize = 4;

/// Times between two changes of an object, in milliseconds.
const PERIODS_MS: [u64; 3] = [500, 2_000, 10_000];

/// An object of two segments that changes, and after how many requests it is requested.
const LARGE: Object = Object { id: u32::MAX, bytes: 5 << 20, period_ms: 3_000 };
const LARGE_EACH: usize = 2_000;

/// Requests of an order, which is then repeated.
const ORDER_REQUESTS: usize = 1_000_000;

/// Cores of each machine: no limit.
const CPU_CORES: f64 = 64.0;

/// The first event, and the events that then repeat, one per step.
const FIRST: Event = Event::Add(NODES);
const EVENTS: [Event; 12] = [
    Event::Kill(1),
    Event::Start(1),
    Event::Drain(2),
    Event::Resume(2),
    Event::Kill(NODES),
    Event::Start(NODES),
    Event::Kill(0),
    Event::Start(0),
    Event::Drain(3),
    Event::Kill(2),
    Event::Start(2),
    Event::Resume(3),
];

/// Timeout of a response, in milliseconds: a hung request takes longer, and one that waits for a processor
/// used by many others, as in `make test`, does not (with 10 s, 2 of 1,000 did).
const RESPONSE_TIMEOUT_MS: u64 = 30_000;

/// Maximum time for which a reply may be of a replaced version, in milliseconds: the second for which the
/// origin allows its use, one for ages in whole seconds, and one for a busy machine.
const STALE_MS_MAX: u64 = 3_000;

/// Replies compared byte for byte while nodes are killed, drained and added and objects change
#[derive(Debug, Args)]
pub(crate) struct VerifyOptions {
    /// Number of replies
    #[arg(long, default_value_t = 200_000)]
    replies: u64,
    /// Time from one event to the next, in milliseconds
    #[arg(long, default_value_t = 2_000)]
    step_ms: u64,
    /// Size of a node's cache, in bytes
    #[arg(long, default_value_t = 16_000_000)]
    cache_bytes: u64,
    /// Size of the objects of the data set, in bytes
    #[arg(long, default_value_t = 80_000_000)]
    data_bytes: u64,
    /// Folder for the page; without it, the page is printed
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Skep binary
    #[arg(long, default_value_os_t = super::default_skep())]
    skep: PathBuf,
}

/// The results as written to JSON.
#[derive(Serialize, Deserialize)]
struct Results {
    machine: MachineDescription,
    wanted: u64,
    step_ms: u64,
    cache_bytes: u64,
    data_bytes: u64,
    objects: usize,
    events: usize,
    report: MixReport,
}

pub(crate) fn run(options: &VerifyOptions) -> Result<(), Failure> {
    super::prepare()?;
    let VerifyOptions { cache_bytes, step_ms, .. } = *options;
    let settings = Settings {
        node_cpu_cores: CPU_CORES,
        dispatcher_cpu_cores: CPU_CORES,
        origin_cpu_cores: CPU_CORES,
        // Nothing is timed here, so any algorithm will do.
        congestion: None,
        ..Settings::new(options.skep.clone(), false)
    };
    let data = DataSet::of_bytes(options.data_bytes).changing(&PERIODS_MS);
    let plan = StagePlan {
        row: TableRow::SkepProxy,
        nodes: NODES,
        spares: 1,
        cache_bytes,
        link_mbit_s: 0,
        data: &data,
        settings: &settings,
    };
    let mut stage = ServingBed::new(&plan)?;
    let mix = stage.start_mix(mix(&stage, &data, &settings))?;
    let events = go_on(&mut stage, &mix, options)?;
    let results = Results {
        machine: MachineDescription::describe(&options.skep),
        wanted: options.replies,
        step_ms,
        cache_bytes,
        data_bytes: data.bytes(),
        objects: data.count() + 1,
        events,
        report: mix.stop()?,
    };
    let troubles = results.troubles();
    results.page().finish(options.out.as_deref(), &results, &troubles)
}

fn mix(stage: &ServingBed, data: &DataSet, settings: &Settings) -> Mix {
    let mut objects = data.mix_objects().to_vec();
    let mut order = data.order(PopularityLaw::Zipf, ORDER_REQUESTS).to_vec();
    order.iter_mut().step_by(LARGE_EACH).for_each(|place| *place = objects.len() as u32);
    objects.push(LARGE.for_mix());
    Mix {
        address: stage.target(),
        objects: objects.into(),
        order: Arc::from(order),
        clients: settings.clients,
        per_connection: settings.per_connection,
        compares: true,
        timeout_ms: RESPONSE_TIMEOUT_MS,
    }
}

/// Runs events until all replies have been received; returns the number of events.
fn go_on(
    stage: &mut ServingBed,
    mix: &MixRunning,
    options: &VerifyOptions,
) -> Result<usize, Failure> {
    let mut told = 0;
    for (count, event) in std::iter::once(FIRST).chain(EVENTS.into_iter().cycle()).enumerate() {
        let step = Instant::now() + Duration::from_millis(options.step_ms);
        while Instant::now() < step {
            if mix.succeeded() >= options.replies {
                return Ok(count);
            }
            pause(POLL_MS)?;
        }
        interrupted()?;
        event.happen(stage)?;
        let tenths = mix.succeeded() * 10 / options.replies;
        if tenths > told {
            told = tenths;
            let MixReport { succeeded, failed, wrong, .. } = mix.report();
            println!("  {succeeded} right replies, {failed} failed, {wrong} of them wrong");
        }
    }
    unreachable!("events go on for ever")
}

impl Results {
    fn troubles(&self) -> Vec<String> {
        let MixReport { wrong, failed, stalest_ms, .. } = self.report;
        let mut troubles = Vec::new();
        // A reply in progress is lost when its node is killed.
        let cut = self.report.failures.get(CUT).copied().unwrap_or(0);
        if failed > cut {
            let failures = (&self.report.failures, &self.report.examples);
            troubles.push(format!("{failed} requests failed: {failures:?}"));
        }
        if wrong > 0 {
            troubles.push(format!("{wrong} replies are wrong: {:?}", self.report.examples));
        }
        if stalest_ms > STALE_MS_MAX {
            troubles
                .push(format!("a reply is of a version that was replaced {stalest_ms} ms before"));
        }
        troubles
    }

    fn page(&self) -> Page {
        let mut page = Page::new("verify");
        page.add("# Every byte of every reply\n");
        page.add(&format!(
            "`skep-lab verify --replies {} --step-ms {} --cache-bytes {}` makes this page \
             ([how](README.md)).\n",
            self.wanted, self.step_ms, self.cache_bytes
        ));
        page.add(&self.machine.text());
        page.add(&format!(
            "\n{NODES} nodes behind a dispatcher (`proxy`), each with a cache of {:.0} MB, and an \
             HTTP origin, in network namespaces on this one machine. {} objects, {:.0} MB in all, \
             popularity Zipf 1.0. A third of them change every {:.1} to {:.0} s, and one more, of \
             two segments, every {:.0} s; the origin allows their use for a second. Each {} ms something \
             happens: a node is added; then nodes are killed (`kill -9`), started, drained and \
             resumed, again and again: {} times in all.\n",
            self.cache_bytes as f64 / 1e6,
            self.objects,
            self.data_bytes as f64 / 1e6,
            PERIODS_MS[0] as f64 / 1e3,
            PERIODS_MS[2] as f64 / 1e3,
            LARGE.period_ms as f64 / 1e3,
            self.step_ms,
            self.events,
        ));
        page.add(&format!(
            "Every byte of every reply is compared with the version that the reply's entity tag names. Wrong: \
             another byte or length, or a version that never existed. Failed: no correct reply in {} s, or a \
             connection that ended within one; the \
             latter happens to clients of a killed node. Old: of a version that was replaced before \
             the request.\n",
            RESPONSE_TIMEOUT_MS / 1000
        ));
        let report = &self.report;
        let sources = &report.requests;
        let rows = [
            ("replies compared, right", report.succeeded.to_string()),
            ("their bytes", format!("{:.1} GB", report.bytes.sum() as f64 / 1e9)),
            ("**wrong**", format!("**{}**", report.wrong)),
            ("from the node's own memory", percent(sources.local, report.succeeded) + " %"),
            ("from another node's", percent(sources.peer, report.succeeded) + " %"),
            ("from the origin", percent(sources.origin, report.succeeded) + " %"),
            ("failed", report.failed.to_string()),
            ("old", format!("{}, by at most {} ms", report.stale, report.stalest_ms)),
            ("time", format!("{} s", report.elapsed_ms / 1000)),
        ];
        let rows = rows.map(|(what, value)| vec![what.to_owned(), value]);
        page.add_table(&texts(["what", ""]), &rows);
        let kinds = report.failures.iter().map(|(kind, count)| format!("{kind}: {count}"));
        let kinds = kinds.collect::<Vec<_>>().join("; ");
        if !kinds.is_empty() {
            page.add(&format!("Failures: {kinds}.\n"));
        }
        page
    }
}
