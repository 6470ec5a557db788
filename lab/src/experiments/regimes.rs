//! Data that fits into one node's cache, only into all caches of the cluster together, or into neither: where
//! cooperation is idle, decisive, or helpful.

use serde::{Deserialize, Serialize};

use super::cell::{Cell, Load, measure};
use super::data::{DataSet, PopularityLaw};
use super::machine::MachineDescription;
use super::page::{Better, Column, Page, ms, percent, setting};
use super::plot::{Line, Plot};
use super::rows::TableRow;
use super::settings::Settings;
use super::{Failure, Run};

const NODES: usize = 4;

/// Size of a node's cache, in bytes.
const CACHE_BYTES: u64 = 8_000_000;
const QUICK_CACHE_BYTES: u64 = 2_000_000;

/// The regimes: a name, and the size of the data set relative to a node's cache, in tenths.
const REGIMES: [(&str, u64); 3] = [
    ("smaller than a node's cache", 5),
    ("smaller than the cluster's caches", 30),
    ("larger than the cluster's caches", 120),
];

const POPULARITIES: [PopularityLaw; 2] = [PopularityLaw::Uniform, PopularityLaw::Zipf];

const COLUMNS: [Column; 11] = [
    ("req/s", Better::More),
    ("MB/s", Better::Neither),
    ("own memory %", Better::Neither),
    ("peers' %", Better::Neither),
    ("origin %", Better::Less),
    ("redundant", Better::Less),
    ("busiest", Better::Less),
    ("p50", Better::Less),
    ("p99", Better::Less),
    ("failed", Better::Less),
    ("cores %", Better::Neither),
];

/// The results as written to JSON.
#[derive(Serialize, Deserialize)]
struct Results {
    machine: MachineDescription,
    settings: Settings,
    /// Each with the number of its regime.
    cells: Vec<(usize, Cell)>,
    /// Cells that could not be measured, and why.
    troubles: Vec<String>,
}

pub(super) fn run(run: &Run) -> Result<(), Failure> {
    let cache_bytes = if run.is_quick { QUICK_CACHE_BYTES } else { CACHE_BYTES };
    let machine = MachineDescription::describe(&run.settings.skep);
    let (settings, cells, troubles) = (run.settings.clone(), Vec::new(), Vec::new());
    let mut results = Results { machine, settings, cells, troubles };
    for (regime, (what, tenths)) in REGIMES.into_iter().enumerate() {
        let data = DataSet::of_bytes(cache_bytes * tenths / 10);
        for popularity in POPULARITIES {
            for row in run.rows_of(&TableRow::ALL) {
                let load = Load { row, nodes: NODES, popularity, data: &data, cache_bytes };
                match measure(&load, &run.settings) {
                    Ok(cell) => {
                        cell.print(what);
                        results.cells.push((regime, cell));
                    }
                    Err(error) => {
                        super::interrupted()?;
                        let text = format!("{what}, {}: {error}", row.name());
                        eprintln!("skep-lab: {text}");
                        results.troubles.push(text);
                    }
                }
            }
        }
    }
    results.page(cache_bytes).finish(run.out.as_deref(), &results, &results.troubles)
}

impl Results {
    fn page(&self, cache_bytes: u64) -> Page {
        let mut page = Page::new("regimes");
        page.add("# Data smaller and larger than the caches\n");
        page.add("`skep-lab regimes` makes this page ([how](README.md)).\n");
        page.add(&setting(&self.settings, &self.machine));
        page.add(&format!(
            "\n{NODES} nodes with a cache of {:.0} MB each. Shares are of bytes: from the memory \
             of the node that answered, from another node's, from the origin. Redundant: bytes that the origin sent \
             since all caches were empty, divided by those of the distinct objects among them; 1.00 means each \
             object once. Busiest: bytes that the busiest node sent, divided by the mean. First byte in milliseconds. Bold: a peer is better there.\n",
            cache_bytes as f64 / 1e6
        ));
        for (regime, (what, tenths)) in REGIMES.into_iter().enumerate() {
            page.add(&format!("## Data {what}: {:.1} of a node's cache\n", tenths as f64 / 10.0));
            for popularity in POPULARITIES {
                self.add_regime(&mut page, regime, popularity);
            }
        }
        self.add_plots(&mut page);
        for trouble in &self.troubles {
            page.add(&format!("Not measured: {trouble}\n"));
        }
        page
    }

    fn of(&self, regime: usize, popularity: PopularityLaw) -> impl Iterator<Item = &Cell> {
        let is_it = move |it: &&(usize, Cell)| it.0 == regime && it.1.popularity == popularity;
        self.cells.iter().filter(is_it).map(|(_, cell)| cell)
    }

    fn add_regime(&self, page: &mut Page, regime: usize, popularity: PopularityLaw) {
        let first = format!("popularity {}", popularity.name());
        let rows = self.of(regime, popularity).map(|cell| (cell.row, details(cell))).collect();
        page.add_compared(&first, &COLUMNS, rows);
    }

    fn add_plots(&self, page: &mut Page) {
        for (popularity, what) in POPULARITIES.into_iter().zip(["uniform", "zipf"]) {
            let line = |row: TableRow| {
                let point = |(regime, (_, tenths)): (usize, (&str, u64))| {
                    let cell = self.of(regime, popularity).find(|cell| cell.row == row)?;
                    Some((tenths as f64 / 10.0, cell.requests_per_s()))
                };
                Line {
                    name: row.name().to_owned(),
                    colour: row as usize,
                    points: REGIMES.into_iter().enumerate().filter_map(point).collect(),
                    has_dots: true,
                }
            };
            let plot = Plot {
                title: format!("Requests per second of {NODES} nodes, {}", popularity.name()),
                x: "data set, over a node's cache",
                y: "requests/s",
                y_begin: 0.0,
                lines: TableRow::ALL
                    .into_iter()
                    .map(line)
                    .filter(|it| !it.points.is_empty())
                    .collect(),
                marks: Vec::new(),
            };
            page.add_plot(what, plot);
        }
    }
}

/// A cell's figures, in the order of [`COLUMNS`].
fn details(cell: &Cell) -> Vec<String> {
    let report = &cell.report;
    let bytes = &report.bytes;
    vec![
        format!("{:.0}", cell.requests_per_s()),
        format!("{:.2}", cell.mb_per_s()),
        percent(bytes.local, bytes.sum()),
        percent(bytes.peer, bytes.sum()),
        percent(bytes.origin + bytes.unknown, bytes.sum()),
        format!("{:.2}", cell.redundancy()),
        format!("{:.2}", cell.busiest()),
        ms(report.first_byte_us.p50),
        ms(report.first_byte_us.p99),
        report.failed.to_string(),
        format!("{:.0}", cell.busy_percent),
    ]
}
