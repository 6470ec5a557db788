//! `docs/benchmarks.md`, generated from the samples alone: the targets first, then the tables, including rows
//! that Skep loses.

mod direct;
mod tables;
mod targets;

use std::fmt::Write as _;

use crate::bodies;
use crate::limits::{CLIENT_CORE, CONNECTIONS, SERVER_CORE, WARM_UP_SECONDS};
use crate::peers::{BEFORE, LIMIT, SKEP};
use crate::results::{
    Bodies, Cell, Collapse, CollapseSample, Idle, IdleRow, MachineDescription, Results, Row,
    Sample, Uploads, median,
};

/// Key, heading and one sentence of each table of requests.
const TABLES: [(&str, &str, &str); 21] = [
    ("files-1k", "1 KiB file", "The cost of a request with a negligible body."),
    ("files-22k", "22,132-byte file", "The size of a picture."),
    (
        "files-541k",
        "541,761-byte file",
        "The limit writes from memory here, as it does everywhere; that is not the cheapest way \
         at this size: `skep-bench bodies` compares the ways.",
    ),
    (
        "files-mix",
        "WebBench mix",
        "Ten classes from 223 to 541,761 bytes with their published probabilities, 20 replicas \
         (200 files), requests drawn with a fixed seed; 6.2 KB on average.",
    ),
    (
        "proxy-1k",
        "Proxy, 1 KiB",
        "Two origins (the loop in C, on the client's core) over kept connections; the CPU time \
         is the proxy's alone, and the requests per second are bounded by the client's core.",
    ),
    ("proxy-22k", "Proxy, 22,132 bytes", "The same with a body that has to be copied."),
    (
        "pool-1k",
        "Pool of two HTTP servers, 1 KiB",
        "A node with `pool`; servers and peers are those of the proxy's table.",
    ),
    ("pool-22k", "Pool of two HTTP servers, 22,132 bytes", "The same with a longer body."),
    (
        "pool-full-1k",
        "The same with all switched on, 1 KiB",
        "Skep with a cache, sticky sessions and compression; the servers' responses are `private`, so that all \
         pass through. The peers are those of the pool's table.",
    ),
    (
        "pool-full-22k",
        "The same with all switched on, 22,132 bytes",
        "The same with a longer body.",
    ),
    (
        "cached-1k",
        "Cache in front of a pool, 1 KiB",
        "A hit in the cache of a node in front of a pool, with `Vary` (of a field that all requests have); nginx with \
         `proxy_cache`, Varnish. The limit is the loop in C, which answers by itself; *skep, file* is `skep serve` with the \
         file itself, measured in turn with the others.",
    ),
    (
        "fcgi-1k",
        "FastCGI to php-fpm, 1 KiB",
        "A script of four lines in 72 workers on the client's core, which bounds the requests per \
         second; the CPU time is that of the server in front of it. Each request has a new connection, as by \
         default.",
    ),
    (
        "fcgi-unix-1k",
        "FastCGI over a Unix socket, 1 KiB",
        "The same over a Unix socket, the usual way to reach php-fpm on the same machine.",
    ),
    (
        "fcgi-kept-1k",
        "FastCGI over kept connections, 1 KiB",
        "TCP with `keep_conn`. Each server has a php-fpm of its own, as in all these tables: a kept connection \
         occupies a worker, so one server would leave no workers for the next.",
    ),
    (
        "fcgi-kept-22k",
        "FastCGI over kept connections, 22,132 bytes",
        "The same with a longer body.",
    ),
    (
        "fcgi-few-1k",
        "FastCGI to five workers, 1 KiB",
        "php-fpm with Debian's default number of workers; Skep sends it at most that many requests at a time, nginx \
         sends all.",
    ),
    (
        "fcgi-few-uploads",
        "The same beside 100 slow uploaders",
        "Each has sent 100 KiB of 1 MiB, and sends no more.",
    ),
    (
        "fcgi-few-readers",
        "The same beside 100 slow readers",
        "Each has requested 541,761 bytes, and reads none.",
    ),
    (
        "ajp-1k",
        "AJP to Tomcat, 1 KiB",
        "Tomcat's servlet for files, on the client's core, with packets of 64 KiB; one Tomcat for all rounds, warmed \
         up before the first until its CPU per request no longer falls.",
    ),
    ("ajp-22k", "AJP to Tomcat, 22,132 bytes", "The same with a longer body."),
    ("redirect", "Redirect", "302 to an origin, with the path of the request."),
];

/// The result for one target; `None` if it was not measured.
type Finding = Option<(String, bool)>;

/// A line for each figure that was measured alternately with this build and the earlier one: the median of
/// the ratios, their minimum and maximum, and both medians.
pub(crate) fn pairs(results: &Results) -> String {
    let mut text = String::new();
    for (load, cell) in &results.cells {
        let (Some(now), Some(before)) = (cell.row(SKEP), cell.row(BEFORE.name)) else { continue };
        let cpu_us = |row: &Row| row.samples.iter().map(|it| it.cpu_us).collect::<Vec<_>>();
        add_pairs(&mut text, &format!("{load}, us"), &cpu_us(now), &cpu_us(before));
    }
    if let Some(idle) = &results.idle {
        add_idle_pairs(&mut text, idle);
    }
    direct::add_pairs(&mut text, results);
    text
}

fn add_idle_pairs(text: &mut String, idle: &Idle) {
    let row = |name: &str| idle.rows.iter().find(|row| row.server == name);
    let (Some(now), Some(before)) = (row(SKEP), row(BEFORE.name)) else { return };
    let beside = |row: &IdleRow| row.beside.iter().map(|it| it.cpu_us).collect::<Vec<_>>();
    add_pairs(text, "idle, bytes each", &now.resident_bytes, &before.resident_bytes);
    add_pairs(text, "beside idle ones, us", &beside(now), &beside(before));
}

/// Adds a line of [`pairs`]: `now` and `before` have a value for each round.
fn add_pairs(text: &mut String, what: &str, now: &[f64], before: &[f64]) {
    let mut ratios: Vec<f64> = now.iter().zip(before).map(|(a, b)| a / b).collect();
    ratios.sort_by(f64::total_cmp);
    let (Some(low), Some(high)) = (ratios.first(), ratios.last()) else { return };
    let ratio = median(ratios.iter().copied());
    let (now, before) = (median(now.iter().copied()), median(before.iter().copied()));
    // Writing to a string cannot fail.
    let _ = writeln!(text, "{what}: {ratio:.3} x ({low:.3} to {high:.3}), {now:.2} to {before:.2}");
}

/// The whole page.
pub(crate) fn page(results: &Results) -> String {
    let mut page = String::from(
        "# Benchmarks\n\nWritten by `make bench` from `bench/results/latest.json`; not edited by \
         hand. Comparisons of the cluster cache with other caches, and of TCP handoff with proxies and its paper, \
         are on other pages: \
         [experiments](experiments/README.md).\n\n",
    );
    page += &machine(&results.machine);
    page += "This is the machine of the last run; each table gives its own date and processor.\n";
    page += "\n## Targets\n\n";
    page += &targets::table(results);
    page += "\n## Requests\n\nMedians of the rounds, with the lowest and the highest round; `x` \
             is the ratio to the bare loop in C (`limit`). *Busy client* is CPU per request \
             with a client that never sleeps, so that the server always has work: see \
             [method](#method). Errors are failed connects, reads and \
             writes, time-outs and statuses of 400 and above, of all rounds.\n";
    for (key, heading, sentence) in TABLES {
        if let Some(cell) = results.cells.get(key) {
            let _ = write!(page, "\n### {heading}\n\n{sentence}\n\n");
            page += &requests(cell);
        }
    }
    if let Some(uploads) = &results.uploads {
        page += &uploads_table(uploads);
    }
    if let Some(collapse) = &results.collapse {
        page += &collapse_table(collapse);
    }
    if let Some(idle) = &results.idle {
        page += &idle_table(idle);
    }
    if let Some(bodies) = &results.bodies {
        page += &bodies_table(bodies);
    }
    page += &method();
    if let Some(direct) = &results.direct {
        page += &direct::section(direct);
    }
    if let Some(tables) = &results.tables {
        page += &tables::section(tables);
    }
    if let Some(comparison) = &results.comparison {
        page += &tables::comparison(comparison);
    }
    page
}

fn machine(machine: &MachineDescription) -> String {
    let kind = if machine.is_virtual { "virtual machine" } else { "machine" };
    format!(
        "A {kind} with {} cores of {} at {} MHz, Linux {}, TCP congestion control {}, wrk {}, \
         {}.\n",
        machine.cores,
        machine.processor,
        machine.mhz,
        machine.kernel,
        machine.congestion,
        machine.wrk,
        machine.date
    )
}

fn requests(cell: &Cell) -> String {
    let limit = cell.row(LIMIT);
    let mut table = String::from(
        "| server | CPU per request, us | x | busy client, us | x | requests per second | x | \
         errors |\n|---|---|---|---|---|---|---|---|\n",
    );
    for row in &cell.rows {
        let name = name_of(&row.server, &row.version);
        if row.samples.is_empty() {
            table += &not_measured(&name, row.trouble.as_deref(), 6);
            continue;
        }
        let busy = row.samples.iter().filter_map(|sample| sample.busy_cpu_us);
        let _ = writeln!(
            table,
            "| {name} | {} | {} | {} | {} | {:.0} | {} | {} |",
            spread(row.samples.iter().map(|sample| sample.cpu_us)),
            ratio(row, limit, Row::cpu_us),
            spread(busy),
            ratio(row, limit, |row| row.busy_cpu_us().unwrap_or_default()),
            row.requests_per_s(),
            ratio(row, limit, Row::requests_per_s),
            errors(row.errors(), row.trouble.as_deref()),
        );
    }
    let (rounds, seconds) = (cell.rounds, cell.seconds);
    table + &format!("\n{rounds} rounds of {seconds} s, {}.\n", cell.when)
}

/// The row of a server without samples: the reason, and empty columns.
fn not_measured(name: &str, trouble: Option<&str>, columns: usize) -> String {
    let trouble = one_line(trouble.unwrap_or("not measured"));
    format!("| {name} | {trouble} {}|\n", "| ".repeat(columns))
}

fn uploads_table(uploads: &Uploads) -> String {
    let mut text = format!(
        "\n## Uploads\n\nOne upload of {} MiB through a pool of two HTTP servers, streamed (nginx: \
         `proxy_request_buffering off`); client and servers on the client's core. *More memory* is the maximum \
         growth of the resident memory of the processes.\n\n\
         | server | CPU per MiB, us | MiB per second | more memory, MiB |\n|---|---|---|---|\n",
        uploads.bytes >> 20
    );
    for row in &uploads.rows {
        let name = name_of(&row.server, &row.version);
        if row.samples.is_empty() {
            text += &not_measured(&name, row.trouble.as_deref(), 2);
            continue;
        }
        let _ = writeln!(
            text,
            "| {name} | {} | {:.0} | {:.1} |",
            spread(row.samples.iter().map(|sample| sample.cpu_us_per_mib)),
            row.median(|sample| sample.mib_per_s),
            row.median(|sample| sample.grown_mib),
        );
    }
    text + &format!("\n{} rounds, {}.\n", uploads.rounds, uploads.when)
}

fn collapse_table(collapse: &Collapse) -> String {
    let mut text = format!(
        "\n## One page for many clients\n\n{} clients of a cluster of {} nodes request the same page at the same \
         moment. The application takes {} ms for it, and accepts the requests of all clients at the same time. Each round \
         has another page. Dispatcher and nodes are on one \
         core, clients and application on the other. Times are to the end of the page.\n\n\
         | the page | computations | median, ms | longest, ms |\n|---|---|---|---|\n",
        grouped(u64::from(collapse.clients)),
        collapse.nodes,
        collapse.computation_ms
    );
    for row in &collapse.rows {
        if row.samples.is_empty() {
            text += &not_measured(&row.page, collapse.trouble.as_deref(), 2);
            continue;
        }
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} |",
            row.page,
            whole(&row.samples, |sample| sample.computations as f64),
            whole(&row.samples, |sample| sample.p50_ms),
            whole(&row.samples, |sample| sample.longest_ms),
        );
    }
    text + &format!("\n{} rounds. {}", collapse.rounds, machine(&collapse.machine))
}

/// Median, minimum and maximum, as whole numbers.
fn whole(samples: &[CollapseSample], of: fn(&CollapseSample) -> f64) -> String {
    let values = || samples.iter().map(of);
    let (least, most) = (values().fold(f64::INFINITY, f64::min), values().fold(0.0, f64::max));
    format!("{:.0} ({least:.0} - {most:.0})", median(values()))
}

fn idle_table(idle: &Idle) -> String {
    let mut text = format!(
        "\n## Idle connections\n\n{} clients have sent one request each and stay idle; {CONNECTIONS} \
         others continue to request 1 KiB. Resident memory is that of the processes; the kernel's memory for a \
         socket is the same for all servers.\n\n\
         | server | resident memory each, bytes | CPU per request, us: alone | beside them | \
         requests per second: alone | beside them | ratio | errors |\n\
         |---|---|---|---|---|---|---|---|\n",
        grouped(u64::from(idle.connections))
    );
    for row in &idle.rows {
        let name = name_of(&row.server, &row.version);
        if row.beside.is_empty() {
            text += &not_measured(&name, row.trouble.as_deref(), 6);
            continue;
        }
        let _ = writeln!(
            text,
            "| {name} | {:.0} | {} | {} | {:.0} | {:.0} | {:.2} | {} |",
            median(row.resident_bytes.iter().copied()),
            spread(row.alone.iter().map(|sample| sample.cpu_us)),
            spread(row.beside.iter().map(|sample| sample.cpu_us)),
            per_second(&row.alone),
            per_second(&row.beside),
            idle_ratio(row),
            errors(row.errors(), row.trouble.as_deref()),
        );
    }
    let (rounds, seconds) = (idle.rounds, idle.seconds);
    text + &format!("\n{rounds} rounds of {seconds} s, {}.\n", idle.when)
}

fn bodies_table(bodies: &Bodies) -> String {
    let mut text = String::from(
        "\n## How large bodies are sent\n\nOne epoll loop in C, one body, all else equal \
         (`bench/limit/bodies.c`; `skep-bench bodies` repeats it): server CPU for each reply in \
         us, 541,761 bytes where nothing else is said. `drain` is a client that never sleeps and \
         never copies: wrk sleeps when it has nothing to read, and over loopback the server pays \
         for waking it.\n\n| way |",
    );
    for (_, _, heading) in bodies::CLIENTS {
        let _ = write!(text, " {heading} |");
    }
    text += "\n|---|---|---|---|---|\n";
    for way in &bodies.ways {
        let _ = write!(text, "| {} |", way.name);
        for samples in &way.cpu_us {
            match samples.is_empty() {
                true => text += " |",
                false => drop(write!(text, " {} |", spread(samples.iter().copied()))),
            }
        }
        text.push('\n');
    }
    let (rounds, seconds) = (bodies.rounds, bodies.seconds);
    let _ = write!(text, "\n{rounds} rounds of {seconds} s, {}.\n", bodies.when);
    text + BODIES_LESSONS
}

const BODIES_LESSONS: &str = "
What follows from it:

- From about 16 KiB on, copying costs more than handing pages over.
- The cheapest way needs no file: one pipe for each worker, `vmsplice` from memory into it and \
`splice` from it into the socket, a mebibyte at a time. What the socket does not take is thrown \
away (`splice` to `/dev/null`) and handed over again later, so no pipe waits for a slow client.
- Huge pages help every way that hands pages over. A memfd is collapsed (`MADV_COLLAPSE`) before \
it is filled, not after: that is three times cheaper than faulting in small pages.
- `SO_SNDBUF` is left to the kernel: a smaller one costs, a larger one gives nothing. Small pieces \
cost too.
- Pages in a socket's queue are the live pages. Overwriting them changes what the client receives, \
and so does punching a hole into *part* of a huge page of a memfd. Giving anonymous memory back \
first (`MADV_DONTNEED` or `munmap`, whole or in part), closing the memfd or punching out whole \
huge pages does not. So memory that was sent is given back to the kernel before it is written \
again; memory of an allocator is never sent this way.
";

fn method() -> String {
    format!(
        "\n## Method\n\n\
- Every server runs one worker, pinned to core {SERVER_CORE}, logs off, tuned as its manual \
advises: see `bench/peers/`. wrk has core {CLIENT_CORE}, one thread and {CONNECTIONS} \
connections. HAProxy and Varnish answer from their caches, which is checked by `Age`.\n\
- Before a measurement, every file is requested from the server and compared byte for byte.\n\
- Rounds are interleaved: all servers of a table run, and are measured in turn; a warm-up of \
{WARM_UP_SECONDS} s comes before each measurement. Each round restarts them, in another order. The backends that \
they forward requests to run through all rounds of a table.\n\
- CPU per request is the time on a core of all threads of the server's process tree \
(`/proc/PID/task/TID/schedstat`, nanoseconds), with the softirq work done in their name or moved \
to ksoftirqd, divided by the requests that wrk completed; the server's backends are not included. It is the figure to \
compare: requests per second also depend on the client and on other load of the machine.\n\
- wrk costs more CPU for a small request than a fast server does. Such a server then sleeps \
between requests and is woken for each, so that its CPU per request rises while that of a slower \
one, which finds ten requests waiting, does not. The column *busy client* does not have this effect \
(`bench/limit/drain.c` polls {CONNECTIONS} connections without ever sleeping). Targets use the figures of wrk, as \
issue 2 requires.\n\
- Over loopback a server also does part of the receiver's work, and part of its own is done by \
the receiver. This applies to all servers alike.\n\
- The congestion control is set to cubic, the kernel's default, while measuring. Under BBR, which \
paces by timers, the cost of sending large bodies over loopback swings by a factor of two and \
more from run to run.\n\
- `limit` (`bench/limit/limit.c`) is one epoll loop that looks up the path and sends a prepared reply with one \
write. It is not a complete server.\n"
    )
}

/// Median with minimum and maximum.
fn spread(values: impl Iterator<Item = f64> + Clone) -> String {
    if values.clone().next().is_none() {
        return "-".to_owned();
    }
    let low = values.clone().fold(f64::INFINITY, f64::min);
    let high = values.clone().fold(0.0, f64::max);
    let middle = median(values);
    let digits = if middle < 20.0 { 2 } else { 1 };
    format!("{middle:.digits$} ({low:.digits$} - {high:.digits$})")
}

fn ratio(row: &Row, limit: Option<&Row>, value: impl Fn(&Row) -> f64) -> String {
    let ratio = limit.map(|limit| value(row) / value(limit)).filter(|ratio| ratio.is_finite());
    ratio.map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.2}"))
}

fn per_second(samples: &[Sample]) -> f64 {
    median(samples.iter().map(|sample| sample.requests_per_s))
}

/// Requests per second with idle connections relative to those without.
fn idle_ratio(row: &IdleRow) -> f64 {
    per_second(&row.beside) / per_second(&row.alone)
}

fn name_of(server: &str, version: &str) -> String {
    let name = format!("{server} {version}");
    let name = name.trim_end();
    if server == SKEP { format!("**{name}**") } else { name.to_owned() }
}

fn errors(count: u64, trouble: Option<&str>) -> String {
    match trouble {
        None => count.to_string(),
        Some(trouble) => format!("{count}; {}", one_line(trouble)),
    }
}

/// The text, made fit for a table cell.
fn one_line(text: &str) -> String {
    let text = text.replace(['\n', '|'], " ");
    text.chars().take(160).collect()
}

/// Formats 10000 as 10,000.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn builds_are_compared_round_by_round() {
        let row = |server: &str, cpu_us: [f64; 3]| Row {
            server: server.into(),
            version: String::new(),
            trouble: None,
            samples: cpu_us.map(sample).to_vec(),
        };
        let rows = vec![row(SKEP, [2.0, 3.0, 9.0]), row(BEFORE.name, [4.0, 3.0, 10.0])];
        let cell = Cell { when: String::new(), rounds: 3, seconds: 1, rows };
        let cells = [("files-1k".to_owned(), cell)].into();
        let told = pairs(&Results { cells, ..Results::default() });
        assert_eq!(told, "files-1k, us: 0.900 x (0.500 to 1.000), 3.00 to 4.00\n");
    }

    #[test]
    fn a_missing_peer_is_named_and_a_present_one_compared() {
        let row = |server: &str, cpu_us: f64| Row {
            server: server.into(),
            version: String::new(),
            trouble: (cpu_us == 0.0).then(|| "not here\n(Debian: h2o)".into()),
            samples: if cpu_us == 0.0 { vec![] } else { vec![sample(cpu_us)] },
        };
        let rows = vec![row(LIMIT, 2.0), row(SKEP, 3.0), row("h2o", 0.0)];
        let cell = Cell { when: "2026-01-01".into(), rounds: 1, seconds: 1, rows };
        let table = requests(&cell);
        assert!(
            table.contains("| **skep** | 3.00 (3.00 - 3.00) | 1.50 | - | - | 1000 | 1.00 | 0 |")
        );
        assert!(table.contains("| h2o | not here (Debian: h2o) |"));
    }

    #[test]
    fn the_committed_samples_still_parse() {
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/results/latest.json");
        let results = Results::read(std::path::Path::new(file)).unwrap();
        assert!(page(&results).starts_with("# Benchmarks\n"));
    }

    #[test]
    fn numbers_are_grouped_by_three() {
        assert_eq!(grouped(7), "7");
        assert_eq!(grouped(10_000), "10,000");
        assert_eq!(grouped(1_234_567), "1,234,567");
    }

    fn sample(cpu_us: f64) -> Sample {
        let (requests, errors, p50_us, p99_us) = (1, 0, 0.0, 0.0);
        let busy_cpu_us = None;
        Sample { cpu_us, busy_cpu_us, requests_per_s: 1000.0, requests, errors, p50_us, p99_us }
    }
}
