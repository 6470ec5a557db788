//! The page: what was asked, a table for each cell, and what agrees.

use skep_site_sim::RatioEstimate;

use super::super::page::{Page, table, three_digits};
use super::super::plot::{Line, Plot};
use super::cells::BedSite;
use super::figures::{
    Figure, Pair, agreeing_hits, failed_requests, hit_difference_points, mean, ranking,
};
use super::limits::{FREE_PERCENT_MIN, HIT_POINTS_MAX};
use super::{CellRuns, PolicyRuns, Results, RunFigures};

const FIGURES: [(&str, Figure); 2] = [("mean", |run| run.mean_s), ("p99", |run| run.p99_s)];

pub(super) fn page(results: &Results) -> Page {
    let mut page = Page::new("policies-bed");
    page.add("# Policies in a test bed, beside the simulator\n");
    page.add(&about(results));
    page.add("## What agrees\n");
    add_agreement(&mut page, results);
    results.cells.iter().for_each(|cell| add_cell(&mut page, cell));
    page.add_plot("means", plot(results));
    let failed_requests = failed_requests(results);
    if !failed_requests.is_empty() {
        page.add("## Failed requests\n");
        failed_requests.iter().for_each(|failure| page.add(&format!("- {failure}")));
        page.add("");
    }
    page
}

fn about(results: &Results) -> String {
    let (scale, small) = (BedSite::DataIntensive.scale(), BedSite::WorldCup.scale());
    let seeds = results.cells.iter().flat_map(|cell| &cell.policies).map(|it| it.bed.len()).max();
    include_str!("about.txt")
        .replace("MACHINE", &results.machine.text_without_peers())
        .replace("SITES\n", &sites())
        .replace("WARM", &(scale.warm_up_ms / 1_000).to_string())
        .replace("MEASURED", &(scale.measured_ms / 1_000).to_string())
        .replace("SMALL_W", &(small.warm_up_ms / 1_000).to_string())
        .replace("SMALL_M", &(small.measured_ms / 1_000).to_string())
        .replace("SEEDS", &seeds.unwrap_or(0).to_string())
        .replace("IDLE", &format!("{FREE_PERCENT_MIN:.0}"))
}

/// What each site is served with.
fn sites() -> String {
    let head =
        ["site", "files", "all, MB", "mean, KB", "largest, MB", "link, Mbit/s", "source, Mbit/s"];
    let head = head.into_iter().chain(["memory of a node, MB"]).map(str::to_owned);
    let row = |site: BedSite| {
        let (sizes, scale) = (site.sizes(), site.scale());
        let bytes: u64 = sizes.iter().sum();
        let mb = |bytes: u64| format!("{:.1}", bytes as f64 / 1e6);
        vec![
            site.name().to_owned(),
            sizes.len().to_string(),
            mb(bytes),
            format!("{:.1}", bytes as f64 / 1e3 / sizes.len() as f64),
            mb(sizes.last().copied().unwrap_or(0)),
            (scale.link_bits_s / 1_000_000).to_string(),
            (scale.source.rate_bits_s / 1_000_000).to_string(),
            mb(site.memory_bytes()),
        ]
    };
    let rows = [BedSite::DataIntensive, BedSite::WorldCup].map(row);
    table(&head.collect::<Vec<_>>(), &rows)
}

fn add_agreement(page: &mut Page, results: &Results) {
    let words = |text: &str| text.to_owned();
    let head =
        ["cell", "pairs", "differ in mean", "of these agree", "differ in p99", "of these agree"];
    let head: Vec<String> = head
        .into_iter()
        .map(words)
        .chain([format!("hit ratios within {HIT_POINTS_MAX:.0} points")])
        .collect();
    let row = |cell: &CellRuns| {
        let mut row = vec![cell.cell.name()];
        for (at, (_, figure)) in FIGURES.into_iter().enumerate() {
            let ranking = ranking(cell, figure);
            if at == 0 {
                row.push(ranking.pairs.to_string());
            }
            row.push(ranking.significant.to_string());
            row.push((ranking.significant - ranking.contradictions.len()).to_string());
        }
        row.push(format!("{} of {}", agreeing_hits(cell), cell.policies.len()));
        row
    };
    page.add_table(&head, &results.cells.iter().map(row).collect::<Vec<_>>());
    page.add(
        "Pairs are of policies; two differ if the 95 % interval of their ratio in the bed (Student's t, of logarithms, paired by seed) \
         excludes 1. Of pairs that do not really differ, one in 20 appears to differ by chance. What does not agree:\n",
    );
    for cell in &results.cells {
        for (what, figure) in FIGURES {
            for pair in ranking(cell, figure).contradictions {
                page.add(&format!("- {}, {what}: {}", cell.cell.name(), against(&pair)));
            }
        }
        for policy in &cell.policies {
            let points = hit_difference_points(policy);
            if points.abs() > HIT_POINTS_MAX {
                let name = cell.cell.name();
                page.add(&format!("- {name}, {}: hits {points:+.1} points", policy.policy));
            }
        }
    }
    page.add("");
}

fn against(pair: &Pair) -> String {
    let Pair { better, worse, bed, simulated } = pair;
    let RatioEstimate { mean, low, high } = bed;
    format!(
        "`{worse}` takes {mean:.2} ({low:.2} to {high:.2}) of the time of `{better}`, simulated {:.2}",
        simulated.mean
    )
}

fn add_cell(page: &mut Page, cell: &CellRuns) {
    page.add(&format!("## {}\n", cell.cell.name()));
    let head = [
        "policy",
        "mean, ms",
        "sim",
        "p99, ms",
        "sim",
        "hits, %",
        "sim",
        "peers, %",
        "sim",
        "source, %",
        "sim",
    ];
    let head = head.into_iter().chain(["free, %", "late, ms"]).map(str::to_owned);
    let rows: Vec<Vec<String>> = cell.policies.iter().map(row).collect();
    page.add_table(&head.collect::<Vec<_>>(), &rows);
}

fn row(policy: &PolicyRuns) -> Vec<String> {
    let PolicyRuns { policy: name, bed, simulated } = policy;
    let ms = |runs: &[RunFigures], figure: Figure| three_digits(mean(runs, figure) * 1e3);
    let percent = |runs: &[RunFigures], figure: Figure| format!("{:.1}", mean(runs, figure) * 1e2);
    let mut row = vec![name.clone()];
    for (_, figure) in FIGURES {
        row.extend([ms(bed, figure), ms(simulated, figure)]);
    }
    let shares: [Figure; 3] = [|run| run.hit_share, |run| run.peer_share, |run| run.source_share];
    for figure in shares {
        row.extend([percent(bed, figure), percent(simulated, figure)]);
    }
    let free = bed.iter().map(|run| run.free_percent).fold(f64::INFINITY, f64::min);
    let late = bed.iter().map(|run| run.late_p99_s).fold(0.0, f64::max);
    let mark = if free < FREE_PERCENT_MIN { " !" } else { "" };
    row.extend([format!("{:.0}{mark}", free.floor()), three_digits(late * 1e3)]);
    row
}

/// Means of all policies in a cell, bed over simulator: one point for each.
fn plot(results: &Results) -> Plot {
    let line = |(colour, cell): (usize, &CellRuns)| {
        let at = |policy: &PolicyRuns| {
            let mean = |runs| mean(runs, |run| run.mean_s);
            ((mean(&policy.simulated) * 1e6).log10(), (mean(&policy.bed) * 1e6).log10())
        };
        let mut points: Vec<(f64, f64)> = cell.policies.iter().map(at).collect();
        points.sort_by(|one, other| one.0.total_cmp(&other.0));
        Line { name: cell.cell.name(), colour, points, has_dots: true }
    };
    Plot {
        title: "Mean response time in the bed by that in the simulator".to_owned(),
        x: "simulated: 10^n microseconds",
        y: "bed: 10^n microseconds",
        y_begin: 2.0,
        lines: results.cells.iter().enumerate().map(line).collect(),
        marks: Vec::new(),
    }
}
