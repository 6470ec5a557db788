//! Output for people: tables of at most 80 columns, numbers with units, optional colour.
//!
//! Pure functions from the API's answers to text; `commands/` prints it.

use std::fmt::Write;
use std::io::IsTerminal;

use skep_console::{
    CoordinatorStatus, DirectStatus, HandoffCount, Latency, NodeBehind, NodeReport, NodeSource,
    NodeState, NodeStatus, ProcessStatus, ServiceArm, ServiceStatus,
};

mod advice;
mod bench;
mod comparison;
mod harmless;
mod number;
mod policies;
mod pools;
mod probe;
mod series;
mod table;

pub(crate) use advice::{advice, log_json, log_summary};
pub(crate) use bench::{bench_data, bench_pace, bench_progress, bench_report};
pub(crate) use comparison::comparison;
pub(crate) use harmless::{harmless_text, json};
use number::age;
pub(crate) use number::{bytes, count, duration, latency, permille, plural, rate};
use policies::wrap;
pub(crate) use policies::{policies, policy};
pub(crate) use pools::{pools, pools_of_nodes, server_not_ordered, server_ordered, server_test};
pub(crate) use probe::{probe_head, probe_sample, probe_summary, probe_summary_json};
pub(crate) use series::{requests, requests_of_nodes, series, series_of_nodes};
use table::{Align, TextTable};

/// Columns of a terminal whose width is unknown (VT100).
const COLUMNS: usize = 80;

/// Whether colours are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Paint {
    Plain,
    Colours,
}

impl Paint {
    /// Colours on a terminal, unless `NO_COLOR` is set (<https://no-color.org>).
    pub(crate) fn for_stdout() -> Self {
        let is_unwanted = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        match std::io::stdout().is_terminal() && !is_unwanted {
            true => Self::Colours,
            false => Self::Plain,
        }
    }

    /// The escape sequence (SGR) for a state; empty if it needs no emphasis.
    fn of(self, state: NodeState) -> &'static str {
        match (self, state) {
            (Self::Plain, _) => "",
            (Self::Colours, NodeState::Up) => "\x1b[32m",
            (Self::Colours, NodeState::Down) => "\x1b[1;31m",
            (Self::Colours, _) => "\x1b[33m",
        }
    }
}

/// The status of a process: itself, its node, its services.
pub(crate) fn status(status: &ProcessStatus, paint: Paint) -> String {
    let mut out = String::new();
    line(&mut out, &headline(status));
    line(&mut out, &traffic(status));
    line(&mut out, &times(&status.traffic.latency));
    if let Some(node) = &status.node {
        let hits = permille(node.cache_hits_total, node.cache_lookups_total);
        let (used, max) = (bytes(node.cache_bytes), bytes(node.cache_bytes_max));
        let sites = plural(node.sites.len() as u64, "site");
        let cache = format!("cache {used} of {max}, hits {hits}");
        line(&mut out, &format!("node on {}, {sites}, {cache}", node.address));
    }
    if let Some(part) = &status.direct {
        direct(&mut out, part);
    }
    if let Some(part) = &status.cache {
        cache(&mut out, part);
    }
    for service in &status.services {
        out.push('\n');
        line(&mut out, &service_line(service));
        test_line(&mut out, service);
        out.push_str(&matrix(service, status.uptime_ms, paint));
    }
    if !status.pools.is_empty() {
        out.push('\n');
        out.push_str(&pools(&status.pools, paint));
    }
    if !status.loads.is_empty() {
        out.push('\n');
        out.push_str(&loads(&status.loads));
    }
    out
}

/// The load reports of nodes.
fn loads(reports: &[NodeReport]) -> String {
    let mut table = TextTable::new(&[
        ("LOAD OF", Align::Left),
        ("CPU", Align::Right),
        ("MEMORY", Align::Right),
        ("CONNS", Align::Right),
        ("TO SEND", Align::Right),
        ("SENT/S", Align::Right),
        ("HITS", Align::Right),
        ("FILLED/S", Align::Right),
        ("AGE", Align::Right),
    ]);
    for report in reports {
        table.row(load_cells(report));
    }
    let mut text = table.text(COLUMNS, |_| "");
    for report in reports.iter().filter(|report| report.is_stale) {
        line(&mut text, &format!("  {}", stale(report)));
    }
    text
}

/// A node's name and its load report.
pub(crate) fn load_cells(report: &NodeReport) -> [String; 9] {
    [
        report.name.clone(),
        permille(report.cpu_permille.into(), 1000),
        bytes(report.memory_bytes),
        count(report.connections),
        bytes(report.bytes_outstanding),
        bytes(report.sent_bytes_s),
        permille(report.hit_permille.into(), 1000),
        bytes(report.filled_bytes_s),
        age(report.age_ms),
    ]
}

/// The note that a node's reports have stopped.
pub(crate) fn stale(report: &NodeReport) -> String {
    let silence = age(report.age_ms);
    format!("no load report of {} for {silence}: ignored", report.name)
}

/// The coordinator of the cluster cache, and the segments that nodes hold.
fn cache(out: &mut String, part: &CoordinatorStatus) {
    let state = if part.is_active { "answers" } else { "stands by" };
    let segments = plural(part.segments, "segment");
    line(
        out,
        &format!(
            "cluster cache: coordinator {state}, epoch {}, {segments} in {} copies, {} fills",
            part.epoch,
            count(part.copies),
            count(part.leases)
        ),
    );
    let mut table = TextTable::new(&[
        ("CACHE OF", Align::Left),
        ("HOLDS", Align::Right),
        ("OF", Align::Right),
        ("SHARED", Align::Right),
    ]);
    for node in &part.nodes {
        table.row([
            node.name.clone(),
            bytes(node.held_bytes),
            bytes(node.capacity_bytes),
            permille(node.shared_bytes, node.held_bytes),
        ]);
    }
    if !part.nodes.is_empty() {
        out.push_str(&table.text(COLUMNS, |_| ""));
    }
}

/// The state of direct dispatch, with its faults.
fn direct(out: &mut String, part: &DirectStatus) {
    let place = format!("{} on {}, table {}", part.attached, part.device, part.table_generation);
    let state = match (part.stage.as_str(), &part.active) {
        ("node", _) => "direct: node".to_owned(),
        ("active", _) => format!("direct: active, epoch {}", part.epoch),
        (stage, Some(active)) => {
            format!("direct: {stage}, {active} is active, epoch {}", part.epoch)
        }
        (stage, None) => format!("direct: {stage}, nobody is active"),
    };
    line(out, &format!("{state}, {place}"));
    if part.stage != "node" {
        let held = if part.has_addresses { "on this machine" } else { "not on this machine" };
        line(out, &format!("virtual addresses: {held}"));
    }
    for NodeBehind { node, tables } in &part.nodes_behind {
        let unit = if *tables == 1 { "table" } else { "tables" };
        line(out, &format!("node {node}: {tables} {unit} behind"));
    }
    for peer in &part.peers {
        let silence = match peer.stage.as_str() {
            "silent" => format!(" for {}", duration(peer.silent_ms)),
            _ => String::new(),
        };
        line(out, &format!("dispatcher {}: {}{silence}", peer.name, peer.stage));
    }
    if let Some(store) = &part.store {
        line(out, &format!("store: {store}"));
    }
    let packets: Vec<String> = part
        .packets
        .iter()
        .map(|fate| format!("{} {}", fate.verdict.replace('_', " "), count(fate.packets)))
        .collect();
    if !packets.is_empty() {
        line(out, &format!("packets: {}", packets.join(", ")));
    }
    let handoffs = [
        ("connections to other nodes", &part.handoffs),
        ("connections of other nodes", &part.handoffs_received),
    ];
    for (what, counts) in handoffs.into_iter().filter(|(_, counts)| !counts.is_empty()) {
        let outcome = |it: &HandoffCount| {
            format!("{} {}", it.outcome.replace('_', " "), count(it.connections))
        };
        line(
            out,
            &format!("{what}: {}", counts.iter().map(outcome).collect::<Vec<_>>().join(", ")),
        );
    }
    for complaint in &part.complaints {
        line(out, &format!("wrong: {complaint}"));
    }
}

/// The services, one per line.
pub(crate) fn services(services: &[ServiceStatus]) -> String {
    let mut table = TextTable::new(&[
        ("SERVICE", Align::Left),
        ("DISPATCH", Align::Left),
        ("POLICY", Align::Left),
        ("UP", Align::Right),
        ("LISTEN", Align::Left),
    ]);
    for service in services {
        table.row([
            service.name.clone(),
            service.dispatch.clone(),
            policy_of(service),
            up_of(service),
            addresses(service),
        ]);
    }
    table.text(COLUMNS, |_| "")
}

/// The nodes, one per line, with the reasons why they are not up.
pub(crate) fn nodes<'a>(nodes: impl Iterator<Item = &'a NodeStatus>, paint: Paint) -> String {
    let mut table = TextTable::new(&[
        ("NODE", Align::Left),
        ("SERVICE", Align::Left),
        ("STATE", Align::Left),
        ("SINCE", Align::Right),
        ("WEIGHT", Align::Right),
        ("FROM", Align::Left),
        ("ADDRESS", Align::Left),
    ]);
    let nodes: Vec<&NodeStatus> = nodes.collect();
    for node in &nodes {
        let source = match node.source {
            NodeSource::Config => "config",
            NodeSource::Api => "api",
        };
        table.row([
            node.name.clone(),
            node.service.clone(),
            node.state.word().to_owned(),
            duration(node.since_ms),
            node.weight.to_string(),
            source.to_owned(),
            node.address.to_string(),
        ]);
    }
    let mut text = table.text(COLUMNS, |row| paint.of(nodes[row].state));
    text.push_str(&reasons(&nodes));
    text
}

/// Encodes `text` as one part of a path or query (RFC 3986, section 2).
pub(crate) fn encode(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                out.push(char::from(byte));
            }
            // Writing to a String can't fail.
            _ => drop(write!(out, "%{byte:02X}")),
        }
    }
    out
}

fn headline(status: &ProcessStatus) -> String {
    let state = if status.draining { "draining" } else { "running" };
    format!(
        "cluster {}, {} {state} for {}, config generation {}, version {}",
        status.cluster,
        status.name,
        duration(status.uptime_ms),
        status.config_generation,
        status.version,
    )
}

fn traffic(status: &ProcessStatus) -> String {
    let traffic = &status.traffic;
    format!(
        "requests {}, in work {}, connections {}, sent {}, 4xx {}, 5xx {}",
        count(traffic.requests_total),
        count(traffic.requests_in_flight),
        count(traffic.connections_open),
        bytes(traffic.sent_bytes_total),
        count(traffic.responses_4xx_total),
        count(traffic.responses_5xx_total),
    )
}

fn times(times: &Latency) -> String {
    let (p50, p95, p99) = (latency(times.p50_us), latency(times.p95_us), latency(times.p99_us));
    format!("times of requests since the start: p50 {p50}, p95 {p95}, p99 {p99}")
}

fn service_line(service: &ServiceStatus) -> String {
    let (name, dispatch, policy) = (&service.name, &service.dispatch, &service.policy);
    let up = up_of(service);
    format!("service {name}: {dispatch}, {policy}, {up} nodes up, on {}", addresses(service))
}

/// The service's policy, or those of its A/B test.
fn policy_of(service: &ServiceStatus) -> String {
    match service.arms.is_empty() {
        true => service.policy.clone(),
        false => service.arms.iter().map(arm).collect::<Vec<_>>().join(" "),
    }
}

/// An arm as written after `--arm`, without its nodes.
fn arm(arm: &ServiceArm) -> String {
    let weight = if arm.weight == 1 { String::new() } else { format!("*{}", arm.weight) };
    format!("{}={}{weight}", arm.name, arm.policy)
}

/// The A/B test of a service, if there is one.
fn test_line(out: &mut String, service: &ServiceStatus) {
    if service.arms.is_empty() {
        return;
    }
    let with_nodes = |it: &ServiceArm| match it.nodes.is_empty() {
        true => arm(it),
        false => format!("{}:{}", arm(it), it.nodes.join(",")),
    };
    let arms = service.arms.iter().map(with_nodes).collect::<Vec<_>>().join(" ");
    line(out, &format!("  A/B test: {arms}; see skep policy compare {}", service.name));
}

/// The nodes of a service and their loads.
fn matrix(service: &ServiceStatus, uptime_ms: u64, paint: Paint) -> String {
    let mut table = TextTable::new(&[
        ("NODE", Align::Left),
        ("STATE", Align::Left),
        ("SINCE", Align::Right),
        ("LOAD", Align::Right),
        ("CONNS", Align::Right),
        ("REQ/S", Align::Right),
        ("REQUESTS", Align::Right),
        ("FAILED", Align::Right),
        ("LATENCY", Align::Right),
        ("WEIGHT", Align::Right),
    ]);
    for node in &service.nodes {
        table.row([
            node.name.clone(),
            node.state.word().to_owned(),
            duration(node.since_ms),
            count(node.outstanding_requests.into()),
            count(node.connections.into()),
            rate(node.requests_total as f64 * 1000.0 / uptime_ms.max(1) as f64),
            count(node.requests_total),
            count(node.failures_total),
            latency(node.latency_us),
            node.weight.to_string(),
        ]);
    }
    let mut text = table.text(COLUMNS, |row| paint.of(service.nodes[row].state));
    text.push_str(&reasons(&service.nodes.iter().collect::<Vec<_>>()));
    text
}

fn reasons(nodes: &[&NodeStatus]) -> String {
    let mut out = String::new();
    for node in nodes {
        if let Some(reason) = &node.reason {
            line(&mut out, &format!("  {} {}: {reason}", node.name, node.state.word()));
        }
    }
    out
}

fn up_of(service: &ServiceStatus) -> String {
    let up = service.nodes.iter().filter(|node| node.state == NodeState::Up).count();
    format!("{up}/{}", service.nodes.len())
}

fn addresses(service: &ServiceStatus) -> String {
    service.listen.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

/// Appends a line, truncated to the terminal's width.
fn line(out: &mut String, text: &str) {
    out.push_str(&table::cut(text, COLUMNS));
    out.push('\n');
}

#[cfg(test)]
pub(crate) mod tests;
