//! `skep pool`: list, add, remove, drain, resume, weight, test.

use anyhow::bail;
use skep_console::{
    ApiClient, ApiResponse, NewServer, NewServerTest, NewWeight, PoolStatus, ServerOrdered,
    ServerStatus, ServerTest,
};

use super::removal::wait_for_removal;
use super::{print, print_json};
use crate::arguments::{OneServer, PoolCommand};
use crate::show;

pub(crate) fn pool(command: PoolCommand) -> anyhow::Result<()> {
    match command {
        PoolCommand::List(args) => {
            let client = args.target.find()?.client;
            let answer = client.get("/api/v1/pools")?;
            if args.json {
                return print_json(&answer);
            }
            let pools: Vec<PoolStatus> = client.decode(&answer)?;
            print(&show::pools(&pools, show::Paint::for_stdout()))
        }
        PoolCommand::Add {
            server,
            address,
            weight,
            connections_max,
            connections_scope,
            status_address,
        } => {
            let new = NewServer {
                name: server.name.clone(),
                address,
                weight: Some(weight),
                connections_max: Some(connections_max),
                connections_scope: Some(connections_scope),
                status_address,
            };
            order(&server, |client| {
                let path = format!("/api/v1/pools/{}/servers", show::encode(&server.pool));
                Ok(client.post_json(&path, &new)?)
            })
            .map(drop)
        }
        PoolCommand::Remove { server, wait, timeout } => {
            let path = path(&server, &format!("?timeout_ms={timeout}"));
            let remove =
                |client: &ApiClient| -> anyhow::Result<ApiResponse> { Ok(client.delete(&path)?) };
            let waits = wait && !server.json;
            let client = if waits { begin(&server, remove)? } else { order(&server, remove)? };
            if wait {
                let read = || servers(&client, &server);
                wait_for_removal(&server.name, timeout, read, |it| it.state)?;
            }
            if waits {
                print(&format!("{}: removed\n", server.name))?;
            }
            Ok(())
        }
        PoolCommand::Drain { server } => tell_to(&server, "/drain"),
        PoolCommand::Resume { server } => tell_to(&server, "/resume"),
        PoolCommand::Weight { server, weight } => order(&server, |client| {
            Ok(client.put_json(&path(&server, "/weight"), &NewWeight { weight })?)
        })
        .map(drop),
        PoolCommand::Test { server, path: target, host, health, timeout } => {
            let timeout_ms = Some(timeout);
            test(&server, &NewServerTest { health, target, host, timeout_ms })
        }
    }
}

/// Tests a server, and prints its response; fails if there was none, or a status of 500 to 599.
fn test(server: &OneServer, test: &NewServerTest) -> anyhow::Result<()> {
    let client = server.target.find_node()?.client;
    let answer = client.post_json(&path(server, "/test"), test)?;
    let tested: ServerTest = client.decode(&answer)?;
    match server.json {
        true => print_json(&answer)?,
        false => print(&show::server_test(&tested))?,
    }
    match (&tested.error, tested.status) {
        (Some(error), _) => bail!("{}: {error}", tested.name),
        (None, Some(status @ 500..)) => bail!("{} answered {status}", tested.name),
        _ => Ok(()),
    }
}

/// Gives an order without a body.
fn tell_to(server: &OneServer, what: &str) -> anyhow::Result<()> {
    order(server, |client| Ok(client.post(&path(server, what))?)).map(drop)
}

/// Changes a server at all nodes, and prints the result; fails if a node that was asked did not execute the
/// order.
fn order(
    server: &OneServer,
    job: impl FnOnce(&ApiClient) -> anyhow::Result<ApiResponse>,
) -> anyhow::Result<ApiClient> {
    let client = server.target.find()?.client;
    let answer = job(&client)?;
    let ordered: ServerOrdered = client.decode(&answer)?;
    match server.json {
        true => print_json(&answer)?,
        false => print(&show::server_ordered(&server.name, &ordered))?,
    }
    fail_unless_complete(&ordered)?;
    Ok(client)
}

/// The same for an order that takes a while: prints only the nodes that do not execute it.
fn begin(
    server: &OneServer,
    job: impl FnOnce(&ApiClient) -> anyhow::Result<ApiResponse>,
) -> anyhow::Result<ApiClient> {
    let client = server.target.find()?.client;
    let ordered: ServerOrdered = client.decode(&job(&client)?)?;
    print(&show::server_not_ordered(&ordered))?;
    fail_unless_complete(&ordered)?;
    Ok(client)
}

fn fail_unless_complete(ordered: &ServerOrdered) -> anyhow::Result<()> {
    if !ordered.complete {
        let not_done = ordered.nodes.iter().filter(|it| !it.done && !it.away);
        let names: Vec<_> = not_done.map(|it| it.node.as_str()).collect();
        bail!("not done at {}", names.join(", "));
    }
    Ok(())
}

/// The server as seen by all nodes; empty once it is gone from all nodes that answer.
fn servers(client: &ApiClient, server: &OneServer) -> anyhow::Result<Vec<ServerStatus>> {
    let pools: Vec<PoolStatus> = client.decode(&client.get("/api/v1/pools")?)?;
    let servers = pools.into_iter().flat_map(|pool| pool.servers);
    Ok(servers.filter(|it| it.pool == server.pool && it.name == server.name).collect())
}

/// Path of a server's route.
fn path(server: &OneServer, tail: &str) -> String {
    let (pool, name) = (show::encode(&server.pool), show::encode(&server.name));
    format!("/api/v1/pools/{pool}/servers/{name}{tail}")
}
