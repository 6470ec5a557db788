//! Compares policies on simulated sites: mean and 99th percentile of response times, and ratios paired by
//! seed.
//!
//! Needs neither a bed nor root: the clusters are those of `skep-site-sim`, under a virtual clock.

mod cells;
mod page;

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::thread;

use serde::Serialize;
use skep_site_sim::{Estimate, PolicyOutcomes, RatioEstimate, SIZE_CLASSES};

use super::machine::MachineDescription;
use super::{Failure, SimulationOptions};
use cells::{CELLS, Cell, Shown};

/// The policy to which ratios are relative.
const BASE: &str = "transfer-time";

/// The results as written to JSON.
#[derive(Serialize)]
struct Results {
    machine: MachineDescription,
    cells: Vec<CellFigures>,
}

#[derive(Serialize)]
struct CellFigures {
    name: &'static str,
    /// How the page shows it.
    #[serde(skip)]
    shown: Shown,
    policies: Vec<PolicyFigures>,
}

/// The results of one policy in one cell. Pairs are the mean over seeds, and half of its 95 % confidence
/// interval.
#[derive(Clone, Serialize)]
struct PolicyFigures {
    policy: String,
    mean_s: [f64; 2],
    p50_s: [f64; 2],
    p99_s: [f64; 2],
    /// The mean response time relative to that of [`BASE`], paired by seed: geometric mean, and the bounds of
    /// its 95 % confidence interval.
    ratio: [f64; 3],
    p99_ratio: [f64; 3],
    /// Share of bytes from the node's own memory.
    memory_share: [f64; 2],
    /// Utilisation of the links.
    link_share: [f64; 2],
    /// Utilisation of the busiest link alone.
    busiest_link_share: [f64; 2],
    /// Mean response times by decade of the object's size; `null` if no such object was requested.
    mean_s_by_decade: Vec<Option<f64>>,
}

pub(crate) fn run(options: &SimulationOptions) -> Result<(), Failure> {
    // The Skep binary does not matter: the measured code is compiled in.
    let machine = MachineDescription::describe(&super::default_skep());
    let cells = CELLS.iter().map(|cell| figures(cell, options.quick));
    let results = Results { machine, cells: cells.collect::<Result<_, _>>()? };
    page::page(&results).finish(options.out.as_deref(), &results, &[])
}

fn figures(cell: &Cell, is_quick: bool) -> Result<CellFigures, Failure> {
    eprintln!("skep-lab: {}", cell.name);
    let outcomes = outcomes(cell, is_quick)?;
    let base = outcomes.iter().find(|it| it.policy == BASE).ok_or("no such policy")?;
    let policies = outcomes.iter().map(|it| policy_figures(it, base)).collect();
    Ok(CellFigures { name: cell.name, shown: cell.shown(), policies })
}

/// The outcomes of all policies, in the order of their table; computed two at a time.
fn outcomes(cell: &Cell, is_quick: bool) -> Result<Vec<PolicyOutcomes>, Failure> {
    let experiment = cell.experiment(is_quick);
    let left: Mutex<VecDeque<&str>> = Mutex::new(skep_site_sim::policy_names().collect());
    let next = || left.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
    let work = || std::iter::from_fn(next).map(|name| experiment.run(name)).collect();
    let done: Vec<Result<Vec<PolicyOutcomes>, _>> = thread::scope(|scope| {
        let workers = [(); 2].map(|()| scope.spawn(work));
        workers.into_iter().filter_map(|worker| worker.join().ok()).collect()
    });
    let mut all = Vec::new();
    for outcomes in done {
        all.extend(outcomes.map_err(|error| error.to_string())?);
    }
    let place = |name: &str| skep_site_sim::policy_names().position(|it| it == name);
    all.sort_by_key(|outcomes| place(&outcomes.policy));
    Ok(all)
}

fn policy_figures(policy: &PolicyOutcomes, base: &PolicyOutcomes) -> PolicyFigures {
    let pair = |it: Estimate| [it.mean, it.half_width];
    let ratio = |it: RatioEstimate| [it.mean, it.low, it.high];
    let decade = |decade: usize| {
        let mean = policy.estimate(|outcome| outcome.classes[decade].mean_s()).mean;
        mean.is_finite().then_some(mean)
    };
    PolicyFigures {
        policy: policy.policy.clone(),
        mean_s: pair(policy.estimate(|outcome| outcome.all.mean_s())),
        p50_s: pair(policy.estimate(|outcome| outcome.all.quantile_s(0.5))),
        p99_s: pair(policy.estimate(|outcome| outcome.all.quantile_s(0.99))),
        ratio: ratio(policy.ratio(base, |outcome| outcome.all.mean_s())),
        p99_ratio: ratio(policy.ratio(base, |outcome| outcome.all.quantile_s(0.99))),
        memory_share: pair(policy.estimate(|it| it.bytes.share(it.bytes.memory))),
        link_share: pair(policy.estimate(|outcome| outcome.link_use)),
        busiest_link_share: pair(policy.estimate(|it| it.link_use * it.busiest_over_mean)),
        mean_s_by_decade: (0..SIZE_CLASSES).map(decade).collect(),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn a_cell_has_all_policies_and_the_page_each_of_them() {
        let cell = figures(&CELLS[0], true).unwrap();
        let policies = &cell.policies;
        let names: Vec<String> = policies.iter().map(|it| it.policy.clone()).collect();
        assert!(skep_site_sim::policy_names().eq(names.iter().map(String::as_str)), "{names:?}");
        assert!(policies.iter().all(|it| it.mean_s[0] > 0.0 && it.ratio[1] <= it.ratio[2]));
        let base = policies.iter().find(|it| it.policy == BASE).unwrap();
        assert_eq!(base.ratio, [1.0; 3]);
        let machine = MachineDescription::describe(&crate::experiments::default_skep());
        let text = page::page(&Results { machine, cells: vec![cell] }).text;
        assert!(names.iter().all(|name| text.contains(&format!("| {name} |"))), "{text}");
    }
}
