//! Tests of the policies. The behaviour of each in `behaviour.rs` and `maglev.rs`, properties of
//! all in `properties.rs`, comparison under load in `queueing.rs`. Here: views and requests for the
//! tests.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod behaviour;
mod latency;
mod locality;
mod maglev;
mod properties;
mod queueing;
mod rows;
mod scene;
mod sizes;

use std::net::{IpAddr, Ipv4Addr};

use skep_units::{NodeId, stable_hash};

use crate::{ClusterView, NodeView, Policy, RequestKey};

/// A warm, idle node of weight 1.
fn node(id: u32) -> NodeView {
    NodeView::idle(NodeId(id), stable_hash(format!("node-{id}").as_bytes(), 0), 1)
}

/// `count` nodes with ids from 0.
pub(crate) fn view(count: u32) -> ClusterView {
    ClusterView { nodes: (0..count).map(node).collect(), version: 1, ..ClusterView::default() }
}

/// Nodes with these weights.
fn weighted(weights: &[u32]) -> ClusterView {
    let mut view = view(weights.len() as u32);
    for (node, weight) in view.nodes.iter_mut().zip(weights) {
        node.weight = *weight;
    }
    view
}

/// The n-th of many different requests.
fn request(n: u32, path: &[u8]) -> RequestKey<'_> {
    let client = IpAddr::V4(Ipv4Addr::from(0x0a00_0000 + n));
    RequestKey { client, client_port: 1, host: b"example.org", path, query: None }
}

/// Picks for `picks` different requests: the number that each node received.
fn tally(policy: &mut dyn Policy, view: &ClusterView, picks: u32) -> Vec<u32> {
    let mut counts = vec![0; view.nodes.len()];
    for n in 0..picks {
        let id = pick(policy, view, n, &[]).unwrap();
        let position = view.nodes.iter().position(|node| node.id == id).unwrap();
        counts[position] += 1;
    }
    counts
}

/// Picks for the n-th request.
fn pick(policy: &mut dyn Policy, view: &ClusterView, n: u32, exclude: &[NodeId]) -> Option<NodeId> {
    let path = format!("/object/{n}");
    policy.pick(&request(n, path.as_bytes()), view, exclude).node()
}
