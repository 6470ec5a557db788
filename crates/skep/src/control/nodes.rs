//! Operators' questions to all nodes: asked by the coordinator of this process, or by one to which its node
//! is linked; the node of this process itself answers directly.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::de::DeserializeOwned;
use skep_config::Config;
use skep_console::MissingNode;
use skep_coordinator::NodeAnswer;
use skep_wire::cache::{NodeQuestion, RelayedAnswer};

use crate::running::Running;

/// Timeout for the nodes' answers, in milliseconds: an operator is waiting.
const NODES_MS: u64 = 2_000;

/// For each node of the config its answer, or why there is none.
pub(super) type Answers<T> = Vec<(String, Result<T, String>)>;

/// Asks all nodes of the config; `own` provides the answer of this process's node.
pub(super) fn ask<T: DeserializeOwned>(
    running: &Running,
    question: NodeQuestion,
    own: impl FnOnce() -> T,
) -> Answers<T> {
    let mut answers = BTreeMap::new();
    if let Some(own_name) = own_node(running) {
        answers.insert(own_name, Ok(own()));
    }
    for (name, answer) in asked(running, question).unwrap_or_default() {
        answers.entry(name).or_insert_with(|| answer.and_then(|json| decoded(&json)));
    }
    complete(running, answers)
}

/// The name of this process's node.
pub(super) fn own_node(running: &Running) -> Option<String> {
    running.parts.node.as_ref().and(running.roles.node.clone())
}

/// Adds the nodes of the config that were not asked.
pub(super) fn complete<T>(
    running: &Running,
    mut answers: BTreeMap<String, Result<T, String>>,
) -> Answers<T> {
    let config = running.config();
    for node in &config.nodes {
        answers.entry(node.name.clone()).or_insert_with(|| Err(why_not_asked(running, &config)));
    }
    answers.into_iter().collect()
}

fn why_not_asked(running: &Running, config: &Config) -> String {
    let is_linked = |it: &Arc<skep_node::Cluster>| it.is_linked();
    let why = if running.parts.cluster_cache.coordination().is_some() {
        "it is not linked with this dispatcher"
    } else if !config.links_nodes() || !running.parts.dispatchers.is_empty() {
        "nodes answer dispatchers that have an address, with a key_file and pools"
    } else if running.parts.node.as_ref().and_then(|it| it.cluster()).is_some_and(is_linked) {
        "it is not linked with the dispatcher that this node is linked with"
    } else {
        "this node is linked with no dispatcher"
    };
    why.to_owned()
}

/// The answers of the linked nodes; `None` if no coordinator can ask.
pub(super) fn asked(running: &Running, question: NodeQuestion) -> Option<Answers<Vec<u8>>> {
    if let Some(coordination) = running.parts.cluster_cache.coordination() {
        let answers = coordination.ask_nodes(question, NODES_MS).ok()?;
        let answer = |(name, answer): (skep_wire::message::Name, _)| {
            let answer = match answer {
                NodeAnswer::Answered(json) => said(json),
                NodeAnswer::Earlier => Err(earlier()),
                NodeAnswer::Silent => Err(silent()),
            };
            (name.to_string(), answer)
        };
        return Some(answers.into_iter().map(answer).collect());
    }
    let cluster = running.parts.node.as_ref()?.cluster()?;
    let answers = cluster.ask_nodes(question, NODES_MS)?;
    let answer = |(name, answer): (skep_wire::message::Name, _)| {
        let answer = match answer {
            RelayedAnswer::Said(json) => said(json),
            RelayedAnswer::Earlier => Err(earlier()),
            RelayedAnswer::Silent => Err(silent()),
        };
        (name.to_string(), answer)
    };
    Some(answers.into_iter().map(answer).collect())
}

fn said(json: Vec<u8>) -> Result<Vec<u8>, String> {
    match json.is_empty() {
        true => Err("its answer would be too long, or it is about to start or end".to_owned()),
        false => Ok(json),
    }
}

fn earlier() -> String {
    "it is of an earlier build".to_owned()
}

fn silent() -> String {
    format!("no answer within {} s", NODES_MS / 1000)
}

pub(super) fn decoded<T: DeserializeOwned>(json: &[u8]) -> Result<T, String> {
    serde_json::from_slice(json).map_err(|error| format!("its answer is not understood: {error}"))
}

/// The nodes that are not included in a sum.
pub(super) fn missing<T>(answers: &Answers<T>) -> Vec<MissingNode> {
    let missing = |(node, answer): &(String, Result<T, String>)| {
        let why = answer.as_ref().err()?.clone();
        Some(MissingNode { node: node.clone(), why })
    };
    answers.iter().filter_map(missing).collect()
}
