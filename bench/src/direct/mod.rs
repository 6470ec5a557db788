//! Direct dispatch in a test bed (`testbed/`): short requests on new connections, and large replies, through
//! Skep's packet programs, through two-way proxies on the dispatcher's machine, and directly to the nodes,
//! which is the limit.
//!
//! Every measurement through a way directly follows the same one at the nodes, so that ratios are valid on a
//! machine whose load changes. The upstream servers are the same in all rows. Nothing is pinned to a core: in
//! a bed the work of a dispatcher's kernel is done on the core of the packet's sender.

mod account;
mod client;
mod packets;
mod stage;

use std::path::Path;

use anyhow::{Context, Result};
use skep_testbed::Frames;

use self::client::Client;
use self::stage::{Stage, Way, ways};
use crate::content::{self, HUGE, LARGE, SMALL};
use crate::interrupt;
use crate::limits::{DOWNLOAD_CONNECTIONS, LINK_BITS_S, SHORT_CONNECTIONS, WARM_UP_SECONDS};
use crate::peers::SKEP;
use crate::results::{Direct, DirectRow, DirectTable, Flow, Pair, Results};

/// The prefix of the names of an earlier build's rows.
pub(crate) const EARLIER: &str = "before: ";

/// The load of clients, and the links.
pub(crate) struct Load {
    /// The key of its table.
    key: &'static str,
    frames: Frames,
    path: &'static str,
    connections: u32,
    /// Whether each request uses a new connection.
    closes: bool,
    /// Rate of the links of nodes and dispatcher, in bits per second.
    rate_bits_s: Option<u64>,
}

const fn short(key: &'static str, frames: Frames) -> Load {
    let (path, connections) = (SMALL.0, SHORT_CONNECTIONS);
    Load { key, frames, path, connections, closes: true, rate_bits_s: None }
}

const fn download(
    key: &'static str,
    frames: Frames,
    path: &'static str,
    rate_bits_s: Option<u64>,
) -> Load {
    let connections = DOWNLOAD_CONNECTIONS;
    Load { key, frames, path, connections, closes: false, rate_bits_s }
}

/// All loads, in the order of the tables.
const LOADS: &[Load] = &[
    short("short-wire", Frames::Wire),
    short("short-large", Frames::Large),
    download("541k-links", Frames::Wire, LARGE.0, Some(LINK_BITS_S)),
    download("16m-links", Frames::Wire, HUGE.0, Some(LINK_BITS_S)),
    download("541k-wire", Frames::Wire, LARGE.0, None),
    download("16m-wire", Frames::Wire, HUGE.0, None),
    download("541k-large", Frames::Large, LARGE.0, None),
    download("16m-large", Frames::Large, HUGE.0, None),
];

/// A build of Skep that dispatcher and nodes run, with the prefix of the names of its rows.
struct Build<'a> {
    prefix: &'static str,
    skep: &'a Path,
}

/// Measures all ways, or `only` those of these servers; with an earlier build `before`, only our ways,
/// alternating between the builds. Returns the number of rows that are not sound.
pub(crate) fn run(
    (rounds, seconds): (u32, u32),
    only: &[String],
    (skep, before): (&Path, Option<&Path>),
    results: &mut Results,
) -> Result<usize> {
    if !rustix::process::geteuid().is_root() {
        eprintln!(
            "skep-bench: SKIPPED: direct dispatch needs root, for network namespaces and BPF"
        );
        return Ok(0);
    }
    let dir = tempfile::Builder::new().prefix("skep-bench-direct-").tempdir()?;
    let root = dir.path().join("root");
    let files = [SMALL, LARGE, HUGE].map(|(path, bytes)| (path.to_owned(), bytes));
    content::write(&root, files)?;
    let earlier = before.map(|skep| Build { prefix: EARLIER, skep });
    let mut builds: Vec<Build<'_>> =
        [Build { prefix: "", skep }].into_iter().chain(earlier).collect();
    let is_chosen = |way: &Way| match before {
        Some(_) => way.peer == SKEP,
        None => only.is_empty() || only.iter().any(|name| name == way.peer),
    };
    let mut tables: Vec<DirectTable> = LOADS.iter().map(|load| new_table(load, &builds)).collect();
    for round in 1..=rounds {
        println!("skep-bench: Direct, round {round} of {rounds}");
        builds.reverse();
        for frames in [Frames::Wire, Frames::Large] {
            for build in &builds {
                let stage = Stage::new(frames, dir.path(), &root, build.skep)?;
                let mut ways: Vec<&Way> = ways(frames).collect();
                let first = round as usize % ways.len();
                ways.rotate_left(first);
                ways.retain(|way| is_chosen(way));
                for way in ways {
                    measure_way(&stage, build, way, seconds, &mut tables)?;
                }
            }
        }
    }
    let unsound = tables.iter().flat_map(|table| &table.rows).filter(|row| !row.is_sound()).count();
    let when = results.machine.when();
    let packets = if only.is_empty() && before.is_none() { packets::measure()? } else { None };
    results.direct = Some(Direct { when, rounds, seconds, tables, packets });
    Ok(unsound)
}

impl Build<'_> {
    /// The name of the row of a way.
    fn row(&self, way: &Way) -> String {
        format!("{}{}", self.prefix, way.name)
    }
}

/// Measures all loads of a bed through one way; failures are recorded in its rows.
fn measure_way(
    stage: &Stage,
    build: &Build<'_>,
    way: &Way,
    seconds: u32,
    tables: &mut [DirectTable],
) -> Result<()> {
    let name = build.row(way);
    let version = way.version(stage);
    let done = stage.through(way, |client| {
        for (load, table) in LOADS.iter().zip(&mut *tables) {
            let Some(row) = table.row_mut(&name).filter(|_| load.frames == stage.frames) else {
                continue;
            };
            row.version = version.as_ref().cloned().unwrap_or_default();
            let pair = stage.with_links(load.rate_bits_s, || pair(client, load, seconds));
            interrupt::check()?;
            match pair {
                Ok(pair) => {
                    print_pair(load, &name, &pair);
                    row.samples.push(pair);
                }
                Err(error) => {
                    eprintln!("skep-bench: {}: {name}: {error:#}", load.key);
                    row.trouble = Some(format!("{error:#}"));
                }
            }
        }
        Ok(())
    });
    interrupt::check()?;
    if let Err(error) = done {
        eprintln!("skep-bench: {name} cannot be measured: {error:#}");
        for (load, table) in LOADS.iter().zip(tables) {
            if let Some(row) = table.row_mut(&name).filter(|_| load.frames == stage.frames) {
                row.trouble = Some(format!("{error:#}"));
            }
        }
    }
    Ok(())
}

/// Measures directly at the nodes, then through the way.
fn pair(client: &Client, load: &Load, seconds: u32) -> Result<Pair> {
    let measure = |through: bool| -> Result<Flow> {
        client.run(load, through, WARM_UP_SECONDS)?;
        client.run(load, through, seconds)
    };
    let nodes = measure(false).context("at the nodes themselves")?;
    Ok(Pair { nodes, way: measure(true)? })
}

fn new_table(load: &Load, builds: &[Build<'_>]) -> DirectTable {
    let row =
        |way: String| DirectRow { way, version: String::new(), trouble: None, samples: Vec::new() };
    let ways = || ways(load.frames);
    let rows = builds.iter().flat_map(|build| ways().map(|way| row(build.row(way)))).collect();
    DirectTable { key: load.key.to_owned(), rows }
}

fn print_pair(load: &Load, row: &str, pair: &Pair) {
    let Pair { nodes, way: through } = pair;
    println!(
        "  {:<11} {:<9} {:>7.0} of {:>7.0} requests/s, {:>7.1} of {:>7.1} us each ({:.1} in the \
         dispatcher's processes), {} errors, others {:.0} %",
        load.key,
        row,
        through.requests_per_s(),
        nodes.requests_per_s(),
        through.bed_us(),
        nodes.bed_us(),
        through.dispatcher_us(),
        through.errors + nodes.errors,
        through.others_percent,
    );
}
