//! The cluster cache in this process: the listeners for other nodes' fetches and for nodes' links
//! to the coordinator, and the role of each machine.

use std::net::TcpListener;
use std::sync::Arc;

use anyhow::Context;
use skep_config::Config;
use skep_console::{AnswerCount, CacheNode, CoordinatorStatus};
use skep_coordinator::{CacheView, Coordination};
use skep_directory::{CacheMemberView, CoordinatorCounters};
use skep_dispatcher::NewReports;
use skep_node::{ClusterParts, Node};
use skep_peer::stream::{StreamCount, StreamCounts};
use skep_serve::{ListenerGroup, bind};
use skep_steering::OnTerm;
use skep_telemetry::{Labels, Registry};
use skep_units::{DISPATCHER_NUMBER_BITS, dispatcher_number};
use skep_wire::cache::{Identity, Reason};
use skep_wire::message::{Name, NodeLoad};
use skep_wire::seal::Key;

use crate::roles::Roles;

/// The cluster cache in this process: its identity there, and the coordinator of a dispatcher;
/// empty where there is none.
#[derive(Default)]
pub(crate) struct ClusterCache {
    identity: Option<Identity>,
    /// Where nodes link to the coordinator.
    coordinator_listener: Option<TcpListener>,
    coordination: Option<Arc<Coordination>>,
}

impl ClusterCache {
    /// Binds addresses, before anything is served. The listeners are those for other nodes.
    pub(crate) fn prepare(
        config: &Config,
        roles: &Roles,
        threads: usize,
        key: Option<&Key>,
    ) -> anyhow::Result<(Self, Option<ListenerGroup>)> {
        let Some(key) = key.filter(|_| config.links_nodes()) else {
            return Ok((Self::default(), None));
        };
        let identity = Identity::new(key, &config.cluster, &Name::new(&roles.name)?);
        let peers =
            roles.own_node(config).map(|node| bind(node.agent_address(), threads)).transpose()?;
        let coordinator_listener = roles
            .own_dispatcher(config)
            .and_then(|dispatcher| dispatcher.address)
            .map(|address| {
                TcpListener::bind(address)
                    .with_context(|| format!("cannot listen on {address} for nodes' caches"))
            })
            .transpose()?;
        Ok((Self { identity: Some(identity), coordinator_listener, coordination: None }, peers))
    }

    /// Starts the coordinator of a dispatcher. In direct dispatch, the returned handle must be told
    /// who is active; elsewhere all coordinators answer, and the first in the config has the
    /// highest rank.
    pub(crate) fn coordinate(
        &mut self,
        config: &Config,
        roles: &Roles,
        seed: u64,
        registry: &Registry,
    ) -> anyhow::Result<OnTerm> {
        let (Some(identity), Some(listener)) = (&self.identity, self.coordinator_listener.take())
        else {
            return Ok(Box::new(|_| ()));
        };
        let (identity, report_ms) = (identity.clone(), config.report_interval_ms());
        let nodes = config.nodes.iter().map(|node| node.agent_address().ip()).collect();
        let place = config.dispatchers.iter().position(|it| it.name == roles.name).unwrap_or(0);
        let number = dispatcher_number(&roles.name);
        let is_direct = config.steered_services().next().is_some();
        let coordination = Coordination::start(identity, listener, seed, report_ms, nodes, number)
            .context("cannot start the coordinator of the caches")?;
        let stage = coordination.stage();
        let coordination = Arc::new(coordination);
        register(registry, &coordination);
        self.coordination = Some(coordination);
        if is_direct {
            return Ok(Box::new(move |term| stage.set(term)));
        }
        // With the number in it no two coordinators have the same epoch, even if their configs differ.
        let rank = (config.dispatchers.len() - place) as u64;
        stage.set(Some(rank << DISPATCHER_NUMBER_BITS | u64::from(number)));
        Ok(Box::new(|_| ()))
    }

    /// Lets the coordinator read the nodes' loads; after [`ClusterCache::coordinate`].
    pub(crate) fn follow_loads(&self, mut reports: NewReports) -> anyhow::Result<()> {
        let Some(coordination) = &self.coordination else { return Ok(()) };
        let read = move || {
            let bytes = |(name, load): (Name, NodeLoad)| (name, load.bytes_outstanding);
            reports.take().into_iter().map(bytes).collect()
        };
        Ok(coordination.follow_loads(Box::new(read))?)
    }

    /// Connects the node to the cluster cache; before its handlers are made.
    pub(crate) fn join(&self, config: &Config, roles: &Roles, node: &Node) -> anyhow::Result<()> {
        let (Some(identity), Some(own)) = (&self.identity, roles.own_node(config)) else {
            return Ok(());
        };
        let parts = ClusterParts { identity: identity.clone(), address: own.agent_address() };
        Ok(node.join(config, parts)?)
    }

    /// Shows what streams with other machines did; after [`ClusterCache::join`].
    pub(crate) fn show_streams(&self, registry: &Registry, node: Option<&Node>) {
        let of_coordinator = self.coordination.as_ref().map(|it| it.stream_counts());
        let of_node = node.and_then(Node::cluster).map(|cluster| Arc::clone(cluster.counts()));
        let all: Vec<_> = of_coordinator.into_iter().chain(of_node).collect();
        if !all.is_empty() {
            register_streams(registry, all);
        }
    }

    /// The coordinator, if this process has one.
    pub(crate) fn coordination(&self) -> Option<&Arc<Coordination>> {
        self.coordination.as_ref()
    }

    /// The displayed state of the coordinator, if this process has one.
    pub(crate) fn status(&self) -> Option<CoordinatorStatus> {
        let view = self.coordination.as_ref()?.view();
        let counters = &view.counters;
        let answer = |(kind, answers): (&str, u64)| AnswerCount { kind: kind.to_owned(), answers };
        Some(CoordinatorStatus {
            is_active: view.is_active,
            epoch: view.epoch,
            segments: counters.entries,
            copies: counters.holdings,
            leases: counters.leases,
            files: counters.files,
            nodes_unsure: counters.nodes_unsure,
            answers: answers(counters).map(answer).to_vec(),
            nodes: view.members.iter().map(cache_node).collect(),
        })
    }
}

fn answers(counters: &CoordinatorCounters) -> [(&'static str, u64); 12] {
    [
        ("have", counters.have),
        ("busy", counters.busy),
        ("grant", counters.grant),
        ("later", counters.later),
        ("refused", counters.refused),
        ("expired", counters.expired),
        ("broken", counters.broken),
        ("directory_error", counters.directory_errors),
        ("forgotten", counters.forgotten),
        ("file_nobody", counters.nobody),
        ("file_unsure", counters.unsure),
        ("file_forgotten", counters.files_refused),
    ]
}

fn cache_node(member: &CacheMemberView) -> CacheNode {
    CacheNode {
        name: member.name.to_string(),
        address: member.address.to_string(),
        capacity_bytes: member.capacity_bytes,
        held_bytes: member.held_bytes,
        shared_bytes: member.shared_bytes,
    }
}

fn register(registry: &Registry, coordination: &Arc<Coordination>) {
    let gauge = |name: &str, help: &str, read: fn(&CacheView) -> f64| {
        let own = Arc::clone(coordination);
        registry.register(name, &[], help, Box::new(move || read(&own.view())));
    };
    gauge("skep_coordinator_active", "Whether this coordinator answers nodes.", |view| {
        f64::from(u8::from(view.is_active))
    });
    gauge("skep_coordinator_segments", "Segments with at least one holder.", |view| {
        view.counters.entries as f64
    });
    gauge(
        "skep_coordinator_replicas",
        "Replicas: the sum of the holders of all segments.",
        |view| view.counters.holdings as f64,
    );
    gauge(
        "skep_coordinator_files",
        "Files and folders of partitioned folders that nodes have announced.",
        |view| view.counters.files as f64,
    );
    gauge(
        "skep_coordinator_nodes_unsure",
        "Nodes that have not announced all their files, and nodes that were lost recently.",
        |view| view.counters.nodes_unsure as f64,
    );
    gauge("skep_coordinator_leases", "Fills in progress.", |view| view.counters.leases as f64);
    gauge("skep_coordinator_memory_bytes", "Memory of the directory.", |view| {
        view.counters.memory_bytes as f64
    });
    gauge("skep_coordinator_nodes", "Nodes that are linked.", |view| view.members.len() as f64);
    let own = Arc::clone(coordination);
    let read = move || {
        let (complete, incomplete) = own.purge_counts().totals();
        let sample = |(outcome, purges)| (labels([("outcome", outcome)]), purges as f64);
        [("complete", complete), ("incomplete", incomplete)].map(sample).to_vec()
    };
    let help = "Purges, by whether all nodes that are linked or serve acknowledged them in time.";
    registry.register_samples("skep_coordinator_purges_total", help, Box::new(read));
    let own = Arc::clone(coordination);
    registry.register(
        "skep_coordinator_purge_seconds_max",
        &[],
        "The longest time until all linked nodes had acknowledged a purge.",
        Box::new(move || own.purge_counts().slowest_us() as f64 / 1e6),
    );
    let own = Arc::clone(coordination);
    let read = move || {
        let sample = |(kind, answers): (_, u64)| (labels([("kind", kind)]), answers as f64);
        answers(&own.view().counters).map(sample).to_vec()
    };
    let help = "Coordinator answers and errors, by kind.";
    registry.register_samples("skep_coordinator_answers_total", help, Box::new(read));
}

/// `all`: of the links of a coordinator, of a node; a process may have both.
fn register_streams(registry: &Registry, all: Vec<Arc<StreamCounts>>) {
    let counts = all.clone();
    let read = move || {
        let sample = |what: StreamCount| {
            let sum: u64 = counts.iter().map(|it| it.of(what)).sum();
            (labels([("kind", what.name())]), sum as f64)
        };
        StreamCount::ALL.map(sample).to_vec()
    };
    let help = "Events of streams with other machines, by kind.";
    registry.register_samples("skep_stream_events_total", help, Box::new(read));
    let read = move || {
        let samples = |reason: Reason| {
            let here: u64 = all.iter().map(|it| it.refused_here(reason)).sum();
            let there: u64 = all.iter().map(|it| it.refused_there(reason)).sum();
            let sample = |(by, streams): (_, u64)| {
                (labels([("by", by), ("reason", reason.name())]), streams as f64)
            };
            [("here", here), ("there", there)].map(sample)
        };
        Reason::ALL.into_iter().flat_map(samples).collect()
    };
    let help = "Streams refused, by this side or the other, and why.";
    registry.register_samples("skep_streams_refused_total", help, Box::new(read));
}

fn labels<const N: usize>(labels: [(&str, &str); N]) -> Labels {
    labels.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec()
}
