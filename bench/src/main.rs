//! `skep-bench`: compares Skep with its peers and with a bare epoll loop in C.
//!
//! Each server is pinned to one core and wrk to the other; rounds are interleaved. The most reliable figure
//! is CPU time per request, from the kernel's nanosecond accounting, because it does not depend on how busy
//! the machine is. Raw samples are written to `bench/results/latest.json`; the page is generated from that
//! file alone, so a run of one group leaves the others unchanged.

mod backends;
mod bodies;
mod check;
mod collapse;
mod content;
mod direct;
mod drain;
mod groups;
mod idle;
mod interrupt;
mod limits;
mod machine;
mod peers;
mod process;
mod report;
mod results;
mod slow_clients;
mod tables;
mod uploads;
mod version;
mod wrk;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, ensure};
use clap::{Parser, ValueEnum};

use crate::groups::Bench;
use crate::results::{MachineDescription, Results};

/// What to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum What {
    /// static, proxy, applications, redirect, uploads, collapse, idle, direct and tables
    All,
    /// Files: 1 KiB, 22 KB, 541 KB and the WebBench mix
    Static,
    /// Reverse proxy to two origins over kept connections
    Proxy,
    /// Pools of applications: HTTP, FastCGI to php-fpm, AJP to Tomcat
    Applications,
    /// Responses that redirect the client to a node
    Redirect,
    /// Uploads of 1 GiB through a pool of HTTP servers
    Uploads,
    /// 1,000 clients of a cluster that request one page at the same time: how often it is computed
    Collapse,
    /// 10,000 idle connections: their memory, and what they cost the active ones
    Idle,
    /// Direct dispatch in a test bed, compared with two-way proxies; needs root
    Direct,
    /// CPU cost of plans and tables of large clusters in direct dispatch, for a dispatcher
    Tables,
    /// Ways to send a large body, in C, without a server around them
    Bodies,
}

/// Compares Skep with its peers: CPU per request and requests per second.
#[derive(Debug, Parser)]
#[command(version)]
struct Args {
    /// What to measure
    #[arg(value_enum, default_value = "all")]
    what: What,
    /// Interleaved rounds, over which medians are taken
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// Duration of each measurement, in seconds
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=600))]
    seconds: u32,
    /// Measure only these servers, by name, separated by commas. Prints the results and writes nothing,
    /// since the rows of a table can only be compared if they come from one run
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Skep binary
    #[arg(long, default_value_os_t = default_skep())]
    skep: PathBuf,
    /// An earlier build, measured alternately with `--skep`, and no other server. Prints the results and
    /// writes nothing. `all` is then files, proxy, applications and redirect
    #[arg(long, conflicts_with = "only")]
    before: Option<PathBuf>,
    /// Page to write
    #[arg(long, default_value = "docs/benchmarks.md")]
    out: PathBuf,
    /// File of raw samples; it is read first, so that other groups are kept
    #[arg(long, default_value = "bench/results/latest.json")]
    json: PathBuf,
    /// Congestion control during measurements (restored afterwards), or `keep`
    #[arg(long, default_value = "cubic")]
    congestion: String,
    /// One round of one second, printed and not written, as a check that everything works
    #[arg(long)]
    quick: bool,
}

fn main() -> ExitCode {
    let args = Args::parse();
    match run(&args) {
        Ok(0) => ExitCode::SUCCESS,
        Ok(failures) => {
            eprintln!("skep-bench: {failures} rows are missing or have errors, see the page");
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("skep-bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Measures, writes the results, and returns the number of rows that failed or had errors.
fn run(args: &Args) -> Result<usize> {
    interrupt::watch()?;
    let dry = args.quick || !args.only.is_empty() || args.before.is_some();
    let (rounds, seconds) = if args.quick { (1, 1) } else { (args.rounds, args.seconds) };
    let mut results = if dry { Results::default() } else { Results::read(&args.json)? };
    machine::raise_file_limit();
    let congestion = machine::Congestion::set(&args.congestion)?;
    machine::prefer_session("self");
    let machine = machine::describe(&congestion)?;
    if ![What::Tables, What::Collapse].contains(&args.what) {
        results.machine = machine.clone();
    }

    let mut failures = 0;
    // First, since nothing is pinned in it.
    let before = args.before.as_deref();
    ensure!(before.is_none() || args.what != What::Tables, "--before measures no tables");
    let with_direct = args.what == What::All && before.is_none();
    if with_direct || args.what == What::Direct {
        let plan = (rounds, seconds);
        failures += direct::run(plan, &args.only, (&args.skep, before), &mut results)?;
    }
    if before.is_none() && [What::All, What::Tables].contains(&args.what) {
        results.tables = Some(tables::run(args.quick, machine.clone())?);
        results.comparison = Some(tables::compare(machine.clone())?);
    }
    if ![What::Direct, What::Tables].contains(&args.what) {
        machine::claim_the_client_core()?;
        let bench = Bench::prepare((rounds, seconds), &args.only, &args.skep, before)?;
        failures += on_one_core(&bench, args.what, machine, &mut results)?;
    }
    if before.is_some() {
        print!("{}", report::pairs(&results));
        return Ok(failures);
    }
    let page = report::page(&results);
    if dry {
        print!("{page}");
    } else {
        results.write(&args.json)?;
        std::fs::write(&args.out, page).with_context(|| args.out.display().to_string())?;
        println!("skep-bench: wrote {} and {}", args.out.display(), args.json.display());
    }
    Ok(failures)
}

/// Measures the groups in which every server has one core.
fn on_one_core(
    bench: &Bench,
    what: What,
    machine: MachineDescription,
    results: &mut Results,
) -> Result<usize> {
    let mut failures = 0;
    let all = what == What::All;
    if all || what == What::Static {
        failures += groups::files(bench, results)?;
    }
    if all || what == What::Proxy {
        failures += groups::proxy(bench, results)?;
    }
    if all || what == What::Applications {
        failures += groups::applications(bench, results)?;
    }
    if all || what == What::Redirect {
        failures += groups::redirect(bench, results)?;
    }
    if (all && !bench.is_paired()) || what == What::Uploads {
        failures += uploads::run(bench, results)?;
    }
    if (all && !bench.is_paired()) || what == What::Collapse {
        failures += collapse::run(bench, machine, results)?;
    }
    if (all && !bench.is_paired()) || what == What::Idle {
        failures += idle::run(bench, results)?;
    }
    if what == What::Bodies {
        bodies::run(bench, results)?;
    }
    Ok(failures)
}

/// The binary beside this one, where `cargo build` puts both.
fn default_skep() -> PathBuf {
    let me = std::env::current_exe().unwrap_or_default();
    me.with_file_name("skep")
}
