//! Handoff compared with a proxy by the size of replies: four nodes, links at the kernel's speed, a
//! connection per request.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use skep_lab::load::MixObject;

use super::Plan;
use super::bed::{BedPlan, HandoffBed, Way};
use super::load::{Load, Sample, spread};
use super::nodes::WAYS;
use crate::experiments::Failure;
use crate::experiments::origin::Object;

const NODES: usize = 4;

/// Sizes of replies, in bytes.
const SIZES: &[u64] = &[
    1 << 10,
    4 << 10,
    16 << 10,
    32 << 10,
    64 << 10,
    128 << 10,
    256 << 10,
    1 << 20,
    4 << 20,
    16 << 20,
];
const QUICK_SIZES: &[u64] = &[1 << 10, 64 << 10, 1 << 20];

/// Clients per node.
const CLIENTS: usize = 4;

/// The results of this part.
#[derive(Serialize, Deserialize)]
pub(super) struct Sizes {
    pub(super) nodes: usize,
    pub(super) clients: usize,
    pub(super) window_ms: u64,
    pub(super) cells: Vec<SizesCell>,
}

/// The results of one way with one size of replies.
#[derive(Serialize, Deserialize)]
pub(super) struct SizesCell {
    pub(super) bytes: u64,
    pub(super) way: Way,
    /// One sample per round.
    pub(super) samples: Vec<Sample>,
}

impl Sizes {
    pub(super) fn cell(&self, bytes: u64, way: Way) -> Option<&SizesCell> {
        self.cells.iter().find(|cell| (cell.bytes, cell.way) == (bytes, way))
    }

    pub(super) fn sizes(&self) -> Vec<u64> {
        let ideal = self.cells.iter().filter(|cell| cell.way == Way::Ideal);
        ideal.map(|cell| cell.bytes).collect()
    }

    /// A figure of handoff relative to the proxy's of the same round: median, minimum and maximum.
    pub(super) fn over_proxy(
        &self,
        bytes: u64,
        figure: fn(&Sample) -> f64,
    ) -> Option<(f64, f64, f64)> {
        let (own, proxy) = (self.cell(bytes, Way::Handoff)?, self.cell(bytes, Way::Proxy)?);
        let pairs = own.samples.iter().zip(&proxy.samples);
        Some(spread(pairs.map(|(own, proxy)| figure(own) / figure(proxy))))
    }
}

pub(super) fn measure(plan: &Plan) -> Result<Sizes, Failure> {
    let sizes = plan.pick(SIZES, QUICK_SIZES);
    let object = |(&bytes, id)| Object { id, bytes, period_ms: 0 };
    let objects: Vec<Object> = sizes.iter().zip(1..).map(object).collect();
    let (policy, transport) = ("round-robin", "ip");
    let bed_plan = BedPlan { nodes: NODES, policy, transport, objects: &objects };
    let bed = HandoffBed::new(&bed_plan, plan)?;
    let mixed: Arc<[MixObject]> = objects.iter().map(|it| it.for_mix()).collect();
    let window_ms = plan.pick(2_000, 500);
    let mut sizes = Sizes { nodes: NODES, clients: CLIENTS, window_ms, cells: Vec::new() };
    let cell = |bytes, way| SizesCell { bytes, way, samples: Vec::new() };
    let pairs = objects.iter().flat_map(|it| WAYS.map(|way| cell(it.bytes, way)));
    sizes.cells = pairs.collect();
    for _ in 0..plan.pick(3, 1) {
        for (at, cell) in sizes.cells.iter_mut().enumerate() {
            let place = (at / WAYS.len()) as u32;
            let load = Load {
                objects: &mixed,
                order: &[place],
                processes_max: NODES,
                clients: CLIENTS,
                per_connection: 1,
                compares: false,
                settle_ms: 400,
                window_ms,
                requests_min: 0,
            };
            let sample = load.run(&bed, cell.way)?;
            sample.print(&format!("{:>8} bytes, {:<16}", cell.bytes, cell.way.name()));
            cell.samples.push(sample);
        }
    }
    Ok(sizes)
}
