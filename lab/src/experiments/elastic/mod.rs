//! Elasticity on a ramp of clients, after Summers and Thompson, "Awesome Web Server": throughput of one to
//! eight workers in their three configurations, node-seconds saved, and a sweep of constant loads that shows
//! whether it flaps.
//!
//! Needs neither a bed nor root: the clusters are those of `skep-site-sim`, under a virtual clock, with the
//! live controller.

mod cells;
mod page;

use serde::Serialize;
use skep_site_sim::{
    ElasticMix, Estimate, NodeCount, OfferedLoad, RatioEstimate, RunOutcome, SimulatedCluster,
    SiteRun, SiteWorkload,
};

use super::machine::MachineDescription;
use super::{Failure, SimulationOptions};
use cells::{CONFIGURATIONS, Configuration, MIXES, RAMP, WORKERS_MAX};

/// The policy of Summers and Thompson.
const POLICY: &str = "least-outstanding";

/// Length of a run of the sweep, and the time in which the number of nodes may settle, in seconds.
const SWEEP_S: f64 = 120.0;
const SWEEP_SETTLES_S: f64 = 30.0;

/// Maximum number of seeds of the sweep.
const SWEEP_SEEDS_MAX: u64 = 3;

/// The results as written to JSON.
#[derive(Serialize)]
struct Results {
    machine: MachineDescription,
    cells: Vec<CellFigures>,
    /// Elastic over always on.
    ratios: Vec<RatioFigures>,
    ramps: Vec<RampFigures>,
    sweep: Vec<SweepFigures>,
}

/// Pairs are the mean over seeds, and half of its 95 % confidence interval.
#[derive(Clone, Serialize)]
struct CellFigures {
    mix: &'static str,
    configuration: &'static str,
    workers: usize,
    requests: [f64; 2],
    /// Time that workers were on, over the time that all of them would be on during the ramp.
    node_time_share: [f64; 2],
    /// Share of bytes from a worker's own memory, or from another one's.
    memory_share: [f64; 2],
    starts: [f64; 2],
    /// The maximum reversals of one seed: up and down once is one reversal.
    reversals_most: usize,
    handed_over_bytes: [f64; 2],
    lost_bytes: [f64; 2],
}

#[derive(Clone, Serialize)]
struct RatioFigures {
    mix: &'static str,
    workers: usize,
    /// Requests, paired by seed: geometric mean, and the bounds of its 95 % confidence interval.
    requests: [f64; 3],
}

/// The number of nodes during the ramp with eight workers, for the first seed.
#[derive(Clone, Serialize)]
struct RampFigures {
    mix: &'static str,
    /// Pairs of a time in seconds and the number of nodes from then on.
    counts: Vec<(f64, usize)>,
}

/// The results of one constant load.
#[derive(Clone, Serialize)]
struct SweepFigures {
    mix: &'static str,
    has_hysteresis: bool,
    /// The load in workers that it keeps at their target.
    load: f64,
    /// After the number of nodes could settle: the maximum over the seeds.
    changes_most: usize,
    reversals_most: usize,
    nodes_last: Vec<usize>,
}

struct Scope {
    seeds: u64,
    workers: Vec<usize>,
    loads: Vec<f64>,
}

impl Scope {
    fn new(is_quick: bool) -> Self {
        match is_quick {
            true => Self { seeds: 2, workers: vec![1, 8], loads: vec![1.0, 2.2] },
            false => Self {
                seeds: 5,
                workers: (1..=WORKERS_MAX).collect(),
                loads: (4..=75).map(|tenth| f64::from(tenth) / 10.0).collect(),
            },
        }
    }
}

pub(crate) fn run(options: &SimulationOptions) -> Result<(), Failure> {
    let results = measure(&Scope::new(options.quick))?;
    page::page(&results).finish(options.out.as_deref(), &results, &[])
}

fn measure(scope: &Scope) -> Result<Results, Failure> {
    // The Skep binary does not matter: the measured code is compiled in.
    let machine = MachineDescription::describe(&super::default_skep());
    let mut results = Results {
        machine,
        cells: Vec::new(),
        ratios: Vec::new(),
        ramps: Vec::new(),
        sweep: Vec::new(),
    };
    for mix in MIXES {
        for &workers in &scope.workers {
            measure_workers(mix, workers, scope.seeds, &mut results)?;
        }
        eprintln!("skep-lab: {}, sweep", mix.name());
        for has_hysteresis in [true, false] {
            for &load in &scope.loads {
                let seeds = scope.seeds.min(SWEEP_SEEDS_MAX);
                results.sweep.push(sweep(mix, has_hysteresis, load, seeds)?);
            }
        }
    }
    Ok(results)
}

/// Measures all configurations of a mix with `workers` workers.
fn measure_workers(
    mix: ElasticMix,
    workers: usize,
    seeds: u64,
    results: &mut Results,
) -> Result<(), Failure> {
    eprintln!("skep-lab: {}, {workers} workers", mix.name());
    let mut throughputs = Vec::new();
    for configuration in CONFIGURATIONS {
        let site = mix.workload(cells::scale(mix));
        let cluster = cells::cluster(mix, configuration, workers);
        let outcomes = outcomes(&site, &cluster, OfferedLoad::Ramp(RAMP), u64::MAX, seeds)?;
        results.cells.push(cell_figures(mix, configuration, workers, &outcomes));
        let counts = outcomes.first().and_then(|it| it.elastic.as_ref()).map(|it| &it.counts);
        if let (Configuration::Standard, WORKERS_MAX, Some(counts)) =
            (configuration, workers, counts)
        {
            let point = |count: &NodeCount| (count.at_ms as f64 / 1e3, count.nodes);
            let counts = counts.iter().map(point).collect();
            results.ramps.push(RampFigures { mix: mix.name(), counts });
        }
        throughputs.push(outcomes.iter().map(requests).collect::<Vec<_>>());
    }
    let pairs = throughputs[0].iter().copied().zip(throughputs[1].iter().copied());
    let RatioEstimate { mean, low, high } = RatioEstimate::of(pairs);
    results.ratios.push(RatioFigures { mix: mix.name(), workers, requests: [mean, low, high] });
    Ok(())
}

fn outcomes(
    site: &SiteWorkload,
    cluster: &SimulatedCluster,
    load: OfferedLoad,
    requests: u64,
    seeds: u64,
) -> Result<Vec<RunOutcome>, Failure> {
    let run = |seed| {
        let run = SiteRun { site, cluster, load, requests, warm_up_share: 0.0, seed };
        run.under(POLICY).map_err(|error| error.to_string().into())
    };
    (1..=seeds).map(run).collect()
}

fn requests(outcome: &RunOutcome) -> f64 {
    outcome.totals.requests as f64
}

fn cell_figures(
    mix: ElasticMix,
    configuration: Configuration,
    workers: usize,
    outcomes: &[RunOutcome],
) -> CellFigures {
    let pair = |of: &dyn Fn(&RunOutcome) -> f64| {
        let Estimate { mean, half_width } = Estimate::of(outcomes.iter().map(of));
        [mean, half_width]
    };
    let elastic = |of: fn(&skep_site_sim::ElasticOutcome) -> f64, without: f64| {
        pair(&|it: &RunOutcome| it.elastic.as_ref().map_or(without, of))
    };
    let all = workers as f64;
    let reversals = |it: &RunOutcome| it.elastic.as_ref().map_or(0, |it| it.reversals(0));
    let [share, half_width] = elastic(|it| it.node_s / it.run_s, all);
    CellFigures {
        mix: mix.name(),
        configuration: configuration.name(),
        workers,
        requests: pair(&requests),
        node_time_share: [share / all, half_width / all],
        memory_share: pair(&|it| it.bytes.share(it.bytes.memory + it.bytes.peer)),
        starts: elastic(|it| it.starts as f64, 0.0),
        reversals_most: outcomes.iter().map(reversals).max().unwrap_or(0),
        handed_over_bytes: elastic(|it| it.handed_over_bytes as f64, 0.0),
        lost_bytes: elastic(|it| it.lost_bytes as f64, 0.0),
    }
}

fn sweep(
    mix: ElasticMix,
    has_hysteresis: bool,
    load: f64,
    seeds: u64,
) -> Result<SweepFigures, Failure> {
    let site = mix.workload(cells::scale(mix));
    let cluster = cells::sweep_cluster(mix, has_hysteresis);
    let requests = cells::requests_of(mix, &site, load, SWEEP_S);
    let outcomes = outcomes(&site, &cluster, cells::constant_load(load), requests, seeds)?;
    let elastic: Vec<_> = outcomes.iter().filter_map(|it| it.elastic.as_ref()).collect();
    let settled_ms = (SWEEP_SETTLES_S * 1e3) as u64;
    Ok(SweepFigures {
        mix: mix.name(),
        has_hysteresis,
        load,
        changes_most: elastic.iter().map(|it| it.changes(settled_ms)).max().unwrap_or(0),
        reversals_most: elastic.iter().map(|it| it.reversals(settled_ms)).max().unwrap_or(0),
        nodes_last: elastic.iter().filter_map(|it| Some(it.counts.last()?.nodes)).collect(),
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn a_mix_has_all_configurations_and_the_page_each_of_them() {
        let machine = MachineDescription::describe(&crate::experiments::default_skep());
        let mut results = Results {
            machine,
            cells: Vec::new(),
            ratios: Vec::new(),
            ramps: Vec::new(),
            sweep: Vec::new(),
        };
        measure_workers(ElasticMix::CacheFriendly, 2, 1, &mut results).unwrap();
        assert_eq!(results.cells.len(), CONFIGURATIONS.len());
        assert!(results.cells.iter().all(|it| it.requests[0] > 0.0));
        assert!(results.cells[0].node_time_share[0] < 1.0, "elasticity saves");
        assert_eq!(results.cells[1].node_time_share[0], 1.0);
        let text = page::page(&results).text;
        let has = |it: &Configuration| text.contains(it.name());
        assert!(CONFIGURATIONS.iter().all(has), "{text}");
    }
}
