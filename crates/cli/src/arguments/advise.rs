//! Arguments of `skep policy advise`.

use std::path::PathBuf;

use clap::Args;
use clap::builder::PossibleValuesParser;
use skep_advise::{
    ADVISED_BYTES_MAX, ADVISED_NODES_MAX, ADVISED_RATE_MIN, REPETITIONS_MAX, REPETITIONS_MIN,
    SPEED_MAX, SPEED_MIN, WINDOW_REQUESTS_MAX, WINDOW_REQUESTS_MIN,
};
use skep_config::{DispatchMode, POLICY_NAMES};

use super::{dispatch, duration, size};

#[derive(Args, Debug)]
pub(crate) struct AdviseArgs {
    /// Access log of the site: combined or common format, or Skep's JSON; it may be compressed by gzip
    pub(crate) log: PathBuf,
    /// Config file to take nodes, memory, mode and policy from
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Service of the config, if it has several
    #[arg(long, value_name = "NAME", requires = "config")]
    pub(crate) service: Option<String>,
    /// Number of equal nodes [default: those of --config, else 4]
    #[arg(long, value_name = "N",
          value_parser = clap::value_parser!(u16).range(1..=i64::from(ADVISED_NODES_MAX)))]
    pub(crate) nodes: Option<u16>,
    /// Memory of each node for files [default: that of --config, else 256MiB]
    #[arg(long, value_name = "SIZE", value_parser = memory)]
    pub(crate) memory: Option<u64>,
    /// Rate of a node's link: 1Gbit, or bytes a second such as 100MiB
    #[arg(long, value_name = "RATE", default_value = "1Gbit", value_parser = bytes_per_s)]
    pub(crate) link: u64,
    /// Rate of a node's disk
    #[arg(long, value_name = "RATE", default_value = "120000000", value_parser = bytes_per_s)]
    pub(crate) disk: u64,
    /// Time to the first byte of a disk or the origin
    #[arg(long, value_name = "TIME", default_value = "8ms", value_parser = latency)]
    pub(crate) latency: u64,
    /// Rate of one origin that all nodes fetch from, instead of their disks
    #[arg(long, value_name = "RATE", conflicts_with = "disk", value_parser = bytes_per_s)]
    pub(crate) origin: Option<u64>,
    /// Nodes fetch what they do not have from each other's memory [default: as in --config, else no]
    #[arg(long)]
    pub(crate) cluster_cache: bool,
    /// Compare the policies that are available in this mode [default: that of --config, else proxy]
    #[arg(long, value_name = "MODE", value_parser = dispatch)]
    pub(crate) dispatch: Option<DispatchMode>,
    /// Policy that is in use now [default: that of --config, else round-robin]
    #[arg(long, value_name = "NAME", value_parser = PossibleValuesParser::new(POLICY_NAMES))]
    pub(crate) current: Option<String>,
    /// Compare only these, and the current one
    #[arg(long, value_name = "NAME,...", value_delimiter = ',',
          value_parser = PossibleValuesParser::new(POLICY_NAMES))]
    pub(crate) policies: Vec<String>,
    /// Speed relative to the log: 2 is twice the traffic
    #[arg(long, value_name = "X", default_value_t = 1.0, value_parser = speed)]
    pub(crate) speed: f64,
    /// Requests in each window of the log that is simulated
    #[arg(long, value_name = "N", default_value_t = 200_000,
          value_parser = clap::value_parser!(u64).range(WINDOW_REQUESTS_MIN..=WINDOW_REQUESTS_MAX))]
    pub(crate) requests: u64,
    /// Number of windows, spread over the log; confidence intervals are calculated over them
    #[arg(long, value_name = "N", default_value_t = 5,
          value_parser = clap::value_parser!(u64).range(REPETITIONS_MIN..=REPETITIONS_MAX))]
    pub(crate) repetitions: u64,
    /// Start no further window after this time, once two are done
    #[arg(long, value_name = "TIME", default_value = "1m", value_parser = duration)]
    pub(crate) time: u64,
    /// Write a figure of the result, as SVG
    #[arg(long, value_name = "FILE")]
    pub(crate) svg: Option<PathBuf>,
    /// Print the result as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

fn memory(text: &str) -> Result<u64, String> {
    match size(text)? {
        bytes @ 1..=ADVISED_BYTES_MAX => Ok(bytes),
        _ => Err("expected more than 0, and up to 1024TiB".to_owned()),
    }
}

/// A rate in bits, as links are sold, or in bytes.
fn bytes_per_s(text: &str) -> Result<u64, String> {
    let units = [("Gbit", 1e9), ("Mbit", 1e6)];
    let bits = units.iter().find_map(|(unit, bits)| Some((text.strip_suffix(unit)?, bits)));
    let bytes = match bits {
        Some((number, bits)) => number.parse().ok().map(|it: f64| (it * bits / 8.0) as u64),
        None => size(text).ok(),
    };
    let bytes = bytes.filter(|it| (ADVISED_RATE_MIN..=ADVISED_BYTES_MAX).contains(it));
    bytes.ok_or_else(|| {
        "expected a rate of 1Mbit or more, such as 1Gbit, or 100MiB for bytes a second".to_owned()
    })
}

fn latency(text: &str) -> Result<u64, String> {
    match duration(text)? {
        latency_ms @ 0..=60_000 => Ok(latency_ms),
        _ => Err("expected up to 60s".to_owned()),
    }
}

/// Also of `skep bench replay`.
pub(super) fn speed(text: &str) -> Result<f64, String> {
    let speed: Option<f64> = text.parse().ok();
    let speed = speed.filter(|it| (SPEED_MIN..=SPEED_MAX).contains(it));
    speed.ok_or_else(|| format!("expected a number from {SPEED_MIN} to {SPEED_MAX}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_in_bits_or_bytes() {
        for (text, rate) in [
            ("1Gbit", 125_000_000),
            ("2.5Gbit", 312_500_000),
            ("100Mbit", 12_500_000),
            ("1MiB", 1 << 20),
            ("125000", 125_000),
        ] {
            assert_eq!(bytes_per_s(text), Ok(rate), "{text}");
        }
        for text in
            ["", "0", "0Gbit", "-1Gbit", "NaNGbit", "1e99Gbit", "Gbit", "fast", "1GBit", "999"]
        {
            assert!(bytes_per_s(text).is_err(), "{text}");
        }
        assert_eq!((speed("2"), speed("0.5")), (Ok(2.0), Ok(0.5)));
        assert!(["0", "-1", "NaN", "inf", "1e7", ""].iter().all(|it| speed(it).is_err()));
    }
}
