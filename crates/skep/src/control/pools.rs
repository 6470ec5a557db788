//! The pools of this process's node, and those of all nodes that it can ask.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use skep_console::{NodePools, NodeState, PoolStatus, ServerSelfReport, ServerStatus};
use skep_coordinator::NodeAnswer;
use skep_node::AgentReport;
use skep_proxy::{CAUSES, Group, MemberStatus};
use skep_wire::limits::STATUS_BYTES_MAX;

use super::sessions::{hide_sketches, merge, pool_sessions};
use super::source_of;
use crate::running::Running;

/// Time that nodes get to answer, in milliseconds: who waits is an operator.
const NODES_MS: u64 = 2_000;

/// Lets the dispatchers that this process's node is linked with see its pools.
pub(super) fn show_to_dispatchers(running: &Arc<Running>) {
    let Some(node) = running.parts.node.as_ref() else { return };
    let shown = Arc::downgrade(running);
    node.show_pools_by(Box::new(move || {
        let pools = shown.upgrade().map(|running| told(&running)).unwrap_or_default();
        encoded(pools, STATUS_BYTES_MAX)
    }));
}

/// As dispatchers get them: better the servers without what sessions are merged by than nothing.
fn encoded(mut pools: Vec<PoolStatus>, bytes_max: usize) -> Vec<u8> {
    let json = |pools: &[PoolStatus]| serde_json::to_vec(pools).unwrap_or_default();
    let whole = json(&pools);
    if whole.len() <= bytes_max {
        return whole;
    }
    hide_sketches(&mut pools);
    json(&pools)
}

/// Of each node of the config its pools, or why they are missing.
pub(super) fn of_nodes(running: &Running) -> Vec<NodePools> {
    let config = running.config();
    let mut nodes = vec![];
    if let Some(own_name) = running.parts.node.as_ref().and(running.roles.node.as_ref()) {
        nodes.push(NodePools { node: own_name.clone(), missing: None, pools: told(running) });
    }
    let coordination = running.parts.cluster_cache.coordination();
    let answers = coordination.map(|it| it.ask_status(NODES_MS).unwrap_or_default());
    let why = match answers {
        Some(_) => "it is not linked with this dispatcher",
        None if running.parts.dispatchers.is_empty() => "this is a node: ask a dispatcher",
        None => "nodes answer dispatchers that have an address, with a key_file and pools",
    };
    for (name, answer) in answers.unwrap_or_default() {
        if !nodes.iter().any(|it| it.node == name.as_str()) {
            nodes.push(answered(name.as_str(), answer));
        }
    }
    for node in &config.nodes {
        if !nodes.iter().any(|it| it.node == node.name) {
            nodes.push(missing(&node.name, why.to_owned()));
        }
    }
    nodes.sort_by(|a, b| a.node.cmp(&b.node));
    merge(&mut nodes);
    nodes
}

fn answered(name: &str, answer: NodeAnswer<Vec<u8>>) -> NodePools {
    match answer {
        NodeAnswer::Silent => missing(name, format!("no answer within {} s", NODES_MS / 1000)),
        NodeAnswer::Earlier => missing(name, "it is of an earlier build".to_owned()),
        NodeAnswer::Answered(json) if json.is_empty() => {
            missing(name, "its answer would be too long".to_owned())
        }
        NodeAnswer::Answered(json) => match serde_json::from_slice(&json) {
            Ok(pools) => NodePools { node: name.to_owned(), missing: None, pools },
            Err(error) => missing(name, format!("its answer is not understood: {error}")),
        },
    }
}

fn missing(node: &str, why: String) -> NodePools {
    NodePools { node: node.to_owned(), missing: Some(why), pools: Vec::new() }
}

/// The pools of this process's node.
pub(super) fn own(running: &Running) -> Vec<PoolStatus> {
    let mut pools = told(running);
    hide_sketches(&mut pools);
    pools
}

/// The same, with what their sessions are merged by with those of other nodes.
fn told(running: &Running) -> Vec<PoolStatus> {
    let Some(node) = running.parts.node.as_ref() else { return Vec::new() };
    let (pools, sessions) = (node.pools(), node.sessions());
    let own_name = || running.roles.node.iter().cloned().collect();
    let status = |pool: &Arc<Group>| {
        let (queued, refused_total) = pool.queued();
        let name = pool.name();
        let agent = |server: &str| node.agent_report(name, server);
        let members = pool.members().into_iter();
        let servers: Vec<_> = members
            .map(|it| {
                let agent = agent(&it.name).map(agent_status);
                ServerStatus { agent, ..server_status(name, it) }
            })
            .collect();
        PoolStatus {
            name: name.to_owned(),
            policy: pool.policy(),
            queued_requests: queued as u64,
            refused_total,
            sessions_lost_total: pool.sessions_lost(),
            versions_differ: differ(&servers),
            sessions: sessions.get(name).map(|it| pool_sessions(own_name(), it)),
            cluster_sessions: None,
            servers,
        }
    };
    pools.iter().map(status).collect()
}

fn server_status(pool: &str, server: MemberStatus) -> ServerStatus {
    ServerStatus {
        name: server.name,
        pool: pool.to_owned(),
        address: server.address,
        state: NodeState::from_word(&server.state).unwrap_or(NodeState::Down),
        source: source_of(server.source),
        reason: server.reason,
        since_ms: server.since_ms,
        weight: server.weight,
        share_permille: server.share_permille,
        connections: server.connections,
        slots: server.slots,
        connections_max: server.connections_max,
        tunnels: server.tunnels,
        requests_total: server.requests,
        failures_total: server.failures,
        failures_by_cause: by_cause(&server.failures_by_cause),
        bytes_total: server.bytes,
        latency_us: server.latency_us,
        agent: None,
    }
}

fn agent_status(report: AgentReport) -> ServerSelfReport {
    let AgentReport { age_ms, version, values, sessions, error } = report;
    let (values, sessions) = (values.into_iter().collect(), sessions.into_iter().collect());
    ServerSelfReport { age_ms, version, values, sessions, error }
}

/// Whether servers say different versions.
fn differ(servers: &[ServerStatus]) -> bool {
    let agents = servers.iter().filter_map(|it| it.agent.as_ref());
    let versions: BTreeSet<_> = agents.filter_map(|it| it.version.as_deref()).collect();
    versions.len() > 1
}

fn by_cause(counts: &[u64; CAUSES.len()]) -> BTreeMap<String, u64> {
    let counts = CAUSES.iter().zip(counts).filter(|(_, count)| **count > 0);
    counts.map(|(cause, count)| ((*cause).to_owned(), *count)).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use skep_sketch::{Observation, Sketch};

    use super::*;

    #[test]
    fn what_is_too_long_is_told_without_sketches() {
        let mut sketch = Sketch::default();
        (0..1_000).for_each(|id: u64| sketch.add(Observation::of(id << 40)));
        let sessions = pool_sessions(vec!["n1".to_owned()], &vec![("other".to_owned(), sketch)]);
        let pool = PoolStatus {
            name: "app".to_owned(),
            policy: "random".to_owned(),
            queued_requests: 0,
            refused_total: 0,
            sessions_lost_total: 0,
            versions_differ: false,
            sessions: Some(sessions),
            cluster_sessions: None,
            servers: Vec::new(),
        };
        let whole = serde_json::to_vec(&[&pool]).unwrap();
        assert_eq!(encoded(vec![pool.clone()], whole.len()), whole);
        let short = encoded(vec![pool.clone()], whole.len() - 1);
        let short: Vec<PoolStatus> = serde_json::from_slice(&short).unwrap();
        let (sessions, told) = (pool.sessions.unwrap(), short[0].sessions.clone().unwrap());
        assert_eq!((told.total, told.networks[0].sketch.as_ref()), (sessions.total, None));
    }
}
