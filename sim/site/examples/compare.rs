//! Compares policies on a simulated site; prints a table, or JSON.
//!
//! `cargo run --release -p skep-site-sim --example compare -- --site data-intensive --load heavy --nodes 8`

#![allow(clippy::print_stdout, reason = "what it is for")]

use std::time::Instant;

use clap::error::ErrorKind;
use clap::{CommandFactory, Parser, ValueEnum};
use serde_json::{Value, json};
use skep_site_sim::{
    Estimate, Experiment, FetchSource, OfferedLoad, PolicyOutcomes, RatioEstimate, RunOutcome,
    SIZE_CLASSES, SimulatedCluster, SimulatedNode, SiteKind,
};

#[derive(Parser)]
struct Args {
    /// Site: world-cup, data-intensive or webbench
    #[arg(long, default_value = "data-intensive", value_parser = site)]
    site: SiteKind,
    /// Offered load, as a share of the capacity of the links: light is 0.3, heavy 0.8
    #[arg(long, value_enum, default_value = "heavy")]
    load: Load,
    /// The same as a number
    #[arg(long)]
    link_share: Option<f64>,
    /// Use a closed loop with this number of clients instead
    #[arg(long)]
    clients: Option<u32>,
    #[arg(long, default_value_t = 8)]
    nodes: usize,
    /// Make every other node three times as fast as the others, with weights to match
    #[arg(long)]
    unequal: bool,
    #[arg(long, default_value_t = 20_000)]
    requests: u64,
    #[arg(long, default_value_t = 5)]
    seeds: u64,
    #[arg(long, default_value_t = 0.3)]
    warm_up: f64,
    /// Names of policies; ratios are relative to the first. Without it, all policies
    #[arg(long, value_delimiter = ',')]
    policies: Vec<String>,
    /// Nodes fetch what they do not have from each other
    #[arg(long)]
    cluster_cache: bool,
    /// Memory of a node, as a share of the site's bytes
    #[arg(long, default_value_t = 0.175)]
    memory: f64,
    /// Factor for the number of files, for memories and for rates
    #[arg(long, default_value_t = 1.0)]
    scale: f64,
    /// Exponent of the popularity of files
    #[arg(long)]
    zipf: Option<f64>,
    /// Rate of a node's link in bytes per second, before weights and scale
    #[arg(long)]
    link: Option<u64>,
    /// Rate of a node's disk in bytes per second, before weights and scale
    #[arg(long)]
    disk: Option<u64>,
    /// Rate in bytes per second of one origin for all nodes, in place of their disks
    #[arg(long)]
    origin: Option<u64>,
    /// Number of dispatchers, each with a policy of its own
    #[arg(long, default_value_t = 1)]
    workers: usize,
    /// Give the policies the rates of links and disks. Live dispatchers know only the rates of disks and
    /// origins that nodes measure
    #[arg(long)]
    told_rates: bool,
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum Load {
    Light,
    Heavy,
}

/// A measure of the table: its title, and its value for an outcome.
type Measure = (&'static str, fn(&RunOutcome) -> f64);

const MEASURES: &[Measure] = &[
    ("mean s", |outcome| outcome.all.mean_s()),
    ("p50 s", |outcome| outcome.all.quantile_s(0.5)),
    ("p99 s", |outcome| outcome.all.quantile_s(0.99)),
    ("memory %", |outcome| 100.0 * outcome.bytes.share(outcome.bytes.memory)),
    ("joined %", |outcome| 100.0 * outcome.bytes.share(outcome.bytes.joined)),
    ("peer %", |outcome| 100.0 * outcome.bytes.share(outcome.bytes.peer)),
    ("fetched %", |outcome| 100.0 * outcome.bytes.share(outcome.bytes.fetched)),
    ("busiest/mean", |outcome| outcome.busiest_over_mean),
    ("links %", |outcome| 100.0 * outcome.link_use),
    ("at once", |outcome| outcome.in_progress_most as f64),
];

fn main() {
    let args = Args::parse();
    let experiment = experiment(&args);
    let named = args.policies.iter().map(String::as_str);
    let policies: Vec<&str> =
        if args.policies.is_empty() { skep_policy::names().collect() } else { named.collect() };
    let began = Instant::now();
    let mut all = Vec::new();
    for policy in policies {
        let outcomes = experiment.run(policy);
        all.push(
            outcomes.unwrap_or_else(|error| {
                Args::command().error(ErrorKind::InvalidValue, error).exit()
            }),
        );
    }
    let requests = experiment.requests * experiment.seeds * all.len() as u64;
    let rate = requests as f64 / began.elapsed().as_secs_f64();
    if args.json {
        println!("{:#}", as_json(&all, rate));
    } else {
        print_table(&all);
        println!("{rate:.0} requests simulated per second");
    }
}

fn site(name: &str) -> Result<SiteKind, String> {
    SiteKind::named(name).ok_or_else(|| "world-cup, data-intensive or webbench".to_owned())
}

fn experiment(args: &Args) -> Experiment {
    let zipf_exponent = args.zipf.unwrap_or(args.site.zipf_exponent());
    let bytes = args.site.workload(args.scale, zipf_exponent, 1).bytes();
    let weight = |node| if args.unequal && node % 2 == 0 { 3 } else { 1 };
    let weights: Vec<u32> = (0..args.nodes).map(weight).collect();
    let memory_bytes = (bytes as f64 * args.memory) as u64;
    let usual = SimulatedNode::usual(memory_bytes);
    let node = SimulatedNode {
        link_bytes_per_s: args.link.unwrap_or(usual.link_bytes_per_s),
        disk_bytes_per_s: args.disk.unwrap_or(usual.disk_bytes_per_s),
        ..usual
    };
    let mut cluster = SimulatedCluster::weighted(&weights, node, args.scale);
    cluster.has_cluster_cache = args.cluster_cache;
    cluster.workers = args.workers;
    cluster.tells_rates = args.told_rates;
    if let Some(bytes_per_s) = args.origin {
        cluster.source = FetchSource::SharedOrigin { bytes_per_s };
    }
    let named = match args.load {
        Load::Light => 0.3,
        Load::Heavy => 0.8,
    };
    let open = OfferedLoad::Open { link_share: args.link_share.unwrap_or(named) };
    Experiment {
        site: args.site,
        scale: args.scale,
        zipf_exponent,
        cluster,
        load: args.clients.map_or(open, |clients| OfferedLoad::Closed { clients }),
        requests: args.requests,
        warm_up_share: args.warm_up,
        seeds: args.seeds,
    }
}

fn print_table(all: &[PolicyOutcomes]) {
    print!("{:<28}", "policy");
    MEASURES.iter().for_each(|(title, _)| print!("{title:>16}"));
    println!("{:>22}{:>22}", "mean ratio", "p99 ratio");
    for policy in all {
        print!("{:<28}", policy.policy);
        MEASURES.iter().for_each(|(_, measure)| print!("{:>16}", cell(policy.estimate(measure))));
        let mean = policy.ratio(&all[0], |outcome| outcome.all.mean_s());
        let p99 = policy.ratio(&all[0], |outcome| outcome.all.quantile_s(0.99));
        let ratio = |it: RatioEstimate| {
            format!("{} ({}-{})", short(it.mean), short(it.low), short(it.high))
        };
        println!("{:>22}{:>22}", ratio(mean), ratio(p99));
    }
    println!("\nmean s (p99 s) by decade of bytes");
    for policy in all {
        print!("{:<28}", policy.policy);
        for class in 0..SIZE_CLASSES {
            let mean = policy.estimate(|outcome| outcome.classes[class].mean_s());
            let p99 = policy.estimate(|outcome| outcome.classes[class].quantile_s(0.99));
            if mean.mean.is_finite() {
                print!("  1e{class} {} ({})", short(mean.mean), short(p99.mean));
            }
        }
        println!();
    }
}

fn cell(estimate: Estimate) -> String {
    match estimate.half_width.is_finite() {
        true => format!("{} ±{}", short(estimate.mean), short(estimate.half_width)),
        false => short(estimate.mean),
    }
}

fn short(value: f64) -> String {
    match value.abs() {
        0.0 => "0".to_owned(),
        0.0..0.01 => format!("{value:.1e}"),
        0.01..10.0 => format!("{value:.3}"),
        10.0..1000.0 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}

fn as_json(all: &[PolicyOutcomes], rate: f64) -> Value {
    let number = |value: f64| if value.is_finite() { json!(value) } else { Value::Null };
    let value = |estimate: Estimate| json!([number(estimate.mean), number(estimate.half_width)]);
    let classes = |policy: &PolicyOutcomes| -> Value {
        let class = |class: usize| {
            let mean = policy.estimate(|outcome| outcome.classes[class].mean_s());
            let p99 = policy.estimate(|outcome| outcome.classes[class].quantile_s(0.99));
            json!({ "from_bytes": 10u64.pow(class as u32), "mean_s": value(mean), "p99_s": value(p99) })
        };
        (0..SIZE_CLASSES).map(class).collect()
    };
    let policy = |policy: &PolicyOutcomes| {
        let measures =
            MEASURES.iter().map(|(title, it)| ((*title).to_owned(), value(policy.estimate(it))));
        let measures: serde_json::Map<String, Value> = measures.collect();
        json!({ "policy": policy.policy, "measures": measures, "classes": classes(policy) })
    };
    json!({
        "requests_simulated_per_s": rate,
        "policies": all.iter().map(policy).collect::<Vec<_>>(),
    })
}
