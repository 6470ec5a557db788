//! `skep node`: list, drain, resume, add, remove, weight.

use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::bail;
use skep_console::{ApiClient, ApiResponse, NewNode, NewWeight, NodeState, NodeStatus};

use super::removal::wait_for_removal;
use super::{WAIT_POLL_MS, print, print_json};
use crate::arguments::{NodeCommand, OneNode};
use crate::show;

pub(crate) fn node(command: NodeCommand) -> anyhow::Result<()> {
    match command {
        NodeCommand::List(args) => {
            let found = args.target.find()?;
            if args.json {
                return print_json(&found.client.get("/api/v1/nodes")?);
            }
            let nodes = found.status.services.iter().flat_map(|service| &service.nodes);
            print(&show::nodes(nodes, show::Paint::for_stdout()))
        }
        NodeCommand::Drain { node, wait, timeout } => change(&node, |client| {
            let nodes = read(client, &client.post(&path(&node, "/drain", &[]))?)?;
            if wait { wait_for_drain(client, &node, timeout) } else { Ok(nodes) }
        }),
        NodeCommand::Resume { node } => {
            change(&node, |client| read(client, &client.post(&path(&node, "/resume", &[]))?))
        }
        NodeCommand::Add { node, address, weight, public_address } => change(&node, |client| {
            let (name, service) = (node.name.clone(), node.service.clone());
            let new = NewNode { name, address, weight, public_address, service };
            read(client, &client.post_json("/api/v1/nodes", &new)?)
        }),
        NodeCommand::Remove { node, wait, timeout } => change(&node, |client| {
            let timeout_ms = ("timeout_ms", timeout.to_string());
            let nodes = read(client, &client.delete(&path(&node, "", &[timeout_ms]))?)?;
            match wait {
                true => wait_for_removal(
                    &node.name,
                    timeout,
                    || self::nodes(client, &node),
                    |it| it.state,
                ),
                false => Ok(nodes),
            }
        }),
        NodeCommand::Weight { node, weight } => change(&node, |client| {
            let path = path(&node, "/weight", &[]);
            read(client, &client.put_json(&path, &NewWeight { weight })?)
        }),
    }
}

/// Changes a node and prints its state afterwards.
fn change(
    node: &OneNode,
    job: impl FnOnce(&ApiClient) -> anyhow::Result<Vec<NodeStatus>>,
) -> anyhow::Result<()> {
    let nodes = job(&node.target.find()?.client)?;
    match node.json {
        true => print(&format!("{}\n", serde_json::to_string(&nodes)?)),
        false => print(&tell(&node.name, &nodes)),
    }
}

fn read(client: &ApiClient, answer: &ApiResponse) -> anyhow::Result<Vec<NodeStatus>> {
    Ok(client.decode(answer)?)
}

/// Polls until the node has no requests left.
fn wait_for_drain(
    client: &ApiClient,
    node: &OneNode,
    timeout_ms: u64,
) -> anyhow::Result<Vec<NodeStatus>> {
    let started = Instant::now();
    loop {
        let nodes = nodes(client, node)?;
        match nodes.iter().find(|status| status.state != NodeState::Drained) {
            None => return Ok(nodes),
            Some(status) if status.state != NodeState::Draining => {
                bail!("{} is {}, no longer drained", node.name, status.state.word())
            }
            Some(status) if started.elapsed() >= Duration::from_millis(timeout_ms) => bail!(
                "{} still has {} in work after {}; it gets no new ones",
                node.name,
                show::plural(u64::from(status.connections), "request"),
                show::duration(timeout_ms),
            ),
            Some(_) => sleep(Duration::from_millis(WAIT_POLL_MS)),
        }
    }
}

fn nodes(client: &ApiClient, node: &OneNode) -> anyhow::Result<Vec<NodeStatus>> {
    let mut nodes = read(client, &client.get("/api/v1/nodes")?)?;
    nodes.retain(|status| is_meant(node, status));
    Ok(nodes)
}

fn is_meant(node: &OneNode, status: &NodeStatus) -> bool {
    let service = node.service.as_ref().is_none_or(|service| *service == status.service);
    status.name == node.name && service
}

/// One line for each service of the node.
fn tell(name: &str, nodes: &[NodeStatus]) -> String {
    if nodes.is_empty() {
        return format!("{name}: removed\n");
    }
    let line = |status: &NodeStatus| {
        let (service, weight) = (&status.service, status.weight);
        let work = match status.connections {
            0 => String::new(),
            connections => format!(", {} in work", show::plural(connections.into(), "request")),
        };
        format!("{name}: {}{work}, weight {weight}, service {service}\n", status.state.word())
    };
    nodes.iter().map(line).collect()
}

/// Path of a node's route, with its query.
fn path(node: &OneNode, tail: &str, query: &[(&str, String)]) -> String {
    let mut query: Vec<String> =
        query.iter().map(|(name, value)| format!("{name}={value}")).collect();
    query.extend(node.service.iter().map(|service| format!("service={}", show::encode(service))));
    let mark = if query.is_empty() { "" } else { "?" };
    format!("/api/v1/nodes/{}{tail}{mark}{}", show::encode(&node.name), query.join("&"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(name: &str, service: Option<&str>) -> OneNode {
        let service = service.map(str::to_owned);
        OneNode { name: name.to_owned(), service, json: false, target: Default::default() }
    }

    #[test]
    fn names_stay_within_their_part_of_the_path() {
        assert_eq!(path(&node("n", None), "/drain", &[]), "/api/v1/nodes/n/drain");
        let path = path(&node("a/../b?", Some("x&y")), "", &[("timeout_ms", "5".into())]);
        assert_eq!(path, "/api/v1/nodes/a%2F..%2Fb%3F?timeout_ms=5&service=x%26y");
    }
}
