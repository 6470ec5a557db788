//! Loss of control packets between nodes: whether requests fail, and what it costs.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use skep_lab::load::MixObject;

use super::Plan;
use super::bed::{BedPlan, HandoffBed, Way};
use super::load::{Load, Sample};
use crate::experiments::Failure;
use crate::experiments::origin::Object;

const NODES: usize = 4;
const CLIENTS: usize = 8;

/// LCCP's IP protocol (RFC 3692).
const PROTOCOL: u8 = 253;

/// Loss rates of each node's control packets, in percent.
const LOSSES: [f64; 5] = [0.0, 0.1, 1.0, 5.0, 20.0];

const OBJECT: Object = Object { id: 1, bytes: 4096, period_ms: 0 };

/// The results of this part.
#[derive(Serialize, Deserialize)]
pub(super) struct Loss {
    pub(super) nodes: usize,
    pub(super) clients: usize,
    pub(super) object_bytes: u64,
    pub(super) cells: Vec<LossCell>,
}

/// The results with one loss rate.
#[derive(Serialize, Deserialize)]
pub(super) struct LossCell {
    pub(super) percent: f64,
    pub(super) sample: Sample,
}

pub(super) fn measure(plan: &Plan) -> Result<Loss, Failure> {
    let (policy, transport) = ("round-robin", "ip");
    let bed_plan = BedPlan { nodes: NODES, policy, transport, objects: &[OBJECT] };
    let bed = HandoffBed::new(&bed_plan, plan)?;
    let objects: Arc<[MixObject]> = [OBJECT.for_mix()].into();
    let load = Load {
        objects: &objects,
        order: &[0],
        processes_max: NODES,
        clients: CLIENTS,
        per_connection: 1,
        compares: true,
        settle_ms: 500,
        window_ms: plan.pick(5_000, 500),
        requests_min: plan.pick(100_000, 2_000),
    };
    let (clients, object_bytes) = (CLIENTS, OBJECT.bytes);
    let mut loss = Loss { nodes: NODES, clients, object_bytes, cells: Vec::new() };
    for percent in LOSSES {
        bed.lose_control_packets(PROTOCOL, percent)?;
        let sample = load.run(&bed, Way::Handoff)?;
        sample.print(&format!("{percent:>4} % lost,"));
        loss.cells.push(LossCell { percent, sample });
    }
    Ok(loss)
}
