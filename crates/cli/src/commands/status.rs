//! `skep status`.

use skep_console::NodePools;

use super::{print, print_json};
use crate::arguments::{ShowArgs, StatusArgs};
use crate::show;

pub(crate) fn status(args: &ShowArgs) -> anyhow::Result<()> {
    if args.pools {
        return pools(&args.status);
    }
    let found = args.status.target.find()?;
    match args.status.json {
        true => print_json(&found.client.get("/api/v1/status")?),
        false => print(&show::status(&found.status, show::Paint::for_stdout())),
    }
}

/// The servers of applications, as all nodes see them.
fn pools(args: &StatusArgs) -> anyhow::Result<()> {
    let client = args.target.find()?.client;
    let answer = client.get("/api/v1/cluster/pools")?;
    if args.json {
        return print_json(&answer);
    }
    let nodes: Vec<NodePools> = client.decode(&answer)?;
    print(&show::pools_of_nodes(&nodes, show::Paint::for_stdout()))
}
