//! The cluster cache in this process: the listeners for other nodes' fetches and for nodes' links to the
//! coordinator, and the roles in it.

use std::net::TcpListener;
use std::sync::Arc;

use anyhow::Context;
use skep_config::Config;
use skep_console::{AnswerCount, CacheNode, CoordinatorStatus};
use skep_coordinator::{Coordination, answers, register_coordinator, register_streams};
use skep_directory::CacheMemberView;
use skep_dispatcher::NewReports;
use skep_node::{ClusterParts, Node};
use skep_serve::{ListenerGroup, bind};
use skep_steering::OnTerm;
use skep_telemetry::Registry;
use skep_units::{DISPATCHER_NUMBER_BITS, dispatcher_number};
use skep_wire::cache::Identity;
use skep_wire::message::{Name, NodeLoad};
use skep_wire::seal::Key;

use crate::roles::Roles;

/// The cluster cache in this process: its identity, and a dispatcher's coordinator; empty if there is none.
#[derive(Default)]
pub(crate) struct ClusterCache {
    identity: Option<Identity>,
    /// The listener for nodes' links to the coordinator.
    coordinator_listener: Option<TcpListener>,
    coordination: Option<Arc<Coordination>>,
}

impl ClusterCache {
    /// Binds addresses before anything is served. Returns the listeners for other nodes.
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

    /// Starts the coordinator of a dispatcher. In direct dispatch, the returned handle must be called with
    /// the active dispatcher; otherwise all coordinators answer, and the first in the config has the highest
    /// rank.
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
        register_coordinator(registry, &coordination);
        self.coordination = Some(coordination);
        if is_direct {
            return Ok(Box::new(move |term| stage.set(term)));
        }
        // The number ensures that no two coordinators have the same epoch, even if their configs differ.
        let rank = (config.dispatchers.len() - place) as u64;
        stage.set(Some(rank << DISPATCHER_NUMBER_BITS | u64::from(number)));
        Ok(Box::new(|_| ()))
    }

    /// Has the coordinator read the nodes' loads; to be called after [`ClusterCache::coordinate`].
    pub(crate) fn follow_loads(&self, mut reports: NewReports) -> anyhow::Result<()> {
        let Some(coordination) = &self.coordination else { return Ok(()) };
        let read = move || {
            let bytes = |(name, load): (Name, NodeLoad)| (name, load.bytes_outstanding);
            reports.take().into_iter().map(bytes).collect()
        };
        Ok(coordination.follow_loads(Box::new(read))?)
    }

    /// Connects the node to the cluster cache; to be called before its handlers are created.
    pub(crate) fn join(&self, config: &Config, roles: &Roles, node: &Node) -> anyhow::Result<()> {
        let (Some(identity), Some(own)) = (&self.identity, roles.own_node(config)) else {
            return Ok(());
        };
        let parts = ClusterParts { identity: identity.clone(), address: own.agent_address() };
        Ok(node.join(config, parts)?)
    }

    /// Registers the counters of streams to other machines; to be called after [`ClusterCache::join`].
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

fn cache_node(member: &CacheMemberView) -> CacheNode {
    CacheNode {
        name: member.name.to_string(),
        address: member.address.to_string(),
        capacity_bytes: member.capacity_bytes,
        held_bytes: member.held_bytes,
        shared_bytes: member.shared_bytes,
    }
}
