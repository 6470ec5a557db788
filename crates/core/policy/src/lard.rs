//! `lard` and `lard-r`: each URL has one node, or a few, that have it in memory, unless they are
//! overloaded.
//!
//! Locality-aware request distribution (Pai, Aron, Banga, Svendsen, Druschel, Zwaenepoel, Nahum,
//! "Locality-aware request distribution in cluster-based network servers", ASPLOS 1998, figures 2
//! and 3), with its thresholds. The load of a node is the number of its unanswered requests over
//! its slow-start share; the paper's active connections are those with a request. The paper's front
//! end also bounds the connections of all nodes together; here each node bounds its own.
//!
//! An instance remembers only its own decisions: where several instances decide, such as the
//! workers of a proxy, or the nodes under `handoff` with local decisions, each has its own map. So
//! among nodes with equally few requests a URL is assigned to the one that its hash prefers, which
//! is the same for all instances.

use skep_units::{NodeId, Now};

use crate::limits::{LARD_AWAY_MS, LARD_HIGH_REQUESTS, LARD_LOW_REQUESTS, LARD_SHRINK_MS};
use crate::url_map::UrlMap;
use crate::{ClusterView, Decision, NodeView, Policy, RequestKey};

/// At most `REPLICAS_MAX` nodes for each URL: 1 is LARD, more are LARD/R. A URL gets another node
/// while the idlest of its nodes is overloaded, replacing the busiest if there are as many as
/// allowed, and loses one after some time without changes.
pub(crate) struct Lard<const REPLICAS_MAX: usize> {
    name: &'static str,
    urls: UrlMap<UrlNodes<REPLICAS_MAX>>,
}

/// The nodes of a URL.
#[derive(Clone, Copy, Debug)]
struct UrlNodes<const REPLICAS_MAX: usize> {
    nodes: [Option<NodeId>; REPLICAS_MAX],
    changed_at: Now,
    /// Since when none of them has been eligible, and when that was last seen.
    away: Option<(Now, Now)>,
}

impl<const REPLICAS_MAX: usize> Lard<REPLICAS_MAX> {
    pub(crate) fn new(name: &'static str) -> Self {
        Self { name, urls: UrlMap::new() }
    }
}

impl<const REPLICAS_MAX: usize> Policy for Lard<REPLICAS_MAX> {
    fn name(&self) -> &'static str {
        self.name
    }

    fn pick(
        &mut self,
        request: &RequestKey<'_>,
        view: &ClusterView,
        exclude: &[NodeId],
    ) -> Decision {
        let hash = request.url_hash();
        let Some(least) = view.idlest(hash, exclude) else { return Decision::None };
        let url = self.urls.get_or_insert(hash);
        url.forget_gone(view);
        let open = url.members(view).filter(|node| node.is_candidate(exclude));
        let picked = match open.min_by_key(|node| node.warm_requests()).copied() {
            Some(node) if !is_imbalanced(&node, view, exclude) => node.id,
            Some(_) => least,
            // This request goes elsewhere; the URL keeps its nodes.
            None if url.keeps_its_nodes(view) => return Decision::Node(least),
            None => least,
        };
        url.away = None;
        if url.add(picked, view) {
            url.changed_at = view.now;
        } else if view.now.since_ms(url.changed_at) >= LARD_SHRINK_MS {
            url.remove_busiest(view, Some(picked));
            url.changed_at = view.now;
        }
        Decision::Node(picked)
    }
}

impl<const REPLICAS_MAX: usize> UrlNodes<REPLICAS_MAX> {
    fn members<'a>(&'a self, view: &'a ClusterView) -> impl Iterator<Item = &'a NodeView> {
        self.nodes.iter().flatten().filter_map(|id| view.node(*id))
    }

    fn forget_gone(&mut self, view: &ClusterView) {
        for place in &mut self.nodes {
            *place = place.filter(|id| view.node(*id).is_some());
        }
    }

    /// Whether the URL keeps its nodes although none can take this request: some are up but were
    /// tried already, or all have been down for less than [`LARD_AWAY_MS`].
    fn keeps_its_nodes(&mut self, view: &ClusterView) -> bool {
        if self.members(view).any(|node| node.eligible) {
            self.away = None;
            return true;
        }
        // Without requests for the URL it is unknown whether they were up meanwhile.
        let seen = self.away.filter(|(_, last)| view.now.since_ms(*last) < LARD_AWAY_MS);
        let since = seen.map_or(view.now, |(since, _)| since);
        self.away = Some((since, view.now));
        self.members(view).next().is_some() && view.now.since_ms(since) < LARD_AWAY_MS
    }

    /// Adds a node; returns whether that changes anything.
    fn add(&mut self, id: NodeId, view: &ClusterView) -> bool {
        if self.nodes.contains(&Some(id)) {
            return false;
        }
        if self.nodes.iter().all(Option::is_some) {
            self.remove_busiest(view, None);
        }
        let free = self.nodes.iter_mut().find(|place| place.is_none());
        free.map(|place| *place = Some(id)).is_some()
    }

    /// Removes a node that is not eligible, or else the busiest one; never `kept`.
    fn remove_busiest(&mut self, view: &ClusterView, kept: Option<NodeId>) {
        let others = self.members(view).filter(|node| Some(node.id) != kept);
        let busiest = others.max_by_key(|node| (!node.eligible, node.warm_requests()));
        let busiest = busiest.map(|node| node.id);
        for place in &mut self.nodes {
            *place = place.filter(|id| Some(*id) != busiest);
        }
    }
}

impl<const REPLICAS_MAX: usize> Default for UrlNodes<REPLICAS_MAX> {
    fn default() -> Self {
        Self { nodes: [None; REPLICAS_MAX], changed_at: Now::default(), away: None }
    }
}

/// Whether a node is so much busier than others that moving a URL away from it is worth a miss. In
/// the paper, the bound on the connections of all nodes prevents that all are overloaded; here
/// moving must help.
fn is_imbalanced(node: &NodeView, view: &ClusterView, exclude: &[NodeId]) -> bool {
    let own = node.warm_requests();
    let least = || view.candidates(exclude).map(NodeView::warm_requests).min().unwrap_or(own);
    own >= 2 * LARD_HIGH_REQUESTS && least() <= own / 2
        || own > LARD_HIGH_REQUESTS && least() < LARD_LOW_REQUESTS
}
