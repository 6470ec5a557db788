//! Policies in a test bed, and the simulator beside it: the same requests at the same times, links, sources and
//! memories, and what came of them in both.
//!
//! ```text
//!  client-1 ------> dispatcher-1 ------> node-1 .. node-4 ------> origin
//!  (open loop)      `proxy`, a policy    link: the bound          a source for each node
//! ```
//!
//! Every run has processes of its own, so all caches begin empty. Policies take turns, seed after seed.

mod bed;
mod cells;
mod figures;
mod limits;
mod page;
mod simulated;

use std::fs;
use std::path::{Path, PathBuf};

use clap::Args;
use serde::{Deserialize, Serialize};

use super::machine::MachineDescription;
use super::settings::Settings;
use super::{Failure, interrupted, prepare};
use cells::{BedCell, CELLS, Trace};
use limits::FREE_PERCENT_MIN;

/// The policies of Lo, Tseng and Yang, and ours.
const POLICIES: [&str; 9] = [
    "random",
    "round-robin",
    "weighted-round-robin",
    "least-connections",
    "weighted-least-connections",
    "lard",
    "equiload",
    "adaptload",
    "transfer-time",
];

/// From 1 on.
const SEEDS: u64 = 4;

/// How much shorter runs are with `--quick`.
const QUICK_PART: u64 = 8;

/// Policies in a test bed and in the simulator
#[derive(Debug, Args)]
pub(crate) struct BedPolicyOptions {
    /// A few short runs: does it all still run?
    #[arg(long)]
    quick: bool,
    /// Folder of the page and its plots; printed without it
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Take the bed's figures from the JSON in `--out`, and simulate anew; needs no root
    #[arg(long, requires = "out")]
    simulate: bool,
    /// Only these policies, separated by commas
    #[arg(long, value_delimiter = ',', conflicts_with = "out")]
    policies: Vec<String>,
    /// Only cells whose name contains this
    #[arg(long, value_name = "TEXT", default_value = "", conflicts_with = "out")]
    cells: String,
    /// So many seeds
    #[arg(long, default_value_t = SEEDS)]
    seeds: u64,
    /// The Skep binary
    #[arg(long, default_value_os_t = super::default_skep())]
    skep: PathBuf,
}

/// What is written as JSON.
#[derive(Serialize, Deserialize)]
struct Results {
    machine: MachineDescription,
    cells: Vec<CellRuns>,
}

/// All runs of a cell.
#[derive(Serialize, Deserialize)]
struct CellRuns {
    cell: BedCell,
    policies: Vec<PolicyRuns>,
}

/// Those of a policy, by seed.
#[derive(Serialize, Deserialize)]
struct PolicyRuns {
    policy: String,
    bed: Vec<RunFigures>,
    simulated: Vec<RunFigures>,
}

/// Results of the measured part of a run.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
struct RunFigures {
    /// Response times, from the planned time of a request to its last byte.
    mean_s: f64,
    p99_s: f64,
    /// Of the requests, those that found the object in the memory of their node; of a long one, its beginning.
    hit_share: f64,
    /// Bytes fetched from other nodes, and from sources, over those asked for.
    peer_share: f64,
    source_share: f64,
    /// Of all requests, warm-up included.
    failed: u64,
    /// How late clients began requests.
    late_p99_s: f64,
    /// Of the cores' time, what was idle or went to processes that yield.
    free_percent: f64,
}

pub(crate) fn run(options: &BedPolicyOptions) -> Result<(), Failure> {
    let part = if options.quick { QUICK_PART } else { 1 };
    let mut results = match (options.simulate, &options.out) {
        (true, Some(out)) => serde_json::from_str(&fs::read_to_string(json_of(out))?)?,
        _ => {
            prepare()?;
            run_bed(options, part)?
        }
    };
    for cell in &mut results.cells {
        simulate(cell, part)?;
    }
    let failed_requests = figures::failed_requests(&results);
    page::page(&results).finish(options.out.as_deref(), &results, &failed_requests)
}

fn json_of(out: &Path) -> PathBuf {
    out.join("policies-bed.json")
}

/// All runs in the bed, seed after seed, so that other load on the machine affects all policies alike.
fn run_bed(options: &BedPolicyOptions, part: u64) -> Result<Results, Failure> {
    let settings = bed::settings(options.skep.clone());
    let is_wanted = |cell: &&BedCell| cell.name().contains(&options.cells);
    let new = |policy: &&str| PolicyRuns {
        policy: (*policy).to_owned(),
        bed: Vec::new(),
        simulated: Vec::new(),
    };
    let policies: Vec<&str> = match options.policies.as_slice() {
        [] => POLICIES.into(),
        some => some.iter().map(String::as_str).collect(),
    };
    let cell =
        |cell: &BedCell| CellRuns { cell: *cell, policies: policies.iter().map(new).collect() };
    let mut cells: Vec<CellRuns> = CELLS.iter().filter(is_wanted).map(cell).collect();
    for seed in 1..=if options.quick { 1 } else { options.seeds } {
        for CellRuns { cell, policies } in &mut cells {
            let trace = cell.trace(seed, part);
            for at in 0..policies.len() {
                // None is always the first one.
                let turn = (at + seed as usize * 2) % policies.len();
                let PolicyRuns { policy, bed, .. } = &mut policies[turn];
                let run = measure((cell, policy), &trace, &settings)?;
                bed.push(run);
            }
        }
    }
    let machine = MachineDescription::describe(&options.skep);
    Ok(Results { machine, cells })
}

/// One run, and another one if it failed or the cores were busy.
fn measure(
    (cell, policy): (&BedCell, &str),
    trace: &Trace,
    settings: &Settings,
) -> Result<RunFigures, Failure> {
    match bed::measure((cell, policy), trace, settings) {
        Ok(run) if run.free_percent >= FREE_PERCENT_MIN => {
            print(cell, policy, &run);
            return Ok(run);
        }
        Ok(run) => print(cell, policy, &run),
        Err(error) => eprintln!("skep-lab: {}, {policy}: {error}", cell.name()),
    }
    interrupted()?;
    let run = bed::measure((cell, policy), trace, settings)?;
    print(cell, policy, &run);
    Ok(run)
}

/// Runs in the simulator what the bed has run.
fn simulate(runs: &mut CellRuns, part: u64) -> Result<(), Failure> {
    let cell = runs.cell;
    for PolicyRuns { policy, bed, simulated } in &mut runs.policies {
        let run = |seed| simulated::simulate((&cell, policy), &cell.trace(seed, part), seed);
        *simulated = (1..=bed.len() as u64).map(run).collect::<Result<_, _>>()?;
    }
    Ok(())
}

fn print(cell: &BedCell, policy: &str, run: &RunFigures) {
    let RunFigures {
        mean_s,
        p99_s,
        hit_share,
        peer_share,
        source_share,
        failed,
        late_p99_s,
        free_percent,
    } = run;
    println!(
        "  {:<24} {policy:<27} mean {:>8.2} ms, p99 {:>8.1} ms, hits {:>4.1} %, peers {:>4.1} %, source {:>4.1} %, \
         {failed} failed, late {:.1} ms, free {free_percent:.0} %",
        cell.name(),
        mean_s * 1e3,
        p99_s * 1e3,
        hit_share * 1e2,
        peer_share * 1e2,
        source_share * 1e2,
        late_p99_s * 1e3,
    );
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    /// A cell in which the bed says what the simulator says.
    fn cell() -> CellRuns {
        let (cell, part) = (CELLS[3], 10);
        let policy = |policy: &str| {
            let run = |seed: u64| {
                simulated::simulate((&cell, policy), &cell.trace(seed, part), seed).unwrap()
            };
            let runs: Vec<RunFigures> = (1..=3).map(run).collect();
            PolicyRuns { policy: policy.to_owned(), bed: runs.clone(), simulated: runs }
        };
        CellRuns { cell, policies: ["random", "lard", "transfer-time"].map(policy).into() }
    }

    #[test]
    fn a_trace_is_that_of_its_seed_and_offers_the_load_of_its_cell() {
        for cell in CELLS {
            let (one, same, other) = (cell.trace(1, 1), cell.trace(1, 1), cell.trace(2, 1));
            assert_eq!(one.requests, same.requests);
            assert_ne!(one.requests, other.requests);
            let scale = cell.site.scale();
            let per_s = one.measured_bytes() as f64 / scale.measured_ms as f64 * 1e3;
            let offered = per_s / (scale.link_bytes_per_s() * cells::NODES as u64) as f64;
            let ratio = offered / cell.link_share;
            assert!((0.5..2.0).contains(&ratio), "{}: {ratio}", cell.name());
        }
    }

    #[test]
    fn what_is_said_twice_agrees_and_what_is_swapped_does_not() {
        let mut cell = cell();
        for runs in &mut cell.policies[0].bed {
            runs.mean_s *= 10.0;
        }
        cell.policies[0].simulated = cell.policies[0].bed.clone();
        let ranking = figures::ranking(&cell, |run| run.mean_s);
        assert_eq!((ranking.pairs, ranking.contradictions.len()), (3, 0));
        assert!(ranking.significant >= 2, "random takes longer");
        assert_eq!(figures::agreeing_hits(&cell), 3);
        let [random, lard, _] = cell.policies.as_mut_slice() else { unreachable!("three") };
        std::mem::swap(&mut random.bed, &mut lard.bed);
        let ranking = figures::ranking(&cell, |run| run.mean_s);
        assert!(!ranking.contradictions.is_empty());
        let machine = MachineDescription::describe(&super::super::default_skep());
        let text = page::page(&Results { machine, cells: vec![cell] }).text;
        assert!(text.contains("| lard |") && text.contains("of the time of `random`"), "{text}");
    }
}
