//! Figure 5 of Doh and Noh: one node that hands off every connection to itself, with a query to the
//! dispatcher for each, compared with the same node without handoff. SURGE's objects.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use skep_lab::load::MixObject;

use super::Plan;
use super::bed::{BedPlan, HandoffBed, Way};
use super::limits::LINK_OF_ONE_BITS_S;
use super::load::{Load, Sample, spread};
use super::surge::Surge;
use crate::experiments::Failure;

/// Numbers of concurrent clients.
const CLIENTS: &[usize] = &[10, 100, 200];
const QUICK_CLIENTS: &[usize] = &[10, 50];

/// The node with handoff, and what it is compared with.
const WAYS: [Way; 2] = [Way::Handoff, Way::Direct];

/// Requests per persistent connection.
const KEPT_REQUESTS: u64 = 10;

/// Requests of an order, which is then repeated.
const ORDER_REQUESTS: usize = 200_000;

/// The results of this part.
#[derive(Serialize, Deserialize)]
pub(super) struct ToSelf {
    pub(super) link_bits_s: u64,
    pub(super) window_ms: u64,
    pub(super) kept_requests: u64,
    pub(super) mean_reply_bytes: f64,
    pub(super) cells: Vec<ToSelfCell>,
}

/// The results of one way with one number of clients.
#[derive(Serialize, Deserialize)]
pub(super) struct ToSelfCell {
    /// Whether the link is the bottleneck; otherwise the cores are.
    pub(super) is_linked: bool,
    /// Requests per connection.
    pub(super) per_connection: u64,
    pub(super) clients: usize,
    pub(super) way: Way,
    /// One sample per round.
    pub(super) samples: Vec<Sample>,
}

impl ToSelf {
    /// The cells with handoff, each with the one to compare with.
    pub(super) fn pairs(&self) -> impl Iterator<Item = (&ToSelfCell, &ToSelfCell)> {
        let own = self.cells.iter().filter(|cell| cell.way == Way::Handoff);
        own.filter_map(|own| {
            let is_other = |it: &&ToSelfCell| it.way != own.way && it.place() == own.place();
            Some((own, self.cells.iter().find(is_other)?))
        })
    }
}

impl ToSelfCell {
    fn place(&self) -> (bool, u64, usize) {
        (self.is_linked, self.per_connection, self.clients)
    }

    /// A figure relative to that of another cell, in each round: median, minimum and maximum.
    pub(super) fn over(&self, other: &Self, figure: fn(&Sample) -> f64) -> (f64, f64, f64) {
        let pairs = self.samples.iter().zip(&other.samples);
        spread(pairs.map(|(own, other)| figure(own) / figure(other)))
    }
}

pub(super) fn measure(plan: &Plan) -> Result<ToSelf, Failure> {
    let surge = Surge::new(plan.pick(1.0, 0.02));
    let (policy, transport) = ("round-robin", "ip");
    let bed_plan = BedPlan { nodes: 1, policy, transport, objects: &surge.objects };
    let lines = "to_self = true\ndecide = \"coordinator\"\nready_timeout_ms = 300\nagain_bytes_min = \"1TiB\"\n";
    let bed = HandoffBed::with(&bed_plan, plan, lines)?;
    let mut figures = ToSelf {
        link_bits_s: LINK_OF_ONE_BITS_S,
        window_ms: plan.pick(4_000, 500),
        kept_requests: KEPT_REQUESTS,
        mean_reply_bytes: surge.mean_reply(),
        cells: Vec::new(),
    };
    let objects: Arc<[MixObject]> = surge.objects.iter().map(|it| it.for_mix()).collect();
    let order = surge.order(ORDER_REQUESTS);
    let load = Load {
        objects: &objects,
        order: &order,
        processes_max: 1,
        clients: 50,
        per_connection: 1,
        compares: false,
        settle_ms: 0,
        window_ms: plan.pick(5_000, 500),
        requests_min: 0,
    };
    // Loads the objects into the node's memory.
    load.run(&bed, Way::Ideal)?;
    for (is_linked, rate) in [(false, None), (true, Some(LINK_OF_ONE_BITS_S))] {
        bed.set_rate(rate)?;
        for &clients in plan.pick(CLIENTS, QUICK_CLIENTS) {
            for per_connection in [1, KEPT_REQUESTS] {
                let (settle_ms, window_ms) = (1_000, figures.window_ms);
                let load = Load { clients, per_connection, settle_ms, window_ms, ..load };
                figures.cells.extend(measure_pair(plan, &bed, &load, is_linked)?);
            }
        }
    }
    Ok(figures)
}

fn measure_pair(
    plan: &Plan,
    bed: &HandoffBed,
    load: &Load<'_>,
    is_linked: bool,
) -> Result<[ToSelfCell; 2], Failure> {
    let Load { per_connection, clients, .. } = *load;
    let cell = |way| ToSelfCell { is_linked, per_connection, clients, way, samples: Vec::new() };
    let mut cells = WAYS.map(cell);
    for _ in 0..plan.pick(3, 1) {
        // The order alternates, so that what the first run leaves behind does not always affect the same one.
        cells.reverse();
        for cell in &mut cells {
            let sample = load.run(bed, cell.way)?;
            if sample.requests == 0 {
                return Err(format!("no request of {} was answered", cell.way.name()).into());
            }
            let bound = if is_linked { "link" } else { "cores" };
            let what = format!(
                "{bound}, {clients:>3} clients, {per_connection:>2} requests, {:<13}",
                cell.way.name()
            );
            sample.print(&what);
            cell.samples.push(sample);
        }
    }
    Ok(cells)
}
