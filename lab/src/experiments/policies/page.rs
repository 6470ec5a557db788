//! The page: tables with three figures per cell, and response times by size.

use super::super::page::{Page, three_digits};
use super::super::plot::{Line, Plot};
use super::{BASE, CellFigures, PolicyFigures, Results};

/// Cells per table: more do not fit side by side.
const BESIDE: usize = 2;

/// Utilisation from which on a link is saturated, so that response times grow with the length of the run.
const FULL: f64 = 0.97;

/// The policies shown in plots.
const PLOTTED: [&str; 7] = [
    "round-robin",
    "least-outstanding",
    "least-bytes",
    "bounded-maglev-url",
    "lard",
    "adaptload",
    BASE,
];
pub(super) fn page(results: &Results) -> Page {
    let mut page = Page::new("policies");
    page.add("# Policies, simulated\n");
    let about = include_str!("about.txt");
    page.add(&about.replace("MACHINE", &results.machine.date));
    results.cells.chunks(BESIDE).for_each(|cells| add_table(&mut page, cells));
    page.add("## By size\n");
    for cell in &results.cells {
        if let Some(file) = cell.shown.plot {
            page.add_plot(file, plot(cell));
        }
    }
    page
}

fn add_table(page: &mut Page, cells: &[CellFigures]) {
    let head = |cell: &CellFigures| {
        let unit = if cell.shown.is_in_ms { "ms" } else { "s" };
        [format!("{}: mean, {unit}", cell.name), format!("p99, {unit}"), "ratio".to_owned()]
    };
    let head: Vec<String> =
        std::iter::once("policy".to_owned()).chain(cells.iter().flat_map(head)).collect();
    let row = |at: usize| {
        let name = cells[0].policies[at].policy.clone();
        let figures = cells.iter().flat_map(move |cell| figures(cell, at));
        std::iter::once(name).chain(figures).collect()
    };
    let rows: Vec<Vec<String>> = (0..cells[0].policies.len()).map(row).collect();
    page.add_table(&head, &rows);
}

/// Mean, p99 and ratio of a policy.
fn figures(cell: &CellFigures, at: usize) -> [String; 3] {
    let policy = &cell.policies[at];
    let scale = if cell.shown.is_in_ms { 1_000.0 } else { 1.0 };
    let figure = |of: fn(&PolicyFigures) -> f64| {
        let own = of(policy);
        let is_least = cell.policies.iter().all(|other| own <= of(other));
        let text = three_digits(own * scale);
        if is_least { format!("**{text}**") } else { text }
    };
    let mark = if policy.busiest_link_share[0] >= FULL { "\\*" } else { "" };
    let ratio = match policy.policy == BASE {
        true => "1".to_owned(),
        false => {
            let [mean, low, high] = policy.ratio.map(three_digits);
            format!("{mean} ({low} to {high})")
        }
    };
    [figure(|it| it.mean_s[0]) + mark, figure(|it| it.p99_s[0]), ratio]
}

fn plot(cell: &CellFigures) -> Plot {
    let line = |(colour, name): (usize, &&str)| {
        let policy = cell.policies.iter().find(|it| it.policy == **name)?;
        let points = (0..).zip(&policy.mean_s_by_decade);
        let points = points.filter_map(|(decade, mean_s)| {
            mean_s.map(|mean_s| (f64::from(decade), (mean_s * 1e6).log10()))
        });
        Some(Line { name: (*name).to_string(), colour, points: points.collect(), has_dots: true })
    };
    Plot {
        title: format!("{}: mean response time by size", cell.name),
        x: "size in bytes, decades (4 is 10 to 100 KB)",
        y: "microseconds, decades (3 is 1 ms)",
        y_begin: 0.0,
        lines: PLOTTED.iter().enumerate().filter_map(line).collect(),
        marks: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_have_three_digits() {
        let texts = [0.294, 1.0, 9.876, 12.34, 99.96, 1234.5].map(three_digits);
        assert_eq!(texts, ["0.29", "1.00", "9.88", "12.3", "100.0", "1234"]);
    }
}
