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
        return requests(&args.status);
    }
    if let Some(step) = &args.series {
        return series(&args.status, if step == SERIES_STEPS[0] { 10 } else { 60 });
    }
    let found = args.status.target.find()?;
    match args.status.json {
        true => print_json(&found.client.get("/api/v1/status")?),
        false => print(&show::status(&found.status, show::Paint::for_stdout())),
    }
}

/// The requests that the process has elsewhere now.
fn requests(args: &StatusArgs) -> anyhow::Result<()> {
    let client = args.target.find()?.client;
    let answer = client.get("/api/v1/requests")?;
    if args.json {
        return print_json(&answer);
    }
    let requests: Vec<RequestStatus> = client.decode(&answer)?;
    print(&show::requests(&requests))
}

/// Requests of the process over time.
fn series(args: &StatusArgs, step_s: u64) -> anyhow::Result<()> {
    let client = args.target.find()?.client;
    let answer = client.get(&format!("/api/v1/series?step_s={step_s}"))?;
    if args.json {
        return print_json(&answer);
    }
    let series: TrafficSeries = client.decode(&answer)?;
    print(&show::series(&series))
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
