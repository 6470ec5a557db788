//! The page's section on 1 to 14 nodes.

use super::super::Part;
use super::super::bed::Way;
use super::super::load::{Sample, spread};
use super::super::nodes::{Nodes, WAYS};
use super::details::{details, details_head};
use crate::experiments::page::{Page, bold};
use crate::experiments::plot::{Line, Plot};

/// Required share of the ideal's throughput.
const IDEAL_MIN: f64 = 0.97;

pub(super) fn add(page: &mut Page, Part { machine, figures: nodes }: &Part<Nodes>) {
    page.add("## Figure 6 of the paper: from 1 to 14 nodes\n");
    page.add(&machine.text());
    page.add(&format!(
        "\nLinks are the bottleneck: those of nodes and of the dispatcher have {} Mbit/s either way (the paper's \
         had 100). SURGE's objects: {} files, {:.1} MB, \
         every fifth request for the most popular one; the mean reply has {:.0} bytes. {} clients for each node (the \
         paper had 200 threads) send the next request as soon as they have their reply. Handoff is under round \
         robin, as in the paper, so that all but every n-th connection \
         moves. *Nodes themselves* is the paper's ideal system. Medians of rounds of {} s.\n",
        nodes.link_bits_s / 1_000_000,
        nodes.files,
        nodes.bytes as f64 / 1e6,
        nodes.mean_reply_bytes,
        nodes.clients,
        nodes.window_ms as f64 / 1e3,
    ));
    page.add(&format!(
        "Connections per second; in brackets relative to the ideal's, with the lowest and the highest round. Goal \
         for handoff: {IDEAL_MIN}. The paper's figure shows no difference, and gives no numbers.\n"
    ));
    let counts = nodes.counts();
    let head = || {
        let counts = counts.iter().map(ToString::to_string);
        std::iter::once("nodes".to_owned()).chain(counts).collect::<Vec<_>>()
    };
    let cell = |count: usize, way: Way| {
        let Some(cell) = nodes.cell(count, way) else { return "-".to_owned() };
        let per_s = spread(cell.samples.iter().map(Sample::per_s)).0;
        let Some((ratio, low, high)) = nodes.ratio(count, way).filter(|_| way != Way::Ideal) else {
            return format!("{per_s:.0}");
        };
        let misses = way == Way::Handoff && ratio < IDEAL_MIN;
        let ratio = bold(&format!("{ratio:.3}"), misses);
        format!("{per_s:.0} ({ratio}; {low:.3} - {high:.3})")
    };
    let row = |way: Way| {
        let cells = counts.iter().map(|&count| cell(count, way));
        std::iter::once(way.name().to_owned()).chain(cells).collect::<Vec<_>>()
    };
    page.add_table(&head(), &WAYS.map(row));
    page.add("All figures, of all rounds together; times to the first byte in milliseconds:\n");
    let rows: Vec<_> = nodes
        .cells
        .iter()
        .map(|cell| details(&cell.nodes.to_string(), cell.way.name(), &cell.samples))
        .collect();
    page.add_table(&details_head("nodes"), &rows);
    page.add_plot("nodes", nodes_plot(nodes));
}

fn nodes_plot(nodes: &Nodes) -> Plot {
    let line = |(colour, way): (usize, Way)| Line {
        name: way.name().to_owned(),
        colour,
        points: nodes
            .counts()
            .into_iter()
            .filter_map(|count| nodes.cell(count, way))
            .map(|cell| (cell.nodes as f64, spread(cell.samples.iter().map(Sample::per_s)).0))
            .collect(),
        has_dots: true,
    };
    Plot {
        title: "Connections per second; links are the bound".to_owned(),
        x: "nodes",
        y: "connections/s",
        y_begin: 0.0,
        lines: WAYS.into_iter().enumerate().map(|(at, way)| line((at * 2, way))).collect(),
        marks: Vec::new(),
    }
}
