//! Pools and their servers: summed over all nodes, and as each node sees them.

use std::collections::{BTreeMap, BTreeSet};

use skep_console::{
    NetworkSessions, NodePools, NodeSource, NodeState, PoolSessions, PoolStatus, ServerOrdered,
    ServerSelfReport, ServerStatus, ServerTest,
};

use super::harmless::is_harmless;
use super::table::{Align, TextTable};
use super::{COLUMNS, Paint, bytes, count, duration, latency, line};

/// Minutes of sessions that are shown if no node counts them.
const SESSIONS_MIN: u64 = 30;

/// Values of a server per line of at most 80 columns.
const PARTS_PER_LINE: usize = 3;

/// The pools with their servers.
pub(crate) fn pools(pools: &[PoolStatus], paint: Paint) -> String {
    if pools.is_empty() {
        return "no pools\n".to_owned();
    }
    let mut out = String::new();
    for (number, pool) in pools.iter().enumerate() {
        if number > 0 {
            out.push('\n');
        }
        let up = pool.servers.iter().filter(|it| it.state == NodeState::Up).count();
        let (waiting, refused) = (count(pool.queued_requests), count(pool.refused_total));
        line(
            &mut out,
            &format!(
                "pool {}: {}, {up}/{} servers up, {waiting} waiting, {refused} refused",
                pool.name,
                pool.policy,
                pool.servers.len()
            ),
        );
        out.push_str(&servers(pool, paint));
        let nodes: Vec<&str> = pool.nodes.iter().map(String::as_str).collect();
        sessions(&mut out, pool.sessions.as_ref(), &nodes);
    }
    if let Some(pool) = pools.first() {
        super::series::missing(&mut out, &pool.missing);
    }
    out
}

/// The result of an order about a server.
pub(crate) fn server_ordered(name: &str, ordered: &ServerOrdered) -> String {
    // Grouped by how the nodes see it: state, then the nodes' requests there and their names.
    let mut seen = BTreeMap::<Option<NodeState>, (u32, &str, Vec<&str>)>::new();
    let mut out = String::new();
    for node in ordered.nodes.iter().filter(|it| it.done) {
        let server = node.server.as_ref();
        let (in_work, pool, names) = seen.entry(server.map(|it| it.state)).or_default();
        *in_work = in_work.saturating_add(server.map_or(0, |it| it.connections));
        *pool = server.map_or("", |it| &it.pool);
        names.push(&node.node);
    }
    let is_alone = ordered.nodes.len() == 1;
    for (state, (in_work, pool, names)) in seen {
        let work = match in_work {
            0 => String::new(),
            in_work => format!(", {} in work", super::plural(in_work.into(), "request")),
        };
        let told = match state {
            Some(state) => format!("{}{work}, pool {pool}", state.word()),
            None => "removed".to_owned(),
        };
        let at = if is_alone { String::new() } else { format!(", at {}", names.join(", ")) };
        out.push_str(&format!("{name}: {told}{at}\n"));
    }
    out + &server_not_ordered(ordered)
}

/// The nodes that have not executed the order, and why.
pub(crate) fn server_not_ordered(ordered: &ServerOrdered) -> String {
    let mut out = String::new();
    for node in ordered.nodes.iter().filter(|it| !it.done) {
        let why = node.why.as_deref().unwrap_or("no answer");
        let was_asked = if node.away { "was not asked" } else { "has not done it" };
        out.push_str(&format!("{} {was_asked}: {why}\n", node.node));
    }
    out
}

/// The pools of all nodes: one table per pool, with each server as each node sees it.
pub(crate) fn pools_of_nodes(nodes: &[NodePools], paint: Paint) -> String {
    let mut by_name: BTreeMap<&str, Vec<(&str, &PoolStatus)>> = BTreeMap::new();
    for (node, pool) in nodes.iter().flat_map(|it| it.pools.iter().map(|pool| (&it.node, pool))) {
        by_name.entry(&pool.name).or_default().push((node, pool));
    }
    let mut out = String::new();
    if by_name.is_empty() {
        out.push_str("no pools\n");
    }
    for (number, (name, seen)) in by_name.iter().enumerate() {
        if number > 0 {
            out.push('\n');
        }
        line(&mut out, &headline(name, seen));
        out.push_str(&servers_of_nodes(seen, paint));
        let of_all = seen.iter().find_map(|(_, pool)| pool.cluster_sessions.as_ref());
        let nodes: Vec<&str> = seen.iter().map(|(node, _)| *node).collect();
        sessions(&mut out, of_all, &nodes);
    }
    for node in nodes {
        if let Some(why) = &node.missing {
            line(&mut out, &format!("no answer of {}: {why}", node.node));
        }
    }
    out
}

fn headline(name: &str, seen: &[(&str, &PoolStatus)]) -> String {
    let sum = |of: fn(&PoolStatus) -> u64| count(seen.iter().map(|(_, pool)| of(pool)).sum());
    let mut policies: Vec<_> = seen.iter().map(|(_, pool)| pool.policy.as_str()).collect();
    policies.sort_unstable();
    policies.dedup();
    format!(
        "pool {name}: {}, {} waiting, {} refused, {} sessions lost",
        policies.join(" or "),
        sum(|it| it.queued_requests),
        sum(|it| it.refused_total),
        sum(|it| it.sessions_lost_total),
    )
}

/// The sessions of a pool; names those of the `asked` nodes that have not reported theirs.
fn sessions(text: &mut String, seen: Option<&PoolSessions>, asked: &[&str]) {
    let Some(seen) = seen else {
        return line(text, &format!("  sessions in the last {SESSIONS_MIN} min: -"));
    };
    let total = if seen.nodes.is_empty() { "not known".to_owned() } else { count(seen.total) };
    let silent = asked.iter().filter(|name| !seen.nodes.iter().any(|it| it == *name));
    let mut parts = vec![format!("  sessions in the last {} min: {total}", seen.window_s / 60)];
    parts.extend(by_network(seen));
    parts.extend(silent.map(|name| format!("(without {name})")));
    let mut shown = String::new();
    for part in parts {
        if shown.chars().count() + 1 + part.chars().count() > COLUMNS {
            line(text, &shown);
            shown = "   ".to_owned();
        }
        shown += if shown.is_empty() { "" } else { " " };
        shown += &part;
    }
    line(text, &shown);
}

/// `(campus 900,`, `library 20,` and `other 320)`; empty if no network is named.
fn by_network(seen: &PoolSessions) -> Vec<String> {
    if seen.networks.len() < 2 {
        return Vec::new();
    }
    let part = |it: &NetworkSessions| format!("{} {},", plain(&it.network), count(it.sessions));
    let mut parts: Vec<String> = seen.networks.iter().map(part).collect();
    parts[0].insert(0, '(');
    if let Some(last) = parts.last_mut() {
        last.pop();
        last.push(')');
    }
    parts
}

fn servers_of_nodes(seen: &[(&str, &PoolStatus)], paint: Paint) -> String {
    let mut rows: Vec<(&str, &ServerStatus)> = seen
        .iter()
        .flat_map(|(node, pool)| pool.servers.iter().map(|server| (*node, server)))
        .collect();
    // In the order of the config, as the first node reports it; the rows of each server together.
    let mut order: Vec<&str> = Vec::new();
    for (_, server) in &rows {
        if !order.contains(&server.name.as_str()) {
            order.push(&server.name);
        }
    }
    rows.sort_by_key(|(_, server)| order.iter().position(|name| **name == server.name));
    let mut table = table_of_servers("NODE", ("FROM", Align::Left));
    for (node, server) in &rows {
        let from = match server.source {
            NodeSource::Config => "config",
            NodeSource::Api => "api",
        };
        table.row(row_of_server(server, (*node).to_owned(), from.to_owned()));
    }
    let mut text = table.text(COLUMNS, |row| paint.of(rows[row].1.state));
    for (node, server) in &rows {
        notes(&mut text, &format!("{} at {node}", server.name), server);
    }
    agents(&mut text, &rows);
    text
}

/// The status reported by servers, each as of the latest response to any node.
fn agents(text: &mut String, rows: &[(&str, &ServerStatus)]) {
    let mut latest: Vec<(&str, &ServerSelfReport)> = Vec::new();
    for (_, server) in rows {
        let Some(agent) = &server.agent else { continue };
        let age = |it: &ServerSelfReport| it.age_ms.unwrap_or(u64::MAX);
        match latest.iter_mut().find(|(name, _)| *name == server.name) {
            Some((_, known)) if age(agent) < age(known) => *known = agent,
            Some(_) => {}
            None => latest.push((&server.name, agent)),
        }
    }
    let versions: BTreeSet<_> = latest.iter().filter_map(|(_, it)| it.version.as_ref()).collect();
    for (name, agent) in latest {
        let mark = if versions.len() > 1 { " (differs)" } else { "" };
        if let Some(version) = &agent.version {
            line(text, &format!("  {name} is {}{mark}", plain(version)));
        }
        for said in said(agent) {
            line(text, &format!("  {name}: {said}"));
        }
        if let Some(error) = &agent.error {
            let since = agent.age_ms.map(|ms| format!(" for {}", duration(ms)));
            let since = since.unwrap_or_default();
            line(text, &format!("  no status from {name}{since}: {}", plain(error)));
        }
    }
}

/// The reported values and sessions, several per line.
fn said(agent: &ServerSelfReport) -> Vec<String> {
    let value = |(name, value): (&String, &f64)| match name.strip_suffix("_bytes") {
        Some(name) => format!("{} {}", plain(name).replace('_', " "), bytes(*value as u64)),
        None => {
            let name = name.strip_suffix("_total").unwrap_or(name);
            format!("{} {}", plain(name).replace('_', " "), number(*value))
        }
    };
    let sessions = agent.sessions.iter().filter(|(_, count)| **count > 0);
    let sessions = sessions.map(|(of, n)| format!("sessions of {} {}", plain(of), count(*n)));
    let parts: Vec<String> = agent.values.iter().map(value).chain(sessions).collect();
    parts.chunks(PARTS_PER_LINE).map(|parts| parts.join(", ")).collect()
}

fn number(value: f64) -> String {
    match value.fract() == 0.0 && (0.0..1e15).contains(&value) {
        true => count(value as u64),
        false => format!("{value}"),
    }
}

/// Replaces characters of a server's text that are unsafe on a terminal.
fn plain(text: &str) -> String {
    text.chars().map(|it| if is_harmless(it) { it } else { '.' }).collect()
}

/// The views of nodes that see a server in another state than most do.
fn views(text: &mut String, server: &ServerStatus) {
    for view in server.seen_by.iter().filter(|it| it.state != server.state) {
        let reason = view.reason.as_ref().map_or_else(String::new, |why| format!(": {why}"));
        line(text, &format!("  {} at {} {}{reason}", server.name, view.node, view.state.word()));
    }
}

/// Why a server is not up, and why requests failed.
fn notes(text: &mut String, who: &str, server: &ServerStatus) {
    if let Some(reason) = &server.reason {
        line(text, &format!("  {who} {}: {reason}", server.state.word()));
    }
    let causes = server.failures_by_cause.iter();
    let causes: Vec<_> = causes.map(|(cause, n)| format!("{} {cause}", count(*n))).collect();
    if !causes.is_empty() {
        line(text, &format!("  {who} failed: {}", causes.join(", ")));
    }
}

/// A server's response to a test, as far as it was received.
pub(crate) fn server_test(test: &ServerTest) -> String {
    let ms = |us: u64| format!("{:.1} ms", us as f64 / 1000.0);
    let mut text = String::new();
    let asked = test.target.as_ref().map_or("a check".to_owned(), |target| format!("GET {target}"));
    line(&mut text, &format!("{} at {}: {asked}", test.name, test.address));
    let times = [("connected", test.connected_us), ("head", test.head_us)];
    let times = times.into_iter().filter_map(|(what, us)| Some(format!("{what} {}, ", ms(us?))));
    line(&mut text, &format!("{}end {}", times.collect::<String>(), ms(test.ended_us)));
    if let Some(status) = test.status {
        let more = if test.is_cut { " and more" } else { "" };
        line(&mut text, &format!("status {status}, {} bytes{more}", test.body_bytes));
    }
    for (name, value) in &test.fields {
        line(&mut text, &format!("  {name}: {value}"));
    }
    if !test.body.is_empty() {
        let shown = |it: char| if it == '\n' || is_harmless(it) { it } else { '.' };
        text.push('\n');
        text.push_str(test.body.chars().map(shown).collect::<String>().trim_end());
        text.push('\n');
    }
    if let Some(check) = &test.check {
        line(&mut text, &format!("check: {check}"));
    }
    text
}

fn servers(pool: &PoolStatus, paint: Paint) -> String {
    let mut table = table_of_servers("ADDRESS", ("WEIGHT", Align::Right));
    for server in &pool.servers {
        table.row(row_of_server(server, server.address.to_string(), server.weight.to_string()));
    }
    let mut text = table.text(COLUMNS, |row| paint.of(pool.servers[row].state));
    for server in pool.servers.iter().filter(|it| it.slots < it.connections_max) {
        let ServerStatus { name, slots, connections_max, .. } = server;
        line(
            &mut text,
            &format!("  {name}: {slots} of {connections_max} connections, by its slots"),
        );
    }
    for server in &pool.servers {
        views(&mut text, server);
        notes(&mut text, &server.name, server);
    }
    let rows: Vec<_> = pool.servers.iter().map(|server| ("", server)).collect();
    agents(&mut text, &rows);
    text
}

/// A table of servers: the common columns, one `second` and one `last` column.
fn table_of_servers(second: &str, last: (&str, Align)) -> TextTable<9> {
    TextTable::new(&[
        ("SERVER", Align::Left),
        (second, Align::Left),
        ("STATE", Align::Left),
        ("SINCE", Align::Right),
        ("CONNS", Align::Right),
        ("REQUESTS", Align::Right),
        ("FAILED", Align::Right),
        ("LATENCY", Align::Right),
        last,
    ])
}

/// A row of `table_of_servers`.
fn row_of_server(server: &ServerStatus, second: String, last: String) -> [String; 9] {
    [
        server.name.clone(),
        second,
        server.state.word().to_owned(),
        duration(server.since_ms),
        format!("{}/{}", server.connections, server.slots),
        count(server.requests_total),
        count(server.failures_total),
        latency(server.latency_us),
        last,
    ]
}
