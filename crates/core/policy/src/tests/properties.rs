//! Properties that hold for every policy of the table and any view.

use proptest::prelude::*;
use skep_units::{NodeId, Now};

use super::{node, request};
use crate::{AttemptEnd, ClusterView, NodeView, ServedObject, build, names};

fn any_node(id: u32) -> impl Strategy<Value = NodeView> {
    let load = prop_oneof![4 => 0..5u32, 1 => any::<u32>()];
    let weight = prop_oneof![4 => 0..10u32, 1 => any::<u32>()];
    let share = prop_oneof![3 => Just(1_000u16), 2 => 0..=1_000u16, 1 => any::<u16>()];
    let known = prop_oneof![1 => Just(0), 1 => any::<u64>()];
    let known = (known.clone(), known.clone(), known);
    (any::<bool>(), weight, share, load.clone(), load, any::<u64>(), known).prop_map(
        move |(eligible, weight, slow_start_permille, connections, requests, bytes, known)| {
            NodeView {
                link_bytes_per_s: known.0,
                fetch_bytes_per_s: known.1,
                memory_bytes: known.2,
                eligible,
                weight,
                slow_start_permille,
                connections,
                outstanding_requests: requests,
                outstanding_bytes: bytes,
                ..node(id)
            }
        },
    )
}

/// Views of one set of nodes, as a policy may see them between two versions.
fn any_views() -> impl Strategy<Value = Vec<Vec<NodeView>>> {
    (0..9u32).prop_flat_map(|count| {
        let nodes: Vec<_> = (0..count).map(any_node).collect();
        proptest::collection::vec(nodes, 1..6)
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn picks_a_candidate_if_and_only_if_there_is_one(
        sets in proptest::collection::vec(any_views(), 1..3),
        exclude in proptest::collection::vec(0..9u32, 0..4),
        seed in any::<u64>(),
        path in proptest::collection::vec(any::<u8>(), 0..20),
        sizes in proptest::collection::vec(any::<u64>(), 1..8),
        has_cluster_cache in any::<bool>(),
    ) {
        let exclude: Vec<NodeId> = exclude.into_iter().map(NodeId).collect();
        for name in names() {
            let mut policy = build(name, seed).unwrap();
            let mut twin = build(name, seed).unwrap();
            // Weights differ between any two of these views, so each has its own version.
            for (version, nodes) in (0..).zip(sets.iter().flatten()) {
                let now = Now(version * 10_000);
                let view = ClusterView { nodes: nodes.clone(), version, now, has_cluster_cache };
                let open = |node: &&NodeView| node.eligible && !exclude.contains(&node.id);
                let candidates: Vec<NodeId> =
                    view.nodes.iter().filter(open).map(|node| node.id).collect();
                for n in 0..8 {
                    let key = request(n, &path);
                    let decision = policy.pick(&key, &view, &exclude);
                    prop_assert_eq!(decision, twin.pick(&key, &view, &exclude), "same seed");
                    match decision.node() {
                        Some(id) => prop_assert!(candidates.contains(&id), "{name}: {id}"),
                        None => prop_assert!(candidates.is_empty(), "{name}"),
                    }
                    if let Some(node) = decision.node() {
                        let id = node;
                        let bytes = sizes[n as usize % sizes.len()];
                        for it in [&mut policy, &mut twin] {
                            it.started(id);
                            let object = ServedObject { node, bytes };
                            it.learned(key.url_hash(), object);
                            it.finished(view.now, id, AttemptEnd::Answered { latency_us: u64::from(n) });
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn loads_and_health_may_change_without_a_new_version(
        views in any_views(),
        seed in any::<u64>(),
    ) {
        for name in names() {
            let mut policy = build(name, seed).unwrap();
            for nodes in &views {
                let view = ClusterView { nodes: nodes.clone(), version: 1, ..ClusterView::default() };
                let decision = policy.pick(&request(1, b"/"), &view, &[]);
                let eligible = |id| nodes.iter().any(|node| node.id == id && node.eligible);
                prop_assert_eq!(
                    decision.node().is_some(),
                    nodes.iter().any(|node| node.eligible)
                );
                prop_assert!(decision.node().is_none_or(eligible), "{}", name);
            }
        }
    }
}
