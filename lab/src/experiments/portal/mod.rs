//! The portal of paper 001: Tomcats with a share of a core each behind Skep, from one node to four, under the
//! paper's two loads.
//!
//! ```text
//!  client-1 ----------> dispatcher-1 ---AJP---> node-1 .. node-4
//!  skep bench portal    Skep: one pool          Tomcat: Portal.java, 0.2 of a core
//! ```
//!
//! All numbers of nodes are measured in turn, round after round, and each round uses other nodes.

mod bed;
mod figures;
mod limits;
mod load;
mod page;
mod tomcat;

use std::path::PathBuf;

use clap::Args;
use serde::{Deserialize, Serialize};

use self::bed::{Gateway, PortalBed};
use self::figures::Figures;
use self::limits::{NODES_MAX, QUEUE_MAX, STEADY_PART};
use self::load::{LoadKind, LoadSize, PortalRun};
use super::machine::MachineDescription;
use super::{Failure, interrupted};

/// Tomcat nodes behind Skep, under light and heavy load
#[derive(Debug, Args)]
pub(crate) struct PortalOptions {
    /// One round of shorter runs, as a check that everything works
    #[arg(long)]
    quick: bool,
    /// Folder for the page and its plot; without it, the page is printed
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Skep binary
    #[arg(long, default_value_os_t = super::default_skep())]
    skep: PathBuf,
}

/// The loads, and how often they are run.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct PortalPlan {
    is_quick: bool,
    /// Repeated until the cost of a page is stable, up to a maximum.
    warm_up: LoadSize,
    warm_ups_max: usize,
    rounds: usize,
    /// Rounds that include heavy load without a queue.
    rounds_without_queue: usize,
    light: LoadSize,
    /// Runs per round with each number of nodes: each takes half a second.
    light_runs: usize,
    heavy: LoadSize,
}

/// The paper's loads.
const FULL: PortalPlan = PortalPlan {
    is_quick: false,
    warm_up: LoadSize { clients: 50, requests: 2_000 },
    warm_ups_max: 12,
    rounds: 8,
    rounds_without_queue: 3,
    light: LoadSize { clients: 2, requests: 10 },
    light_runs: 5,
    heavy: LoadSize { clients: 50, requests: 500 },
};

const QUICK: PortalPlan = PortalPlan {
    is_quick: true,
    warm_up: LoadSize { clients: 50, requests: 200 },
    warm_ups_max: 2,
    rounds: 1,
    rounds_without_queue: 1,
    light_runs: 1,
    heavy: LoadSize { clients: 50, requests: 100 },
    ..FULL
};

/// The results as written to JSON.
#[derive(Serialize, Deserialize)]
struct Results {
    machine: MachineDescription,
    plan: PortalPlan,
    runs: Vec<PortalRun>,
    troubles: Vec<String>,
}

pub(crate) fn run(options: &PortalOptions) -> Result<(), Failure> {
    super::prepare()?;
    let plan = if options.quick { QUICK } else { FULL };
    let mut machine = MachineDescription::describe(&options.skep);
    machine.programs.retain(|(name, _)| name == "Skep");
    machine.programs.extend(tomcat::versions());
    let bed = PortalBed::new(options.skep.clone())?;
    let mut runs = warm_up(&bed, &plan)?;
    for round in 0..plan.rounds {
        for count in in_turn(round) {
            runs.extend(measure(&bed, &plan, (round, &nodes(round, count)))?);
        }
    }
    let troubles = Figures::of(&runs).troubles(plan.is_quick);
    let results = Results { machine, plan, runs, troubles };
    results.page().finish(options.out.as_deref(), &results, &results.troubles)
}

/// Runs all nodes at full speed until the cost of a page is the same as in the previous run, then once with
/// quotas.
fn warm_up(bed: &PortalBed, plan: &PortalPlan) -> Result<Vec<PortalRun>, Failure> {
    let nodes: Vec<usize> = (0..NODES_MAX).collect();
    let gateway = bed.start_gateway(&nodes, QUEUE_MAX)?;
    let mut runs: Vec<PortalRun> = Vec::new();
    let mut ask = |size| {
        interrupted()?;
        let run = PortalRun::measure((bed, &gateway), (None, 0, &nodes), size)?;
        run.print();
        let before = runs.last().map_or(f64::INFINITY, PortalRun::page_cpu_ms);
        let is_steady = (run.page_cpu_ms() - before).abs() <= STEADY_PART * before;
        runs.push(run);
        Ok::<_, Failure>(is_steady && before.is_finite())
    };
    for _ in 0..plan.warm_ups_max {
        if ask(plan.warm_up)? {
            break;
        }
    }
    bed.set_quotas()?;
    ask(plan.heavy)?;
    Ok(runs)
}

/// Runs both loads on these nodes.
fn measure(
    bed: &PortalBed,
    plan: &PortalPlan,
    (round, nodes): (usize, &[usize]),
) -> Result<Vec<PortalRun>, Failure> {
    let mut runs = Vec::new();
    let mut ask = |gateway: &Gateway, load, size| {
        interrupted()?;
        let run = PortalRun::measure((bed, gateway), (Some(load), round, nodes), size)?;
        run.print();
        runs.push(run);
        Ok::<_, Failure>(())
    };
    let gateway = bed.start_gateway(nodes, QUEUE_MAX)?;
    for _ in 0..plan.light_runs {
        ask(&gateway, LoadKind::Light, plan.light)?;
    }
    ask(&gateway, LoadKind::Heavy, plan.heavy)?;
    drop(gateway);
    if round < plan.rounds_without_queue {
        let gateway = bed.start_gateway(nodes, 0)?;
        ask(&gateway, LoadKind::HeavyWithoutQueue, plan.heavy)?;
    }
    Ok(runs)
}

/// The numbers of nodes in the order of a round, so that none is always the first.
fn in_turn(round: usize) -> impl Iterator<Item = usize> {
    (0..NODES_MAX).map(move |at| (at + round) % NODES_MAX + 1)
}

/// `count` nodes, beginning with another one in each round.
fn nodes(round: usize, count: usize) -> Vec<usize> {
    (0..count).map(|at| (at + round) % NODES_MAX).collect()
}
