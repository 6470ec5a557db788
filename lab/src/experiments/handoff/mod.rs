//! TCP handoff: how long a move takes, what it costs, and when it pays off.
//!
//! - `moves`: one connection at a time, then many: the time of a move and of its parts, and the CPU
//!   of donor, receiver and their netguards.
//! - `to-self`: figure 5 of Doh and Noh: a node that hands off to itself, compared with one that does not.
//! - `nodes`: figure 6 of Doh and Noh: connections per second of 1 to 14 nodes, compared with direct
//!   connections to the nodes and with a proxy.
//! - `sizes`: handoff compared with a proxy, by the size of replies.
//! - `loss`: control packets are lost.
//! - `transports`: the control messages alone, over IP, UDP and TCP.
//! - `relay`: packets of clients are lost, duplicated and reordered.
//!
//! All ways to the nodes exist in one bed, and are measured in turn.

mod bed;
mod kernels;
mod limits;
mod load;
mod loss;
mod moves;
mod nodes;
mod outcomes;
mod page;
mod relay;
mod sizes;
mod surge;
mod to_self;
mod transports;

use std::path::{Path, PathBuf};
use std::{fs, io};

use clap::{Args, ValueEnum};
use serde::{Deserialize, Serialize};

use super::machine::MachineDescription;
use super::{Failure, interrupted};

/// Connections move to the nodes that answer them
#[derive(Debug, Args)]
pub(crate) struct HandoffOptions {
    /// Fewer and shorter cells, as a check that everything works
    #[arg(long)]
    quick: bool,
    /// Run only these parts, separated by commas; the page keeps the results of the others
    #[arg(long, value_delimiter = ',', value_enum)]
    parts: Vec<PartName>,
    /// Folder for the page and its plots; without it, the page is printed
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Number of connections that part `relay` moves [default: 1000000, with `--quick` 300]
    #[arg(long, value_name = "COUNT")]
    relay_moves: Option<u64>,
    /// Skep binary
    #[arg(long, default_value_os_t = super::default_skep())]
    skep: PathBuf,
}

/// A part of the experiment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum PartName {
    Moves,
    ToSelf,
    Nodes,
    Sizes,
    Loss,
    Transports,
    Relay,
    /// Measure nothing; only write the page again
    Page,
}

/// The results as written to JSON.
#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
struct Results {
    moves: Option<Part<moves::Moves>>,
    to_self: Option<Part<to_self::ToSelf>>,
    nodes: Option<Part<nodes::Nodes>>,
    sizes: Option<Part<sizes::Sizes>>,
    loss: Option<Part<loss::Loss>>,
    transports: Option<Part<transports::Transports>>,
    relay: Option<Part<relay::RelayFigures>>,
    troubles: Vec<String>,
}

/// The results of a part, and the machine that it ran on.
#[derive(Serialize, Deserialize)]
struct Part<T> {
    machine: MachineDescription,
    figures: T,
}

pub(crate) fn run(options: &HandoffOptions) -> Result<(), Failure> {
    super::prepare()?;
    let mut results = options.out.as_deref().map_or_else(|| Ok(Results::default()), earlier)?;
    results.troubles.clear();
    let plan = Plan {
        skep: options.skep.clone(),
        is_quick: options.quick,
        relay_moves: options.relay_moves,
    };
    let is_wanted = |part| options.parts.is_empty() || options.parts.contains(&part);
    let Results { moves, to_self, nodes, sizes, loss, transports, relay, troubles } = &mut results;
    if is_wanted(PartName::Moves) {
        plan.measure(moves::measure, moves, troubles)?;
    }
    if is_wanted(PartName::ToSelf) {
        plan.measure(to_self::measure, to_self, troubles)?;
    }
    if is_wanted(PartName::Nodes) {
        plan.measure(nodes::measure, nodes, troubles)?;
    }
    if is_wanted(PartName::Sizes) {
        plan.measure(sizes::measure, sizes, troubles)?;
    }
    if is_wanted(PartName::Loss) {
        plan.measure(loss::measure, loss, troubles)?;
    }
    if is_wanted(PartName::Transports) {
        plan.measure(transports::measure, transports, troubles)?;
    }
    if is_wanted(PartName::Relay) {
        plan.measure(relay::measure, relay, troubles)?;
    }
    results.page().finish(options.out.as_deref(), &results, &results.troubles)
}

/// The results of parts that are not measured now.
fn earlier(out: &Path) -> Result<Results, Failure> {
    let file = out.join("handoff.json");
    let text = match fs::read_to_string(&file) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Results::default()),
        text => text?,
    };
    let unreadable = |error| format!("{} is not of this build: {error}", file.display());
    Ok(serde_json::from_str(&text).map_err(unreadable)?)
}

/// How the parts are measured.
struct Plan {
    skep: PathBuf,
    is_quick: bool,
    /// For the part `relay`.
    relay_moves: Option<u64>,
}

impl Plan {
    /// Measures a part; a failure is reported on the page, where the earlier results stay.
    fn measure<T>(
        &self,
        measure: fn(&Self) -> Result<T, Failure>,
        part: &mut Option<Part<T>>,
        troubles: &mut Vec<String>,
    ) -> Result<(), Failure> {
        let machine = MachineDescription::describe(&self.skep);
        match measure(self) {
            Ok(figures) => *part = Some(Part { machine, figures }),
            Err(error) => {
                interrupted()?;
                eprintln!("skep-lab: {error}");
                troubles.push(error.to_string());
            }
        }
        Ok(())
    }

    /// Selects a value by the kind of run.
    fn pick<T>(&self, full: T, quick: T) -> T {
        if self.is_quick { quick } else { full }
    }
}
