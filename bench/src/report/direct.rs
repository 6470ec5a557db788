//! The section on direct dispatch: its tables, how they were measured, and its targets (issue 3).

use std::fmt::Write as _;

use super::{Finding, errors, name_of, one_line, spread};
use crate::direct::EARLIER;
use crate::limits::{DIRECT_NODES, DOWNLOAD_CONNECTIONS, LINK_BITS_S, SHORT_CONNECTIONS};
use crate::peers::SKEP;
use crate::results::{Direct, DirectRow, DirectTable, FigureRow, Figures, Flow, Results, median};

/// Minimum throughput of large replies relative to direct connections to the nodes.
const THROUGHPUT_RATIO_MIN: f64 = 0.97;
/// Maximum cost of a packet of an established flow, in nanoseconds.
const PACKET_NS_MAX: f64 = 60.0;
/// The limit for "flat": the cost of the dearest size of cluster relative to the cheapest. A larger ratio
/// exceeds the noise of two runs of one program.
const FLAT_RATIO_MAX: f64 = 1.10;
/// The case of a packet of an established flow, as named by `skep-bpf-bench`.
const ESTABLISHED: &str = "established, flow table";

/// What a table shows.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Connections,
    Bytes,
}

/// Key, content and heading of each table.
const TABLES: [(&str, Kind, &str); 8] = [
    ("short-wire", Kind::Connections, "1 KiB, a new connection each; frames as on a wire"),
    ("short-large", Kind::Connections, "1 KiB, a new connection each; long frames"),
    ("541k-links", Kind::Bytes, "541,761 bytes; links with a rate"),
    ("16m-links", Kind::Bytes, "16 MiB; links with a rate"),
    ("541k-wire", Kind::Bytes, "541,761 bytes; links without one, frames as on a wire"),
    ("16m-wire", Kind::Bytes, "16 MiB; links without one, frames as on a wire"),
    ("541k-large", Kind::Bytes, "541,761 bytes; links without one, long frames"),
    ("16m-large", Kind::Bytes, "16 MiB; links without one, long frames"),
];

/// The whole section.
pub(super) fn section(direct: &Direct) -> String {
    let mut text = intro();
    for (key, kind, heading) in TABLES {
        let Some(table) = direct.tables.iter().find(|table| table.key == key) else { continue };
        let _ = write!(text, "\n### {heading}\n\n");
        text += &match kind {
            Kind::Connections => connections(table),
            Kind::Bytes => bytes(table),
        };
        let others = table.rows.iter().flat_map(DirectRow::through).chain(table.nodes());
        let others = spread(others.map(|flow| flow.others_percent));
        let (rounds, seconds, when) = (direct.rounds, direct.seconds, &direct.when);
        let _ = writeln!(
            text,
            "\n{rounds} rounds of {seconds} s, {when}; other work took {others} % of the machine."
        );
    }
    text += &packets(direct.packets.as_ref());
    text + &method()
}

/// Adds lines of [`super::pairs`] for the bed's CPU time, per connection or per mebibyte.
pub(super) fn add_pairs(text: &mut String, results: &Results) {
    for table in results.direct.iter().flat_map(|direct| &direct.tables) {
        let is_short = table.key.starts_with("short");
        let us = |row: &DirectRow| -> Vec<f64> {
            row.through().map(if is_short { Flow::bed_us } else { Flow::bed_us_per_mib }).collect()
        };
        for before in &table.rows {
            let name = before.way.strip_prefix(EARLIER);
            let Some(now) = name.and_then(|name| table.row(name)) else { continue };
            let unit = if is_short { "us each" } else { "us per MiB" };
            let what = format!("{}, {}, {unit}", table.key, now.way);
            super::add_pairs(text, &what, &us(now), &us(before));
        }
    }
}

fn intro() -> String {
    let mbit_s = LINK_BITS_S / 1_000_000;
    format!(
        "\n## Direct dispatch\n\nA test bed of network namespaces (`testbed/`): a client, a dispatcher's \
         machine and {DIRECT_NODES} nodes (`skep run`, one worker each) on one LAN, all on the cores of this \
         machine. `skep-bench direct` repeats it, as root. For the effect of failures and changes of \
         dispatchers and nodes on connections, see the [figures of the tests](experiments/direct.md). *Nodes \
         themselves* is the limit: the client connects to each node at its own address, with nothing in \
         between. Skep steers the client's packets, and nodes reply directly; HAProxy in TCP mode and nginx \
         stream forward all bytes in both directions. *CPU* is that of the whole bed: client, dispatcher, \
         nodes and their kernels; the excess of a row over the nodes themselves is the cost of the dispatcher \
         or proxy, including the longer way through the LAN. `x` is the ratio to the nodes themselves, \
         measured right before. Links with a rate have {mbit_s} Mbit/s for each node and for the dispatcher's \
         machine, as on a LAN where the links are the bottleneck; without a rate the cores are the \
         bottleneck.\n"
    )
}

fn connections(table: &DirectTable) -> String {
    let mut text = String::from(
        "| before the nodes | connections per second | x | CPU per connection, us | x | more than \
         the nodes themselves, us | of it the dispatcher's processes, us | errors |\n\
         |---|---|---|---|---|---|---|---|\n",
    );
    let _ = writeln!(
        text,
        "| nodes themselves | {:.0} | 1.00 | {} | 1.00 | - | - | - |",
        median(table.nodes().map(Flow::requests_per_s)),
        spread(table.nodes().map(Flow::bed_us)),
    );
    for row in &table.rows {
        let name = way_name(row);
        if row.samples.is_empty() {
            let _ = writeln!(text, "| {name} | {} | | | | | | |", trouble(row));
            continue;
        }
        let _ = writeln!(
            text,
            "| {name} | {:.0} | {:.2} | {} | {:.2} | {:.1} | {:.2} | {} |",
            median(row.through().map(Flow::requests_per_s)),
            row.compared(|way, nodes| way.requests_per_s() / nodes.requests_per_s()),
            spread(row.through().map(Flow::bed_us)),
            row.compared(|way, nodes| way.bed_us() / nodes.bed_us()),
            row.compared(|way, nodes| way.bed_us() - nodes.bed_us()),
            median(row.through().map(Flow::dispatcher_us)),
            errors(row.errors(), row.trouble.as_deref()),
        );
    }
    text
}

fn bytes(table: &DirectTable) -> String {
    let mut text = String::from(
        "| before the nodes | Mbit/s | x | CPU per MiB, us | x | errors |\n|---|---|---|---|---|---|\n",
    );
    let _ = writeln!(
        text,
        "| nodes themselves | {} | 1.00 | {} | 1.00 | - |",
        spread(table.nodes().map(Flow::mbit_s)),
        spread(table.nodes().map(Flow::bed_us_per_mib)),
    );
    for row in &table.rows {
        let name = way_name(row);
        if row.samples.is_empty() {
            let _ = writeln!(text, "| {name} | {} | | | | |", trouble(row));
            continue;
        }
        let _ = writeln!(
            text,
            "| {name} | {} | {:.2} | {} | {:.2} | {} |",
            spread(row.through().map(Flow::mbit_s)),
            row.compared(throughput),
            spread(row.through().map(Flow::bed_us_per_mib)),
            row.compared(|way, nodes| way.bed_us_per_mib() / nodes.bed_us_per_mib()),
            errors(row.errors(), row.trouble.as_deref()),
        );
    }
    text
}

fn packets(packets: Option<&Figures>) -> String {
    let mut text = String::from("\n### Nanoseconds for each packet\n\n");
    let Some(packets) = packets else {
        return text + "Not measured: `skep-bpf-bench` was not there.\n";
    };
    text += "The packet programs alone, all counters on, by BPF_PROG_TEST_RUN \
             (`skep-bpf-bench`); by the number of nodes.\n\n";
    let _ = writeln!(text, "| packet | {} |", packets.columns.join(" | "));
    let _ = writeln!(text, "|---|{}", "---|".repeat(packets.columns.len()));
    for FigureRow { case, figures } in &packets.rows {
        let ns: Vec<String> = figures.iter().map(|ns| format!("{ns:.0}")).collect();
        let _ = writeln!(text, "| {case} | {} |", ns.join(" | "));
    }
    text
}

fn method() -> String {
    format!(
        "\n### How it is measured\n\n\
- The client is wrk with a thread for each node, {SHORT_CONNECTIONS} connections for short \
requests (`Connection: close`) and {DOWNLOAD_CONNECTIONS} kept ones for large replies. Each of its threads sends \
requests to one node, or all send to the dispatcher or proxy.\n\
- Before a way is measured, every file is requested through it and compared byte for byte. Its \
machine is killed afterwards and booted for the next.\n\
- CPU is the time on a core of all processes of the bed (`/proc/PID/task/TID/schedstat`, for wrk \
`/proc/self/stat`) and of ksoftirqd. The kernel accounts the packets of a bed to the sender, so a dispatcher's \
packet programs and bridges are included; if the kernel accounts softirq time separately, that of the whole machine \
is added. Interrupts that are accounted to processes outside the bed are not included. The rest of the busy time of \
all cores (`/proc/stat`) is given as other work.\n\
- *The dispatcher's processes* are Skep's daemon with its netguard, or the proxy, with the kernel's work accounted \
to them: for Skep only heartbeats and tables, since packets do not pass through its processes.\n\
- No process is pinned: connections per second are what two cores can do for client, dispatcher and \
nodes together, while a real dispatcher has a machine for itself. So CPU is the figure to compare.\n\
- *Frames as on a wire* are no longer than the MTU and have complete checksums, as XDP requires; this costs all rows \
the work that a network card does elsewhere. Virtual devices forward *long frames* of up to 64 KiB unless this is \
disabled.\n"
    )
}

/// One line for each target of direct dispatch.
pub(super) fn findings(direct: Option<&Direct>) -> Vec<(String, Finding)> {
    let table = |key: &str| direct?.tables.iter().find(|table| table.key == key);
    let packets = direct.and_then(|direct| direct.packets.as_ref());
    let mut findings = Vec::new();
    for (key, way, what) in
        [("short-wire", "skep, XDP", "XDP"), ("short-large", "skep, tc", "tc, long frames")]
    {
        for peer in ["haproxy", "nginx"] {
            let target = format!("direct, {what}: CPU per connection below {peer}'s");
            findings.push((target, table(key).and_then(|table| against(table, way, peer))));
        }
    }
    for (key, _, heading) in TABLES.iter().filter(|(_, kind, _)| *kind == Kind::Bytes) {
        let target = format!("direct, {heading}: throughput at least 0.97 x the nodes themselves");
        findings.push((target, table(key).and_then(fast_enough)));
    }
    let established = |judge: fn(&[f64]) -> (String, bool)| established(packets?, judge);
    findings.push((
        "direct: a packet of an established flow at most 60 ns".to_owned(),
        established(|ns| (format!("{:.0} ns", max(ns)), max(ns) <= PACKET_NS_MAX)),
    ));
    findings.push((
        "direct: its cost flat from 2 to 256 nodes".to_owned(),
        established(|ns| (format!("{:.2} x", flat(ns)), flat(ns) <= FLAT_RATIO_MAX)),
    ));
    findings
}

/// CPU time per connection, and the excess over direct connections to the nodes.
fn against(table: &DirectTable, way: &str, peer: &str) -> Finding {
    let (ours, theirs) = (table.row(way)?, table.row(peer)?);
    let cpu = |row: &DirectRow| row.compared(|way, nodes| way.bed_us() / nodes.bed_us());
    let more = |row: &DirectRow| row.compared(|way, nodes| way.bed_us() - nodes.bed_us());
    let ratio = cpu(ours) / cpu(theirs);
    let measured = format!(
        "{ratio:.2} x; on top of the nodes themselves {:.1} us to {:.1} us",
        more(ours),
        more(theirs)
    );
    Some((measured, ratio < 1.0))
}

/// The verdict on all of Skep's rows of large replies; the worst row decides.
fn fast_enough(table: &DirectTable) -> Finding {
    let ours = ["skep, XDP", "skep, tc"].into_iter().filter_map(|way| table.row(way));
    let ratios: Vec<(&str, f64)> = ours.map(|row| (&*row.way, row.compared(throughput))).collect();
    let worst = ratios.iter().map(|(_, ratio)| *ratio).reduce(f64::min)?;
    let words: Vec<String> =
        ratios.iter().map(|(way, ratio)| format!("{} {ratio:.2} x", attach_of(way))).collect();
    Some((words.join(", "), worst >= THROUGHPUT_RATIO_MIN))
}

/// The result of `judge` for each program's row of an established flow.
fn established(packets: &Figures, judge: impl Fn(&[f64]) -> (String, bool)) -> Finding {
    let (mut words, mut is_met) = (Vec::new(), true);
    for row in &packets.rows {
        if let Some((program, ESTABLISHED)) = row.case.split_once(", ") {
            let (found, is_good) = judge(&row.figures);
            words.push(format!("{program} {found}"));
            is_met &= is_good;
        }
    }
    (!words.is_empty()).then(|| (words.join(", "), is_met))
}

fn throughput(way: &Flow, nodes: &Flow) -> f64 {
    way.mbit_s() / nodes.mbit_s()
}

fn max(values: &[f64]) -> f64 {
    values.iter().copied().fold(0.0, f64::max)
}

/// The maximum relative to the minimum.
fn flat(values: &[f64]) -> f64 {
    max(values) / values.iter().copied().fold(f64::INFINITY, f64::min)
}

/// The attachment in a row's name: "XDP" in "skep, XDP".
fn attach_of(way: &str) -> &str {
    way.split_once(", ").map_or(way, |(_, attach)| attach)
}

fn way_name(row: &DirectRow) -> String {
    match row.way.split_once(", ") {
        Some((SKEP, attach)) => format!("{}, {attach}", name_of(SKEP, &row.version)),
        _ => name_of(&row.way, &row.version),
    }
}

fn trouble(row: &DirectRow) -> String {
    one_line(row.trouble.as_deref().unwrap_or("not measured"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::Pair;

    fn flow(requests: u64, bed_cpu_s: f64) -> Flow {
        let (seconds, bytes) = (1.0, requests * 1_000_000);
        let (errors, dispatcher_cpu_s, others_percent) = (0, 0.0, 3.0);
        Flow { seconds, requests, bytes, errors, bed_cpu_s, dispatcher_cpu_s, others_percent }
    }

    fn direct(rows: &[(&str, u64, f64)]) -> Direct {
        let row = |&(way, requests, cpu): &(&str, u64, f64)| DirectRow {
            way: way.to_owned(),
            version: "1.0".to_owned(),
            trouble: None,
            samples: vec![Pair { nodes: flow(100, 1.0), way: flow(requests, cpu) }],
        };
        let table =
            |key: &str| DirectTable { key: key.to_owned(), rows: rows.iter().map(row).collect() };
        let ns = |case: &str, ns: &[f64]| FigureRow { case: case.to_owned(), figures: ns.to_vec() };
        Direct {
            when: "2026-01-01".to_owned(),
            rounds: 1,
            seconds: 1,
            tables: vec![table("short-wire"), table("541k-wire")],
            packets: Some(Figures {
                columns: vec!["2 nodes".to_owned(), "256 nodes".to_owned()],
                rows: vec![ns("XDP, established, flow table", &[50.0, 61.0])],
            }),
        }
    }

    #[test]
    fn ways_are_compared_with_the_nodes_right_before() {
        let text = section(&direct(&[("skep, XDP", 50, 1.0), ("haproxy", 25, 1.0)]));
        let ours = "| **skep 1.0**, XDP | 50 | 0.50 | 20000.0 (20000.0 - 20000.0) | 2.00 | 10000.0 \
                    | 0.00 | 0 |";
        assert!(text.contains(ours), "{text}");
        assert!(text.contains("| haproxy 1.0 | 200.0 (200.0 - 200.0) | 0.25 |"), "{text}");
        assert!(text.contains("| XDP, established, flow table | 50 | 61 |"), "{text}");
    }

    #[test]
    fn targets_are_judged_by_the_worst() {
        let rows = [("skep, XDP", 98, 1.0), ("skep, tc", 96, 1.0), ("haproxy", 98, 0.5)];
        let found = findings(Some(&direct(&rows)));
        let verdict = |words: &str| {
            let found = found.iter().find(|(target, _)| target.contains(words));
            found.and_then(|(_, finding)| finding.clone())
        };
        let bytes = Some(("XDP 0.98 x, tc 0.96 x".to_owned(), false));
        assert_eq!(verdict("541,761 bytes; links without one, frames as on a wire"), bytes);
        assert_eq!(verdict("below haproxy").map(|(_, is_met)| is_met), Some(false));
        assert_eq!(verdict("below nginx"), None);
        assert_eq!(verdict("at most 60 ns"), Some(("XDP 61 ns".to_owned(), false)));
        assert_eq!(verdict("flat from 2"), Some(("XDP 1.22 x".to_owned(), false)));
    }
}
