//! Loads and their results as text.

use std::fmt::Write;
use std::path::Path;

use skep_load::{BenchReport, LoadPace, LoadPlan, LoadProgress, WrittenData};

use super::number::{age, bytes, count, latency, plural, rate};
use super::table::{Align, TextTable};
use super::{COLUMNS, harmless_text};

/// What was written.
pub(crate) fn bench_data(written: &WrittenData, folder: &Path) -> String {
    let files = plural(written.files, "file");
    format!("wrote {files} of {} below {}\n", bytes(written.bytes), folder.display())
}

/// The pace of requests, in words.
pub(crate) fn bench_pace(plan: &LoadPlan) -> String {
    let clients = plural(plan.clients.into(), "client");
    match plan.pace {
        LoadPace::Closed { ramp: Some(_), .. } => format!("closed loop, a ramp of {clients}"),
        LoadPace::Closed { think_ms: 0, .. } => format!("closed loop of {clients}"),
        LoadPace::Closed { think_ms, .. } => {
            format!("closed loop of {clients} that think for {think_ms} ms")
        }
        LoadPace::Open { per_second } => format!(
            "open loop of {} requests/s, at most {} at a time",
            rate(per_second),
            count(plan.clients.into())
        ),
        LoadPace::Logged { speed: 1.0 } => {
            format!(
                "open loop by the log's times, at most {} at a time",
                count(plan.clients.into())
            )
        }
        LoadPace::Logged { speed } => format!(
            "open loop, {speed} times as fast as logged, at most {} at a time",
            count(plan.clients.into())
        ),
    }
}

/// The progress of a run.
pub(crate) fn bench_progress(progress: LoadProgress) -> String {
    let (answers, failed) = (count(progress.succeeded), count(progress.failed));
    format!("{answers} answers, {failed} failed, {}", bytes(progress.bytes))
}

/// The results of a run.
pub(crate) fn bench_report(report: &BenchReport) -> String {
    let tally = &report.tally;
    let mut out = format!("{} at {}\n", report.workload, report.url);
    let stopped = if tally.is_stopped { ", ended early" } else { "" };
    let measured = age(tally.measured_ms);
    let _ = writeln!(out, "{}, {measured} measured{stopped}\n", report.pace);
    let (requests, failed) = (count(tally.requests()), count(tally.failed()));
    let per_second = rate(report.per_second());
    let _ = writeln!(out, "requests     {requests}, {failed} failed; {per_second} right answers/s");
    let per_second = bytes(report.bytes_per_second() as u64);
    let _ = writeln!(out, "bytes        {}; {per_second}/s", bytes(tally.bytes));
    let (made, reopened) = (count(tally.connections), count(tally.reopened));
    let redirects = plural(tally.redirects, "redirect");
    let _ = writeln!(out, "connections  {made}, {reopened} found closed; {redirects} followed");
    if tally.cookies_set > 0 {
        let _ = writeln!(out, "cookies      set by {}", plural(tally.cookies_set, "answer"));
    }
    if tally.late_us.count() > 0 {
        let (late, most) = (count(tally.late), latency(tally.late_us.quantile_us(1.0)));
        let _ =
            writeln!(out, "late         {late} began over 1 ms after their time, {most} at most");
    }
    out.push('\n');
    out.push_str(&times(report));
    for (kind, number) in &tally.failures {
        let _ = writeln!(out, "failed {kind}: {}", count(*number));
    }
    for example in &tally.examples {
        // It may contain text from the server.
        let _ = writeln!(out, "  {}", harmless_text(example));
    }
    out
}

fn times(report: &BenchReport) -> String {
    let columns = [
        ("LATENCY", Align::Left),
        ("MEAN", Align::Right),
        ("P50", Align::Right),
        ("P90", Align::Right),
        ("P99", Align::Right),
        ("P99.9", Align::Right),
        ("MAX", Align::Right),
    ];
    let mut table = TextTable::new(&columns);
    let tally = &report.tally;
    for (name, times) in [("first byte", &tally.first_byte_us), ("whole response", &tally.total_us)]
    {
        let at = |quantile| latency(times.quantile_us(quantile));
        table.row([
            name.to_owned(),
            latency(times.mean_us() as u64),
            at(0.5),
            at(0.9),
            at(0.99),
            at(0.999),
            at(1.0),
        ]);
    }
    table.text(COLUMNS, |_| "")
}
