//! Figure 6 of Doh and Noh, scaled: 1 to 14 nodes, with links as the bottleneck, SURGE's objects, and a
//! connection per request. Round robin moves all but every n-th connection.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use skep_lab::load::MixObject;

use super::Plan;
use super::bed::{BedPlan, HandoffBed, Way};
use super::limits::LINK_BITS_S;
use super::load::{Load, Sample, spread};
use super::surge::Surge;
use crate::experiments::Failure;

const NODES: &[usize] = &[1, 2, 4, 8, 14];
const QUICK_NODES: &[usize] = &[1, 4];

/// The ways in the order of their measurement.
pub(super) const WAYS: [Way; 4] = [Way::Ideal, Way::Handoff, Way::Direct, Way::Proxy];

/// Clients per node: enough that no link is idle, and that no queue is so long that much is lost.
const CLIENTS: usize = 24;

/// Requests of an order, which is then repeated.
const ORDER_REQUESTS: usize = 200_000;

/// The results of this part.
#[derive(Serialize, Deserialize)]
pub(super) struct Nodes {
    pub(super) link_bits_s: u64,
    pub(super) clients: usize,
    pub(super) files: usize,
    pub(super) bytes: u64,
    pub(super) mean_reply_bytes: f64,
    pub(super) window_ms: u64,
    pub(super) cells: Vec<NodesCell>,
}

/// The results of one way with one number of nodes.
#[derive(Serialize, Deserialize)]
pub(super) struct NodesCell {
    pub(super) nodes: usize,
    pub(super) way: Way,
    /// One sample per round.
    pub(super) samples: Vec<Sample>,
}

impl Nodes {
    pub(super) fn cell(&self, nodes: usize, way: Way) -> Option<&NodesCell> {
        self.cells.iter().find(|cell| (cell.nodes, cell.way) == (nodes, way))
    }

    pub(super) fn counts(&self) -> Vec<usize> {
        let ideal = self.cells.iter().filter(|cell| cell.way == Way::Ideal);
        ideal.map(|cell| cell.nodes).collect()
    }

    /// Connections per second relative to the ideal of the same round: median, minimum and maximum.
    pub(super) fn ratio(&self, nodes: usize, way: Way) -> Option<(f64, f64, f64)> {
        let (ideal, own) = (self.cell(nodes, Way::Ideal)?, self.cell(nodes, way)?);
        let pairs = own.samples.iter().zip(&ideal.samples);
        Some(spread(pairs.map(|(own, ideal)| own.per_s() / ideal.per_s())))
    }
}

pub(super) fn measure(plan: &Plan) -> Result<Nodes, Failure> {
    let surge = Surge::new(plan.pick(1.0, 0.02));
    let mut nodes = Nodes {
        link_bits_s: LINK_BITS_S,
        clients: CLIENTS,
        files: surge.objects.len(),
        bytes: surge.bytes(),
        mean_reply_bytes: surge.mean_reply(),
        window_ms: plan.pick(4_000, 1_000),
        cells: Vec::new(),
    };
    for &count in plan.pick(NODES, QUICK_NODES) {
        let cells = measure_count(plan, &surge, count, nodes.window_ms)?;
        nodes.cells.extend(cells);
    }
    Ok(nodes)
}

fn measure_count(
    plan: &Plan,
    surge: &Surge,
    nodes: usize,
    window_ms: u64,
) -> Result<Vec<NodesCell>, Failure> {
    let (policy, transport) = ("round-robin", "ip");
    let bed_plan = BedPlan { nodes, policy, transport, objects: &surge.objects };
    let bed = HandoffBed::new(&bed_plan, plan)?;
    let objects: Arc<[MixObject]> = surge.objects.iter().map(|it| it.for_mix()).collect();
    let order = surge.order(ORDER_REQUESTS);
    let load = Load {
        objects: &objects,
        order: &order,
        processes_max: nodes,
        clients: CLIENTS,
        per_connection: 1,
        compares: false,
        settle_ms: 1_000,
        window_ms,
        requests_min: 0,
    };
    // Loads the objects into the nodes' memories.
    Load { settle_ms: 0, window_ms: plan.pick(3_000, 500), ..load }.run(&bed, Way::Ideal)?;
    bed.set_rate(Some(LINK_BITS_S))?;
    let mut cells = WAYS.map(|way| NodesCell { nodes, way, samples: Vec::new() });
    for _ in 0..plan.pick(3, 1) {
        for cell in &mut cells {
            let sample = load.run(&bed, cell.way)?;
            sample.print(&format!("{nodes:>2} nodes, {:<16}", cell.way.name()));
            cell.samples.push(sample);
        }
    }
    Ok(cells.into())
}
