//! The pools of this process's node, and those of all nodes that can be asked.

use std::collections::BTreeMap;
use std::sync::Arc;

use skep_console::{NodePools, NodeState, PoolStatus, ServerSelfReport, ServerStatus};
use skep_node::AgentReport;
use skep_proxy::{CAUSES, Group, MemberStatus};
use skep_wire::cache::NodeQuestion;

use super::sessions::{hide_sketches, merge, pool_sessions};
use super::source_of;
use super::{nodes, pool_sums};
use crate::running::Running;

/// The pools as sent to dispatchers: if they are too long, without the sketches by which sessions are merged,
/// rather than not at all.
pub(super) fn encoded(mut pools: Vec<PoolStatus>, bytes_max: usize) -> Vec<u8> {
    let json = |pools: &[PoolStatus]| serde_json::to_vec(pools).unwrap_or_default();
    let whole = json(&pools);
    if whole.len() <= bytes_max {
        return whole;
    }
    hide_sketches(&mut pools);
    json(&pools)
}

/// For each node of the config its pools, or why they are missing.
pub(super) fn of_nodes(running: &Running) -> Vec<NodePools> {
    let answers = nodes::ask(running, NodeQuestion::Pools, || told(running));
    let pools = |(node, answer): (String, Result<Vec<PoolStatus>, String>)| match answer {
        Ok(pools) => NodePools { node, missing: None, pools },
        Err(why) => NodePools { node, missing: Some(why), pools: Vec::new() },
    };
    let mut nodes: Vec<_> = answers.into_iter().map(pools).collect();
    merge(&mut nodes);
    nodes
}

/// The pools of the config, with the counts of all nodes summed up.
pub(super) fn of_cluster(running: &Running) -> Vec<PoolStatus> {
    let config = running.config();
    let names = config.pools.iter().map(|pool| (pool.name.as_str(), pool.policy.as_str()));
    pool_sums::sums(names, &of_nodes(running))
}

/// The pools of this process's node.
pub(super) fn own(running: &Running) -> Vec<PoolStatus> {
    let mut pools = told(running);
    hide_sketches(&mut pools);
    pools
}

/// The same, including the sketches by which sessions are merged with those of other nodes.
pub(super) fn told(running: &Running) -> Vec<PoolStatus> {
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
            versions_differ: pool_sums::differ(&servers),
            sessions: sessions.get(name).map(|it| pool_sessions(own_name(), it)),
            cluster_sessions: None,
            servers,
            nodes: Vec::new(),
            missing: Vec::new(),
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
        seen_by: Vec::new(),
    }
}

fn agent_status(report: AgentReport) -> ServerSelfReport {
    let AgentReport { age_ms, version, values, sessions, error } = report;
    let (values, sessions) = (values.into_iter().collect(), sessions.into_iter().collect());
    ServerSelfReport { age_ms, version, values, sessions, error }
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
            nodes: Vec::new(),
            missing: Vec::new(),
        };
        let whole = serde_json::to_vec(&[&pool]).unwrap();
        assert_eq!(encoded(vec![pool.clone()], whole.len()), whole);
        let short = encoded(vec![pool.clone()], whole.len() - 1);
        let short: Vec<PoolStatus> = serde_json::from_slice(&short).unwrap();
        let (sessions, told) = (pool.sessions.unwrap(), short[0].sessions.clone().unwrap());
        assert_eq!((told.total, told.networks[0].sketch.as_ref()), (sessions.total, None));
    }
}
