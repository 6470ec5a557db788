//! The targets of issue 2 (section 5), issue 3 and issue 13, each with the measured result.

use std::fmt::Write as _;

use super::{Finding, direct, idle_ratio, tables};
use crate::peers::{LIMIT, SKEP, SKEP_FILE};
use crate::results::{Cell, Collapse, Results, Row, Sample, UploadRow, Uploads, median};

/// Maximum CPU time of a 1 KiB request relative to the bare loop's.
const LIMIT_RATIO_MAX: f64 = 1.10;
/// Maximum CPU time of a proxied request relative to HAProxy's and nginx's.
const PROXY_RATIO_MAX: f64 = 0.90;
/// Targets of applications (issue 13): the table, what it shows, the peer, and the maximum CPU time of a
/// request relative to it.
const APPLICATIONS: [(&str, &str, &str, f64); 14] = [
    ("pool-1k", "pool, 1 KiB", "haproxy", 0.9),
    ("pool-1k", "pool, 1 KiB", "nginx", 0.9),
    ("pool-22k", "pool, 22 KB", "haproxy", 0.9),
    ("pool-22k", "pool, 22 KB", "nginx", 0.9),
    ("pool-full-1k", "pool, all switched on, 1 KiB", "haproxy", 0.9),
    ("pool-full-1k", "pool, all switched on, 1 KiB", "nginx", 0.9),
    ("pool-full-22k", "pool, all switched on, 22 KB", "haproxy", 0.9),
    ("pool-full-22k", "pool, all switched on, 22 KB", "nginx", 0.9),
    ("fcgi-1k", "FastCGI, 1 KiB", "nginx", 0.8),
    ("fcgi-unix-1k", "FastCGI, Unix socket, 1 KiB", "nginx", 0.8),
    ("fcgi-kept-1k", "FastCGI, kept connections, 1 KiB", "nginx", 0.8),
    ("fcgi-kept-22k", "FastCGI, kept connections, 22 KB", "nginx", 0.8),
    ("ajp-1k", "AJP, 1 KiB", "httpd", 0.5),
    ("ajp-22k", "AJP, 22 KB", "httpd", 0.5),
];
/// Maximum growth of memory during an upload that counts as "flat", in MiB (issue 13).
const UPLOAD_GROWN_MIB_MAX: f64 = 1.0;
/// Maximum CPU time of a hit in the cache in front of a pool relative to that of a file in the same run.
const CACHED_RATIO_MAX: f64 = 1.15;
/// Maximum latency of other clients of an application with slow clients relative to that without (issue 13).
const SLOW_RATIO_MAX: f64 = 1.5;
/// Maximum time of a thousand simultaneous clients beyond the computations, in computations: less than
/// another one.
const COLLAPSE_ROOM: f64 = 0.5;
/// Maximum resident memory per idle connection, in bytes.
const IDLE_BYTES_MAX: f64 = 8.0 * 1024.0;
/// The limit for "unchanged": CPU time per request with idle connections relative to that without. A larger
/// ratio exceeds the noise of two runs of one server.
const IDLE_CPU_RATIO_MAX: f64 = 1.05;

/// One line for each target.
pub(super) fn table(results: &Results) -> String {
    let mut table = String::from("| target | measured | |\n|---|---|---|\n");
    for (target, finding) in findings(results) {
        let (measured, verdict) = match finding {
            Some((measured, true)) => (measured, "met"),
            Some((measured, false)) => (measured, "**missed**"),
            None => ("not measured".to_owned(), ""),
        };
        let _ = writeln!(table, "| {target} | {measured} | {verdict} |");
    }
    table
}

fn findings(results: &Results) -> Vec<(String, Finding)> {
    let cell = |key: &str| results.cells.get(key);
    let mut findings = vec![(
        "1 KiB file: CPU per request at most 1.10 x the limit".to_owned(),
        cell("files-1k").and_then(|cell| against(cell, LIMIT, LIMIT_RATIO_MAX)),
    )];
    for (key, what) in [
        ("files-1k", "1 KiB file"),
        ("files-22k", "22 KB file"),
        ("files-541k", "541 KB file"),
        ("files-mix", "WebBench mix"),
    ] {
        let target = format!("{what}: CPU per request below every peer");
        findings.push((target, cell(key).and_then(below_every_peer)));
    }
    for (key, what) in [("proxy-1k", "1 KiB"), ("proxy-22k", "22 KB")] {
        for peer in ["haproxy", "nginx"] {
            let target = format!("proxy, {what}: CPU per request at most 0.9 x {peer}'s");
            let finding = cell(key).and_then(|cell| against(cell, peer, PROXY_RATIO_MAX));
            findings.push((target, finding));
        }
    }
    findings.push((
        format!("cached response of a pool, 1 KiB: CPU per request at most {CACHED_RATIO_MAX} x the file's"),
        cell("cached-1k").and_then(|cell| against(cell, SKEP_FILE, CACHED_RATIO_MAX)),
    ));
    for (key, what, peer, ratio_max) in APPLICATIONS {
        let target = format!("{what}: CPU per request at most {ratio_max} x {peer}'s");
        findings.push((target, cell(key).and_then(|cell| against(cell, peer, ratio_max))));
    }
    for (key, who) in [("fcgi-few-uploads", "uploaders"), ("fcgi-few-readers", "readers")] {
        let target = format!(
            "five workers of php-fpm and 100 slow {who}: others' latency at most {SLOW_RATIO_MAX} x"
        );
        let cells = cell(key).zip(cell("fcgi-few-1k"));
        findings.push((target, cells.and_then(|(beside, alone)| latency(beside, alone))));
    }
    findings.push((
        "redirect: CPU per request at most nginx's".to_owned(),
        cell("redirect").and_then(|cell| against(cell, "nginx", 1.0)),
    ));
    findings.extend(upload_findings(results.uploads.as_ref()));
    findings.extend(collapse_findings(results.collapse.as_ref()));
    findings.extend(idle_findings(results));
    findings.push(("errors: none".to_owned(), errors(results)));
    findings.extend(direct::findings(results.direct.as_ref()));
    findings.push(tables::finding(results.tables.as_ref()));
    findings
}

fn against(cell: &Cell, peer: &str, ratio_max: f64) -> Finding {
    let (ours, theirs) = (cell.row(SKEP)?, cell.row(peer)?);
    let ratio = ours.cpu_us() / theirs.cpu_us();
    Some((compare(ours, theirs), ratio <= ratio_max))
}

/// The median latency with slow clients relative to that without.
fn latency(beside: &Cell, alone: &Cell) -> Finding {
    let p50_us = |cell: &Cell| {
        let row = cell.row(SKEP).filter(|row| !row.samples.is_empty())?;
        Some(median(row.samples.iter().map(|sample| sample.p50_us)))
    };
    let (beside, alone) = (p50_us(beside)?, p50_us(alone)?);
    let ratio = beside / alone;
    Some((format!("{ratio:.2} x ({beside:.0} to {alone:.0} us)"), ratio <= SLOW_RATIO_MAX))
}

fn upload_findings(uploads: Option<&Uploads>) -> [(String, Finding); 2] {
    let row = |name| uploads?.row(name);
    let cpu = |row: &UploadRow| row.median(|sample| sample.cpu_us_per_mib);
    let against_nginx = row(SKEP).zip(row("nginx")).map(|(ours, theirs)| {
        let (ours, theirs) = (cpu(ours), cpu(theirs));
        (format!("{:.2} x ({ours:.0} to {theirs:.0} us)", ours / theirs), ours <= theirs)
    });
    let grown = row(SKEP).map(|row| {
        let mib = row.median(|sample| sample.grown_mib);
        (format!("{mib:.1} MiB"), mib <= UPLOAD_GROWN_MIB_MAX)
    });
    [
        ("upload of 1 GiB: CPU per MiB at most nginx's".to_owned(), against_nginx),
        (format!("upload of 1 GiB: at most {UPLOAD_GROWN_MIB_MAX} MiB more memory"), grown),
    ]
}

/// The maximum time of any client, in units of the page's own time.
fn collapse_findings(collapse: Option<&Collapse>) -> [(String, Finding); 3] {
    let is_whole = |it: &&Collapse| it.trouble.is_none();
    let row = |at: usize| {
        let collapse = collapse.filter(is_whole)?;
        let row = collapse.rows.get(at).filter(|row| !row.samples.is_empty())?;
        let longest_ms = row.samples.iter().map(|it| it.longest_ms).fold(0.0, f64::max);
        Some((row, longest_ms, longest_ms / collapse.computation_ms as f64))
    };
    let within = |at, pages: f64| {
        let (_, longest_ms, taken) = row(at)?;
        Some((format!("longest {longest_ms:.0} ms"), taken <= pages + COLLAPSE_ROOM))
    };
    let once = row(0).map(|(row, longest_ms, _)| {
        let most = row.samples.iter().map(|it| it.computations).max().unwrap_or(0);
        (format!("{most}; longest {longest_ms:.0} ms"), most == 1)
    });
    let page = "1,000 clients of four nodes, a page of 500 ms";
    [
        (format!("{page}: one computation"), once),
        (
            format!("{page} that turns out to be private: no client waits for more than one other"),
            within(1, 2.0),
        ),
        (
            format!("{page} that is known to be private: no client waits for another"),
            within(2, 1.0),
        ),
    ]
}

fn below_every_peer(cell: &Cell) -> Finding {
    let ours = cell.row(SKEP)?;
    let peers = cell.rows.iter().filter(|row| ![SKEP, LIMIT].contains(&row.server.as_str()));
    let best = peers
        .filter(|row| !row.samples.is_empty())
        .min_by(|a, b| a.cpu_us().total_cmp(&b.cpu_us()))?;
    let measured = format!("{}: {}", best.server, compare(ours, best));
    Some((measured, ours.cpu_us() < best.cpu_us()))
}

/// The ratio with both figures, and the ratio with the client that never sleeps.
fn compare(ours: &Row, theirs: &Row) -> String {
    let (us, them) = (ours.cpu_us(), theirs.cpu_us());
    let busy = ours.busy_cpu_us().zip(theirs.busy_cpu_us());
    let busy = busy.map(|(us, them)| format!("; busy client {:.2} x", us / them));
    format!("{:.2} x ({us:.2} to {them:.2} us){}", us / them, busy.unwrap_or_default())
}

fn idle_findings(results: &Results) -> [(String, Finding); 2] {
    let rows = results.idle.iter().flat_map(|idle| &idle.rows);
    let row = rows.into_iter().find(|row| row.server == SKEP && !row.beside.is_empty());
    let memory = row.map(|row| {
        let bytes = median(row.resident_bytes.iter().copied());
        (format!("{bytes:.0} bytes"), bytes <= IDLE_BYTES_MAX)
    });
    let rate = row.map(|row| {
        let cpu_us = |samples: &[Sample]| median(samples.iter().map(|sample| sample.cpu_us));
        let ratio = cpu_us(&row.beside) / cpu_us(&row.alone);
        let rate = idle_ratio(row);
        let measured = format!("CPU per request {ratio:.2} x, requests per second {rate:.2} x");
        (measured, ratio <= IDLE_CPU_RATIO_MAX)
    });
    [
        ("10,000 idle connections: at most 8 KiB of resident memory each".to_owned(), memory),
        ("10,000 idle connections: 64 active ones as fast as alone".to_owned(), rate),
    ]
}

fn errors(results: &Results) -> Finding {
    let rows = results.cells.values().filter_map(|cell| cell.row(SKEP));
    let idle = results.idle.iter().flat_map(|idle| &idle.rows).filter(|row| row.server == SKEP);
    let direct = results.direct.iter().flat_map(|direct| &direct.tables);
    let direct = direct.flat_map(|table| &table.rows).filter(|row| row.way.starts_with(SKEP));
    let counts = rows.map(|row| row.errors()).chain(idle.map(|row| row.errors()));
    let counts: Vec<u64> = counts.chain(direct.map(|row| row.errors())).collect();
    let count: u64 = counts.iter().sum();
    (!counts.is_empty()).then(|| (count.to_string(), count == 0))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn cell(rows: &[(&str, f64)]) -> Cell {
        let row = |&(server, cpu_us): &(&str, f64)| Row {
            server: server.to_owned(),
            version: String::new(),
            trouble: None,
            samples: vec![Sample {
                cpu_us,
                busy_cpu_us: None,
                requests_per_s: 1.0,
                requests: 1,
                errors: 0,
                p50_us: 0.0,
                p99_us: 0.0,
            }],
        };
        Cell { when: String::new(), rounds: 1, seconds: 1, rows: rows.iter().map(row).collect() }
    }

    #[test]
    fn the_best_peer_is_the_bar_and_the_limit_is_no_peer() {
        let cell = cell(&[(LIMIT, 1.0), (SKEP, 2.0), ("nginx", 3.0), ("h2o", 1.9)]);
        assert_eq!(below_every_peer(&cell), Some(("h2o: 1.05 x (2.00 to 1.90 us)".into(), false)));
    }

    #[test]
    fn a_ratio_at_its_bound_is_met_and_an_absent_server_is_not_measured() {
        let cell = cell(&[(LIMIT, 10.0), (SKEP, 11.0)]);
        assert!(against(&cell, LIMIT, 1.1).unwrap().1);
        assert_eq!(against(&cell, "haproxy", 0.9), None);
        assert_eq!(below_every_peer(&cell), None);
    }

    #[test]
    fn nothing_measured_is_said_for_every_target() {
        let table = table(&Results::default());
        assert_eq!(table.matches("not measured").count(), table.lines().count() - 2);
    }
}
