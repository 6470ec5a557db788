//! Sessions of pools, as counted by one node and by all nodes.
//!
//! A node reports its sketches to dispatchers in addition to its counts. Here the sketches are merged, so
//! that a session seen by several nodes counts once, and then removed. A node of an earlier build reports
//! none; `nodes` lists those that are included.

use std::collections::BTreeMap;

use skep_console::{NetworkSessions, NodePools, PoolSessions, PoolStatus};
use skep_node::SessionsByNetwork;
use skep_sketch::Sketch;
use skep_sketch::limits::WINDOW_MS;

/// The sessions of a pool that `nodes` have seen, with their sketches.
pub(super) fn pool_sessions(nodes: Vec<String>, networks: &SessionsByNetwork) -> PoolSessions {
    let mut all = Sketch::default();
    let counted = |(network, sketch): &(String, Sketch)| {
        all.merge(sketch);
        let (network, sessions) = (network.clone(), sketch.estimate());
        NetworkSessions { network, sessions, sketch: Some(sketch.to_text()) }
    };
    let networks = networks.iter().map(counted).collect();
    PoolSessions { window_s: WINDOW_MS / 1000, total: all.estimate(), networks, nodes }
}

/// Sets for each pool what all of `nodes` have seen together.
pub(super) fn merge(nodes: &mut [NodePools]) {
    let mut merged: BTreeMap<String, (Vec<String>, SessionsByNetwork)> = BTreeMap::new();
    for NodePools { node, pools, .. } in &*nodes {
        for pool in pools {
            let Some(sessions) = &pool.sessions else { continue };
            let (nodes, networks) = merged.entry(pool.name.clone()).or_default();
            if let Some(sketches) = sketches(sessions) {
                nodes.push(node.clone());
                sketches.into_iter().for_each(|it| add(networks, it));
            }
        }
    }
    let merged = merged.into_iter();
    let merged: BTreeMap<String, PoolSessions> =
        merged.map(|(pool, (nodes, networks))| (pool, pool_sessions(nodes, &networks))).collect();
    for pools in nodes.iter_mut().map(|it| &mut it.pools) {
        pools.iter_mut().for_each(|it| it.cluster_sessions = merged.get(&it.name).cloned());
        hide_sketches(pools);
    }
}

/// Removes the sketches by which counts are merged.
pub(super) fn hide_sketches(pools: &mut [PoolStatus]) {
    let sessions = pools.iter_mut().flat_map(|it| [&mut it.sessions, &mut it.cluster_sessions]);
    let networks = sessions.flatten().flat_map(|it| &mut it.networks);
    networks.for_each(|it| it.sketch = None);
}

/// Returns `None` if the sketches were too long to be sent, or have the form of another build.
fn sketches(sessions: &PoolSessions) -> Option<SessionsByNetwork> {
    let sketch =
        |it: &NetworkSessions| Some((it.network.clone(), Sketch::from_text(it.sketch.as_ref()?)?));
    sessions.networks.iter().map(sketch).collect()
}

/// Adds a node's count of a network. If configs differ, names that the first node does not have are appended.
fn add(networks: &mut SessionsByNetwork, (network, sketch): (String, Sketch)) {
    match networks.iter_mut().find(|(name, _)| *name == network) {
        Some((_, own)) => own.merge(&sketch),
        None => networks.push((network, sketch)),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use skep_sketch::Observation;
    use skep_units::stable_hash;

    use super::*;

    /// A node with sessions from campus and from elsewhere, in the form in which a node reports them.
    fn node(name: &str, campus: std::ops::Range<u8>, other: std::ops::Range<u8>) -> NodePools {
        let sketch = |ids: std::ops::Range<u8>| {
            let mut sketch = Sketch::default();
            ids.for_each(|id| sketch.add(Observation::of(stable_hash(&[id], 7))));
            sketch
        };
        let networks = vec![("campus".into(), sketch(campus)), ("other".into(), sketch(other))];
        let sessions = pool_sessions(vec![name.to_owned()], &networks);
        NodePools { pools: vec![pool(Some(sessions))], ..earlier(name) }
    }

    fn pool(sessions: Option<PoolSessions>) -> PoolStatus {
        // As reported by an earlier build.
        let text = r#"{"name": "app", "policy": "random", "queued_requests": 0, "refused_total": 0,
            "sessions_lost_total": 0, "servers": []}"#;
        let pool: PoolStatus = serde_json::from_str(text).unwrap();
        assert_eq!((&pool.sessions, &pool.cluster_sessions), (&None, &None));
        PoolStatus { sessions, ..pool }
    }

    fn earlier(name: &str) -> NodePools {
        NodePools { node: name.to_owned(), missing: None, pools: vec![pool(None)] }
    }

    fn counts(sessions: &PoolSessions) -> (u64, Vec<(&str, u64)>) {
        let networks = sessions.networks.iter().map(|it| (it.network.as_str(), it.sessions));
        (sessions.total, networks.collect())
    }

    #[test]
    fn a_session_that_two_nodes_have_seen_is_one() {
        let mut nodes = [node("n1", 0..6, 10..12), node("n2", 4..8, 7..11), earlier("n3")];
        merge(&mut nodes);
        for node in &nodes {
            let all = node.pools[0].cluster_sessions.as_ref().unwrap();
            // Session 7 came from campus at one node, and from elsewhere at the other.
            assert_eq!(counts(all), (12, vec![("campus", 8), ("other", 5)]));
            assert_eq!(all.nodes, ["n1", "n2"]);
        }
        assert_eq!(counts(nodes[0].pools[0].sessions.as_ref().unwrap()).0, 8);
        assert_eq!(nodes[2].pools[0].sessions, None);
        let shown = serde_json::to_string(&nodes[..]).unwrap();
        assert!(!shown.contains("sketch"), "{shown}");
    }

    #[test]
    fn what_cannot_be_merged_is_not_counted() {
        let mut nodes = [node("n1", 0..6, 10..12), node("n2", 20..30, 30..31)];
        nodes[1].pools[0].sessions.as_mut().unwrap().networks[1].sketch = Some("?".to_owned());
        merge(&mut nodes);
        let all = nodes[0].pools[0].cluster_sessions.as_ref().unwrap();
        assert_eq!((counts(all).0, &*all.nodes), (8, &["n1".to_owned()][..]));
        let mut nodes = [earlier("n1")];
        merge(&mut nodes);
        assert_eq!(nodes[0].pools[0].cluster_sessions, None);
    }
}
