//! `skep policy advise`: recommends a policy for a site, from its access log.

use std::ops::ControlFlow;
use std::path::Path;

use anyhow::{Context, bail};
use serde_json::json;
use skep_advise::{
    AdviceQuestion, FetchSource, PolicyAdvice, SimulatedCluster, SimulatedNode, advise,
    plot_advice, policies_of,
};
use skep_config::{Config, DispatchMode, ServiceConfig};
use tokio::sync::oneshot;

use super::{print, progress, stop};
use crate::arguments::AdviseArgs;
use crate::config_file::load;
use crate::show;

/// Number of nodes and memory of each, unless specified.
const NODES: usize = 4;
const MEMORY_BYTES: u64 = 256 << 20;

const US_PER_MS: u64 = 1_000;

pub(super) fn run(args: AdviseArgs) -> anyhow::Result<()> {
    stop::with_signals("advise", move |stopped| run_until(&args, stopped))
}

fn run_until(args: &AdviseArgs, mut stopped: oneshot::Receiver<()>) -> anyhow::Result<()> {
    let setup = Setup::of(args)?;
    if let Some(file) = &args.svg {
        // Checked before the work rather than after it.
        std::fs::write(file, "").with_context(|| format!("cannot write {}", file.display()))?;
    }
    let trace = progress::read_log(&args.log)?;
    let question = AdviceQuestion {
        trace: &trace,
        cluster: &setup.cluster,
        policies: &setup.policies,
        current: setup.current,
        speed: args.speed,
        requests_max: args.requests,
        repetitions: args.repetitions,
        time_ms: args.time,
    };
    let bar = progress::steps_bar();
    let advice = advise(&question, |it| {
        bar.set_length(it.of);
        bar.set_position(it.done);
        bar.set_message(it.policy);
        match stopped.try_recv() {
            Ok(()) => ControlFlow::Break(()),
            Err(_) => ControlFlow::Continue(()),
        }
    });
    bar.finish_and_clear();
    let advice = advice?;
    if let Some(file) = &args.svg {
        draw(&advice, &args.log, file)?;
    }
    if args.json {
        let mut value = advice.to_json();
        value["log"] = show::log_json(&trace);
        value["cluster"] = setup.to_json();
        return print(&format!("{}\n", show::json(&value.to_string())));
    }
    let log = show::log_summary(&args.log, &trace);
    print(&format!("{log}{}{}", setup.text(), show::advice(&advice)))
}

fn draw(advice: &PolicyAdvice, log: &Path, file: &Path) -> anyhow::Result<()> {
    let name = log.file_name().unwrap_or(log.as_os_str()).to_string_lossy();
    let title = format!(
        "{}: {}",
        show::harmless_text(&name),
        match advice.verdict.is_change {
            true => format!("choose {}", advice.verdict.policy),
            false => format!("keep {}", advice.verdict.policy),
        }
    );
    let svg = plot_advice(advice, &title)?;
    std::fs::write(file, svg).with_context(|| format!("cannot write {}", file.display()))
}

/// The configuration on which the log is simulated.
struct Setup {
    cluster: SimulatedCluster,
    mode: DispatchMode,
    current: &'static str,
    policies: Vec<&'static str>,
}

impl Setup {
    fn of(args: &AdviseArgs) -> anyhow::Result<Self> {
        let config = args.config.as_deref().map(load).transpose()?;
        let service = config.as_ref().map(|it| service(it, args)).transpose()?;
        let mode = args.dispatch.or(service.map(|it| it.dispatch)).unwrap_or(DispatchMode::Proxy);
        let current = args.current.as_deref().or(service.map(|it| it.policy.as_str()));
        let current = current.unwrap_or("round-robin");
        let suiting = policies_of(mode);
        let Some(current) = suiting.iter().copied().find(|it| *it == current) else {
            bail!(
                "{current} is none of the policies that are simulated for {}: name another one by --current",
                mode.word()
            );
        };
        if let Some(other) = args.policies.iter().find(|it| !suiting.contains(&it.as_str())) {
            bail!("{other} is none of the policies that are simulated for {}", mode.word());
        }
        let is_meant = |it: &&str| {
            args.policies.is_empty()
                || *it == current
                || args.policies.iter().any(|name| name == it)
        };
        let policies = suiting.into_iter().filter(is_meant).collect();
        let weights = weights(args, config.as_ref().zip(service));
        Ok(Self { cluster: cluster(args, config.as_ref(), &weights), mode, current, policies })
    }

    fn text(&self) -> String {
        let SimulatedCluster { nodes, source, has_cluster_cache, .. } = &self.cluster;
        let memory = show::bytes(nodes.first().map_or(0, |node| node.memory_bytes));
        let most = |rate: fn(&SimulatedNode) -> u64| {
            show::bytes(nodes.iter().map(rate).max().unwrap_or(0))
        };
        let cache = if *has_cluster_cache { "a" } else { "no" };
        let source = match source {
            FetchSource::OwnDisk => format!("disks {}/s", most(|it| it.disk_bytes_per_s)),
            FetchSource::SharedOrigin { bytes_per_s } => {
                format!("one origin {}/s", show::bytes(*bytes_per_s))
            }
        };
        format!(
            "cluster    {} ({}) with {memory} of memory each, {cache} cluster cache;\n           \
             links {}/s, {source}\n",
            show::plural(nodes.len() as u64, "node"),
            self.mode.word(),
            most(|it| it.link_bytes_per_s),
        )
    }

    fn to_json(&self) -> serde_json::Value {
        let node = |node: &SimulatedNode| {
            json!({
                "weight": node.weight,
                "memory_bytes": node.memory_bytes,
                "link_bytes_per_s": node.link_bytes_per_s,
                "disk_bytes_per_s": node.disk_bytes_per_s,
            })
        };
        let origin = match self.cluster.source {
            FetchSource::OwnDisk => None,
            FetchSource::SharedOrigin { bytes_per_s } => Some(bytes_per_s),
        };
        json!({
            "dispatch": self.mode.word(),
            "nodes": self.cluster.nodes.iter().map(node).collect::<Vec<_>>(),
            "has_cluster_cache": self.cluster.has_cluster_cache,
            "origin_bytes_per_s": origin,
            "latency_us": self.cluster.fetch_latency_us,
        })
    }
}

/// The service to simulate.
fn service<'a>(config: &'a Config, args: &AdviseArgs) -> anyhow::Result<&'a ServiceConfig> {
    let names = || config.services.iter().map(|it| it.name.as_str()).collect::<Vec<_>>().join(", ");
    match (&args.service, config.services.as_slice()) {
        (Some(name), services) => services
            .iter()
            .find(|it| it.name == *name)
            .with_context(|| format!("the config has no service {name}; known: {}", names())),
        (None, [service]) => Ok(service),
        (None, []) => {
            bail!("the config has no service: leave --config out, and say --nodes and --memory")
        }
        (None, _) => bail!("the config has several services: say --service, one of {}", names()),
    }
}

/// The weights of the nodes.
fn weights(args: &AdviseArgs, configured: Option<(&Config, &ServiceConfig)>) -> Vec<u32> {
    let equal = |count: usize| vec![1; count];
    match (args.nodes, configured) {
        (Some(count), _) => equal(count.into()),
        (None, None) => equal(NODES),
        (None, Some((config, service))) => {
            let is_behind =
                |name: &String| service.nodes.is_empty() || service.nodes.contains(name);
            let nodes = config.nodes.iter().filter(|node| is_behind(&node.name));
            nodes.map(|node| node.weight).collect()
        }
    }
}

/// The nodes' links and disks are as fast as their weights indicate; the fastest have the speed that the
/// options specify.
fn cluster(args: &AdviseArgs, config: Option<&Config>, weights: &[u32]) -> SimulatedCluster {
    let memory = args.memory.or(config.map(|it| it.cache.size_bytes_max)).unwrap_or(MEMORY_BYTES);
    let usual = SimulatedNode::usual(memory);
    let most = weights.iter().copied().max().unwrap_or(1);
    let node = |&weight: &u32| {
        let rate = |bytes_per_s: u64| (bytes_per_s * u64::from(weight) / u64::from(most)).max(1);
        let (link, disk) = (rate(args.link), rate(args.disk));
        SimulatedNode { weight, link_bytes_per_s: link, disk_bytes_per_s: disk, ..usual }
    };
    let has_cache = |it: &Config| it.key_file.is_some() && it.cache.cooperate;
    let mut cluster = SimulatedCluster::weighted(weights, usual, 1.0);
    cluster.nodes = weights.iter().map(node).collect();
    cluster.fetch_latency_us = args.latency * US_PER_MS;
    cluster.has_cluster_cache = args.cluster_cache || config.is_some_and(has_cache);
    if let Some(bytes_per_s) = args.origin {
        cluster.source = FetchSource::SharedOrigin { bytes_per_s };
    }
    cluster
}
