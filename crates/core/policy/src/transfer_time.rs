//! `transfer-time`: the node that will have sent the object first, including the bytes that it must
//! fetch.
//!
//! Specific to Skep, for sites with large files. Policies that count requests treat 8 KB and 800 MB
//! alike; those that hash or pin URLs move an object of gigabytes as readily as one of bytes; size
//! intervals send the longest replies to one node. Here each node has a cost in seconds, as in
//! Aron, Druschel, Zwaenepoel, "Efficient support for P-HTTP in cluster-based web servers", USENIX
//! 1999, but based on bytes:
//!
//! ```text
//!   cost = max(own + ahead, fetch)   the request's own time: it is sent while it is fetched
//!        + ahead                     the delay of other requests
//!        + peer + displaced
//!
//!   own        bytes / link rate, plus a constant time per request
//!   ahead      links are shared: of each reply in flight at most as many bytes as this one has are sent before its end
//!   fetch      0 if the node has the object in memory; else a latency, and bytes over the rate of its disk or origin, or,
//!              in a cluster cache, over the link of a node that has it
//!   peer       the time for which that node sends, and delays others
//!   displaced  if memory is full, a copy evicts bytes that must be fetched again
//! ```
//!
//! `holdings.rs` defines what nodes are assumed to have in memory. A node that has the object is
//! kept until another is clearly cheaper (hysteresis). If an instance knows of no node that has it,
//! the node preferred by the object's hash is assumed to have it: with several workers, each knows
//! only its own requests.

use std::cmp::Ordering;

use skep_units::{NodeId, Now, stable_hash};

use crate::holdings::{Holdings, KnownObject};
use crate::limits::{
    FETCH_LATENCY_US, FETCH_RATE_DIVISOR, HYSTERESIS_BYTES, HYSTERESIS_PERCENT, LINK_BYTES_PER_S,
    PEER_LATENCY_US, REPLY_BYTES, REQUEST_US,
};
use crate::{AttemptEnd, ClusterView, Decision, NodeView, Policy, RequestKey, ServedObject};

pub(crate) struct TransferTime {
    name: &'static str,
    holdings: Holdings,
}

/// The common inputs of all costs of a pick.
struct CostModel<'a> {
    view: &'a ClusterView,
    /// Size of the object; of an average reply if unknown.
    bytes: f64,
    /// The largest weight of the view.
    weight_max: f64,
    /// The largest slow-start share of the candidates.
    warmest_permille: f64,
}

/// The cost of sending an object from a node's memory, in microseconds.
#[derive(Clone, Copy)]
struct Sending {
    /// Without other replies.
    own_us: f64,
    /// Until the replies ahead of it are sent; it delays others by the same time.
    ahead_us: f64,
}

/// A candidate and its cost.
#[derive(Clone, Copy)]
struct CandidateCost<'a> {
    node: &'a NodeView,
    cost_us: f64,
    has_object: bool,
}

impl TransferTime {
    pub(crate) fn new(name: &'static str) -> Self {
        Self { name, holdings: Holdings::new() }
    }

    /// The cheapest candidate, or one that has the object and is hardly more expensive.
    fn choose(
        &self,
        hash: u64,
        object: &KnownObject,
        model: &CostModel<'_>,
        exclude: &[NodeId],
    ) -> Option<NodeId> {
        let nodes = model.view.nodes.iter().enumerate();
        let nodes = nodes.filter(|(_, node)| node.is_candidate(exclude));
        let holders = nodes.clone().filter(|(at, _)| self.holdings.has(*at, object));
        let sending = holders.map(|(_, node)| model.sending(node));
        let holder = sending.min_by(|a, b| a.end_us().total_cmp(&b.end_us()));
        let preferred =
            || nodes.clone().map(|(at, node)| (preference(hash, node), at)).min_by(by_preference);
        let presumed = if holder.is_none() { preferred().map(|(_, at)| at) } else { None };
        let costs = nodes.map(|(at, node)| {
            let has_object = presumed == Some(at) || self.holdings.has(at, object);
            let cost_us = match has_object {
                true => model.sending(node).cost_us(),
                false => model.with_fetch_us(node, holder, self.holdings.is_full(at)),
            };
            CandidateCost { node, cost_us, has_object }
        });
        let order = |a: &CandidateCost<'_>, b: &CandidateCost<'_>| a.order(b, hash);
        let (mut cheapest, mut kept): (Option<CandidateCost<'_>>, Option<CandidateCost<'_>>) =
            (None, None);
        for cost in costs {
            if cheapest.is_none_or(|best| order(&cost, &best) == Ordering::Less) {
                cheapest = Some(cost);
            }
            if cost.has_object && kept.is_none_or(|best| order(&cost, &best) == Ordering::Less) {
                kept = Some(cost);
            }
        }
        let cheapest = cheapest?;
        let kept = kept.filter(|kept| {
            // An object of unknown size may be large: a burst of them must not go to one node. The slack is a time on
            // the cheapest node's link: measured on its own, a slow node would never lose an object.
            let slack = object.size.map_or(0.0, |_| HYSTERESIS_BYTES / model.link(cheapest.node));
            kept.cost_us <= cheapest.cost_us * HYSTERESIS_PERCENT / 100.0 + slack
        });
        Some(kept.unwrap_or(cheapest).node.id)
    }
}

impl Policy for TransferTime {
    fn name(&self) -> &'static str {
        self.name
    }

    fn pick(
        &mut self,
        request: &RequestKey<'_>,
        view: &ClusterView,
        exclude: &[NodeId],
    ) -> Decision {
        self.holdings.refresh(view);
        let Some(warmest) = view.warmest_permille(exclude) else { return Decision::None };
        let hash = request.url_hash();
        let known = self.holdings.object(hash);
        let object = known.unwrap_or_default();
        let weights = view.nodes.iter().map(NodeView::weight_at_least_one);
        let model = CostModel {
            view,
            bytes: object.bytes() as f64,
            weight_max: weights.max().unwrap_or(1) as f64,
            warmest_permille: warmest as f64,
        };
        let node = self.choose(hash, &object, &model, exclude);
        // An object that was never served is not remembered: it may not exist.
        if let (Some(node), true) = (node, known.is_some()) {
            self.holdings.asked(hash, node);
        }
        node.into()
    }

    fn finished(&mut self, _: Now, node: NodeId, end: AttemptEnd) {
        if end == AttemptEnd::Failed {
            self.holdings.failed(node);
        }
    }

    fn learned(&mut self, url_hash: u64, object: ServedObject) {
        self.holdings.answered(url_hash, object);
    }

    fn told(&mut self, url_hash: u64, bytes: u64, by: Option<NodeId>) {
        match by {
            Some(node) => self.holdings.answered(url_hash, ServedObject { node, bytes }),
            None => self.holdings.sized(url_hash, bytes),
        }
    }
}

impl CostModel<'_> {
    fn sending(&self, node: &NodeView) -> Sending {
        let requests = f64::from(node.outstanding_requests);
        let owed = node.outstanding_bytes as f64 + requests * REPLY_BYTES as f64;
        let share = node.share_permille() as f64 / self.warmest_permille;
        let rate = self.link(node) * share;
        Sending {
            own_us: self.bytes / rate + REQUEST_US / share,
            ahead_us: owed.min(requests * self.bytes) / rate + requests * REQUEST_US / share,
        }
    }

    /// The cost at a node that must fetch the object, from the cheapest `holder` in a cluster
    /// cache.
    fn with_fetch_us(&self, node: &NodeView, holder: Option<Sending>, is_full: bool) -> f64 {
        let backend_us = FETCH_LATENCY_US + self.bytes / self.fetch_rate(node);
        let (fetch_us, peer_us) = match holder {
            Some(peer) if self.view.has_cluster_cache => {
                (PEER_LATENCY_US + peer.own_us, peer.end_us())
            }
            _ => (backend_us, 0.0),
        };
        let displaced_us = if is_full && holder.is_some() { backend_us } else { 0.0 };
        let send = self.sending(node);
        send.end_us().max(fetch_us) + send.ahead_us + peer_us + displaced_us
    }

    /// Bytes per microsecond of a node's link.
    fn link(&self, node: &NodeView) -> f64 {
        match node.link_bytes_per_s {
            0 => LINK_BYTES_PER_S / 1e6 * node.weight_at_least_one() as f64 / self.weight_max,
            known => known as f64 / 1e6,
        }
    }

    /// Bytes per microsecond of its disk or origin. A known rate counts only beside a known link: costs compare the two.
    fn fetch_rate(&self, node: &NodeView) -> f64 {
        match (node.link_bytes_per_s, node.fetch_bytes_per_s) {
            (0, _) | (_, 0) => self.link(node) / FETCH_RATE_DIVISOR,
            (_, known) => known as f64 / 1e6,
        }
    }
}

impl Sending {
    /// The time when the last byte is sent.
    fn end_us(self) -> f64 {
        self.own_us + self.ahead_us
    }

    fn cost_us(self) -> f64 {
        self.end_us() + self.ahead_us
    }
}

/// How little an object prefers a node, equal in all instances: weighted rendezvous hashing
/// (Schindelhauer, Schomaker, "Weighted distributed hash tables", SPAA 2005), so that each node's
/// share of the objects is proportional to its weight.
fn preference(url_hash: u64, node: &NodeView) -> f64 {
    let hash = stable_hash(&node.name_hash.to_le_bytes(), url_hash);
    let unit = (hash as f64 + 1.0) / 2f64.powi(64);
    -unit.ln() / node.weight_at_least_one() as f64
}

fn by_preference(a: &(f64, usize), b: &(f64, usize)) -> Ordering {
    a.0.total_cmp(&b.0)
}

impl CandidateCost<'_> {
    /// Orders by cost; ties are broken by the object's preference, which takes longer to compute.
    fn order(&self, other: &Self, url_hash: u64) -> Ordering {
        let preferred =
            || preference(url_hash, self.node).total_cmp(&preference(url_hash, other.node));
        self.cost_us.total_cmp(&other.cost_us).then_with(preferred)
    }
}
