//! Selects the node that should answer a request: by the service's policy, from this node's view of the
//! others.
//!
//! One value per worker. The table determines the nodes of a service, the digest their load; the requests
//! that this worker has sent on since are added to that.

use std::borrow::Cow;
use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use arc_swap::{ArcSwap, ArcSwapOption, Cache};
use skep_http::RequestHead;
use skep_http::path::{self, Path, Reading};
use skep_policy::{
    ClusterView, NodeView, Policy, RequestKey, ServedLog, ServedReader, build, is_stale,
};
use skep_units::{NodeId, Now};
use skep_wire::handoff::SocketId;
use skep_wire::handoff::lccp::QueryKey;
use skep_wire::message::{ArmsInForce, LoadDigest, NodeWork, ServiceArms, ToldArm};
use skep_wire::seal::PeerId;
use skep_wire::steer::{ForwardingState, NodeIndex};
use skep_wire::table::{Table, TableNode, TableService};

use crate::arms::{ArmCounters, arm_of, weights};
use crate::limits::{FORGET_MS, SENT_MAX, SENT_MS};

/// The load of all nodes, and its time of receipt.
type HeardDigest = Arc<(Now, LoadDigest)>;

/// The view of the cluster that all workers of a node share.
#[derive(Clone)]
pub struct NodesView {
    /// The latest table.
    pub table: Arc<ArcSwap<Table>>,
    /// The load of all nodes, and its time of receipt.
    pub digest: Arc<ArcSwap<(Now, LoadDigest)>>,
    /// Objects that nodes have served recently.
    pub served: Arc<ArcSwap<ServedLog>>,
    /// Memory for objects on each node, in bytes.
    pub memory_bytes: u64,
    /// The A/B tests in force, and this node's counts of them.
    pub arms: Arc<ArcSwap<ArmsInForce>>,
    pub arm_counters: Arc<ArmCounters>,
    /// The active dispatcher, while its heartbeats are received.
    pub active: Arc<ArcSwapOption<PeerId>>,
    /// Addresses of the config's nodes, by name.
    pub agents: Arc<HashMap<String, SocketAddr>>,
}

pub struct Chooser {
    own_name: Arc<str>,
    table: Cache<Arc<ArcSwap<Table>>, Arc<Table>>,
    digest: Cache<Arc<ArcSwap<(Now, LoadDigest)>>, HeardDigest>,
    served: Cache<Arc<ArcSwap<ServedLog>>, Arc<ServedLog>>,
    memory_bytes: u64,
    arms: Cache<Arc<ArcSwap<ArmsInForce>>, Arc<ArmsInForce>>,
    /// The A/B tests that `tests` was made from.
    arms_in_force: Arc<ArmsInForce>,
    arm_counters: Arc<ArmCounters>,
    /// The table that `services` was made from.
    table_in_force: Arc<Table>,
    own: Option<NodeIndex>,
    /// The services that hand connections off, by address.
    services: HashMap<SocketAddr, ServiceChooser>,
    /// The services with an A/B test, by address.
    tests: HashMap<SocketAddr, TestChooser>,
    /// Configured addresses of services that hand off.
    addresses: Vec<SocketAddr>,
    seed: u64,
    /// Scratch buffer: a host name in lower case.
    host: Vec<u8>,
}

/// The policies of an A/B test for one service.
struct TestChooser {
    test: u64,
    weights: Vec<u32>,
    /// The group and policy of each arm.
    arms: Vec<(Vec<PeerId>, ServiceChooser)>,
}

/// The policy of one service, or of an arm.
struct ServiceChooser {
    policy: Box<dyn Policy>,
    is_content_aware: bool,
    /// The position in the log of sizes up to which the policy has read, if it uses sizes.
    sizes: Option<ServedReader>,
    view: ClusterView,
    digest: HeardDigest,
    /// Time at which the loads were last taken over.
    loaded_at: Now,
    /// The requests sent on since then, the most recent last, while they count.
    sent: VecDeque<(Now, NodeId)>,
}

impl Chooser {
    /// The chooser of the machine `own_name` for the services at `addresses`. `seed` initialises the
    /// policies; it differs between workers.
    pub fn new(
        own_name: Arc<str>,
        nodes: &NodesView,
        addresses: Vec<SocketAddr>,
        seed: u64,
    ) -> Self {
        Self {
            own_name,
            table: Cache::new(Arc::clone(&nodes.table)),
            digest: Cache::new(Arc::clone(&nodes.digest)),
            served: Cache::new(Arc::clone(&nodes.served)),
            memory_bytes: nodes.memory_bytes,
            arms: Cache::new(Arc::clone(&nodes.arms)),
            arms_in_force: Arc::default(),
            arm_counters: Arc::clone(&nodes.arm_counters),
            table_in_force: Arc::default(),
            own: None,
            services: HashMap::new(),
            tests: HashMap::new(),
            addresses,
            seed,
            host: Vec::new(),
        }
    }

    /// The node that should answer a request.
    pub(crate) fn choose(
        &mut self,
        request: &RequestHead<'_, '_>,
        connection: SocketId,
        now: Now,
    ) -> Option<NodeIndex> {
        let mut lower = std::mem::take(&mut self.host);
        lower.clear();
        let mut path = Cow::Borrowed(request.path);
        if self.is_content_aware(connection.server) {
            (lower, path) = url_of(request, lower);
        }
        let node = self.pick(&lower, (&path, request.query), connection, now);
        self.host = lower;
        node
    }

    /// The query to a dispatcher about a request; `None`: it would be too long.
    pub(crate) fn query_key(&self, request: &RequestHead<'_, '_>) -> Option<QueryKey> {
        let (host, path) = url_of(request, Vec::new());
        let mut target = path.into_owned();
        if let Some(query) = request.query {
            target.push(b'?');
            target.extend_from_slice(query);
        }
        QueryKey::new(&host, &target)
    }

    /// Whether `node` is this node.
    pub(crate) fn is_own(&mut self, node: NodeIndex) -> bool {
        self.follow_table();
        self.own == Some(node)
    }

    /// The node that should answer a request for this path and query, with the host in lower case; `None`:
    /// there is none, or the service does not hand off.
    pub fn pick(
        &mut self,
        host: &[u8],
        (path, query): (&[u8], Option<&[u8]>),
        connection: SocketId,
        now: Now,
    ) -> Option<NodeIndex> {
        self.follow_table();
        let service = self.services.get_mut(&connection.server)?;
        let (client, client_port) = (connection.client.ip(), connection.client.port());
        let key = RequestKey { client, client_port, host, path, query };
        let heard = (self.digest.load(), &**self.served.load());
        let arm = self.tests.get_mut(&connection.server).map(|test| test.chooser_of(client));
        // If no node of the arm's group can take it, the service's policy selects.
        arm.and_then(|arm| arm.choose(&key, heard, now))
            .or_else(|| service.choose(&key, heard, now))
    }

    fn is_content_aware(&mut self, server: SocketAddr) -> bool {
        self.follow_table();
        let mut arms = self.tests.get(&server).into_iter().flat_map(|test| &test.arms);
        self.services.get(&server).is_some_and(|service| service.is_content_aware)
            || arms.any(|(_, chooser)| chooser.is_content_aware)
    }

    /// The index of the node with this name in the table.
    pub(crate) fn index_of(&self, name: &str) -> Option<NodeIndex> {
        self.table_in_force.node(name).map(|node| node.index)
    }

    /// Whether connections at this address may be handed off.
    pub(crate) fn hands_off(&self, server: SocketAddr) -> bool {
        self.addresses.contains(&server)
    }

    /// [`Self::is_leaving`] for any of its services.
    pub(crate) fn leaves_any(&mut self) -> bool {
        self.follow_table();
        let addresses: Vec<SocketAddr> = self.services.keys().copied().collect();
        addresses.into_iter().any(|address| self.is_leaving(address))
    }

    /// Whether this node must get no new connections of the service at this address, because an operator
    /// drains it, or it stops.
    pub(crate) fn is_leaving(&mut self, server: SocketAddr) -> bool {
        self.follow_table();
        let own = self.own.map(|own| NodeId(own.into()));
        self.services.get(&server).is_some_and(|service| {
            let own = service.view.nodes.iter().find(|node| Some(node.id) == own);
            own.is_none_or(|node| !node.eligible)
        })
    }

    fn follow_table(&mut self) {
        let (table, arms) = (self.table.load(), self.arms.load());
        let are_same_arms = Arc::ptr_eq(arms, &self.arms_in_force);
        if are_same_arms && Arc::ptr_eq(table, &self.table_in_force) {
            return;
        }
        if !are_same_arms {
            self.arms_in_force = Arc::clone(arms);
            self.arm_counters.keep(self.arms.arc_swap());
        }
        self.table_in_force = Arc::clone(table);
        let table = &self.table_in_force;
        self.own = table.node(&self.own_name).map(|node| node.index);
        let mut former = std::mem::take(&mut self.services);
        for service in &table.services {
            let address = service.service.address;
            if !self.addresses.contains(&address) {
                continue;
            }
            let known = former.remove(&address);
            let known = known.filter(|it| it.policy.name() == service.policy.as_str());
            let made = known.or_else(|| ServiceChooser::new(service.policy.as_str(), self.seed));
            if let Some(mut chooser) = made {
                chooser.take_members(table, service, (self.memory_bytes, &[]));
                self.services.insert(address, chooser);
            }
        }
        self.follow_tests();
    }

    fn follow_tests(&mut self) {
        let mut former = std::mem::take(&mut self.tests);
        for service in &self.table_in_force.services {
            let address = service.service.address;
            let tests = &self.arms_in_force.services;
            let Some(told) = tests.iter().find(|it| it.addresses.contains(&address)) else {
                continue;
            };
            let known = former.remove(&address).filter(|known| known.test == told.test);
            // Another build's policy: there is no test on this node.
            let Some(mut test) = known.or_else(|| TestChooser::new(told, self.seed)) else {
                continue;
            };
            for (nodes, chooser) in &mut test.arms {
                chooser.take_members(&self.table_in_force, service, (self.memory_bytes, nodes));
            }
            self.tests.insert(address, test);
        }
    }
}

impl TestChooser {
    fn new(told: &ServiceArms, seed: u64) -> Option<Self> {
        let chooser = |arm: &ToldArm| {
            let chooser = ServiceChooser::new(arm.policy.as_str(), seed)?;
            Some((arm.nodes.clone(), chooser))
        };
        let arms: Option<Vec<_>> = told.arms.iter().map(chooser).collect();
        Some(Self { test: told.test, weights: weights(told), arms: arms? })
    }

    fn chooser_of(&mut self, client: IpAddr) -> &mut ServiceChooser {
        &mut self.arms[arm_of(self.test, &self.weights, client)].1
    }
}

impl ServiceChooser {
    /// `None`: the policy is unknown to this build.
    fn new(policy: &str, seed: u64) -> Option<Self> {
        let info = skep_policy::policies().iter().find(|info| info.name == policy)?;
        Some(Self {
            policy: build(policy, seed).ok()?,
            is_content_aware: info.content_aware,
            sizes: info.learns_sizes.then(ServedReader::default),
            // A service that hands off has a key, and therefore a cluster cache.
            view: ClusterView { has_cluster_cache: true, ..ClusterView::default() },
            digest: Arc::default(),
            loaded_at: Now::default(),
            sent: VecDeque::new(),
        })
    }

    /// Takes over the nodes that get the service's new connections, and those that only have existing ones;
    /// if `group` is not empty, only the nodes in it.
    fn take_members(
        &mut self,
        table: &Table,
        service: &TableService,
        (memory_bytes, group): (u64, &[PeerId]),
    ) {
        let members = table.history(service).next().into_iter().flatten();
        let nodes = members.filter_map(|share| {
            let node = table.nodes.iter().find(|node| node.index == share.index)?;
            let is_in = group.is_empty() || group.contains(&node.name.peer());
            is_in.then_some(())?;
            Some(NodeView { memory_bytes, ..node_view(node, share.weight) })
        });
        let nodes: Vec<NodeView> = nodes.collect();
        let is_same = |(old, new): (&NodeView, &NodeView)| {
            (old.id, old.name_hash, old.weight) == (new.id, new.name_hash, new.weight)
        };
        let old = &self.view.nodes;
        if old.len() != nodes.len() || !old.iter().zip(&nodes).all(is_same) {
            self.view.version += 1;
        }
        self.view.nodes = nodes;
        self.take_loads();
    }

    /// Takes over the loads of `digest`, unless they are known. Stale loads count as none: a policy that uses
    /// only them would select one node for everything.
    fn follow_digest(&mut self, digest: &HeardDigest, now: Now) {
        self.view.now = now;
        let is_old = is_stale(now.since_ms(digest.0), u64::from(digest.1.interval_ms));
        // This worker's own counts are then cleared periodically as well, since nothing reports when these
        // requests end.
        let is_to_forget = now.since_ms(self.loaded_at) >= FORGET_MS;
        if is_old && (is_to_forget || !self.digest.1.nodes.is_empty()) {
            self.digest = Arc::default();
            self.take_loads();
        } else if !is_old && !Arc::ptr_eq(digest, &self.digest) {
            self.digest = Arc::clone(digest);
            self.take_loads();
        }
    }

    /// Reports the sizes that nodes have sent to the policy.
    fn learn_sizes(&mut self, log: &ServedLog) {
        if let Some(reader) = &mut self.sizes {
            reader.teach(log, &self.view.nodes, &mut *self.policy);
        }
    }

    fn take_loads(&mut self) {
        self.loaded_at = self.view.now;
        self.sent.clear();
        let works: HashMap<NodeIndex, &NodeWork> =
            self.digest.1.nodes.iter().map(|work| (work.node, work)).collect();
        for node in &mut self.view.nodes {
            let work = NodeIndex::try_from(node.id.0).ok().and_then(|index| works.get(&index));
            node.connections = work.map_or(0, |work| work.connections);
            node.outstanding_requests = work.map_or(0, |work| work.requests);
            node.outstanding_bytes = work.map_or(0, |work| work.bytes);
        }
    }

    /// Selects by the loads and sizes received.
    fn choose(
        &mut self,
        key: &RequestKey<'_>,
        (digest, served): (&HeardDigest, &ServedLog),
        now: Now,
    ) -> Option<NodeIndex> {
        self.follow_digest(digest, now);
        self.learn_sizes(served);
        self.pick(key)
    }

    fn pick(&mut self, key: &RequestKey<'_>) -> Option<NodeIndex> {
        self.expire_sent();
        let id = self.policy.pick(key, &self.view, &[]).node()?;
        if self.sizes.is_some() {
            self.policy.sent_unseen(key.url_hash());
        }
        // The end is not observed here: most requests are short, and the next digest contains the others. The
        // connection lasts.
        if let Some(node) = self.node(id) {
            node.outstanding_requests = node.outstanding_requests.saturating_add(1);
            node.connections = node.connections.saturating_add(1);
        }
        self.sent.push_back((self.view.now, id));
        NodeIndex::try_from(id.0).ok()
    }

    fn expire_sent(&mut self) {
        let now = self.view.now;
        while let Some(&(at, id)) = self.sent.front() {
            if now.since_ms(at) < SENT_MS && self.sent.len() < SENT_MAX {
                break;
            }
            self.sent.pop_front();
            if let Some(node) = self.node(id) {
                node.outstanding_requests = node.outstanding_requests.saturating_sub(1);
            }
        }
    }

    fn node(&mut self, id: NodeId) -> Option<&mut NodeView> {
        self.view.nodes.iter_mut().find(|node| node.id == id)
    }
}

/// The host name in lower case, appended to the empty `host`, and the normalised path. A path that cannot be
/// normalised is refused by whichever node answers.
fn url_of<'b>(request: &RequestHead<'_, 'b>, mut host: Vec<u8>) -> (Vec<u8>, Cow<'b, [u8]>) {
    request.authority.write_lower(&mut host);
    let path = path::read(request.path, Reading::Origins);
    (host, path.map_or(Cow::Borrowed(request.path), Path::into_place))
}

fn node_view(node: &TableNode, weight: u32) -> NodeView {
    NodeView {
        eligible: node.state == ForwardingState::Up,
        ..NodeView::idle(NodeId(node.index.into()), node.name.peer().0, weight)
    }
}

#[cfg(test)]
mod tests;
