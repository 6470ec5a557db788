//! One run of a load: `skep bench run portal` on the clients' machine, and its cost at the nodes.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::bed::{Gateway, PortalBed};
use super::limits::NODE_CPU_CORES;
use crate::experiments::Failure;

/// A load of the paper.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum LoadKind {
    /// Two clients, ten requests.
    Light,
    /// Fifty clients, five hundred requests.
    Heavy,
    /// The same, with no queue for requests that wait for a node.
    HeavyWithoutQueue,
}

/// The size of a load.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct LoadSize {
    /// Each client has one request at a time, and a new connection for each.
    pub(super) clients: u32,
    pub(super) requests: u32,
}

/// The results of one run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct PortalRun {
    /// `None`: warm-up.
    pub(super) load: Option<LoadKind>,
    pub(super) round: usize,
    /// Indexes of the nodes.
    pub(super) nodes: Vec<usize>,
    /// The clients' results.
    pub(super) seen: Seen,
    /// Pages that each node answered, in the order of `nodes`.
    pub(super) pages: Vec<u64>,
    /// CPU time of all these nodes together, and of Skep, in ms.
    pub(super) nodes_cpu_ms: f64,
    pub(super) skep_cpu_ms: f64,
}

/// The relevant part of the output of `skep bench run --json`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Seen {
    pub(super) measured_ms: u64,
    pub(super) requests: u64,
    pub(super) succeeded: u64,
    pub(super) failed: u64,
    pub(super) failures: BTreeMap<String, u64>,
    pub(super) examples: Vec<String>,
    /// Right answers per second.
    pub(super) requests_per_s: f64,
    /// Right answers that started a session.
    pub(super) cookies_set: u64,
    /// Bytes of all pages.
    pub(super) bytes: u64,
    /// From the beginning of a request to the end of the page.
    pub(super) total_us: Times,
}

/// Latencies of right answers, in microseconds.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct Times {
    pub(super) mean: f64,
    pub(super) p50: u64,
    pub(super) p90: u64,
    pub(super) p99: u64,
    pub(super) max: u64,
}

impl PortalRun {
    /// Runs a load through Skep; `nodes` are those in its config.
    pub(super) fn measure(
        (bed, gateway): (&PortalBed, &Gateway),
        (load, round, nodes): (Option<LoadKind>, usize, &[usize]),
        size: LoadSize,
    ) -> Result<Self, Failure> {
        let (pages, cpu_ns, skep_ns) = (gateway.requests()?, bed.node_cpu_ns(), gateway.cpu_ns());
        let seen = ask(bed, size)?;
        let (pages_now, cpu_now, skep_now) =
            (gateway.requests()?, bed.node_cpu_ns(), gateway.cpu_ns());
        let pages = nodes.iter().map(|it| pages_now[it] - pages[it]).collect();
        let of_nodes: u64 = nodes.iter().map(|&it| cpu_now[it].saturating_sub(cpu_ns[it])).sum();
        Ok(Self {
            load,
            round,
            nodes: nodes.to_vec(),
            seen,
            pages,
            nodes_cpu_ms: of_nodes as f64 / 1e6,
            skep_cpu_ms: skep_now.saturating_sub(skep_ns) as f64 / 1e6,
        })
    }

    /// CPU time of a node per page, in ms.
    pub(super) fn page_cpu_ms(&self) -> f64 {
        self.nodes_cpu_ms / self.all_pages().max(1) as f64
    }

    /// CPU time of Skep per page, in ms.
    pub(super) fn skep_page_cpu_ms(&self) -> f64 {
        self.skep_cpu_ms / self.all_pages().max(1) as f64
    }

    /// The nodes' CPU time in percent of their quotas.
    pub(super) fn used_percent(&self) -> f64 {
        let had_ms = self.seen.measured_ms as f64 * NODE_CPU_CORES * self.nodes.len() as f64;
        self.nodes_cpu_ms * 100.0 / had_ms.max(1.0)
    }

    /// Prints the results while the experiment runs.
    pub(super) fn print(&self) {
        let Seen { requests_per_s, failed, cookies_set, total_us, .. } = &self.seen;
        let load = self.load.map_or_else(|| "warm-up".to_owned(), |it| format!("{it:?}"));
        println!(
            "  {load:<17} {} nodes: {requests_per_s:>6.1} pages/s, {failed} failed, {cookies_set} sessions, p50 {:.1} ms, \
             p99 {:.1} ms; {:.2} ms of CPU for a page, {:.0} % of the quotas, Skep {:.2} ms; pages {:?}",
            self.nodes.len(),
            total_us.p50 as f64 / 1e3,
            total_us.p99 as f64 / 1e3,
            self.page_cpu_ms(),
            self.used_percent(),
            self.skep_page_cpu_ms(),
            self.pages,
        );
        self.seen.examples.iter().take(2).for_each(|example| println!("    {example}"));
    }

    /// Includes the page that `skep bench` requests before the load.
    fn all_pages(&self) -> u64 {
        self.pages.iter().sum()
    }
}

fn ask(bed: &PortalBed, size: LoadSize) -> Result<Seen, Failure> {
    let mut command = bed.client()?.command(bed.skep());
    command.args(["bench", "run", "portal", &bed.url()?, "--json", "--same-bodies"]);
    command.args(["--clients", &size.clients.to_string()]);
    command.args(["--requests", &size.requests.to_string(), "--duration", "10m"]);
    let output = command.output()?;
    // It exits with an error if no answer was right; there is a report even then.
    serde_json::from_slice(&output.stdout).map_err(|error| {
        let said = String::from_utf8_lossy(&output.stderr);
        format!("skep bench: {error}: {said}").into()
    })
}
