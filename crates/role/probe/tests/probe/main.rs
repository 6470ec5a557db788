//! The probe against servers on loopback that redirect, trickle, send invalid responses and
//! disconnect.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod files;
mod phases;
mod server;
mod targets;
mod tls;

use std::future::{self, Future};
use std::path::Path;

use skep_probe::{
    ProbeError, ProbeOutcome, ProbePlan, ProbeSample, ProbeSummary, ProbeUrl, run_probe,
};
use tempfile::TempDir;

/// Time limit for a response that arrives, in milliseconds: ends a test that hangs.
const PATIENCE_MS: u64 = 60_000;

/// A plan of one turn of `urls`, into a file in `folder`.
fn plan(folder: &Path, urls: &[String]) -> ProbePlan {
    ProbePlan {
        urls: urls.iter().map(|url| ProbeUrl::parse(url).unwrap()).collect(),
        label: "test".to_owned(),
        interval_ms: 100,
        timeout_ms: PATIENCE_MS,
        turns_max: Some(1),
        ca: None,
        out: folder.join("samples.db"),
    }
}

/// Runs a plan until `stop`; returns its fault as an error.
fn run_until(
    plan: &ProbePlan,
    stop: impl Future<Output = ()>,
    mut each: impl FnMut(&ProbeSample),
) -> Result<(ProbeSummary, Vec<ProbeSample>), ProbeError> {
    let mut samples = Vec::new();
    let outcome = outcome(plan, stop, |sample| {
        each(sample);
        samples.push(sample.clone());
    })?;
    match outcome.fault {
        Some(fault) => Err(fault),
        None => Ok((outcome.summary, samples)),
    }
}

fn outcome(
    plan: &ProbePlan,
    stop: impl Future<Output = ()>,
    each: impl FnMut(&ProbeSample),
) -> Result<ProbeOutcome, ProbeError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(run_probe(plan, stop, each))
}

/// Runs a plan to its end.
fn run(plan: &ProbePlan) -> Vec<ProbeSample> {
    run_until(plan, future::pending(), |_| {}).unwrap().1
}

/// Measures a URL once.
fn measure(url: &str) -> ProbeSample {
    measure_within(url, PATIENCE_MS)
}

fn measure_within(url: &str, timeout_ms: u64) -> ProbeSample {
    let folder = TempDir::new().unwrap();
    let plan = ProbePlan { timeout_ms, ..plan(folder.path(), &[url.to_owned()]) };
    run(&plan).remove(0)
}

/// The kind of a sample's failure.
fn kind(sample: &ProbeSample) -> &str {
    sample.failure.as_ref().map_or("none", |failure| &failure.kind)
}
