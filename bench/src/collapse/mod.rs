//! A thousand clients of a cluster request one page at once, which takes half a second: how often it is
//! computed, and how long the clients wait. One page may be shared, another turns out to be private.

mod app;
mod clients;
mod cluster;

use anyhow::{Context, Result};

use self::clients::ask_at_once;
use self::cluster::Cluster;
use crate::groups::Bench;
use crate::limits::{COLLAPSE_CLIENTS, COLLAPSE_NODES, COMPUTATION};
use crate::results::{
    Collapse, CollapseRow, CollapseSample, MachineDescription, Results, quantile,
};

/// The rows: their names, and the folder of the page.
const ROWS: [(&str, &str); 3] = [
    ("may be shared", "/shared"),
    ("turns out to be private", "/private"),
    ("is known to be private", "/private"),
];

/// Measures all rows; each round uses new pages. Returns the number of rows that are not sound.
pub(crate) fn run(
    bench: &Bench,
    machine: MachineDescription,
    results: &mut Results,
) -> Result<usize> {
    let row = |(page, _): (&str, &str)| CollapseRow { page: page.to_owned(), samples: Vec::new() };
    let mut collapse = Collapse {
        machine,
        rounds: bench.rounds,
        clients: COLLAPSE_CLIENTS,
        nodes: COLLAPSE_NODES as u32,
        computation_ms: COMPUTATION.as_millis() as u64,
        trouble: None,
        rows: ROWS.map(row).into(),
    };
    if let Err(error) = measure(bench, &mut collapse.rows) {
        crate::interrupt::check()?;
        eprintln!("skep-bench: collapse: {error:#}");
        collapse.trouble = Some(format!("{error:#}"));
    }
    let unsound = usize::from(collapse.trouble.is_some());
    results.collapse = Some(collapse);
    Ok(unsound)
}

fn measure(bench: &Bench, rows: &mut [CollapseRow]) -> Result<()> {
    let (port, computations) = app::start()?;
    let cluster = Cluster::start(&bench.places.skep, &bench.dir().join("collapse"), port)?;
    let ports = cluster.ports();
    // Has nodes connect to each other, and exchange the coordinator's answers once.
    ask_at_once(&ports, COLLAPSE_NODES as u32, "/shared/first").context("the first page")?;
    for round in 1..=bench.rounds {
        println!("skep-bench: Collapse, round {round} of {}", bench.rounds);
        for (row, (page, folder)) in rows.iter_mut().zip(ROWS) {
            crate::interrupt::check()?;
            let path = format!("{folder}/{round}");
            let before = computations.of(&path);
            let times_ms = ask_at_once(&ports, COLLAPSE_CLIENTS, &path).context(page)?;
            let sample = CollapseSample {
                computations: computations.of(&path) - before,
                p50_ms: quantile(&times_ms, 0.5),
                longest_ms: quantile(&times_ms, 1.0),
            };
            println!(
                "  {page:<24} {:>4} computations, median {:.0} ms, longest {:.0} ms",
                sample.computations, sample.p50_ms, sample.longest_ms
            );
            row.samples.push(sample);
        }
    }
    Ok(())
}

/// The page of a path, of 1 KiB.
fn page_body(path: &str) -> String {
    let line = format!("<p>{path} was computed</p>\n");
    line.repeat(1024 / line.len()) + "<!-- the end -->"
}
