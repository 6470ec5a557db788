//! `skep status`.

use skep_console::{NodePools, RequestStatus, TrafficSeries};

use super::{print, print_json};
use crate::arguments::{SERIES_STEPS, ShowArgs, StatusArgs};
use crate::show;

pub(crate) fn status(args: &ShowArgs) -> anyhow::Result<()> {
    if args.pools {
        return pools(&args.status);
    }
    if args.requests {
        return requests(&args.status, args.process);
    }
    if let Some(step) = &args.series {
        let step_s = if step == SERIES_STEPS[0] { 10 } else { 60 };
        return series(&args.status, step_s, args.process);
    }
    let found = args.status.target.find()?;
    match args.status.json {
        true => print_json(&found.client.get("/api/v1/status")?),
        false => print(&show::status(&found.status, show::Paint::for_stdout())),
    }
}

/// The present requests of all nodes at servers, or those of the process.
fn requests(args: &StatusArgs, of_process: bool) -> anyhow::Result<()> {
    let client = args.target.find()?.client;
    let route = if of_process { "/api/v1/requests" } else { "/api/v1/cluster/requests" };
    let answer = client.get(route)?;
    if args.json {
        return print_json(&answer);
    }
    print(&match of_process {
        true => show::requests(&client.decode::<Vec<RequestStatus>>(&answer)?),
        false => show::requests_of_nodes(&client.decode(&answer)?),
    })
}

/// Requests of all nodes over time, or those of the process.
fn series(args: &StatusArgs, step_s: u64, of_process: bool) -> anyhow::Result<()> {
    let client = args.target.find()?.client;
    let route = if of_process { "/api/v1/series" } else { "/api/v1/cluster/series" };
    let answer = client.get(&format!("{route}?step_s={step_s}"))?;
    if args.json {
        return print_json(&answer);
    }
    print(&match of_process {
        true => show::series(&client.decode::<TrafficSeries>(&answer)?),
        false => show::series_of_nodes(&client.decode(&answer)?),
    })
}

/// The servers of applications, as seen by all nodes.
fn pools(args: &StatusArgs) -> anyhow::Result<()> {
    let client = args.target.find()?.client;
    let answer = client.get("/api/v1/cluster/pools")?;
    if args.json {
        return print_json(&answer);
    }
    let nodes: Vec<NodePools> = client.decode(&answer)?;
    print(&show::pools_of_nodes(&nodes, show::Paint::for_stdout()))
}
