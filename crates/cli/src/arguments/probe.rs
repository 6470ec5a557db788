//! Arguments of `skep probe`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use skep_probe::{
    INTERVAL_MS_MAX, INTERVAL_MS_MIN, LABEL_CHARS_MAX, ProbeUrl, STEP_MS_MAX, TIMEOUT_MS_MAX,
};

use super::{duration, time_up_to};

#[derive(Debug, Subcommand)]
pub(crate) enum ProbeCommand {
    /// Measure URLs at an interval, until Ctrl-C
    Run(ProbeRunArgs),
    /// Write a page and figures on what was measured
    Report {
        /// Files written by `skep probe run` and by recorders
        #[arg(required = true, value_name = "FILE")]
        files: Vec<PathBuf>,
        /// Folder to write to; created if it does not exist
        #[arg(long, value_name = "DIR", default_value = "skep-probe-report")]
        out: PathBuf,
        /// Length of the periods that are of light or heavy load, and of the steps of figures over time
        #[arg(long, value_name = "TIME", default_value = "1h", value_parser = step)]
        step: u64,
    },
    /// Print the samples of a file
    Export {
        /// File written by `skep probe run` or by a recorder
        file: PathBuf,
        /// Print comma-separated values (RFC 4180); this is the default
        #[arg(long)]
        csv: bool,
        /// Print JSON, one object per line
        #[arg(long, conflicts_with = "csv")]
        json: bool,
        /// Print the samples of recorders, in place of those of probes
        #[arg(long)]
        recorded: bool,
    },
}

#[derive(Args, Debug)]
pub(crate) struct ProbeRunArgs {
    /// URLs to measure, in this order: http://HOST/PATH or https://HOST/PATH
    #[arg(value_name = "URL", required_unless_present = "list", value_parser = url)]
    pub(crate) urls: Vec<ProbeUrl>,
    /// File with more URLs, one per line; `#` begins a comment
    #[arg(long, value_name = "FILE")]
    pub(crate) list: Option<PathBuf>,
    /// Time from the start of one turn, in which each URL is measured once, to the start of the next
    #[arg(long, value_name = "TIME", default_value = "2m", value_parser = interval)]
    pub(crate) interval: u64,
    /// Maximum time for one measurement, including redirects
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = timeout)]
    pub(crate) timeout: u64,
    /// Number of turns [default: no end]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) count: Option<u64>,
    /// File for the samples; those of further runs are added to it
    #[arg(long, value_name = "FILE", default_value = "skep-probe.db")]
    pub(crate) out: PathBuf,
    /// Name of this series in reports, such as that of a policy
    #[arg(long, value_name = "NAME", default_value = "probe", value_parser = label)]
    pub(crate) label: String,
    /// Certificates (PEM) by which https servers are verified, in place of the machine's
    #[arg(long, value_name = "FILE")]
    pub(crate) ca: Option<PathBuf>,
    /// Print each sample as JSON, one object per line, and a last one about all of them
    #[arg(long)]
    pub(crate) json: bool,
}

fn url(text: &str) -> Result<ProbeUrl, String> {
    ProbeUrl::parse(text).map_err(|error| error.to_string())
}

fn interval(text: &str) -> Result<u64, String> {
    let interval_ms = duration(text)?;
    match (INTERVAL_MS_MIN..=INTERVAL_MS_MAX).contains(&interval_ms) {
        true => Ok(interval_ms),
        false => Err("expected 100ms to 24h".to_owned()),
    }
}

fn step(text: &str) -> Result<u64, String> {
    time_up_to(text, STEP_MS_MAX)
}

fn timeout(text: &str) -> Result<u64, String> {
    time_up_to(text, TIMEOUT_MS_MAX)
}

fn label(text: &str) -> Result<String, String> {
    let has_room = (1..=LABEL_CHARS_MAX).contains(&text.chars().count());
    match has_room && !text.chars().any(char::is_control) {
        true => Ok(text.to_owned()),
        false => Err(format!("expected 1 to {LABEL_CHARS_MAX} printable characters")),
    }
}
