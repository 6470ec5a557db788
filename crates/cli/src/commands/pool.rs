//! `skep pool`: list, add, remove, drain, resume, test.

use anyhow::bail;
use skep_console::{ApiClient, NewServer, NewServerTest, PoolStatus, ServerStatus, ServerTest};

use super::removal::wait_for_removal;
use super::{print, print_json};
use crate::arguments::{OneServer, PoolCommand};
use crate::show;

pub(crate) fn pool(command: PoolCommand) -> anyhow::Result<()> {
    match command {
        PoolCommand::List(args) => {
            let found = args.target.find_node()?;
            match args.json {
                true => print_json(&found.client.get("/api/v1/pools")?),
                false => print(&show::pools(&found.status.pools, show::Paint::for_stdout())),
            }
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
            change(&server, |client| {
                let path = format!("/api/v1/pools/{}/servers", show::encode(&server.pool));
                Ok(client.decode(&client.post_json(&path, &new)?)?)
            })
        }
        PoolCommand::Remove { server, wait, timeout } => change(&server, |client| {
            let path = path(&server, &format!("?timeout_ms={timeout}"));
            let left = client.decode(&client.delete(&path)?)?;
            match wait {
                true => wait_for_removal(
                    &server.name,
                    timeout,
                    || servers(client, &server),
                    |it| it.state,
                ),
                false => Ok(left),
            }
        }),
        PoolCommand::Drain { server } => tell_to(&server, "/drain"),
        PoolCommand::Resume { server } => tell_to(&server, "/resume"),
        PoolCommand::Test { server, path: target, host, health, timeout } => {
            let timeout_ms = Some(timeout);
            test(&server, &NewServerTest { health, target, host, timeout_ms })
        }
    }
}

/// Tests a server, and prints what it answered; an error if that was nothing, or one of 500 to 599.
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

/// A command without more to say.
fn tell_to(server: &OneServer, what: &str) -> anyhow::Result<()> {
    change(server, |client| Ok(client.decode(&client.post(&path(server, what))?)?))
}

/// Changes a server, and prints its state afterwards.
fn change(
    server: &OneServer,
    job: impl FnOnce(&ApiClient) -> anyhow::Result<Vec<ServerStatus>>,
) -> anyhow::Result<()> {
    let servers = job(&server.target.find_node()?.client)?;
    match server.json {
        true => print(&format!("{}\n", show::json(&serde_json::to_string(&servers)?))),
        false => print(&tell(&server.name, &servers)),
    }
}

fn tell(name: &str, servers: &[ServerStatus]) -> String {
    if servers.is_empty() {
        return format!("{name}: removed\n");
    }
    let lines = servers.iter().map(|it| {
        let work = match it.connections {
            0 => String::new(),
            connections => format!(", {} in work", show::plural(connections.into(), "request")),
        };
        format!("{}: {}{work}, pool {}\n", it.name, it.state.word(), it.pool)
    });
    lines.collect()
}

/// The server as its node sees it; none once it is gone.
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
