//! Access logs, and advice on policies for them, as text.

use std::fmt::Write;
use std::path::Path;

use serde_json::{Value, json};
use skep_advise::{AdvisedPolicy, Estimate, LogTrace, PolicyAdvice};

use super::number::{age, bytes, count, duration, latency, plural};
use super::table::{Align, TextTable};
use super::{COLUMNS, harmless_text, wrap};

/// Columns of the labels of a log's summary.
const INDENT: usize = 11;

/// What was read from a log, and what was left out.
pub(crate) fn log_summary(path: &Path, trace: &LogTrace) -> String {
    let summary = trace.summary();
    let mut out = format!("log        {}\n", harmless_text(&path.display().to_string()));
    let requests = plural(trace.requests().len() as u64, "request");
    let (urls, clients) =
        (plural(trace.objects().len() as u64, "URL"), plural(summary.clients, "client"));
    let _ = writeln!(
        out,
        "           {requests} of {urls} by {clients} in {}",
        duration(trace.length_ms())
    );
    if let Some(limit) = summary.cut_by {
        let _ = writeln!(out, "           {limit}: the rest was not read");
    }
    let mut left_out = |number: u64, what: &str| {
        if number > 0 {
            let _ = writeln!(out, "left out   {} {what}", count(number));
        }
    };
    left_out(summary.other_methods, "with other methods than GET and HEAD");
    left_out(summary.without_path, "without a path");
    left_out(summary.malformed, "malformed");
    for (line, error) in &summary.malformed_first {
        for part in wrap(&format!("line {line}: {error}"), COLUMNS - INDENT) {
            let _ = writeln!(out, "{:INDENT$}{part}", "");
        }
    }
    if summary.back_in_time > 0 {
        let _ = writeln!(
            out,
            "sorted     {} earlier than one before, by {} at most",
            plural(summary.back_in_time, "line"),
            age(summary.back_ms_max)
        );
    }
    out
}

/// The same as JSON.
pub(crate) fn log_json(trace: &LogTrace) -> Value {
    let summary = trace.summary();
    let first = summary.malformed_first.iter();
    let first = first.map(|(line, error)| json!({ "line": line, "error": error.to_string() }));
    json!({
        "lines": summary.lines,
        "requests": trace.requests().len(),
        "objects": trace.objects().len(),
        "clients": summary.clients,
        "length_ms": trace.length_ms(),
        "malformed": summary.malformed,
        "malformed_first": first.collect::<Vec<_>>(),
        "other_methods": summary.other_methods,
        "without_path": summary.without_path,
        "back_in_time": summary.back_in_time,
        "back_ms_max": summary.back_ms_max,
        "cut_by": summary.cut_by.map(|it| it.to_string()),
    })
}

/// The table of policies, and the recommendation.
pub(crate) fn advice(advice: &PolicyAdvice) -> String {
    let site = &advice.site;
    let mut out = String::new();
    let speed = match advice.speed {
        1.0 => String::new(),
        speed => format!(", {speed} times as fast as logged"),
    };
    let _ = writeln!(
        out,
        "windows    {} of {} in {}{speed}\n           which ask for {}, of objects of {}\n",
        advice.repetitions,
        plural(site.requests as u64, "request"),
        duration((site.length_s * 1e3) as u64),
        bytes(site.bytes as u64),
        bytes(site.objects_bytes as u64),
    );
    out.push_str(&table(advice));
    out.push('\n');
    let mut say = |text: &str| {
        wrap(text, COLUMNS).iter().for_each(|line| {
            let _ = writeln!(out, "{line}");
        })
    };
    say(&advice.verdict.sentence);
    if !advice.verdict.as_good.is_empty() {
        say(&format!(
            "With means that are as good as the shortest, as far as can be told (=): {}.",
            advice.verdict.as_good.join(", ")
        ));
    }
    if advice.is_overloaded() {
        say("Under every policy a link is full: response times grow with the length of the \
             log. Add nodes, or faster links.");
    }
    if advice.is_cut {
        say("Time ended before all windows were simulated: the intervals are wider (--time).");
    }
    let (all, of_windows) = (advice.log_requests as f64, site.requests * advice.repetitions as f64);
    if all > site.requests && all < of_windows {
        say(
            "The windows overlap: the intervals are narrower than those of separate parts of the log.",
        );
    }
    if all <= site.requests {
        say(
            "The windows are all of the log: the intervals do not contain how its other days differ.",
        );
    }
    out
}

fn table(advice: &PolicyAdvice) -> String {
    let columns = [
        ("", Align::Left),
        ("POLICY", Align::Left),
        ("MEAN", Align::Right),
        ("95 %", Align::Right),
        ("P99", Align::Right),
        ("95 %", Align::Right),
        ("HITS", Align::Right),
        ("BUSIEST", Align::Right),
    ];
    let mut table = TextTable::new(&columns);
    let first = &advice.policies[0];
    for policy in &advice.policies {
        let is_as_good = policy.policy == first.policy
            || policy.policy == advice.verdict.policy
            || advice.verdict.as_good.contains(&policy.policy);
        table.row(row(policy, if is_as_good { "=" } else { "" }));
    }
    table.text(COLUMNS, |_| "")
}

fn row(policy: &AdvisedPolicy, mark: &str) -> [String; 8] {
    let time = |it: Estimate| latency((it.mean * 1e6) as u64);
    [
        mark.to_owned(),
        policy.policy.to_owned(),
        time(policy.mean_s),
        half(policy.mean_s),
        time(policy.p99_s),
        half(policy.p99_s),
        match policy.hit_share.mean {
            share if share.is_finite() => format!("{:.1} %", share * 100.0),
            _ => "-".to_owned(),
        },
        format!("{:.2}", policy.busiest_over_mean.mean),
    ]
}

/// Half the width of an interval, as a share of its middle.
fn half(estimate: Estimate) -> String {
    match estimate.half_width / estimate.mean {
        share if share < 0.0995 => format!("±{:.1} %", share * 100.0),
        share if share < 9.995 => format!("±{:.0} %", share * 100.0),
        _ => "wide".to_owned(),
    }
}
