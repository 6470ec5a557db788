//! The experiments: Skep compared with its peers in a test bed, and simulated clusters.
//!
//! ```text
//!  client-1 ---> dispatcher-1 ---> node-1 .. node-N ---> origin
//!   (mix)      Skep or HAProxy   Skep, nginx or Varnish   (origin.rs: slow on purpose)
//! ```
//!
//! - `table2`: requests per second for 1 to 8 nodes, as in the WhizzBee
//!   paper's table 2.
//! - `regimes`: data smaller than a node's cache, smaller than the cluster's, and larger.
//! - `churn`: nodes are killed, added and drained under load.
//! - `large`: a file larger than a node's memory.
//! - `handoff`: the cost of moving connections to the nodes that answer them.
//! - `verify`: the same with objects that change, for any number of replies.
//! - `portal`: Tomcats behind a pool, from 1 to 4 nodes, as in the JASPer paper.
//! - `elastic`: nodes started and stopped by the load, simulated; no bed.
//! - `policies`: all policies on simulated sites; no bed.
//! - `policies-bed`: some of them in a bed, and the simulator beside it.
//! - `scale`: 10 to 1,000 simulated nodes, and a loss of every tenth; no bed.
//!
//! Each writes JSON, plots and a page. A cell has a bed of its own, so all its caches are empty at first; the
//! same objects are requested in the same order.

mod account;
mod cell;
mod churn;
mod data;
mod elastic;
mod handoff;
mod large;
mod limits;
mod machine;
mod metrics;
mod origin;
mod page;
mod plot;
mod policies;
mod policies_bed;
mod portal;
mod regimes;
mod rows;
mod scale;
mod settings;
mod stage;
mod table2;
mod verify;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

use clap::Args;
use tokio::signal::unix::{SignalKind, signal};

pub(crate) use elastic::run as run_elastic;
pub(crate) use handoff::{HandoffOptions, run as run_handoff};
pub(crate) use large::{LargeOptions, run as run_large};
pub(crate) use policies::run as run_policies;
pub(crate) use policies_bed::{BedPolicyOptions, run as run_policies_bed};
pub(crate) use portal::{PortalOptions, run as run_portal};
use rows::TableRow;
pub(crate) use scale::{ScaleOptions, run as run_scale};
use settings::Settings;
pub(crate) use verify::{VerifyOptions, run as run_verify};

pub(crate) type Failure = Box<dyn std::error::Error + Send + Sync>;

/// How an experiment runs.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Run fewer and shorter cells, as a check that everything works. Prints the page unless `--out` is given
    #[arg(long)]
    quick: bool,
    /// Folder for the page and its plots [default: docs/experiments]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Run only these rows, separated by commas: skep-proxy, skep-url, skep-direct, skep-alone, nginx-turns,
    /// nginx-url, varnish. Prints the page unless `--out` is given
    #[arg(long, value_delimiter = ',')]
    rows: Vec<String>,
    /// Skep binary
    #[arg(long, default_value_os_t = default_skep())]
    skep: PathBuf,
}

/// How an experiment with simulated sites runs.
#[derive(Debug, Args)]
pub(crate) struct SimulationOptions {
    /// Fewer and shorter runs, as a check that everything works
    #[arg(long)]
    quick: bool,
    /// Folder for the page and its plots; without it, the page is printed
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

/// An origin that is slow on purpose: paths are /BYTES/ID; on SIGTERM it prints what was requested
#[derive(Debug, Args)]
pub(crate) struct OriginOptions {
    /// Address to listen on
    #[arg(long)]
    listen: SocketAddr,
    /// Delay of each response, in milliseconds
    #[arg(long, default_value_t = 0)]
    delay_ms: u64,
    /// Total rate of all bodies, in bits per second; 0 is unlimited
    #[arg(long, default_value_t = 0)]
    rate_bits_s: u64,
}

/// An experiment in a test bed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TestBedExperiment {
    Table2,
    Regimes,
    Churn,
}

/// Runs an experiment and writes its results.
pub(crate) fn run(experiment: TestBedExperiment, options: &Options) -> Result<(), Failure> {
    prepare()?;
    let settings = Settings::new(options.skep.clone(), options.quick);
    let is_whole = !options.quick && options.rows.is_empty();
    let run = Run {
        rows: rows_of(&options.rows)?,
        out: options.out.clone().or(is_whole.then(|| "docs/experiments".into())),
        is_quick: options.quick,
        settings,
    };
    match experiment {
        TestBedExperiment::Table2 => table2::run(&run),
        TestBedExperiment::Regimes => regimes::run(&run),
        TestBedExperiment::Churn => churn::run(&run),
    }
}

/// Checks that experiments are possible; from now on SIGINT and SIGTERM end them in order.
fn prepare() -> Result<(), Failure> {
    if !rustix::process::geteuid().is_root() {
        return Err("experiments run in a test bed, which needs root".into());
    }
    watch_signals()
}

/// Serves as an origin.
pub(crate) fn serve_origin(options: &OriginOptions) -> Result<(), Failure> {
    let OriginOptions { listen, delay_ms, rate_bits_s } = *options;
    Ok(origin::run(listen, origin::Speed { delay_ms, rate_bits_s })?)
}

/// The parameters of an experiment.
struct Run {
    rows: Vec<TableRow>,
    /// `None`: nothing is written.
    out: Option<PathBuf>,
    is_quick: bool,
    settings: Settings,
}

impl Run {
    /// Returns those of `rows` that were requested.
    fn rows_of(&self, rows: &[TableRow]) -> Vec<TableRow> {
        rows.iter().copied().filter(|row| self.rows.contains(row)).collect()
    }
}

fn rows_of(keys: &[String]) -> Result<Vec<TableRow>, Failure> {
    if keys.is_empty() {
        return Ok(TableRow::ALL.into());
    }
    let known = || TableRow::ALL.map(TableRow::key).join(", ");
    let of = |key: &String| {
        let row = TableRow::ALL.into_iter().find(|row| row.key() == *key);
        row.ok_or_else(|| format!("--rows {key}: expected some of {}", known()).into())
    };
    keys.iter().map(of).collect()
}

static INTERRUPTED: AtomicBool = AtomicBool::new(false);

/// Returns an error after SIGINT or SIGTERM, so that everything is ended in order.
fn interrupted() -> Result<(), Failure> {
    if INTERRUPTED.load(Ordering::Relaxed) { Err("interrupted".into()) } else { Ok(()) }
}

fn watch_signals() -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (mut interrupt, mut terminate) = {
        let _inside = runtime.enter();
        (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?)
    };
    std::thread::spawn(move || {
        runtime.block_on(async {
            tokio::select! { _ = interrupt.recv() => {}, _ = terminate.recv() => {} }
        });
        INTERRUPTED.store(true, Ordering::Relaxed);
    });
    Ok(())
}

/// The binary beside this one, where `cargo build` puts both.
fn default_skep() -> PathBuf {
    std::env::current_exe().unwrap_or_default().with_file_name("skep")
}
