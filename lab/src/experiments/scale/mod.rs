//! Clusters of 10 to 1,000 nodes: the coordinator's messages per request, balance, hits, and the time until
//! the effects of losing every tenth node have passed; and from these the size of cluster that one
//! coordinator can serve.
//!
//! Needs neither a bed nor root: the clusters are those of `skep-site-sim`, under a virtual clock.

mod cells;
mod page;

use std::path::PathBuf;

use clap::Args;
use serde::Serialize;
use skep_site_sim::{
    CoordinatorTraffic, Estimate, LossOutcome, OutcomeWindow, PolicyOutcomes, RunOutcome,
};

use super::Failure;
use super::machine::MachineDescription;
use cells::{GrowingSite, LOADS, SITES};

/// Number of seeds, and the largest clusters with that number; larger ones have one.
const SEEDS: u64 = 3;
const SEEDED_NODES_MAX: usize = 100;

/// How the experiment runs.
#[derive(Debug, Args)]
pub(crate) struct ScaleOptions {
    /// Fewer nodes and seeds, as a check that everything works
    #[arg(long)]
    quick: bool,
    /// Folder for the page and its plots; without it, the page is printed
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Policies, separated by commas
    #[arg(long, value_delimiter = ',', default_values = ["transfer-time", "bounded-maglev-url", "power-of-two"])]
    policies: Vec<String>,
    /// Numbers of nodes, separated by commas [default: 10,30,100,300,1000; 10,30 if quick]
    #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(u16).range(2..=4096))]
    nodes: Vec<u16>,
}

/// The results as written to JSON.
#[derive(Serialize)]
struct Results {
    machine: MachineDescription,
    cells: Vec<CellFigures>,
}

/// The results of a policy in a cell. Pairs are the mean over seeds, and half of its 95 % confidence
/// interval, which is `null` for one seed.
#[derive(Clone, Serialize)]
struct CellFigures {
    site: &'static str,
    load: &'static str,
    nodes: usize,
    policy: String,
    /// Per request of a client.
    messages: [f64; 2],
    entries: [f64; 2],
    look_ups: [f64; 2],
    to_bytes: [f64; 2],
    from_bytes: [f64; 2],
    /// Per node.
    holdings: [f64; 2],
    requests_per_s: [f64; 2],
    busiest_over_mean: [f64; 2],
    memory_share: [f64; 2],
    source_share: [f64; 2],
    mean_s: [f64; 2],
    /// Requests that were cut or delayed by the loss, relative to those of one second.
    cut: [f64; 2],
    late: [f64; 2],
    /// Seconds from the loss until the measure had settled, for the seeds in which it did.
    source_settled_s: [f64; 2],
    response_settled_s: [f64; 2],
    /// Seeds in which one of them had not settled by the end.
    unsettled: usize,
    /// For the first seed: seconds from the loss, and the share of requests that needed a disk.
    source_by_window: Vec<(f64, f64)>,
}

pub(crate) fn run(options: &ScaleOptions) -> Result<(), Failure> {
    let results = measure(options)?;
    page::page(&results).finish(options.out.as_deref(), &results, &[])
}

fn measure(options: &ScaleOptions) -> Result<Results, Failure> {
    let sizes: Vec<usize> = match (options.nodes.is_empty(), options.quick) {
        (false, _) => options.nodes.iter().map(|nodes| usize::from(*nodes)).collect(),
        (true, true) => vec![10, 30],
        (true, false) => vec![10, 30, 100, 300, 1_000],
    };
    // The Skep binary does not matter: the measured code is compiled in.
    let machine = MachineDescription::describe(&super::default_skep());
    let mut cells = Vec::new();
    for site in &SITES {
        for (load, link_share) in LOADS {
            for &nodes in &sizes {
                eprintln!("skep-lab: {}, {load}, {nodes} nodes", site.name);
                let is_seeded = nodes <= SEEDED_NODES_MAX && !options.quick;
                let experiment =
                    site.experiment(nodes, link_share, if is_seeded { SEEDS } else { 1 });
                for policy in &options.policies {
                    let outcomes = experiment.run(policy).map_err(|error| error.to_string())?;
                    cells.push(figures(site, load, nodes, &outcomes));
                }
            }
        }
    }
    Ok(Results { machine, cells })
}

fn figures(
    site: &GrowingSite,
    load: &'static str,
    nodes: usize,
    policy: &PolicyOutcomes,
) -> CellFigures {
    let pair = |of: &dyn Fn(&RunOutcome) -> f64| {
        let Estimate { mean, half_width } = policy.estimate(of);
        [mean, half_width]
    };
    let per_request = |of: fn(&CoordinatorTraffic) -> f64| {
        pair(&|it: &RunOutcome| of(&it.coordinator) / it.coordinator.requests as f64)
    };
    let of_loss = |of: fn(&LossOutcome) -> f64| {
        pair(&|it: &RunOutcome| it.loss.as_ref().map_or(f64::NAN, of))
    };
    let per_s = |of: fn(&LossOutcome) -> u64| {
        pair(&|it: &RunOutcome| it.loss.as_ref().map_or(f64::NAN, of_u64(of)) / it.requests_per_s)
    };
    let is_unsettled = |it: &&RunOutcome| {
        let loss = it.loss.as_ref();
        loss.is_none_or(|it| source_settled_s(it).is_none() || response_settled_s(it).is_none())
    };
    CellFigures {
        site: site.name,
        load,
        nodes,
        policy: policy.policy.clone(),
        messages: per_request(|it| it.messages() as f64),
        entries: per_request(|it| it.entries() as f64),
        look_ups: per_request(|it| it.look_ups as f64),
        to_bytes: per_request(|it| it.link_bytes()[0]),
        from_bytes: per_request(|it| it.link_bytes()[1]),
        holdings: pair(&|it| it.coordinator.holdings_most as f64 / nodes as f64),
        requests_per_s: pair(&|it| it.requests_per_s),
        busiest_over_mean: pair(&|it| it.busiest_over_mean),
        memory_share: pair(&|it| it.bytes.share(it.bytes.memory)),
        source_share: pair(&|it| it.bytes.share(it.bytes.fetched)),
        mean_s: pair(&|it| it.all.mean_s()),
        cut: per_s(|it| it.cut_requests),
        late: per_s(|it| it.late_requests),
        source_settled_s: of_loss(|it| source_settled_s(it).unwrap_or(f64::NAN)),
        response_settled_s: of_loss(|it| response_settled_s(it).unwrap_or(f64::NAN)),
        unsettled: policy.outcomes.iter().filter(is_unsettled).count(),
        source_by_window: policy.outcomes.first().map_or_else(Vec::new, source_by_window),
    }
}

fn of_u64(of: fn(&LossOutcome) -> u64) -> impl Fn(&LossOutcome) -> f64 {
    move |loss| of(loss) as f64
}

fn source_settled_s(loss: &LossOutcome) -> Option<f64> {
    loss.windows.settled_s(loss.at_s, loss.last_arrival_s, OutcomeWindow::source_ratio)
}

fn response_settled_s(loss: &LossOutcome) -> Option<f64> {
    loss.windows.settled_s(loss.at_s, loss.last_arrival_s, OutcomeWindow::mean_s)
}

/// From some time before the loss to the last request.
fn source_by_window(outcome: &RunOutcome) -> Vec<(f64, f64)> {
    let Some(loss) = &outcome.loss else { return Vec::new() };
    let window_s = loss.windows.window_ms as f64 / 1e3;
    let after_s = loss.last_arrival_s - loss.at_s;
    let point = |(at, window): (usize, &OutcomeWindow)| {
        let begins_s = at as f64 * window_s - loss.at_s;
        let is_shown = begins_s >= -after_s / 4.0 && begins_s + window_s <= after_s;
        (is_shown && window.requests > 0).then(|| (begins_s, window.source_ratio()))
    };
    loss.windows.all.iter().enumerate().filter_map(point).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn a_cell_has_all_its_figures_and_the_page_each_policy() {
        let policies = ["power-of-two", "bounded-maglev-url"].map(str::to_owned).to_vec();
        let options = ScaleOptions { quick: true, out: None, policies, nodes: vec![10] };
        let results = measure(&options).unwrap();
        assert_eq!(results.cells.len(), SITES.len() * LOADS.len() * 2);
        let all = |is: fn(&CellFigures) -> bool| results.cells.iter().all(is);
        assert!(all(|it| it.messages[0] > 0.0 && it.holdings[0] > 0.0 && it.mean_s[0] > 0.0));
        let text = page::page(&results).text;
        assert!(options.policies.iter().all(|it| text.contains(it.as_str())), "{text}");
    }
}
