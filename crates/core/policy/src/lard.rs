//! `lard` and `lard-r`: each URL has a node, or a few, which have it in memory, unless they have too much to do.
//!
//! Locality-aware request distribution (Pai, Aron, Banga, Svendsen, Druschel, Zwaenepoel, Nahum, "Locality-aware
//! request distribution in cluster-based network servers", ASPLOS 1998, figures 2 and 3), with its thresholds. The
//! load of a node is the number of its unanswered requests over its slow-start share; the paper's active connections
//! are those with a request. The paper's front end also bounds the connections of all nodes together; here each node
//! bounds its own.
//!
//! An instance remembers what itself has decided: where several choose, as all workers of a proxy do, or of all nodes
//! under `handoff` with local decisions, each has a map of its own. So of nodes with equally few requests a URL gets
//! the one that its hash prefers, which is the same for all instances.

use skep_units::{NodeId, Now, stable_hash};

use crate::limits::{
    LARD_AWAY_MS, LARD_HIGH_REQUESTS, LARD_LOW_REQUESTS, LARD_REPLICAS_MAX, LARD_SHRINK_MS,
};
use crate::maglev::Key;
use crate::targets::Targets;
use crate::{ClusterView, Decision, NodeView, Policy, RequestKey};

/// One node for each URL.
pub(crate) struct Lard {
    name: &'static str,
    owners: Targets<Owner>,
}

/// The node of a URL.
#[derive(Clone, Copy, Debug, Default)]
struct Owner {
    id: Option<NodeId>,
    /// Since when it takes no requests.
    away_since: Option<Now>,
}

impl Lard {
    pub(crate) fn new(name: &'static str) -> Self {
        Self { name, owners: Targets::new() }
    }
}

impl Policy for Lard {
    fn name(&self) -> &'static str {
        self.name
    }

    fn pick(
        &mut self,
        request: &RequestKey<'_>,
        view: &ClusterView,
        exclude: &[NodeId],
    ) -> Decision {
        let hash = Key::Url.hash(request);
        let Some(least) = idlest(hash, view, exclude) else { return Decision::None };
        let owner = self.owners.of(hash);
        let known = owner.id.and_then(|id| view.node(id));
        let picked = match known {
            // This attempt goes elsewhere; the URL does not.
            Some(node) if exclude.contains(&node.id) => return Decision::Node(least),
            Some(node) if !node.eligible => {
                let since = *owner.away_since.get_or_insert(view.now);
                if view.now.since_ms(since) < LARD_AWAY_MS {
                    return Decision::Node(least);
                }
                least
            }
            Some(node) if !is_imbalanced(node, view, exclude) => node.id,
            _ => least,
        };
        *owner = Owner { id: Some(picked), away_since: None };
        Decision::Node(picked)
    }
}

/// A set of nodes for each URL: it grows while the least loaded of them has too much to do, and loses a node after
/// some time without change.
pub(crate) struct LardReplicated {
    name: &'static str,
    replicas: Targets<Replicas>,
}

/// The nodes of a URL.
#[derive(Clone, Copy, Debug, Default)]
struct Replicas {
    nodes: [Option<NodeId>; LARD_REPLICAS_MAX],
    changed_at: Now,
}

impl LardReplicated {
    pub(crate) fn new(name: &'static str) -> Self {
        Self { name, replicas: Targets::new() }
    }
}

impl Policy for LardReplicated {
    fn name(&self) -> &'static str {
        self.name
    }

    fn pick(
        &mut self,
        request: &RequestKey<'_>,
        view: &ClusterView,
        exclude: &[NodeId],
    ) -> Decision {
        let hash = Key::Url.hash(request);
        let Some(least) = idlest(hash, view, exclude) else { return Decision::None };
        let replicas = self.replicas.of(hash);
        replicas.retain(view);
        let open = replicas.members(view).filter(|node| node.is_candidate(exclude));
        let idlest = open.min_by_key(|node| node.warm_requests()).map(|node| (node.id, *node));
        let picked = match idlest {
            // All that are up were tried by this request: it goes elsewhere, the URL does not.
            None if replicas.members(view).any(|node| node.eligible) => {
                return Decision::Node(least);
            }
            None => least,
            Some((_, node)) if is_imbalanced(&node, view, exclude) => least,
            Some((id, _)) => id,
        };
        if replicas.add(picked) {
            replicas.changed_at = view.now;
        } else if view.now.since_ms(replicas.changed_at) >= LARD_SHRINK_MS {
            replicas.shrink(view, picked);
            replicas.changed_at = view.now;
        }
        Decision::Node(picked)
    }
}

impl Replicas {
    fn members<'a>(&'a self, view: &'a ClusterView) -> impl Iterator<Item = &'a NodeView> {
        self.nodes.iter().flatten().filter_map(|id| view.node(*id))
    }

    /// Forgets nodes that are gone.
    fn retain(&mut self, view: &ClusterView) {
        for place in &mut self.nodes {
            *place = place.filter(|id| view.node(*id).is_some());
        }
    }

    /// Whether that changes anything. A full set stays as it is.
    fn add(&mut self, id: NodeId) -> bool {
        if self.nodes.contains(&Some(id)) {
            return false;
        }
        let free = self.nodes.iter_mut().find(|place| place.is_none());
        free.map(|place| *place = Some(id)).is_some()
    }

    /// Removes one that takes no requests, or else the one with the most to do, if there is another than `kept`.
    fn shrink(&mut self, view: &ClusterView, kept: NodeId) {
        let others = self.members(view).filter(|node| node.id != kept);
        let busiest =
            others.max_by_key(|node| (!node.eligible, node.warm_requests())).map(|node| node.id);
        for place in &mut self.nodes {
            *place = place.filter(|id| Some(*id) != busiest);
        }
    }
}

/// The candidate with the fewest unanswered requests; of several the one that the URL prefers.
fn idlest(hash: u64, view: &ClusterView, exclude: &[NodeId]) -> Option<NodeId> {
    let preference = |node: &NodeView| stable_hash(&node.name_hash.to_le_bytes(), hash);
    let candidates = view.candidates(exclude);
    candidates.min_by_key(|node| (node.warm_requests(), preference(node))).map(|node| node.id)
}

/// Whether a node has so much more to do than others that moving a URL away from it is worth a miss. In the paper, the
/// bound on the connections of all nodes sees to it that not all have too much; here moving must help.
fn is_imbalanced(node: &NodeView, view: &ClusterView, exclude: &[NodeId]) -> bool {
    let own = node.warm_requests();
    let least = || view.candidates(exclude).map(NodeView::warm_requests).min().unwrap_or(own);
    own >= 2 * LARD_HIGH_REQUESTS && least() <= own / 2
        || own > LARD_HIGH_REQUESTS && least() < LARD_LOW_REQUESTS
}
