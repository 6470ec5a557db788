//! The page: throughput by number of workers beside the paper's results, node-seconds, the ramp, the sweep.

use super::super::page::Page;
use super::super::plot::{Line, Plot};
use super::cells::{self, CONFIGURATIONS, Configuration, MIXES, RAMP};
use super::{CellFigures, Results};

/// The paper's statements about its plots, whose numbers it does not print.
const PUBLISHED: [(&str, &str); 3] = [
    (
        "standard",
        "linear, even more than that, up to 8 (cache-friendly); **fewer** requests with 8 workers than with 7 (cache-unfriendly)",
    ),
    (
        "no elasticity",
        "as standard up to 7, with 8 above the line (cache-unfriendly); hardly more with 4 workers than with 3, then on the line again (cache-friendly)",
    ),
    (
        "no cache",
        "linear, drastically fewer requests (cache-friendly), a large amount fewer (cache-unfriendly)",
    ),
];

pub(super) fn page(results: &Results) -> Page {
    let mut page = Page::new("elastic");
    page.add("# Elasticity, simulated\n");
    page.add(&include_str!("about.txt").replace("MACHINE", &results.machine.date));
    for mix in MIXES {
        add_mix(&mut page, results, mix.name());
    }
    add_published(&mut page);
    add_ramps(&mut page, results);
    add_sweep(&mut page, results);
    page
}

fn cells_of<'r>(
    results: &'r Results,
    mix: &'r str,
    configuration: Configuration,
) -> impl Iterator<Item = &'r CellFigures> {
    let is_it = move |it: &&CellFigures| it.mix == mix && it.configuration == configuration.name();
    results.cells.iter().filter(is_it)
}

/// Requests relative to those of one worker.
fn speed_up(results: &Results, cell: &CellFigures) -> f64 {
    let is_one = |it: &&CellFigures| {
        (it.mix, it.configuration, it.workers) == (cell.mix, cell.configuration, 1)
    };
    results.cells.iter().find(is_one).map_or(f64::NAN, |one| cell.requests[0] / one.requests[0])
}

fn add_mix(page: &mut Page, results: &Results, mix: &str) {
    page.add(&format!("## {mix}\n"));
    let mut head = ["workers", "speed-up that clients allow"].map(str::to_owned).to_vec();
    for configuration in CONFIGURATIONS {
        let name = configuration.name();
        head.extend([format!("{name}: requests"), "speed-up".to_owned()]);
    }
    head.extend(
        ["standard over no elasticity", "node-seconds saved, %", "reversals"].map(str::to_owned),
    );
    let standard: Vec<&CellFigures> = cells_of(results, mix, Configuration::Standard).collect();
    let row = |cell: &&CellFigures| {
        let allowed = cells::speed_up_max(cell.workers);
        let mut row = vec![cell.workers.to_string(), format!("{allowed:.2}")];
        for configuration in CONFIGURATIONS {
            let own = cells_of(results, mix, configuration).find(|it| it.workers == cell.workers);
            let Some(own) = own else { continue };
            let [mean, half_width] = own.requests;
            row.push(format!("{mean:.0} ± {half_width:.0}"));
            row.push(format!("{:.2}", speed_up(results, own)));
        }
        let is_it = |it: &&super::RatioFigures| it.mix == mix && it.workers == cell.workers;
        let [mean, low, high] =
            results.ratios.iter().find(is_it).map_or([f64::NAN; 3], |it| it.requests);
        row.push(format!("{mean:.3} ({low:.3} to {high:.3})"));
        row.push(format!("{:.1}", 100.0 * (1.0 - cell.node_time_share[0])));
        row.push(cell.reversals_most.to_string());
        row
    };
    let rows: Vec<Vec<String>> = standard.iter().map(row).collect();
    page.add_table(&head, &rows);
    page.add_plot(mix, throughput_plot(results, mix));
}

fn throughput_plot(results: &Results, mix: &str) -> Plot {
    let line = |(colour, configuration): (usize, &Configuration)| {
        let point = |cell: &CellFigures| (cell.workers as f64, cell.requests[0] / 1e3);
        Line {
            name: configuration.key().to_owned(),
            colour: 2 * colour,
            points: cells_of(results, mix, *configuration).map(point).collect(),
            has_dots: true,
        }
    };
    Plot {
        title: format!("{mix}: requests in the whole ramp"),
        x: "workers",
        y: "thousands of requests",
        y_begin: 0.0,
        lines: CONFIGURATIONS.iter().enumerate().map(line).collect(),
        marks: Vec::new(),
    }
}

fn add_published(page: &mut Page) {
    page.add("## What the paper found\n");
    let head = ["configuration", "requests from 1 to 8 workers"].map(str::to_owned);
    let rows: Vec<Vec<String>> = PUBLISHED
        .iter()
        .map(|(name, found)| vec![(*name).to_owned(), (*found).to_owned()])
        .collect();
    page.add_table(&head, &rows);
}

fn add_ramps(page: &mut Page, results: &Results) {
    page.add("## The ramp, with eight workers\n");
    let head =
        ["mix", "starts", "handed over, MB", "lost, MB", "from memories, %"].map(str::to_owned);
    let standard =
        |mix| cells_of(results, mix, Configuration::Standard).max_by_key(|it| it.workers);
    let row = |cell: &CellFigures| {
        vec![
            cell.mix.to_owned(),
            format!("{:.1}", cell.starts[0]),
            format!("{:.1}", cell.handed_over_bytes[0] / 1e6),
            format!("{:.1}", cell.lost_bytes[0] / 1e6),
            format!("{:.1}", 100.0 * cell.memory_share[0]),
        ]
    };
    let rows: Vec<Vec<String>> =
        MIXES.iter().filter_map(|mix| standard(mix.name())).map(row).collect();
    page.add_table(&head, &rows);
    let end_s = RAMP.ends_ms() as f64 / 1e3;
    let steps = |counts: &[(f64, usize)]| {
        let mut points: Vec<(f64, f64)> = Vec::new();
        for (at, nodes) in counts {
            points.extend(points.last().map(|(_, before)| (*at, *before)));
            points.push((*at, *nodes as f64));
        }
        points.extend(points.last().map(|(_, last)| (end_s, *last)));
        points
    };
    let line = |(number, ramp): (usize, &super::RampFigures)| Line {
        name: ramp.mix.to_owned(),
        colour: 4 * number,
        points: steps(&ramp.counts),
        has_dots: false,
    };
    let lines: Vec<Line> = results.ramps.iter().enumerate().map(line).collect();
    if !lines.is_empty() {
        page.add_plot(
            "ramp",
            Plot {
                title: "Nodes that serve, first seed".to_owned(),
                x: "seconds",
                y: "nodes",
                y_begin: 0.0,
                lines,
                marks: Vec::new(),
            },
        );
    }
}

fn add_sweep(page: &mut Page, results: &Results) {
    page.add("## Constant loads\n");
    page.add(include_str!("sweep.txt"));
    let head = [
        "mix",
        "controller",
        "loads",
        "with a change",
        "with a reversal",
        "most changes",
        "most reversals",
    ];
    let mut rows = Vec::new();
    let mut lines = Vec::new();
    for (number, (mix, has_hysteresis)) in
        MIXES.iter().flat_map(|mix| [(mix.name(), true), (mix.name(), false)]).enumerate()
    {
        let is_it =
            |it: &&super::SweepFigures| it.mix == mix && it.has_hysteresis == has_hysteresis;
        let all: Vec<_> = results.sweep.iter().filter(is_it).collect();
        let controller = if has_hysteresis { "Skep's" } else { "one threshold, no window" };
        let most =
            |of: fn(&super::SweepFigures) -> usize| all.iter().map(|it| of(it)).max().unwrap_or(0);
        let with =
            |of: fn(&super::SweepFigures) -> usize| all.iter().filter(|it| of(it) > 0).count();
        rows.push(vec![
            mix.to_owned(),
            controller.to_owned(),
            all.len().to_string(),
            with(|it| it.changes_most).to_string(),
            with(|it| it.reversals_most).to_string(),
            most(|it| it.changes_most).to_string(),
            most(|it| it.reversals_most).to_string(),
        ]);
        lines.push(Line {
            name: format!("{mix}, {controller}"),
            colour: 2 * number,
            points: all.iter().map(|it| (it.load, it.changes_most as f64)).collect(),
            has_dots: false,
        });
    }
    page.add_table(&head.map(str::to_owned), &rows);
    if lines.iter().any(|line| !line.points.is_empty()) {
        page.add_plot(
            "sweep",
            Plot {
                title:
                    "Changes of the number of nodes in 90 s of a constant load, the most of a seed"
                        .to_owned(),
                x: "load, in workers at their target",
                y: "changes",
                y_begin: 0.0,
                lines,
                marks: Vec::new(),
            },
        );
    }
}
