//! Requests of nodes at pool servers: each node is sent the sums of all others, for its policies.
//!
//! Invariant: a node without a link counts as having no requests.

use std::collections::BTreeMap;

use skep_peer::stream::{LinkId, Outbox};
use skep_wire::cache::{NodeFeatures, ServerKey, ServerLoad, ToNode};
use skep_wire::limits::SLOT_SERVERS_MAX;

/// The requests of all nodes that take part.
#[derive(Default)]
pub(crate) struct ServerLoads {
    of_nodes: BTreeMap<LinkId, NodeLoads>,
    have_changed: bool,
}

/// The requests of a node at servers.
#[derive(Default)]
struct NodeLoads {
    own: BTreeMap<ServerKey, u32>,
    /// The sums last sent to it.
    told: Vec<ServerLoad>,
}

impl ServerLoads {
    /// Handles a node's hello.
    pub(crate) fn joined(&mut self, link: LinkId, features: NodeFeatures) {
        if features.has_operate() {
            self.of_nodes.insert(link, NodeLoads::default());
            self.have_changed = true;
        }
    }

    /// Handles the end of a link.
    pub(crate) fn left(&mut self, link: LinkId) {
        self.have_changed |= self.of_nodes.remove(&link).is_some();
    }

    /// Handles a node's report of its requests at servers.
    pub(crate) fn loaded(&mut self, link: LinkId, loads: Vec<ServerLoad>) {
        if let Some(of_node) = self.of_nodes.get_mut(&link) {
            self.have_changed = true;
            of_node.own = loads.into_iter().map(|it| (it.server, it.requests)).collect();
        }
    }

    /// Sends changed sums to nodes, periodically: sending each change of each node to all others would be too
    /// expensive.
    pub(crate) fn tell(&mut self, outbox: &mut Outbox<ToNode>) {
        if !std::mem::take(&mut self.have_changed) {
            return;
        }
        let mut sums = BTreeMap::<ServerKey, u32>::new();
        for (server, requests) in self.of_nodes.values().flat_map(|it| &it.own) {
            let sum = sums.entry(*server).or_default();
            *sum = sum.saturating_add(*requests);
        }
        for (&link, of_node) in &mut self.of_nodes {
            let others = |(&server, &sum): (&ServerKey, &u32)| {
                let requests = sum - of_node.own.get(&server).copied().unwrap_or(0).min(sum);
                (requests > 0).then_some(ServerLoad { server, requests })
            };
            let loads: Vec<_> = sums.iter().filter_map(others).take(SLOT_SERVERS_MAX).collect();
            if loads != of_node.told {
                let _ = outbox.send(link, &ToNode::ServerLoads(loads.clone()));
                of_node.told = loads;
            }
        }
    }
}
