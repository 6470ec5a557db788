//! The same run in the simulator: the same requests at the same times, links, sources and memories.

use skep_site_sim::{
    MemoryCosts, OfferedLoad, PlannedRequest, SimulatedCluster, SimulatedNode, SiteRun,
    SiteWorkload,
};

use super::super::Failure;
use super::RunFigures;
use super::cells::{BedCell, NODES, Trace};
use super::limits::HEAD_BYTES;

/// What nodes charge, in a memory of less than 64 MiB.
const MEMORY_COSTS: MemoryCosts =
    MemoryCosts { segment_bytes: 512, allocator_part: 8, head_bytes: HEAD_BYTES, heads_part: 4 };

/// Memory that nodes fill at a time: a fetch is read from there.
const CHUNK_BYTES: u64 = 256 * 1024;

/// Runs a trace under a policy.
pub(super) fn simulate(
    (cell, policy): (&BedCell, &str),
    trace: &Trace,
    seed: u64,
) -> Result<RunFigures, Failure> {
    let paths: Vec<String> = trace.objects.iter().map(|object| object.path()).collect();
    let objects = paths.iter().zip(&trace.objects).map(|(path, it)| (path.as_str(), it.bytes));
    let request =
        |&(at_us, object): &(u64, u32)| PlannedRequest { at_ns: at_us * 1_000, client: 1, object };
    let requests: Vec<PlannedRequest> = trace.requests.iter().map(request).collect();
    let (site, cluster) = (SiteWorkload::planned(objects, &requests), cluster(cell));
    let run = SiteRun {
        site: &site,
        cluster: &cluster,
        load: OfferedLoad::Logged,
        requests: requests.len() as u64,
        // So that it is rounded to this number.
        warm_up_share: (trace.warm_up as f64 + 0.5) / requests.len() as f64,
        seed,
    };
    let outcome = run.under(policy).map_err(|error| error.to_string())?;
    let (all, before) = (outcome.totals, outcome.warm_up_totals);
    let asked = trace.measured_bytes() as f64;
    Ok(RunFigures {
        mean_s: outcome.all.mean_s(),
        p99_s: outcome.all.quantile_s(0.99),
        hit_share: outcome.hits as f64 / trace.measured().len() as f64,
        peer_share: (all.peer_bytes - before.peer_bytes) as f64 / asked,
        source_share: (all.fetched_bytes - before.fetched_bytes) as f64 / asked,
        failed: 0,
        late_p99_s: 0.0,
        free_percent: 100.0,
    })
}

fn cluster(cell: &BedCell) -> SimulatedCluster {
    let scale = cell.site.scale();
    let node = SimulatedNode {
        link_bytes_per_s: scale.link_bytes_per_s(),
        disk_bytes_per_s: scale.source.rate_bits_s / 8,
        ..SimulatedNode::usual(cell.site.memory_bytes())
    };
    let mut cluster = SimulatedCluster::weighted(&[1; NODES], node, 1.0);
    cluster.fetch_latency_us = scale.source.delay_ms * 1_000;
    cluster.has_cluster_cache = true;
    cluster.tells_rates = true;
    cluster.memory_costs = MEMORY_COSTS;
    cluster.chunk_bytes = CHUNK_BYTES;
    cluster.passes_on = true;
    cluster
}
