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

use skep_units::{NodeId, Now, stable_hash};

use crate::limits::{
    FETCH_LATENCY_US, FETCH_RATE_DIVISOR, HOLDERS_MAX, HYSTERESIS_BYTES, HYSTERESIS_PERCENT,
    LINK_BYTES_PER_S, OBJECT_BYTES_MAX, PEER_LATENCY_US, REPLY_BYTES, REQUEST_US,
};
use crate::url_map::UrlMap;
use crate::{AttemptEnd, ClusterView, Decision, NodeView, Object, Policy, RequestKey};

pub(crate) struct TransferTime {
    name: &'static str,
    objects: UrlMap<Known>,
    /// By position in the view.
    memories: Vec<Memory>,
    version: Option<u64>,
    /// The largest weight of the view.
    weight_max: u64,
    is_cooperative: bool,
    /// The largest slow-start share of the candidates.
    warmest_permille: f64,
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
    /// Whether a response has said so; else it was asked for there.
    is_sure: bool,
}

/// A node's memory as far as this instance knows.
#[derive(Clone, Copy)]
struct Memory {
    node: NodeId,
    /// Bytes that it has brought in so far.
    brought: u64,
    /// What was used before is lost: it has failed.
    lost_before: u64,
    size: u64,
}

impl TransferTime {
    pub(crate) fn new(name: &'static str) -> Self {
        let (objects, memories) = (UrlMap::new(), Vec::new());
        Self {
            name,
            objects,
            memories,
            version: None,
            weight_max: 1,
            is_cooperative: false,
            warmest_permille: 1.0,
        }
    }

    /// Follows the nodes of a view.
    fn refresh(&mut self, view: &ClusterView) {
        if self.version == Some(view.version) && self.memories.len() == view.nodes.len() {
            return;
        }
        self.version = Some(view.version);
        let known = std::mem::take(&mut self.memories);
        let memory = |node: &NodeView| {
            let before = known.iter().find(|memory| memory.node == node.id).copied();
            let new = Memory { node: node.id, brought: 0, lost_before: 0, size: 0 };
            Memory { size: node.memory_bytes, ..before.unwrap_or(new) }
        };
        self.memories = view.nodes.iter().map(memory).collect();
        let weights = view.nodes.iter().map(NodeView::weight_at_least_one);
        self.weight_max = weights.max().unwrap_or(1);
    }

    /// What sending an object from memory costs.
    fn sending(&self, node: &NodeView, bytes: f64) -> Sending {
        let requests = f64::from(node.outstanding_requests);
        let owed = node.outstanding_bytes as f64 + requests * REPLY_BYTES as f64;
        let share = node.share_permille() as f64 / self.warmest_permille;
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
        (known, is_presumed, elsewhere): (&Known, bool, Option<Sending>),
    ) -> (f64, bool) {
        let bytes = known.bytes() as f64;
        let memory = &self.memories[position];
        let send = self.sending(node, bytes);
        if is_presumed || known.is_held_by(memory) {
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

    /// The cheapest candidate, or one that has the object and is hardly dearer.
    fn cheapest(
        &self,
        hash: u64,
        known: &Known,
        view: &ClusterView,
        exclude: &[NodeId],
    ) -> Option<NodeId> {
        let nodes = view.nodes.iter().enumerate().filter(|(_, node)| node.is_candidate(exclude));
        let preference = |node: &NodeView| stable_hash(&node.name_hash.to_le_bytes(), hash);
        let bytes = known.bytes() as f64;
        let held = nodes.clone().filter(|(at, _)| known.is_held_by(&self.memories[*at]));
        let held = held.map(|(_, node)| self.sending(node, bytes));
        let elsewhere = held.min_by(|a, b| a.end_us().total_cmp(&b.end_us()));
        // Several workers choose, and what one has sent somewhere the others do not know: all presume the same node.
        let preferred = || nodes.clone().min_by_key(|(_, node)| preference(node));
        let presumed =
            if elsewhere.is_none() { preferred().map(|(_, node)| node.id) } else { None };
        let (mut best, mut best_holder) = (None, None);
        for (position, node) in nodes {
            let is_presumed = presumed == Some(node.id);
            let (cost, is_held) = self.cost(position, node, (known, is_presumed, elsewhere));
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
        let is_near = |(cost, _, id): &(f64, u64, NodeId)| {
            let link = view.node(*id).map_or(1.0, |node| self.link_bytes_per_us(node));
            // One of unknown size may be large: many at once must not all go to one node.
            let tolerance = if known.size == 0 { 0.0 } else { HYSTERESIS_BYTES / link };
            *cost <= best.0 * HYSTERESIS_PERCENT / 100.0 + tolerance
        };
        Some(best_holder.filter(is_near).unwrap_or(best).2)
    }

    /// The object is used at a node; by a response (`is_sure`), which the node has had to bring in if it was not there.
    fn used(&mut self, url_hash: u64, node: NodeId, is_sure: bool) {
        let Some(memory) = self.memories.iter_mut().find(|memory| memory.node == node) else {
            return;
        };
        let known = self.objects.of(url_hash);
        let had = known.holders.iter().flatten().find(|holder| holder.node == node).copied();
        let was_sure = had.is_some_and(|it| it.is_sure) && known.is_held_by(memory);
        if is_sure && !was_sure && !memory.is_passed_by(known.bytes()) {
            memory.brought = memory.brought.saturating_add(known.bytes());
        }
        let holder = Holder { node, used_at: memory.brought, is_sure: is_sure || was_sure };
        known.use_at(holder, &self.memories);
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
        let Some(warmest) = view.warmest_permille(exclude) else { return Decision::None };
        self.warmest_permille = warmest as f64;
        let hash = request.url_hash();
        // One that nobody has answered for goes by load: it may be any size, or none.
        let known = self.objects.get(hash).copied();
        let node = self.cheapest(hash, &known.unwrap_or_default(), view, exclude);
        if let (Some(node), true) = (node, known.is_some()) {
            self.used(hash, node, false);
        }
        node.into()
    }

    fn finished(&mut self, _: Now, node: NodeId, end: AttemptEnd) {
        let memory = self.memories.iter_mut().find(|memory| memory.node == node);
        if let (AttemptEnd::Failed, Some(memory)) = (end, memory) {
            // It may have been started anew.
            memory.brought = memory.brought.saturating_add(1);
            memory.lost_before = memory.brought;
        }
    }

    fn learned(&mut self, url_hash: u64, object: Object) {
        self.objects.of(url_hash).size = object.bytes.min(OBJECT_BYTES_MAX) + 1;
        self.used(url_hash, object.node, true);
    }
}

impl Known {
    /// Its size; that of an average reply, if it is not known.
    fn bytes(&self) -> u64 {
        self.size.checked_sub(1).unwrap_or(REPLY_BYTES)
    }

    fn is_held_by(&self, memory: &Memory) -> bool {
        let holder = self.holders.iter().flatten().find(|holder| holder.node == memory.node);
        holder.is_some_and(|it| memory.has_since(it.used_at)) && !memory.is_passed_by(self.bytes())
    }

    /// Notes the use; where there are as many holders as may be, in place of the one after whose use most was brought in.
    fn use_at(&mut self, holder: Holder, memories: &[Memory]) {
        let age = |it: &Option<Holder>| {
            let Some(it) = it else { return u64::MAX };
            let memory = memories.iter().find(|memory| memory.node == it.node);
            memory.map_or(u64::MAX, |memory| memory.brought.saturating_sub(it.used_at))
        };
        let is_own = |it: &Option<Holder>| it.is_some_and(|it| it.node == holder.node);
        let own = self.holders.iter().position(is_own);
        let ages = self.holders.iter().map(age).enumerate();
        let oldest = || ages.max_by_key(|(_, age)| *age).map_or(0, |(place, _)| place);
        self.holders[own.unwrap_or_else(oldest)] = Some(holder);
    }
}

impl Memory {
    /// Whether what was used then is still there.
    fn has_since(&self, used_at: u64) -> bool {
        let has_room = self.size == 0 || self.brought.saturating_sub(used_at) < self.size;
        used_at >= self.lost_before && has_room
    }

    /// Whether an object of that size is sent without being kept.
    fn is_passed_by(&self, bytes: u64) -> bool {
        self.size > 0 && bytes > self.size
    }

    fn is_full(&self) -> bool {
        self.size > 0 && self.brought >= self.size
    }
}
