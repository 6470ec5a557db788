//! A policy together with the cluster that it selects from.

use skep_units::NodeId;

use super::{request, view};
use crate::{ClusterView, Policy, ServedObject, build};

pub(super) struct Scene {
    pub(super) policy: Box<dyn Policy>,
    pub(super) view: ClusterView,
}

impl Scene {
    pub(super) fn new(policy: &str, nodes: u32) -> Self {
        Self { policy: build(policy, 3).unwrap(), view: view(nodes) }
    }

    pub(super) fn with_memory(mut self, bytes: u64) -> Self {
        self.view.nodes.iter_mut().for_each(|node| node.memory_bytes = bytes);
        self
    }

    pub(super) fn pick(&mut self, path: &str) -> u32 {
        self.pick_without(path, &[])
    }

    pub(super) fn pick_without(&mut self, path: &str, exclude: &[NodeId]) -> u32 {
        self.policy.pick(&request(1, path.as_bytes()), &self.view, exclude).node().unwrap().0
    }

    /// Requests the n-th object of this size, and receives it completely.
    pub(super) fn ask_nth(&mut self, bytes: u64, n: u64) -> usize {
        let path = format!("/{bytes}/{n}");
        let key = request(1, path.as_bytes());
        let node = self.policy.pick(&key, &self.view, &[]).node().unwrap();
        self.policy.learned(key.url_hash(), ServedObject { node, bytes });
        node.0 as usize
    }

    pub(super) fn ask(&mut self, bytes: u64) -> usize {
        self.ask_nth(bytes, 0)
    }

    /// Requests objects of these sizes in turn, each `count` times.
    pub(super) fn ask_often(&mut self, sizes: &[(u64, u64)], rounds: u64) {
        for _ in 0..rounds {
            for &(bytes, count) in sizes {
                for _ in 0..count {
                    self.ask(bytes);
                }
            }
        }
    }

    /// Requests an object while the node that instances agree on is not eligible: returns that
    /// node, and the one that serves it.
    pub(super) fn ask_elsewhere(&mut self, bytes: u64) -> (usize, usize) {
        let path = format!("/{bytes}/0");
        let key = request(1, path.as_bytes());
        let mut other = build(self.policy.name(), 4).unwrap();
        let preferred = other.pick(&key, &self.view, &[]).node().unwrap().0 as usize;
        self.view.nodes[preferred].eligible = false;
        let owner = self.ask(bytes);
        self.view.nodes[preferred].eligible = true;
        (preferred, owner)
    }

    pub(super) fn load(&mut self, node: usize, requests: u32, bytes: u64) {
        let node = &mut self.view.nodes[node];
        (node.outstanding_requests, node.outstanding_bytes) = (requests, bytes);
    }

    pub(super) fn requests(&mut self, node: u32, requests: u64) {
        self.load(node as usize, requests as u32, 0);
    }

    /// Sets the load of this node, and that of all others.
    pub(super) fn loads(&mut self, node: u32, own: u64, others: u64) {
        (0..self.view.nodes.len() as u32).for_each(|it| self.requests(it, others));
        self.requests(node, own);
    }
}
