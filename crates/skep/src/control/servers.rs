//! Orders about servers of pools: sent from the management API to all nodes, and executed at this one.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use skep_config::limits::SERVER_CONNECTIONS_MAX;
use skep_config::{Config, ConnectionsScope, ServerConfig};
use skep_console::{
    ControlError, NewServer, OrderedNode, ServerCommand, ServerOrdered, ServerStatus,
};
use skep_node::{AddServerError, Node, OrderNovelty, OrderOutcome};
use skep_proxy::Group;
use skep_units::nearest;
use skep_wire::cache::{AddedServer, NodeQuestion, OrderStamp, ServerChange, ServerOrder};
use skep_wire::message::Name;

use super::{nodes, pools, refusal};
use crate::running::Running;

/// A node's answer to an order.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Outcome {
    refusal: Option<Refusal>,
    /// The server afterwards.
    server: Option<ServerStatus>,
}

/// Why a node does not execute an order.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Refusal {
    NotFound { what: String, did_you_mean: Option<String> },
    Conflict { what: String },
    Invalid { what: String, did_you_mean: Option<String> },
    Unavailable { what: String },
}

/// Has all nodes execute `command`. If none did, returns the error of the first.
pub(super) fn order(
    running: &Running,
    pool: &str,
    name: &str,
    command: &ServerCommand,
) -> Result<ServerOrdered, ControlError> {
    let order = parse(&running.config(), (pool, name), command)?;
    let question = NodeQuestion::Order(Box::new(order.clone()));
    let mut answers = BTreeMap::<String, Result<Outcome, String>>::new();
    for (node, answer) in nodes::asked(running, question).unwrap_or_default() {
        answers.insert(node, answer.and_then(|json| nodes::decoded(&json)));
    }
    let asked: Vec<String> = answers.keys().cloned().collect();
    if let (Some(own), Some(node)) = (nodes::own_node(running), &running.parts.node)
        && !asked.contains(&own)
    {
        let outcome = nodes::decoded(&node.order_here(order).json);
        answers.insert(own, outcome);
    }
    let was_asked: Vec<String> = answers.keys().cloned().collect();
    let answers = nodes::complete(running, answers);
    if was_asked.is_empty() {
        let why = answers.into_iter().find_map(|(_, answer)| answer.err());
        let what = why.map_or_else(String::new, |why| format!(": {why}"));
        let what = format!("no node can be asked{what}");
        return Err(ControlError::Unavailable { what });
    }
    ordered(answers, &was_asked)
}

/// Combines the outcomes of all nodes; `asked` are those that were asked.
fn ordered(
    answers: nodes::Answers<Outcome>,
    asked: &[String],
) -> Result<ServerOrdered, ControlError> {
    let mut refused = None;
    let of_node = |(node, answer): (String, Result<Outcome, String>)| {
        let away = !asked.contains(&node);
        match answer {
            Ok(Outcome { refusal: None, server }) => {
                OrderedNode { node, done: true, why: None, away, server }
            }
            Ok(Outcome { refusal: Some(refusal), server }) => {
                let error = ControlError::from(refusal);
                let why = Some(error.to_string());
                refused.get_or_insert(error);
                OrderedNode { node, done: false, why, away, server }
            }
            Err(why) => OrderedNode { node, done: false, why: Some(why), away, server: None },
        }
    };
    let nodes: Vec<_> = answers.into_iter().map(of_node).collect();
    match refused {
        Some(refused) if !nodes.iter().any(|node| node.done) => Err(refused),
        _ => {
            let complete = nodes.iter().all(|node| node.done || node.away);
            Ok(ServerOrdered { complete, nodes })
        }
    }
}

/// Builds the order, with the checks that any process of the cluster can make.
fn parse(
    config: &Config,
    (pool, server): (&str, &str),
    command: &ServerCommand,
) -> Result<ServerOrder, ControlError> {
    let Some(filed) = config.pools.iter().find(|it| it.name == pool) else {
        return Err(no_pool(config.pools.iter().map(|it| it.name.as_str()), pool));
    };
    let change = match command {
        ServerCommand::Drain => ServerChange::Drain,
        ServerCommand::Resume => ServerChange::Resume,
        ServerCommand::Remove { timeout_ms } => ServerChange::Remove { timeout_ms: *timeout_ms },
        ServerCommand::Weight(weight) => {
            let filed = filed.servers.iter().find(|it| it.name == server);
            ServerChange::Weight { weight: *weight, filed: filed.map(|it| it.weight) }
        }
        ServerCommand::Add(new) => {
            let server = server_config(new)?;
            ServerChange::Add(Box::new(AddedServer {
                address: server.address,
                weight: server.weight,
                connections_max: server.connections_max,
                connections_scope: text(server.connections_scope.word())?,
                status_address: server.status_address,
            }))
        }
    };
    Ok(ServerOrder { pool: text(pool)?, server: text(server)?, change, stamp: OrderStamp::NONE })
}

fn text(text: &str) -> Result<Name, ControlError> {
    Name::new(text).map_err(|error| invalid(error.to_string(), None))
}

/// Executes an order at this process's node.
pub(super) fn carry_out(
    running: &Running,
    order: &ServerOrder,
    novelty: OrderNovelty,
) -> OrderOutcome {
    let result = match novelty {
        OrderNovelty::Outdated => {
            let what = "a later order about it stands: repeat the command".to_owned();
            Err(ControlError::Conflict { what })
        }
        OrderNovelty::Done => Ok(()),
        OrderNovelty::New => change(running, order),
    };
    let (pool, server) = (order.pool.as_str(), order.server.as_str());
    let change = order.change.word();
    match &result {
        Ok(()) => tracing::info!("pool {pool}: {change} of server {server}, as ordered"),
        Err(why) => tracing::info!("pool {pool}: {change} of server {server} not done: {why}"),
    }
    let is_done = result.is_ok();
    let servers = pools::own(running).into_iter().filter(|it| it.name == pool);
    let server = servers.flat_map(|it| it.servers).find(|it| it.name == server);
    let outcome = Outcome { refusal: result.err().map(Refusal::from), server };
    OrderOutcome { is_done, json: serde_json::to_vec(&outcome).unwrap_or_default() }
}

fn change(running: &Running, order: &ServerOrder) -> Result<(), ControlError> {
    let no_node = || {
        let what = "this process has no pools: ask a node".to_owned();
        ControlError::NotFound { what, did_you_mean: None }
    };
    let node = running.parts.node.as_ref().ok_or_else(no_node)?;
    let (group, name) = (pool(node, order.pool.as_str())?, order.server.as_str());
    let result = match &order.change {
        ServerChange::Drain => group.drain(name),
        ServerChange::Resume => group.resume(name),
        ServerChange::Remove { timeout_ms } => group.remove_unless_last(name, *timeout_ms),
        ServerChange::Weight { weight, filed } => {
            let config = running.config();
            let pool = config.pools.iter().find(|it| it.name == group.name());
            let own = pool.and_then(|it| it.servers.iter().find(|it| it.name == name));
            let own = own.map(|it| it.weight);
            if own != *filed {
                let what = format!("the config of this node has another weight for {name}");
                return Err(ControlError::Conflict { what });
            }
            group.set_weight(name, *weight)
        }
        ServerChange::Add(added) => {
            let server = of_order(name, added)?;
            return add(running, node, group.name(), server);
        }
    };
    result.map_err(refusal)
}

/// The pool with this name of a node.
pub(super) fn pool(node: &Node, name: &str) -> Result<std::sync::Arc<Group>, ControlError> {
    let pools = node.pools();
    match pools.iter().find(|pool| pool.name() == name) {
        Some(pool) => Ok(pool.clone()),
        None => Err(no_pool(pools.iter().map(|pool| pool.name()), name)),
    }
}

pub(super) fn no_pool<'a>(
    pools: impl Iterator<Item = &'a str> + Clone,
    name: &str,
) -> ControlError {
    let what = match pools.clone().collect::<Vec<_>>().join(", ").as_str() {
        "" => "this process has no pools: ask a node whose sites lead to some".to_owned(),
        known => format!("no pool {name:?}; the pools: {known}"),
    };
    let did_you_mean = nearest(name, pools).map(str::to_owned);
    ControlError::NotFound { what, did_you_mean }
}

fn add(
    running: &Running,
    node: &Node,
    pool: &str,
    server: ServerConfig,
) -> Result<(), ControlError> {
    node.add_server(&running.config(), pool, server).map_err(|error| {
        let what = error.to_string();
        match error {
            AddServerError::NoPool(_) => ControlError::NotFound { what, did_you_mean: None },
            AddServerError::NeedsSecret(_)
            | AddServerError::OfFile(..)
            | AddServerError::Elsewhere(..) => invalid(what, None),
            AddServerError::Refused(error) => refusal(error),
        }
    })
}

/// Converts a server that another process, possibly of another build, has checked.
fn of_order(name: &str, added: &AddedServer) -> Result<ServerConfig, ControlError> {
    server_config(&NewServer {
        name: name.to_owned(),
        address: added.address,
        weight: Some(added.weight),
        connections_max: Some(added.connections_max),
        connections_scope: Some(added.connections_scope.to_string()),
        status_address: added.status_address,
    })
}

impl From<ControlError> for Refusal {
    fn from(error: ControlError) -> Self {
        match error {
            ControlError::NotFound { what, did_you_mean } => Self::NotFound { what, did_you_mean },
            ControlError::Conflict { what } => Self::Conflict { what },
            ControlError::Invalid { what, did_you_mean } => Self::Invalid { what, did_you_mean },
            ControlError::Unavailable { what } => Self::Unavailable { what },
        }
    }
}

impl From<Refusal> for ControlError {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::NotFound { what, did_you_mean } => Self::NotFound { what, did_you_mean },
            Refusal::Conflict { what } => Self::Conflict { what },
            Refusal::Invalid { what, did_you_mean } => Self::Invalid { what, did_you_mean },
            Refusal::Unavailable { what } => Self::Unavailable { what },
        }
    }
}

/// The server's config; names, addresses and weights are checked where members are added.
fn server_config(new: &NewServer) -> Result<ServerConfig, ControlError> {
    let of_config = ServerConfig::default();
    let connections_max = new.connections_max.unwrap_or(of_config.connections_max);
    if !(1..=SERVER_CONNECTIONS_MAX).contains(&connections_max) {
        let expected = format!("connections_max of 1 to {SERVER_CONNECTIONS_MAX}");
        return Err(invalid(format!("expected {expected}, found {connections_max}"), None));
    }
    Ok(ServerConfig {
        name: new.name.clone(),
        address: new.address,
        weight: new.weight.unwrap_or(of_config.weight),
        connections_max,
        connections_scope: scope(new)?,
        status_address: new.status_address,
    })
}

fn scope(new: &NewServer) -> Result<ConnectionsScope, ControlError> {
    let Some(word) = &new.connections_scope else { return Ok(ConnectionsScope::Auto) };
    ConnectionsScope::from_word(word).ok_or_else(|| {
        let known = ConnectionsScope::WORDS;
        let what = format!("connections_scope is one of {}, not {word:?}", known.join(", "));
        invalid(what, nearest(word, known.iter().copied()))
    })
}

fn invalid(what: String, did_you_mean: Option<&str>) -> ControlError {
    ControlError::Invalid { what, did_you_mean: did_you_mean.map(str::to_owned) }
}
