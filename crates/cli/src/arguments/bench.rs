//! Arguments of `skep bench`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use skep_load::{
    CLIENTS_MAX, DURATION_MS_MAX, PROCESSES_MAX, ProcessShare, RATE_MAX, REQUEST_MS_MAX, SCALE_MAX,
    WorkloadKind,
};
use skep_probe::ProbeUrl;

use super::advise::speed;
use super::{duration, time_up_to};

#[derive(Debug, Subcommand)]
pub(crate) enum BenchCommand {
    /// Write the files of a workload into a folder, to be served
    Data(BenchDataArgs),
    /// Send the requests of a workload to a site, check every body, and report latencies and throughput
    Run(Box<BenchRunArgs>),
    /// Replay the requests of an access log against a site, at the log's times, and report latencies and throughput
    Replay(Box<BenchReplayArgs>),
}

/// A workload of the literature.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum BenchWorkload {
    /// WebBench's mix: ten classes of files, 1.2 GB, all equally popular; 110 clients
    #[value(name = "webbench")]
    WebBench,
    /// SURGE: 10,000 files, 187 MB, every fifth request for one of them; 200 clients, HTTP/1.0
    Surge,
    /// World Cup 1998: 17,332 files, 204 MB, Zipf 0.8; 32 clients
    WorldCup,
    /// A data-intensive site: 532 files of 50 B to 2 GB, 45.7 GB, Zipf 0.8; 32 clients
    DataIntensive,
    /// The elastic ramp: 48 clients, three more every 5 s, each for 100 s; mostly few large files
    ElasticRamp,
    /// The same ramp and files, mostly many small ones
    ElasticRampUnfriendly,
    /// A page of an application, at the URL itself; 50 clients, 500 requests, one connection per request
    Portal,
}

/// The files of a workload.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct BenchFiles {
    /// Factor for the number of files; their sizes do not change
    #[arg(long, value_name = "X", default_value_t = 1.0, value_parser = scale)]
    pub(crate) scale: f64,
    /// Seed of contents, popularity and arrivals
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
}

#[derive(Args, Debug)]
pub(crate) struct BenchDataArgs {
    /// Workload whose files are written
    pub(crate) workload: BenchWorkload,
    /// Folder to write to: empty, not existing yet, or written by this command before
    pub(crate) dir: PathBuf,
    #[command(flatten)]
    pub(crate) files: BenchFiles,
}

#[derive(Args, Debug)]
pub(crate) struct BenchRunArgs {
    /// Workload to run
    pub(crate) workload: BenchWorkload,
    /// The site that has the files of `skep bench data`: http://HOST[:PORT][/PATH]
    #[arg(value_parser = url)]
    pub(crate) url: ProbeUrl,
    #[command(flatten)]
    pub(crate) files: BenchFiles,
    /// Clients, each with one request at a time; with --rate, maximum number of requests at a time [default:
    /// the workload's]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(CLIENTS_MAX)))]
    pub(crate) clients: Option<u32>,
    /// Open loop: requests per second, sent at planned times, whatever becomes of them; latencies count from
    /// these times
    #[arg(long, value_name = "N", conflicts_with = "think", value_parser = rate)]
    pub(crate) rate: Option<f64>,
    /// Mean pause of a client between a response and its next request
    #[arg(long, value_name = "TIME", default_value = "0s", value_parser = duration)]
    pub(crate) think: u64,
    /// Length of the run; an elastic ramp is scaled to it [default: 30s; the ramp's 175s]
    #[arg(long, value_name = "TIME", value_parser = run_time)]
    pub(crate) duration: Option<u64>,
    /// Time at the beginning that is not measured [default: 5s, at most a quarter of --duration; 0s for ramps
    /// and portal]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) warm_up: Option<u64>,
    /// Time at the end that is not measured
    #[arg(long, value_name = "TIME", default_value = "0s", value_parser = duration)]
    pub(crate) cool_down: u64,
    /// End after this number of requests
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) requests: Option<u64>,
    /// Processes that share the load, one core each
    #[arg(long, value_name = "N", default_value_t = 1,
          value_parser = clap::value_parser!(u16).range(1..=i64::from(PROCESSES_MAX)))]
    pub(crate) processes: u16,
    /// HTTP version [default: 1.1; for surge 1.0]
    #[arg(long, value_name = "VERSION")]
    pub(crate) http: Option<BenchHttp>,
    /// Requests per connection [default: no limit with HTTP/1.1; 1 with HTTP/1.0 and for portal]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) per_connection: Option<u64>,
    /// Maximum time for a request, including redirects
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = timeout)]
    pub(crate) timeout: u64,
    /// For portal: a body that differs from the first one is a failure
    #[arg(long)]
    pub(crate) same_bodies: bool,
    /// Print the result as JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Draw latency by percentile and throughput over time, as SVG
    #[arg(long, value_name = "FILE")]
    pub(crate) plot: Option<PathBuf>,
    /// The part of a process: INDEX/PROCESSES
    #[arg(long, hide = true, value_parser = share)]
    pub(crate) share: Option<ProcessShare>,
}

#[derive(Args, Debug)]
pub(crate) struct BenchReplayArgs {
    /// Access log: combined or common format, or Skep's JSON; it may be compressed by gzip
    pub(crate) log: PathBuf,
    /// Site to send the requests to: http://HOST[:PORT][/PATH]
    #[arg(long, value_name = "URL", value_parser = url)]
    pub(crate) url: ProbeUrl,
    /// Speed relative to the log: 2 is twice the traffic
    #[arg(long, value_name = "X", default_value_t = 1.0, value_parser = speed)]
    pub(crate) speed: f64,
    /// Maximum number of requests at a time; further ones wait, and their latencies count from the log's times
    #[arg(long, value_name = "N", default_value_t = 256,
          value_parser = clap::value_parser!(u32).range(1..=i64::from(CLIENTS_MAX)))]
    pub(crate) clients: u32,
    /// Time at the beginning that is not measured
    #[arg(long, value_name = "TIME", default_value = "0s", value_parser = duration)]
    pub(crate) warm_up: u64,
    /// End after this number of requests
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) requests: Option<u64>,
    /// Processes that share the load, one core each
    #[arg(long, value_name = "N", default_value_t = 1,
          value_parser = clap::value_parser!(u16).range(1..=i64::from(PROCESSES_MAX)))]
    pub(crate) processes: u16,
    /// HTTP version
    #[arg(long, value_name = "VERSION", default_value = "1.1")]
    pub(crate) http: BenchHttp,
    /// Requests per connection [default: no limit with HTTP/1.1; 1 with HTTP/1.0]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) per_connection: Option<u64>,
    /// Maximum time for a request, including redirects
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = timeout)]
    pub(crate) timeout: u64,
    /// Seed of the times of requests within a second, where the log has only seconds
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
    /// Print the result as JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Draw latency by percentile and throughput over time, as SVG
    #[arg(long, value_name = "FILE")]
    pub(crate) plot: Option<PathBuf>,
    /// The part of a process: INDEX/PROCESSES
    #[arg(long, hide = true, value_parser = share)]
    pub(crate) share: Option<ProcessShare>,
}

/// A version of HTTP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum BenchHttp {
    #[value(name = "1.0")]
    Http10,
    #[value(name = "1.1")]
    Http11,
}

impl BenchWorkload {
    /// The one with files; `None`: the page of an application.
    pub(crate) fn kind(self) -> Option<WorkloadKind> {
        match self {
            Self::WebBench => Some(WorkloadKind::WebBench),
            Self::Surge => Some(WorkloadKind::Surge),
            Self::WorldCup => Some(WorkloadKind::WorldCup),
            Self::DataIntensive => Some(WorkloadKind::DataIntensive),
            Self::ElasticRamp => Some(WorkloadKind::ElasticRamp),
            Self::ElasticRampUnfriendly => Some(WorkloadKind::ElasticRampUnfriendly),
            Self::Portal => None,
        }
    }
}

fn url(text: &str) -> Result<ProbeUrl, String> {
    let url = ProbeUrl::parse(text).map_err(|error| error.to_string())?;
    match url.is_tls() {
        false => Ok(url),
        true => Err("expected http: https is not supported yet".to_owned()),
    }
}

fn scale(text: &str) -> Result<f64, String> {
    number(text, SCALE_MAX)
}

fn rate(text: &str) -> Result<f64, String> {
    number(text, RATE_MAX)
}

fn number(text: &str, max: f64) -> Result<f64, String> {
    let number: Option<f64> = text.parse().ok().filter(|it| *it > 0.0 && *it <= max);
    number.ok_or_else(|| format!("expected a number above 0 and up to {max}"))
}

fn run_time(text: &str) -> Result<u64, String> {
    time_up_to(text, DURATION_MS_MAX)
}

fn timeout(text: &str) -> Result<u64, String> {
    time_up_to(text, REQUEST_MS_MAX)
}

fn share(text: &str) -> Result<ProcessShare, String> {
    let parsed = text.split_once('/').and_then(|(index, processes)| {
        let share = ProcessShare { index: index.parse().ok()?, processes: processes.parse().ok()? };
        (share.index < share.processes).then_some(share)
    });
    parsed.ok_or_else(|| "expected INDEX/PROCESSES".to_owned())
}
