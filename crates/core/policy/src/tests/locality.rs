//! `lard` and `lard-r`: which nodes have a URL, and when that changes.

use std::collections::HashSet;

use skep_units::{NodeId, Now};

use super::scene::Scene;
use crate::limits::{LARD_AWAY_MS, LARD_HIGH_REQUESTS, LARD_LOW_REQUESTS, LARD_SHRINK_MS};

#[test]
fn new_urls_go_to_the_idlest_node_and_stay() {
    for name in ["lard", "lard-r"] {
        let mut scene = Scene::new(name, 4);
        let mut seen = HashSet::new();
        for number in 0..100 {
            let path = format!("/{number}");
            let owner = scene.pick(&path);
            seen.insert(owner);
            scene.loads(owner, LARD_HIGH_REQUESTS, 0);
            assert_ne!(scene.pick(&format!("/other/{number}")), owner, "{name}: it is not idle");
            assert_eq!(scene.pick(&path), owner, "{name}: as much as it may have");
            scene.loads(owner, 0, 0);
        }
        assert_eq!(seen.len(), 4, "{name}");
    }
}

#[test]
fn a_url_leaves_a_node_that_has_too_much_to_do() {
    let mut scene = Scene::new("lard", 3);
    let owner = scene.pick("/a");
    // No node is idle: moving would not help.
    scene.loads(owner, LARD_HIGH_REQUESTS + 1, LARD_LOW_REQUESTS);
    assert_eq!(scene.pick("/a"), owner);
    scene.loads(owner, LARD_HIGH_REQUESTS + 1, LARD_LOW_REQUESTS - 1);
    let second = scene.pick("/a");
    assert_ne!(second, owner);
    scene.loads(owner, 0, LARD_HIGH_REQUESTS);
    assert_eq!(scene.pick("/a"), second, "it does not come back");
    // Twice the threshold is too much, unless all nodes have that load: then moving would not help.
    scene.loads(second, 2 * LARD_HIGH_REQUESTS, LARD_HIGH_REQUESTS + 1);
    assert_eq!(scene.pick("/a"), second);
    scene.loads(second, 2 * LARD_HIGH_REQUESTS, LARD_HIGH_REQUESTS);
    assert_ne!(scene.pick("/a"), second);
}

#[test]
fn a_url_has_another_node_for_one_that_is_down_and_for_one_attempt() {
    for name in ["lard", "lard-r"] {
        let mut scene = Scene::new(name, 3);
        let owner = scene.pick("/a");
        assert_ne!(scene.pick_without("/a", &[NodeId(owner)]), owner, "{name}");
        assert_eq!(scene.pick("/a"), owner, "{name}: one attempt says nothing");
        // The node is full for a moment.
        scene.view.nodes[owner as usize].eligible = false;
        assert_ne!(scene.pick("/a"), owner, "{name}");
        scene.view.nodes[owner as usize].eligible = true;
        assert_eq!(scene.pick("/a"), owner, "{name}");
    }
}

#[test]
fn a_url_leaves_a_node_that_stays_down() {
    let mut scene = Scene::new("lard", 3);
    let owner = scene.pick("/a");
    scene.view.nodes[owner as usize].eligible = false;
    assert_ne!(scene.pick("/a"), owner);
    // A node that was full twice for a moment has not been down for long.
    scene.view.now = Now(LARD_AWAY_MS);
    assert_ne!(scene.pick("/a"), owner);
    scene.view.nodes[owner as usize].eligible = true;
    assert_eq!(scene.pick("/a"), owner);
    scene.view.nodes[owner as usize].eligible = false;
    let begin = LARD_AWAY_MS + 1;
    for ms in (begin..=begin + LARD_AWAY_MS).step_by(100) {
        scene.view.now = Now(ms);
        scene.pick("/a");
    }
    let second = scene.pick("/a");
    scene.view.nodes[owner as usize].eligible = true;
    assert_eq!(scene.pick("/a"), second, "it is in memory there now");
    // A node that was removed loses its URLs at once.
    scene.view.nodes.retain(|node| node.id.0 != second);
    scene.view.version += 1;
    assert_ne!(scene.pick("/a"), second);
}

#[test]
fn a_hot_url_gets_more_nodes_and_loses_them_again() {
    let mut scene = Scene::new("lard-r", 4);
    let first = scene.pick("/hot");
    scene.loads(first, LARD_HIGH_REQUESTS + 1, 0);
    let second = scene.pick("/hot");
    assert_ne!(second, first);
    // Both serve it: the idler one is selected.
    scene.loads(first, 3, 0);
    scene.requests(second, 4);
    assert_eq!(scene.pick("/hot"), first);
    scene.requests(first, 5);
    assert_eq!(scene.pick("/hot"), second);
    // After some time without changes the busier one is removed.
    scene.view.now = Now(LARD_SHRINK_MS - 1);
    assert_eq!(scene.pick("/hot"), second);
    scene.view.now = Now(LARD_SHRINK_MS);
    assert_eq!(scene.pick("/hot"), second);
    scene.requests(first, 0);
    assert_eq!(scene.pick("/hot"), second, "it is the only one");
    // The last one stays.
    scene.view.now = Now(5 * LARD_SHRINK_MS);
    assert_eq!([scene.pick("/hot"), scene.pick("/hot")], [second, second]);
}

#[test]
fn a_warming_node_has_too_much_earlier() {
    let mut scene = Scene::new("lard", 2);
    let owner = scene.pick("/a");
    scene.loads(owner, LARD_HIGH_REQUESTS / 2 + 1, 0);
    assert_eq!(scene.pick("/a"), owner);
    scene.view.nodes[owner as usize].slow_start_permille = 500;
    assert_ne!(scene.pick("/a"), owner);
}

#[test]
fn workers_that_do_not_know_of_each_other_agree_while_nodes_are_equally_busy() {
    for name in ["lard", "lard-r"] {
        let mut scenes = [1, 2].map(|_| Scene::new(name, 5));
        for number in 0..50 {
            let [one, other] = &mut scenes;
            assert_eq!(
                one.pick(&format!("/{number}")),
                other.pick(&format!("/{number}")),
                "{name}"
            );
        }
    }
}
