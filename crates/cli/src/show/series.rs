//! Requests over time, and present requests.

use skep_console::{
    ClusterPoint, ClusterRequests, ClusterSeries, MissingNode, RequestStatus, TrafficPoint,
    TrafficSeries,
};

use super::harmless::is_harmless;
use super::table::{Align, TextTable};
use super::{COLUMNS, bytes, count, duration, line, rate};

/// Maximum number of rows shown, the newest ones: a screen.
const ROWS_MAX: usize = 30;

/// The newest steps, the newest last. Unknown steps have no row.
pub(crate) fn series(series: &TrafficSeries) -> String {
    let Some(newest) = series.points.last() else { return nothing_yet(series.step_s) };
    let mut table = table();
    let first = series.points.len().saturating_sub(ROWS_MAX);
    for point in &series.points[first..] {
        table.row(cells(point, newest.at_unix_s, series.step_s));
    }
    table.text(COLUMNS, |_| "")
}

/// The same for all nodes; steps that are unknown at some nodes are marked.
pub(crate) fn series_of_nodes(series: &ClusterSeries) -> String {
    let mut text = match series.points.last() {
        None => nothing_yet(series.step_s),
        Some(newest) => {
            let mut table = table();
            let first = series.points.len().saturating_sub(ROWS_MAX);
            for point in &series.points[first..] {
                table.row(cells(&point_of(point), newest.at_unix_s, series.step_s));
            }
            table.text(COLUMNS, |_| "")
        }
    };
    let newest = series.points.last().map_or(0, |it| it.at_unix_s);
    let nodes = series.nodes.len() as u64;
    let partial = series.points.iter().filter(|it| it.nodes < nodes).map(|it| it.at_unix_s);
    if let Some(latest) = partial.max() {
        let before = duration(newest.saturating_sub(latest).saturating_mul(1000));
        line(&mut text, &format!("  until {before} before, not all {nodes} nodes have counted"));
    }
    missing(&mut text, &series.missing);
    text
}

fn point_of(point: &ClusterPoint) -> TrafficPoint {
    let &ClusterPoint { at_unix_s, requests, to_pools, pool_failures, .. } = point;
    let &ClusterPoint { responses_5xx, sent_bytes, .. } = point;
    TrafficPoint { at_unix_s, requests, to_pools, pool_failures, responses_5xx, sent_bytes }
}

fn nothing_yet(step_s: u64) -> String {
    format!("nothing yet: the first step of {step_s} s is not over\n")
}

fn table() -> TextTable<7> {
    TextTable::new(&[
        ("BEFORE", Align::Right),
        ("REQ/S", Align::Right),
        ("REQUESTS", Align::Right),
        ("TO POOLS", Align::Right),
        ("FAILED", Align::Right),
        ("5XX", Align::Right),
        ("SENT", Align::Right),
    ])
}

/// Names the nodes that are not included in a sum.
pub(super) fn missing(text: &mut String, nodes: &[MissingNode]) {
    for MissingNode { node, why } in nodes {
        line(text, &format!("no answer of {node}: {why}"));
    }
}

fn cells(point: &TrafficPoint, newest_unix_s: u64, step_s: u64) -> [String; 7] {
    [
        duration(newest_unix_s.saturating_sub(point.at_unix_s).saturating_mul(1000)),
        rate(point.requests as f64 / step_s.max(1) as f64),
        count(point.requests),
        count(point.to_pools),
        count(point.pool_failures),
        count(point.responses_5xx),
        bytes(point.sent_bytes),
    ]
}

/// The present requests at servers and nodes, the oldest first.
pub(crate) fn requests(requests: &[RequestStatus]) -> String {
    if requests.is_empty() {
        return "no requests\n".to_owned();
    }
    let mut table = TextTable::new(&[
        ("AGE", Align::Right),
        ("AT", Align::Left),
        ("OF", Align::Left),
        ("CLIENT", Align::Left),
        ("METHOD", Align::Left),
        ("PATH", Align::Left),
    ]);
    // Text from a client must not be interpreted by the terminal.
    let plain = |text: &str| -> String {
        text.chars().map(|it| if is_harmless(it) { it } else { '.' }).collect()
    };
    for request in requests {
        let of = request.pool.as_ref().or(request.service.as_ref());
        table.row([
            duration(request.age_ms),
            request.at.clone(),
            of.cloned().unwrap_or_default(),
            request.client.to_string(),
            plain(&request.method),
            plain(&request.path),
        ]);
    }
    table.text(COLUMNS, |_| "")
}

/// The present requests of all nodes, the oldest first, and their numbers by the clients' network.
pub(crate) fn requests_of_nodes(requests: &ClusterRequests) -> String {
    let list: Vec<_> = requests.requests.iter().map(|it| it.request.clone()).collect();
    let mut text = self::requests(&list);
    for (pool, networks) in &requests.by_network {
        let of_networks = networks.iter().map(|(name, n)| format!("{name} {}", count(*n)));
        let all = count(networks.values().sum());
        let of_networks = of_networks.collect::<Vec<_>>().join(", ");
        line(&mut text, &format!("  pool {pool}: {all} requests ({of_networks})"));
    }
    missing(&mut text, &requests.missing);
    text
}
