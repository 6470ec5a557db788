//! Pools summed over all nodes: counts are added up, and differing views of nodes are listed.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use skep_console::{MissingNode, NodePools, NodeState, PoolStatus, ServerStatus, ServerView};

/// The sums of the pools with these names and policies, and of pools that only nodes have; the sessions of
/// `nodes` are merged.
pub(super) fn sums<'a>(
    names: impl Iterator<Item = (&'a str, &'a str)>,
    nodes: &'a [NodePools],
) -> Vec<PoolStatus> {
    let mut names: Vec<_> = names.collect();
    for pool in nodes.iter().flat_map(|it| &it.pools) {
        if !names.iter().any(|(name, _)| *name == pool.name) {
            names.push((&pool.name, &pool.policy));
        }
    }
    names.into_iter().map(|(name, policy)| sum(name, policy, nodes)).collect()
}

fn sum(name: &str, policy: &str, nodes: &[NodePools]) -> PoolStatus {
    let of_node = |node: &'_ NodePools| node.pools.iter().position(|pool| pool.name == name);
    let seen = nodes.iter().filter_map(|it| Some((it.node.as_str(), &it.pools[of_node(it)?])));
    let seen: Vec<(&str, &PoolStatus)> = seen.collect();
    let total = |of: fn(&PoolStatus) -> u64| seen.iter().map(|(_, pool)| of(pool)).sum();
    let mut policies: Vec<_> = seen.iter().map(|(_, pool)| pool.policy.as_str()).collect();
    policies.sort_unstable();
    policies.dedup();
    let missing = |node: &NodePools| {
        let why = node.missing.clone()?;
        Some(MissingNode { node: node.node.clone(), why })
    };
    let servers = servers(&seen);
    let sessions = seen.iter().find_map(|(_, pool)| pool.cluster_sessions.clone());
    PoolStatus {
        name: name.to_owned(),
        policy: if policies.is_empty() { policy.to_owned() } else { policies.join(" or ") },
        queued_requests: total(|it| it.queued_requests),
        refused_total: total(|it| it.refused_total),
        sessions_lost_total: total(|it| it.sessions_lost_total),
        versions_differ: differ(&servers),
        sessions: sessions.clone(),
        cluster_sessions: sessions,
        servers,
        nodes: seen.iter().map(|(node, _)| (*node).to_owned()).collect(),
        missing: nodes.iter().filter_map(missing).collect(),
    }
}

/// The servers, in the order in which the nodes first list them.
fn servers(seen: &[(&str, &PoolStatus)]) -> Vec<ServerStatus> {
    let mut servers: Vec<Vec<(&str, &ServerStatus)>> = Vec::new();
    for (node, pool) in seen {
        for server in &pool.servers {
            match servers.iter_mut().find(|known| known[0].1.name == server.name) {
                Some(known) => known.push((node, server)),
                None => servers.push(vec![(node, server)]),
            }
        }
    }
    servers.iter().map(|seen| server(seen)).collect()
}

/// Sums up one server; `seen` is not empty.
fn server(seen: &[(&str, &ServerStatus)]) -> ServerStatus {
    let all = || seen.iter().map(|(_, server)| *server);
    let state = most(all().map(|it| it.state));
    let of_state = || all().filter(|it| it.state == state);
    let mut failures_by_cause = BTreeMap::new();
    for (cause, count) in all().flat_map(|it| &it.failures_by_cause) {
        *failures_by_cause.entry(cause.clone()).or_default() += count;
    }
    let add = |of: fn(&ServerStatus) -> u32| all().map(of).fold(0, u32::saturating_add);
    let answered = || all().filter(|it| it.latency_us > 0);
    let weigh = |it: &ServerStatus| u128::from(it.requests_total.max(1));
    let waited: u128 = answered().map(|it| u128::from(it.latency_us) * weigh(it)).sum();
    let latency_us = waited / answered().map(weigh).sum::<u128>().max(1);
    let agents = all().filter_map(|it| it.agent.as_ref());
    let first = seen[0].1;
    ServerStatus {
        state,
        reason: of_state().find_map(|it| it.reason.clone()),
        since_ms: of_state().map(|it| it.since_ms).max().unwrap_or_default(),
        connections: add(|it| it.connections),
        slots: add(|it| it.slots),
        connections_max: all().map(|it| it.connections_max).max().unwrap_or_default(),
        tunnels: add(|it| it.tunnels),
        requests_total: all().map(|it| it.requests_total).sum(),
        failures_total: all().map(|it| it.failures_total).sum(),
        failures_by_cause,
        bytes_total: all().map(|it| it.bytes_total).sum(),
        latency_us: u64::try_from(latency_us).unwrap_or(u64::MAX),
        agent: agents.min_by_key(|it| it.age_ms.unwrap_or(u64::MAX)).cloned(),
        seen_by: seen.iter().map(|(node, server)| view(node, server)).collect(),
        ..first.clone()
    }
}

fn view(node: &str, server: &ServerStatus) -> ServerView {
    ServerView {
        node: node.to_owned(),
        state: server.state,
        reason: server.reason.clone(),
        weight: server.weight,
    }
}

/// The state that most nodes report; in a tie, the state that is further from taking requests.
fn most(states: impl Iterator<Item = NodeState>) -> NodeState {
    let mut counts = BTreeMap::<NodeState, usize>::new();
    states.for_each(|state| *counts.entry(state).or_default() += 1);
    let most = counts.into_iter().max_by_key(|(state, count)| (*count, Reverse(*state)));
    most.map_or(NodeState::Down, |(state, _)| state)
}

/// Whether servers report different versions.
pub(super) fn differ(servers: &[ServerStatus]) -> bool {
    let agents = servers.iter().filter_map(|it| it.agent.as_ref());
    let versions: BTreeSet<_> = agents.filter_map(|it| it.version.as_deref()).collect();
    versions.len() > 1
}
