//! A chooser of nodes: a dispatcher of mode `proxy`, with its policy and its view of the cluster.
//!
//! It counts its own requests, and the bytes that heads of responses have announced and that have not
//! arrived; if there are other choosers, reports of the nodes add the load of those, by the rules of
//! `skep_policy::Work`.

use skep_policy::{AttemptEnd, ClusterView, NodeView, Policy, ServedObject, UnknownPolicy, Work};
use skep_units::{NodeId, Now, stable_hash};
use skep_wire::message::NodeLoad;

use crate::cluster::SimulatedCluster;
use crate::limits::{NS_PER_MS, NS_PER_US};
use crate::workload::request_key;

/// Policies that use the bytes that nodes have to send. For others these are not updated at each choice,
/// which would take time proportional to the number of nodes.
const BY_BYTES: [&str; 2] = ["least-bytes", "transfer-time"];

pub(crate) struct Chooser {
    policy: Box<dyn Policy>,
    view: ClusterView,
    own: Vec<OwnLoad>,
    goes_by_bytes: bool,
}

/// The load of one node: this chooser's own, and that of others by the last report.
#[derive(Clone, Copy, Debug, Default)]
struct OwnLoad {
    requests: u64,
    /// Announced bytes without those of completed sends.
    bytes: u64,
    /// Sends to its clients in progress, and the sum of the link's virtual times at their starts.
    sends: u32,
    started_sum: f64,
    /// Its own maximum at the node since the last report.
    most: Work,
    /// The load of others, by the last report.
    beyond: Work,
}

impl Chooser {
    /// `placement` seeds the names of the nodes, by which hashing policies place objects.
    pub(crate) fn new(
        name: &str,
        (seed, placement): (u64, u64),
        cluster: &SimulatedCluster,
    ) -> Result<Self, UnknownPolicy> {
        let policy = skep_policy::build(name, seed)?;
        let node = |(number, node): (u32, &crate::SimulatedNode)| {
            let name_hash = stable_hash(format!("n{number}").as_bytes(), placement);
            let memory_bytes = node.memory_bytes / cluster.workers as u64;
            let idle = NodeView::idle(NodeId(number), name_hash, node.weight);
            match cluster.tells_rates {
                true => NodeView {
                    memory_bytes,
                    link_bytes_per_s: node.link_bytes_per_s,
                    fetch_bytes_per_s: cluster.fetch_bytes_per_s(node),
                    ..idle
                },
                false => NodeView { memory_bytes, ..idle },
            }
        };
        let nodes: Vec<NodeView> = (0..).zip(&cluster.nodes).map(node).collect();
        let own = vec![OwnLoad::default(); nodes.len()];
        Ok(Self {
            policy,
            view: ClusterView {
                nodes,
                version: 1,
                now: Now(0),
                has_cluster_cache: cluster.has_cluster_cache,
            },
            own,
            goes_by_bytes: BY_BYTES.contains(&name) || counts_all_bytes(),
        })
    }

    /// Chooses a node for a request, which is then sent to it. `virtual_bytes` returns the virtual time of a
    /// node's link.
    pub(crate) fn choose(
        &mut self,
        now_ns: u64,
        (client, path): (u32, &[u8]),
        virtual_bytes: impl Fn(usize) -> f64,
    ) -> u32 {
        self.view.now = Now(now_ns / NS_PER_MS);
        if self.goes_by_bytes {
            let nodes = self.view.nodes.iter_mut().zip(&self.own).enumerate();
            // For all others nothing has changed.
            for (number, (node, own)) in nodes.filter(|(_, (_, own))| own.sends > 0) {
                node.outstanding_bytes = own.bytes_left(virtual_bytes(number)) + own.beyond.bytes;
            }
        }
        let request = request_key(client, path);
        let picked = self.policy.pick(&request, &self.view, &[]).node();
        #[expect(clippy::expect_used, reason = "an invariant of policies")]
        let id = picked.expect("a node is always eligible");
        self.policy.started(id);
        let own = &mut self.own[id.0 as usize];
        own.requests += 1;
        own.most.requests = own.most.requests.max(own.requests);
        self.refresh(id.0);
        id.0
    }

    /// Records that a node did not accept a request.
    pub(crate) fn failed(&mut self, now_ns: u64, node: u32) {
        self.policy.finished(Now(now_ns / NS_PER_MS), NodeId(node), AttemptEnd::Failed);
        self.ended(node);
    }

    /// Records the head of a response, which announces the number of its bytes; for a whole object,
    /// `url_hash` identifies it.
    pub(crate) fn head(
        &mut self,
        now_ns: u64,
        object: ServedObject,
        whole: Option<u64>,
        latency_ns: u64,
    ) {
        let end = AttemptEnd::Answered { latency_us: latency_ns / NS_PER_US };
        self.policy.finished(Now(now_ns / NS_PER_MS), object.node, end);
        if let Some(path_hash) = whole {
            self.policy.learned(path_hash, object);
        }
        let own = &mut self.own[object.node.0 as usize];
        own.bytes += object.bytes;
        own.most.bytes = own.most.bytes.max(own.bytes);
        self.refresh(object.node.0);
    }

    /// Records that a node began to send to a client, at this virtual time of its link.
    pub(crate) fn send_started(&mut self, node: u32, virtual_bytes: f64) {
        let own = &mut self.own[node as usize];
        own.sends += 1;
        own.started_sum += virtual_bytes;
    }

    /// Records the end of a send of this many bytes that began at the virtual time `started`.
    pub(crate) fn send_ended(&mut self, node: u32, started: f64, bytes: u64) {
        let own = &mut self.own[node as usize];
        own.sends -= 1;
        own.started_sum = if own.sends == 0 { 0.0 } else { own.started_sum - started };
        own.bytes -= bytes;
        self.refresh(node);
    }

    /// Records that a response has arrived completely.
    pub(crate) fn ended(&mut self, node: u32) {
        self.own[node as usize].requests -= 1;
        self.refresh(node);
    }

    /// This chooser's own work at a node.
    pub(crate) fn own_work(&self, node: u32, virtual_bytes: f64) -> Work {
        let own = &self.own[node as usize];
        Work { requests: own.requests, bytes: own.bytes_left(virtual_bytes) }
    }

    /// Records the report of a node.
    pub(crate) fn report(&mut self, node: u32, load: &NodeLoad, virtual_bytes: f64) {
        let now = self.own_work(node, virtual_bytes);
        let own = &mut self.own[node as usize];
        own.beyond = Work::of(load).beyond(own.most);
        own.most = now;
        self.refresh(node);
        self.view.nodes[node as usize].outstanding_bytes =
            now.bytes + self.own[node as usize].beyond.bytes;
    }

    /// Sets whether a node gets requests, and its share in slow start, in thousandths.
    pub(crate) fn set_share(&mut self, node: u32, permille: Option<u16>) {
        let view = &mut self.view.nodes[node as usize];
        view.eligible = permille.is_some();
        view.slow_start_permille = permille.unwrap_or(1);
    }

    fn refresh(&mut self, node: u32) {
        let (own, view) = (&self.own[node as usize], &mut self.view.nodes[node as usize]);
        let requests = (own.requests + own.beyond.requests) as u32;
        (view.outstanding_requests, view.connections) = (requests, requests);
        view.outstanding_bytes = own.bytes + own.beyond.bytes;
    }
}

impl OwnLoad {
    /// The announced bytes that have not arrived, at this virtual time of the link.
    fn bytes_left(&self, virtual_bytes: f64) -> u64 {
        let arrived = f64::from(self.sends) * virtual_bytes - self.started_sum;
        self.bytes.saturating_sub(arrived.max(0.0) as u64)
    }
}

#[cfg(not(test))]
fn counts_all_bytes() -> bool {
    false
}

#[cfg(test)]
pub(crate) use test_switch::always_counts_bytes;
#[cfg(test)]
use test_switch::counts_all_bytes;

/// Has bytes counted for all policies in this thread.
#[cfg(test)]
mod test_switch {
    use std::cell::Cell;

    thread_local! {
        static ALWAYS: Cell<bool> = const { Cell::new(false) };
    }

    pub(crate) fn always_counts_bytes(always: bool) {
        ALWAYS.set(always);
    }

    pub(super) fn counts_all_bytes() -> bool {
        ALWAYS.get()
    }
}
