//! The page: tables by number of nodes, the recovery after a loss, and the size of cluster at which one
//! coordinator is saturated.

use skep_site_sim::SETTLED_SIGMAS;

use super::super::page::Page;
use super::super::plot::{Line, Plot};
use super::cells::{LOADS, SITES};
use super::{CellFigures, Results};

/// The maximum load of a coordinator: look-ups per second (the lower result of its benchmark), bytes per
/// second of a link of 10 Gbit/s, and holdings.
const LOOK_UPS_PER_S: f64 = 3.7e6;
const LINK_BYTES_PER_S: f64 = 1.25e9;
const HOLDINGS_MAX: f64 = 16_777_216.0;

pub(super) fn page(results: &Results) -> Page {
    let mut page = Page::new("scale");
    page.add("# Scale, simulated\n");
    let windows = SITES.map(|site| format!("{} ms for {}", site.window_ms, site.name)).join(", ");
    let about = include_str!("about.txt").replace("MACHINE", &results.machine.date);
    let about = about.replace("WINDOWS", &windows);
    page.add(&about.replace("SIGMAS", &format!("{SETTLED_SIGMAS:.0}")));
    for site in SITES {
        for (load, _) in LOADS {
            let is_it = |it: &&CellFigures| it.site == site.name && it.load == load;
            let cells: Vec<&CellFigures> = results.cells.iter().filter(is_it).collect();
            page.add(&format!("## {}, {load}\n", site.name));
            add_cells(&mut page, &cells);
            let file = format!("{}-{load}", site.kind.name());
            page.add_plot(&file, loss_plot(&format!("{}, {load}", site.name), &cells));
        }
    }
    page.add("## Where one coordinator ends\n");
    page.add(include_str!("limits.txt"));
    add_limits(&mut page, results);
    page
}

fn add_cells(page: &mut Page, cells: &[&CellFigures]) {
    let head = [
        "policy, nodes",
        "messages",
        "entries",
        "bytes to it",
        "own memory, %",
        "from disks, %",
        "busiest",
        "mean, ms",
        "cut / requests per s",
        "late / requests per s",
        "disks settled, s",
        "response settled, s",
    ];
    let row = |cell: &&CellFigures| {
        vec![
            format!("{}, {}", cell.policy, cell.nodes),
            estimate(cell.messages, 1.0),
            estimate(cell.entries, 1.0),
            estimate(cell.to_bytes, 1.0),
            estimate(cell.memory_share, 100.0),
            estimate(cell.source_share, 100.0),
            estimate(cell.busiest_over_mean, 1.0),
            estimate(cell.mean_s, 1e3),
            estimate(cell.cut, 1.0),
            estimate(cell.late, 1.0),
            estimate(cell.source_settled_s, 1.0),
            estimate(cell.response_settled_s, 1.0),
        ]
    };
    let rows: Vec<Vec<String>> = cells.iter().map(row).collect();
    page.add_table(&head.map(str::to_owned), &rows);
}

/// The plot of a loss in the largest cluster.
fn loss_plot(title: &str, cells: &[&CellFigures]) -> Plot {
    let largest = cells.iter().map(|cell| cell.nodes).max().unwrap_or(0);
    let of_largest = cells.iter().filter(|cell| cell.nodes == largest);
    let line = |(number, cell): (usize, &&CellFigures)| {
        let begin_s = cell.source_by_window.first().map_or(0.0, |(at, _)| *at);
        let point = |(at, share): &(f64, f64)| (at - begin_s, 100.0 * share);
        Line {
            name: cell.policy.clone(),
            colour: 2 * number,
            points: cell.source_by_window.iter().map(point).collect(),
            has_dots: false,
        }
    };
    let first = cells.iter().find(|cell| cell.nodes == largest);
    let loss_s = first.and_then(|cell| Some(-cell.source_by_window.first()?.0)).unwrap_or(0.0);
    Plot {
        title: format!("{title}, {largest} nodes: requests that need a disk"),
        x: "seconds",
        y: "percent",
        y_begin: 0.0,
        lines: of_largest.enumerate().map(line).collect(),
        marks: vec![(loss_s, "every tenth node is lost".to_owned())],
    }
}

fn add_limits(page: &mut Page, results: &Results) {
    let head = [
        "site, load, policy, nodes",
        "entries a request",
        "full by entries, requests/s",
        "full by link, requests/s",
        "nodes",
        "holdings a node",
        "memory, GB",
    ];
    let largest = results.cells.iter().map(|cell| cell.nodes).max().unwrap_or(0);
    let row = |cell: &CellFigures| {
        let site = SITES.iter().find(|site| site.name == cell.site)?;
        let by_entries = LOOK_UPS_PER_S / cell.entries[0];
        let by_link = LINK_BYTES_PER_S / cell.to_bytes[0].max(cell.from_bytes[0]);
        let node_requests = cell.requests_per_s[0] / cell.nodes as f64 / site.rate_scale;
        let memory_bytes = site.memory_bytes() as f64 / cell.holdings[0] * HOLDINGS_MAX;
        Some(vec![
            format!("{}, {}, {}, {}", cell.site, cell.load, cell.policy, cell.nodes),
            short(cell.entries[0]),
            short(by_entries),
            short(by_link),
            short(by_entries.min(by_link) / node_requests),
            short(cell.holdings[0]),
            short(memory_bytes / 1e9),
        ])
    };
    let cells = results.cells.iter().filter(|cell| cell.nodes == largest);
    page.add_table(&head.map(str::to_owned), &cells.filter_map(row).collect::<Vec<_>>());
}

fn estimate([mean, half_width]: [f64; 2], times: f64) -> String {
    match (mean.is_finite(), half_width.is_finite()) {
        (false, _) => "-".to_owned(),
        (true, false) => short(mean * times),
        (true, true) => format!("{} ± {}", short(mean * times), short(half_width * times)),
    }
}

/// A number with about three digits.
fn short(value: f64) -> String {
    match value {
        large if large >= 100.0 => format!("{large:.0}"),
        middle if middle >= 10.0 => format!("{middle:.1}"),
        small if small >= 0.1 || small == 0.0 => format!("{small:.2}"),
        tiny => format!("{tiny:.4}"),
    }
}
