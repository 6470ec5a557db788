//! `skep pool`: list, drain, resume, test.

use anyhow::bail;
use skep_console::{NewServerTest, ServerStatus, ServerTest};

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
        PoolCommand::Drain { server } => change(&server, "drain"),
        PoolCommand::Resume { server } => change(&server, "resume"),
        PoolCommand::Test { server, path: target, host, health, timeout } => {
            let timeout_ms = Some(timeout);
            test(&server, &NewServerTest { health, target, host, timeout_ms })
        }
    }
}

/// Tests a server, and prints what it answered; an error if that was nothing, or one of 500 to 599.
fn test(server: &OneServer, test: &NewServerTest) -> anyhow::Result<()> {
    let client = server.target.find_node()?.client;
    let (pool, name) = (show::encode(&server.pool), show::encode(&server.name));
    let answer = client.post_json(&format!("/api/v1/pools/{pool}/servers/{name}/test"), test)?;
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

/// Changes a server, and prints its state afterwards.
fn change(server: &OneServer, what: &str) -> anyhow::Result<()> {
    let client = server.target.find_node()?.client;
    let (pool, name) = (show::encode(&server.pool), show::encode(&server.name));
    let answer = client.post(&format!("/api/v1/pools/{pool}/servers/{name}/{what}"))?;
    if server.json {
        return print_json(&answer);
    }
    let servers: Vec<ServerStatus> = client.decode(&answer)?;
    let lines = servers.iter().map(|it| {
        let work = match it.connections {
            0 => String::new(),
            connections => format!(", {} in work", show::plural(connections.into(), "request")),
        };
        format!("{}: {}{work}, pool {}\n", it.name, it.state.word(), it.pool)
    });
    print(&lines.collect::<String>())
}
