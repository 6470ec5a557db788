//! The page: a table for each cell, and what agrees.

use super::super::page::Page;
use super::figures::{Figure, agreeing_hits, hit_points, mean, ranking};
use super::limits::IDLE_PERCENT_MIN;
use super::{CellRuns, PolicyRuns, Results, RunFigures};

pub(super) fn page(results: &Results, _part: u64) -> Page {
    let mut page = Page::new("policies-bed");
    page.add("# Policies in a test bed, beside the simulator\n");
    results.cells.iter().for_each(|cell| add_cell(&mut page, cell));
    page
}

fn add_cell(page: &mut Page, cell: &CellRuns) {
    page.add(&format!("## {}\n", cell.cell.name()));
    let head = [
        "policy",
        "mean, ms",
        "simulated",
        "p99, ms",
        "simulated",
        "own memory, %",
        "simulated",
        "idle, %",
    ];
    let head: Vec<String> = head.map(str::to_owned).into();
    let rows: Vec<Vec<String>> = cell.policies.iter().map(row).collect();
    page.add_table(&head, &rows);
    for (what, figure) in [("mean", mean_s as Figure), ("p99", p99_s)] {
        let ranking = ranking(cell, figure);
        page.add(&format!("{what}: {ranking:?}\n"));
    }
    page.add(&format!("hits: {} of {}\n", agreeing_hits(cell), cell.policies.len()));
}

fn mean_s(run: &RunFigures) -> f64 {
    run.mean_s
}

fn p99_s(run: &RunFigures) -> f64 {
    run.p99_s
}

fn row(policy: &PolicyRuns) -> Vec<String> {
    let PolicyRuns { policy: name, bed, simulated } = policy;
    let ms = |runs: &[RunFigures], figure: Figure| format!("{:.1}", mean(runs, figure) * 1e3);
    let share = |runs| format!("{:.1}", mean(runs, RunFigures::own_share) * 100.0);
    let idle = bed.iter().map(|run| run.idle_percent).fold(f64::INFINITY, f64::min);
    let mark = if idle < IDLE_PERCENT_MIN { " !" } else { "" };
    let _ = hit_points(policy);
    vec![
        name.clone(),
        ms(bed, mean_s),
        ms(simulated, mean_s),
        ms(bed, p99_s),
        ms(simulated, p99_s),
        share(bed),
        share(simulated),
        format!("{idle:.0}{mark}"),
    ]
}
