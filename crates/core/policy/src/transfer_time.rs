//! `transfer-time`: the node that will have sent the object soonest, with the bytes that it must fetch first.
//!
//! Skep's own, for sites of large files. Policies that count requests take 8 KB and 800 MB for the same; those that hash
//! or pin URLs move an object of gigabytes as lightly as one of bytes; size intervals leave the longest replies to one
//! node. Here each node has a cost in seconds, as in Aron, Druschel, Zwaenepoel, "Efficient support for P-HTTP in
//! cluster-based web servers", USENIX 1999, but of bytes:
//!
//! ```text
//!   cost = max(own + ahead, fetch)   the request's own time: it is sent as it comes in
//!        + ahead                     what it delays others
//!        + peer + displaced
//!
//!   own        bytes / link rate, and the time of a request
//!   ahead      links are shared: of each reply in flight at most as many bytes as this one has are sent before its end
//!   fetch      0 if the node has the object in memory; else a latency, and bytes over the rate of its disk or origin, or,
//!              in a cluster cache, over the link of a node that has it
//!   peer       what that node sends for it, and delays by it
//!   displaced  where memory is full, a copy displaces what must be fetched again
//! ```
//!
//! A node is thought to have what was sent to it, until it has brought in as many other bytes as its memory takes. One that
//! has the object is kept until another is clearly cheaper (hysteresis).

use skep_units::{NodeId, stable_hash};

use crate::limits::{
    FETCH_LATENCY_US, FETCH_RATE_DIVISOR, HOLDERS_MAX, HYSTERESIS_BYTES, HYSTERESIS_PERCENT,
    LINK_BYTES_PER_S, PEER_LATENCY_US, REPLY_BYTES, REQUEST_US, SLOW_START_PERMILLE_FULL,
};
use crate::url_map::UrlMap;
use crate::{ClusterView, Decision, NodeView, Object, Policy, RequestKey};

pub(crate) struct TransferTime {
    name: &'static str,
    objects: UrlMap<Known>,
    /// By position in the view.
    memories: Vec<Memory>,
    version: Option<u64>,
    /// The largest weight of the view.
    weight_max: u64,
    is_cooperative: bool,
}

/// What sending an object from a node's memory costs, in microseconds.
#[derive(Clone, Copy)]
struct Sending {
    /// Alone.
    own_us: f64,
    /// Until what goes before it is sent; as much it delays others.
    ahead_us: f64,
}

impl Sending {
    fn end_us(self) -> f64 {
        self.own_us + self.ahead_us
    }
}

/// What is known of an object.
#[derive(Clone, Copy, Default)]
struct Known {
    /// Bytes plus one; 0: not known.
    size: u64,
    holders: [Option<Holder>; HOLDERS_MAX],
}

/// A node that the object was sent from.
#[derive(Clone, Copy)]
struct Holder {
    node: NodeId,
    /// [`Memory::brought`] of its last use there.
    used_at: u64,
}

/// A node's memory as far as this instance knows.
#[derive(Clone, Copy)]
struct Memory {
    node: NodeId,
    /// Bytes that it has brought in so far.
    brought: u64,
    size: u64,
}

impl TransferTime {
    pub(crate) fn new(name: &'static str) -> Self {
        let (objects, memories) = (UrlMap::new(), Vec::new());
        Self { name, objects, memories, version: None, weight_max: 1, is_cooperative: false }
    }

    /// Follows the nodes of a view.
    fn refresh(&mut self, view: &ClusterView) {
        if self.version == Some(view.version) && self.memories.len() == view.nodes.len() {
            return;
        }
        self.version = Some(view.version);
        let known = std::mem::take(&mut self.memories);
        let memory = |node: &NodeView| {
            let before = known.iter().find(|memory| memory.node == node.id);
            let brought = before.map_or(0, |memory| memory.brought);
            Memory { node: node.id, brought, size: node.memory_bytes }
        };
        self.memories = view.nodes.iter().map(memory).collect();
        let weights = view.nodes.iter().map(NodeView::weight_at_least_one);
        self.weight_max = weights.max().unwrap_or(1);
    }

    /// What sending an object from memory costs.
    fn sending(&self, node: &NodeView, bytes: f64) -> Sending {
        let requests = f64::from(node.outstanding_requests);
        let owed = node.outstanding_bytes as f64 + requests * REPLY_BYTES as f64;
        let share = node.share_permille() as f64 / f64::from(SLOW_START_PERMILLE_FULL);
        let rate = self.link_bytes_per_us(node) * share;
        let ahead_us = owed.min(requests * bytes) / rate + requests * REQUEST_US / share;
        Sending { own_us: bytes / rate + REQUEST_US / share, ahead_us }
    }

    fn link_bytes_per_us(&self, node: &NodeView) -> f64 {
        match node.link_bytes_per_s {
            0 => {
                LINK_BYTES_PER_S * node.weight_at_least_one() as f64 / self.weight_max as f64 / 1e6
            }
            known => known as f64 / 1e6,
        }
    }

    /// What the request would cost at the node at a position, and whether that has the object. `is_elsewhere`: some
    /// node has.
    fn cost(
        &self,
        position: usize,
        node: &NodeView,
        (known, elsewhere): (&Known, Option<Sending>),
    ) -> (f64, bool) {
        let bytes = known.size.checked_sub(1).unwrap_or(REPLY_BYTES) as f64;
        let memory = &self.memories[position];
        let send = self.sending(node, bytes);
        if known.is_held_by(memory) {
            return (send.end_us() + send.ahead_us, true);
        }
        let fetch_rate = match node.fetch_bytes_per_s {
            0 => self.link_bytes_per_us(node) / FETCH_RATE_DIVISOR,
            rate => rate as f64 / 1e6,
        };
        let backend_us = FETCH_LATENCY_US + bytes / fetch_rate;
        // What it displaces must be fetched again.
        let displaced_us = if memory.is_full() && elsewhere.is_some() { backend_us } else { 0.0 };
        let (fetch_us, harm_us) = match elsewhere {
            Some(peer) if self.is_cooperative => (PEER_LATENCY_US + peer.own_us, peer.end_us()),
            _ => (backend_us, 0.0),
        };
        (send.end_us().max(fetch_us) + send.ahead_us + harm_us + displaced_us, false)
    }

    /// The cheapest candidate, and whether it has the object.
    fn cheapest(
        &self,
        hash: u64,
        known: &Known,
        view: &ClusterView,
        exclude: &[NodeId],
    ) -> Option<(NodeId, bool)> {
        let nodes = view.nodes.iter().enumerate().filter(|(_, node)| node.is_candidate(exclude));
        let preference = |node: &NodeView| stable_hash(&node.name_hash.to_le_bytes(), hash);
        let bytes = known.size.checked_sub(1).unwrap_or(REPLY_BYTES) as f64;
        let held =
            view.nodes.iter().zip(&self.memories).filter(|(_, memory)| known.is_held_by(memory));
        let held = held.map(|(node, _)| self.sending(node, bytes));
        let elsewhere = held.min_by(|a, b| a.end_us().total_cmp(&b.end_us()));
        let (mut best, mut best_holder) = (None, None);
        for (position, node) in nodes {
            let (cost, is_held) = self.cost(position, node, (known, elsewhere));
            let entry = (cost, preference(node), node.id);
            let is_less = |other: &Option<(f64, u64, NodeId)>| {
                other.is_none_or(|other| (entry.0, entry.1) < (other.0, other.1))
            };
            if is_less(&best) {
                best = Some(entry);
            }
            if is_held && is_less(&best_holder) {
                best_holder = Some(entry);
            }
        }
        let best = best?;
        let tolerance_us = HYSTERESIS_BYTES / LINK_BYTES_PER_S * 1e6;
        let kept = best_holder
            .filter(|holder| holder.0 <= best.0 * HYSTERESIS_PERCENT / 100.0 + tolerance_us);
        Some(kept.map_or((best.2, best_holder.is_some_and(|it| it.2 == best.2)), |it| (it.2, true)))
    }

    fn memory(&mut self, node: NodeId) -> Option<&mut Memory> {
        self.memories.iter_mut().find(|memory| memory.node == node)
    }

    /// A node has brought in so many bytes, at the end of which the object was used there.
    fn bring(&mut self, url_hash: u64, node: NodeId, bytes: u64) {
        let Some(memory) = self.memory(node) else { return };
        memory.brought = memory.brought.saturating_add(bytes);
        let used_at = memory.brought;
        self.objects.of(url_hash).used(Holder { node, used_at });
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
        self.refresh(view);
        self.is_cooperative = view.is_cooperative;
        let hash = request.url_hash();
        let known = *self.objects.of(hash);
        let Some((node, is_held)) = self.cheapest(hash, &known, view, exclude) else {
            return Decision::None;
        };
        let fetched = if is_held { 0 } else { known.size.saturating_sub(1) };
        self.bring(hash, node, fetched);
        Decision::Node(node)
    }

    fn learned(&mut self, url_hash: u64, object: Object) {
        let known = self.objects.of(url_hash);
        let was_unknown = known.size == 0;
        known.size = object.bytes.saturating_add(1);
        // The first request counted no bytes.
        if was_unknown && object.was_in_memory != Some(true) {
            self.bring(url_hash, object.node, object.bytes);
        }
    }
}

impl Known {
    fn is_held_by(&self, memory: &Memory) -> bool {
        let holder = self.holders.iter().flatten().find(|holder| holder.node == memory.node);
        let since = |holder: &Holder| memory.brought.saturating_sub(holder.used_at);
        holder.is_some_and(|holder| memory.size == 0 || since(holder) < memory.size)
    }

    /// Notes the use; where there are as many holders as may be, in place of the one whose use is longest ago.
    fn used(&mut self, holder: Holder) {
        let places = self.holders.iter();
        let own = places.clone().position(|it| it.is_some_and(|it| it.node == holder.node));
        let place = own.or_else(|| places.clone().position(Option::is_none)).unwrap_or_else(|| {
            let age = |(_, it): &(usize, &Option<Holder>)| it.map(|it| it.used_at);
            places.enumerate().min_by_key(age).map_or(0, |(place, _)| place)
        });
        self.holders[place] = Some(holder);
    }
}

impl Memory {
    fn is_full(&self) -> bool {
        self.size > 0 && self.brought >= self.size
    }
}
