//! Requests per second by the number of nodes, as in the WhizzBee paper's table 2: a node's cache holds a
//! fifth of the data set.

use serde::{Deserialize, Serialize};

use super::cell::{Cell, Load, measure};
use super::data::{DataSet, PopularityLaw};
use super::machine::MachineDescription;
use super::page::{Page, ms, percent, ratio, setting, texts};
use super::plot::{Line, Plot};
use super::rows::TableRow;
use super::settings::Settings;
use super::{Failure, Run};

/// WebBench's data set at 1/20 of the 1.2 GB of the paper.
const DATA_BYTES: u64 = 60_000_000;
const QUICK_DATA_BYTES: u64 = 10_000_000;

/// Divisor of the data set for the size of a node's cache.
const CACHE_SHARE: u64 = 5;

const NODES: &[usize] = &[1, 2, 4, 6, 8];
const QUICK_NODES: &[usize] = &[1, 4];

const POPULARITIES: [PopularityLaw; 2] = [PopularityLaw::Uniform, PopularityLaw::Zipf];

/// The paper's rows: requests per second (and relative to one node) with 2, 4, 6 and 8 nodes.
const PAPER: [(&str, [(u32, f64); 4]); 3] = [
    ("WhizzBee (paper)", [(211, 1.8), (515, 4.3), (1340, 11.2), (2484, 20.7)]),
    ("LVS (paper)", [(264, 1.9), (486, 3.5), (672, 4.9), (881, 6.4)]),
    ("IIS (paper)", [(134, 2.0), (260, 3.9), (305, 4.5), (410, 6.0)]),
];

/// The results as written to JSON.
#[derive(Serialize, Deserialize)]
struct Results {
    machine: MachineDescription,
    settings: Settings,
    cells: Vec<Cell>,
    /// Cells that could not be measured, and why.
    troubles: Vec<String>,
}

pub(super) fn run(run: &Run) -> Result<(), Failure> {
    let bytes = if run.is_quick { QUICK_DATA_BYTES } else { DATA_BYTES };
    let data = DataSet::of_bytes(bytes);
    let nodes = if run.is_quick { QUICK_NODES } else { NODES };
    let machine = MachineDescription::describe(&run.settings.skep);
    let (settings, cells, troubles) = (run.settings.clone(), Vec::new(), Vec::new());
    let mut results = Results { machine, settings, cells, troubles };
    let cache_bytes = data.bytes() / CACHE_SHARE;
    for popularity in POPULARITIES {
        for &nodes in nodes {
            for row in run.rows_of(&TableRow::ALL) {
                let load = Load { row, nodes, popularity, data: &data, cache_bytes };
                match measure(&load, &run.settings) {
                    Ok(cell) => results.add(cell),
                    Err(error) => {
                        super::interrupted()?;
                        results.add_trouble(&load, &error);
                    }
                }
            }
        }
    }
    let page = results.page(&data);
    page.finish(run.out.as_deref(), &results, &results.troubles)
}

impl Results {
    fn add(&mut self, cell: Cell) {
        cell.print("");
        self.cells.push(cell);
    }

    fn add_trouble(&mut self, load: &Load<'_>, error: &Failure) {
        let Load { row, nodes, popularity, .. } = load;
        let text = format!("{}, {nodes} nodes, {}: {error}", row.name(), popularity.name());
        eprintln!("skep-lab: {text}");
        self.troubles.push(text);
    }

    fn cell(&self, row: TableRow, nodes: usize, popularity: PopularityLaw) -> Option<&Cell> {
        let is_it = |it: &&Cell| (it.row, it.nodes, it.popularity) == (row, nodes, popularity);
        self.cells.iter().find(is_it)
    }

    fn rows(&self) -> Vec<TableRow> {
        TableRow::ALL.into_iter().filter(|row| self.cells.iter().any(|it| it.row == *row)).collect()
    }

    fn nodes(&self) -> Vec<usize> {
        let mut nodes: Vec<usize> = self.cells.iter().map(|cell| cell.nodes).collect();
        nodes.sort_unstable();
        nodes.dedup();
        nodes
    }

    fn page(&self, data: &DataSet) -> Page {
        let mut page = Page::new("table2");
        page.add("# Requests per second, from 1 to 8 nodes\n");
        page.add("`skep-lab table2` makes this page ([how](README.md)).\n");
        page.add(&setting(&self.settings, &self.machine));
        page.add(&format!(
            "\nThe data set is WebBench's at a twentieth: {} objects of the ten published classes, \
             {:.1} MB. A node's cache holds a fifth of it, {:.1} MB.\n",
            data.count(),
            data.bytes() as f64 / 1e6,
            data.bytes() as f64 / CACHE_SHARE as f64 / 1e6,
        ));
        for popularity in POPULARITIES {
            self.add_popularity(&mut page, data, popularity);
        }
        self.add_paper(&mut page);
        self.add_details(&mut page);
        for trouble in &self.troubles {
            page.add(&format!("Not measured: {trouble}\n"));
        }
        page
    }

    fn add_popularity(&self, page: &mut Page, data: &DataSet, popularity: PopularityLaw) {
        let (mean, most) = data.shape(&data.order(popularity, 200_000));
        page.add(&format!("## Popularity: {}\n", popularity.name()));
        page.add(&format!(
            "The mean reply has {mean} bytes; {:.1} % of all bytes are those of one object.\n",
            most * 100.0
        ));
        page.add(
            "Requests per second; in brackets, relative to one node of nginx behind HAProxy round robin.\n",
        );
        let head = self.head("row");
        let base =
            self.nodes().first().and_then(|&one| self.cell(TableRow::NginxTurns, one, popularity));
        let text = |cell: Option<&Cell>| match (cell, base) {
            (None, _) => "-".to_owned(),
            (Some(cell), None) => format!("{:.0}", cell.requests_per_s()),
            (Some(cell), Some(base)) => {
                let ratio = cell.requests_per_s() / base.requests_per_s();
                format!("{:.0} ({ratio:.2})", cell.requests_per_s())
            }
        };
        let row = |row: TableRow| -> Vec<String> {
            let cells =
                self.nodes().into_iter().map(|nodes| text(self.cell(row, nodes, popularity)));
            std::iter::once(row.name().to_owned()).chain(cells).collect()
        };
        let rows: Vec<_> = self.rows().into_iter().map(row).collect();
        page.add_table(&head, &rows);
        self.add_ratios(page, popularity);
        let what = if popularity == PopularityLaw::Zipf { "zipf" } else { "uniform" };
        page.add_plot(what, self.plot(popularity));
    }

    /// Adds each of Skep's rows relative to each of the peers'.
    fn add_ratios(&self, page: &mut Page, popularity: PopularityLaw) {
        page.add(
            "Requests per second relative to a peer with as many nodes, bold where Skep loses:\n",
        );
        let head = self.head("row / peer");
        let mut rows = Vec::new();
        let (ours, peers): (Vec<TableRow>, Vec<TableRow>) =
            self.rows().into_iter().partition(|it| it.is_skep());
        for peer in peers {
            for &row in &ours {
                let cell = |nodes| {
                    let of = |row| self.cell(row, nodes, popularity).map(Cell::requests_per_s);
                    let both = of(row).zip(of(peer));
                    both.map_or("-".to_owned(), |(row, peer)| ratio(row, peer))
                };
                let name = format!("{} / {}", row.name(), peer.name());
                rows.push(
                    std::iter::once(name).chain(self.nodes().into_iter().map(cell)).collect(),
                );
            }
        }
        page.add_table(&head, &rows);
    }

    fn add_paper(&self, page: &mut Page) {
        page.add("## The paper's table 2\n");
        page.add(
            "Requests per second and, in brackets, relative to one node, on the paper's own machines \
             (Pentium III, Fast Ethernet; each node with the data set on its own disk, which is \
             why its rows without cooperation grow with the nodes, and ours, which share one slow \
             origin, do not). WhizzBee over LVS: 0.79, 1.06, 2.00, 2.82.\n",
        );
        let head = texts(["row", "2", "4", "6", "8"]);
        let row = |(name, cells): &(&str, [(u32, f64); 4])| {
            let cells = cells.iter().map(|(rate, over)| format!("{rate} ({over})"));
            std::iter::once((*name).to_owned()).chain(cells).collect()
        };
        page.add_table(&head, &PAPER.iter().map(row).collect::<Vec<_>>());
    }

    fn add_details(&self, page: &mut Page) {
        page.add("## All figures\n");
        page.add(
            "Memory: of the node that answered, of another node. Origin: its requests in the measured time. Busiest: \
             bytes that the busiest node sent, to clients and to other nodes, divided by the mean. First byte in milliseconds.\n",
        );
        let head = texts([
            "row",
            "nodes",
            "popularity",
            "req/s",
            "MB/s",
            "own memory %",
            "peers' %",
            "origin %",
            "origin req",
            "origin MB",
            "busiest",
            "p50",
            "p99",
            "failed",
            "cores %",
        ]);
        let rows: Vec<_> = self.cells.iter().map(details).collect();
        page.add_table(&head, &rows);
    }

    fn head(&self, first: &str) -> Vec<String> {
        let nodes = self.nodes().into_iter().map(|nodes| nodes.to_string());
        std::iter::once(first.to_owned()).chain(nodes).collect()
    }

    fn plot(&self, popularity: PopularityLaw) -> Plot {
        let line = |row: TableRow| Line {
            name: row.name().to_owned(),
            colour: row as usize,
            points: self
                .nodes()
                .into_iter()
                .filter_map(|nodes| self.cell(row, nodes, popularity))
                .map(|cell| (cell.nodes as f64, cell.requests_per_s()))
                .collect(),
            has_dots: true,
        };
        Plot {
            title: format!("Requests per second, {}", popularity.name()),
            x: "nodes",
            y: "requests/s",
            y_begin: 0.0,
            lines: self.rows().into_iter().map(line).collect(),
            marks: Vec::new(),
        }
    }
}

fn details(cell: &Cell) -> Vec<String> {
    let report = &cell.report;
    let (requests, all) = (&report.requests, report.succeeded);
    vec![
        cell.row.name().to_owned(),
        cell.nodes.to_string(),
        cell.popularity.name().to_owned(),
        format!("{:.0}", cell.requests_per_s()),
        format!("{:.2}", cell.mb_per_s()),
        percent(requests.local, all),
        percent(requests.peer, all),
        percent(requests.origin + requests.unknown, all),
        cell.origin.requests.to_string(),
        format!("{:.2}", cell.origin.bytes as f64 / 1e6),
        format!("{:.2}", cell.busiest()),
        ms(report.first_byte_us.p50),
        ms(report.first_byte_us.p99),
        report.failed.to_string(),
        format!("{:.0}", cell.busy_percent),
    ]
}
