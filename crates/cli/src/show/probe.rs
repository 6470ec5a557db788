//! Samples of the probe as lines of 80 columns, and the summary of a run.

use std::fmt::Write;
use std::path::Path;

use serde_json::{Value, json};
use skep_probe::{ProbeOutcome, ProbePhase, ProbeSample, UrlSummary};

use super::number::{latency, plural};
use super::table::{Align, TextTable, cut};
use super::{COLUMNS, harmless};

/// Columns of a time.
const TIME: usize = 6;

/// Columns of the server's answer.
const ANSWER: usize = 9;

/// Columns before the URL: the time of day, seven times, the answer, and the spaces before both.
const BEFORE_URL: usize = 8 + 7 * TIME + 1 + ANSWER + 1;

/// Columns before the description of a failure.
const FAILURE_INDENT: usize = 4;

/// The column heads of [`probe_sample`].
pub(crate) fn probe_head() -> String {
    let names = ["DNS", "REDIR", "CONN", "TLS", "FIRST", "DATA", "TOTAL"];
    let times: String = names.iter().map(|name| format!("{name:>TIME$}")).collect();
    format!("{:<8}{times} {:<ANSWER$} {}\n", "UTC", "STATUS", "URL (times in ms)")
}

/// A sample as one line.
pub(crate) fn probe_sample(sample: &ProbeSample) -> String {
    let s = sample.at_unix_ms / 1000 % 86_400;
    let mut out = format!("{:02}:{:02}:{:02}", s / 3600, s / 60 % 60, s % 60);
    for us in times(sample) {
        let text = us.map_or("-".to_owned(), ms);
        let _ = write!(out, "{text:>TIME$}");
    }
    let status = sample.status.map_or("-".to_owned(), |status| status.to_string());
    let answer = match &sample.failure {
        Some(failure) if failure.kind != "status" => harmless_text(&failure.kind),
        _ => status,
    };
    let url = end_of(&sample.url, COLUMNS - BEFORE_URL);
    let _ = writeln!(out, " {:<ANSWER$} {url}", cut(&answer, ANSWER));
    out
}

/// The results of a run: a row for each URL, then the failures.
pub(crate) fn probe_summary(outcome: &mut ProbeOutcome, out_file: &Path) -> String {
    let columns = [
        ("URL", Align::Left),
        ("COUNT", Align::Right),
        ("FAILED", Align::Right),
        ("MEAN", Align::Right),
        ("P50", Align::Right),
        ("P99", Align::Right),
    ];
    let mut table = TextTable::new(&columns);
    let (mut samples, mut failures) = (0, String::new());
    for url in &mut outcome.summary.urls {
        samples += url.samples;
        table.row(summary_row(url));
        failures.push_str(&failure_lines(url));
    }
    let mut out = format!("\n{}{failures}", table.text(COLUMNS, |_| ""));
    let stored = plural(samples - outcome.samples_lost, "sample");
    let _ = write!(out, "{stored} in {}", out_file.display());
    match outcome.samples_lost {
        0 => {}
        lost => {
            let _ = write!(out, ", {} not stored", plural(lost, "sample"));
        }
    }
    match outcome.summary.turns_skipped {
        0 => {}
        turns => {
            let turns = plural(turns, "turn");
            let _ = write!(out, ", {turns} skipped: their time passed before they could begin");
        }
    }
    out + "\n"
}

/// The number of failures of a URL by kind, with the latest message of each.
fn failure_lines(url: &UrlSummary) -> String {
    let mut out = String::new();
    for (kind, failures) in &url.failures {
        let (count, kind) = (plural(failures.samples, "sample"), harmless_text(kind));
        let _ = writeln!(out, "  {count} failed {kind}: {}", harmless_text(&url.url));
        let text: Vec<char> = harmless_text(&failures.latest_text).chars().collect();
        for part in text.chunks(COLUMNS - FAILURE_INDENT) {
            let part: String = part.iter().collect();
            let _ = writeln!(out, "{:FAILURE_INDENT$}{}", "", part.trim());
        }
    }
    out
}

/// The same as JSON.
pub(crate) fn probe_summary_json(outcome: &ProbeOutcome) -> String {
    let url = |url: &UrlSummary| {
        let mut times = url.total.clone();
        let failures = url.failures.iter().map(|(kind, it)| {
            (kind.clone(), json!({ "samples": it.samples, "latest_text": it.latest_text }))
        });
        json!({
            "url": url.url,
            "samples": url.samples,
            "failed": url.failed(),
            "failures": failures.collect::<serde_json::Map<_, _>>(),
            "mean_us": times.mean_us(),
            "p50_us": times.quantile_us(0.5),
            "p99_us": times.quantile_us(0.99),
        })
    };
    let urls: Value = outcome.summary.urls.iter().map(url).collect();
    let (skipped, lost) = (outcome.summary.turns_skipped, outcome.samples_lost);
    json!({ "summary": { "turns_skipped": skipped, "samples_lost": lost, "urls": urls } })
        .to_string()
}

fn summary_row(url: &mut UrlSummary) -> [String; 6] {
    let time = |us: Option<u64>| us.map_or("-".to_owned(), latency);
    [
        end_of(&url.url, COLUMNS / 2),
        url.samples.to_string(),
        url.failed().to_string(),
        time(url.total.mean_us().map(|us| us as u64)),
        time(url.total.quantile_us(0.5)),
        time(url.total.quantile_us(0.99)),
    ]
}

/// Times in the order of [`probe_head`]; connecting to servers that redirect counts as redirecting.
fn times(sample: &ProbeSample) -> [Option<u64>; 7] {
    let phase = |phase| sample.phase_us(phase);
    let redirect = match (phase(ProbePhase::RedirectConnect), phase(ProbePhase::Redirect)) {
        (Some(connect), Some(redirect)) => Some(connect + redirect),
        (one, other) => one.or(other),
    };
    [
        phase(ProbePhase::Lookup),
        redirect,
        phase(ProbePhase::Connect),
        phase(ProbePhase::Tls),
        phase(ProbePhase::FirstByte),
        phase(ProbePhase::Data),
        Some(sample.total_us),
    ]
}

/// Milliseconds in at most five characters: 0, 0.25, 12.3, 1234, 120s.
fn ms(us: u64) -> String {
    match us {
        0 => "0".to_owned(),
        1..9_995 => format!("{:.2}", us as f64 / 1e3),
        9_995..99_950 => format!("{:.1}", us as f64 / 1e3),
        99_950..99_999_500 => format!("{:.0}", us as f64 / 1e3),
        _ => format!("{}s", us / 1_000_000),
    }
}

/// The last `width` characters of a text, in which URLs differ.
fn end_of(text: &str, width: usize) -> String {
    let text = harmless_text(text);
    let count = text.chars().count();
    match count <= width {
        true => text,
        false => format!("…{}", text.chars().skip(count + 1 - width).collect::<String>()),
    }
}

fn harmless_text(text: &str) -> String {
    text.chars().filter(|it| harmless::is_harmless(*it)).collect()
}

#[cfg(test)]
mod tests {
    use skep_probe::{FailureCount, ProbeFailure, ProbeSummary};

    use super::*;

    fn failure(kind: &str) -> Option<ProbeFailure> {
        Some(ProbeFailure { kind: kind.to_owned(), text: String::new() })
    }

    fn sample() -> ProbeSample {
        ProbeSample {
            url: "http://www.example.org:8080/sizes/192k.bin".to_owned(),
            at_unix_ms: 3_723_004,
            phases_us: [
                Some(40),
                Some(160),
                Some(250),
                Some(1_234),
                Some(0),
                Some(12_345),
                Some(99_999_600),
            ],
            total_us: 600_000_000,
            status: Some(200),
            ..ProbeSample::default()
        }
    }

    #[test]
    fn a_sample_is_one_aligned_line_of_80_columns() {
        let (head, line) = (probe_head(), probe_sample(&sample()));
        assert_eq!(
            line,
            "01:02:03  0.04  0.41  1.23     0  12.3   99s  600s 200       …080/sizes/192k.bin\n"
        );
        assert_eq!(line.chars().count(), COLUMNS + 1);
        assert_eq!(head.find("STATUS"), line.find("200 "));
        assert!(head.chars().count() <= COLUMNS + 1, "{head}");
    }

    #[test]
    fn a_failure_is_named_and_what_was_not_reached_is_a_dash() {
        let failed = ProbeSample {
            url: "http://a/".to_owned(),
            total_us: 90,
            failure: failure("refused"),
            ..ProbeSample::default()
        };
        let line = probe_sample(&failed);
        assert_eq!(
            line,
            "00:00:00     -     -     -     -     -     -  0.09 refused   http://a/\n"
        );
        let status = ProbeSample { status: Some(503), failure: failure("status"), ..failed };
        let line = probe_sample(&status);
        assert!(line.contains(" 503       http"), "{line}");
    }

    #[test]
    fn times_have_five_characters_at_most() {
        for (us, text) in [
            (0, "0"),
            (4, "0.00"),
            (9_994, "9.99"),
            (9_995, "10.0"),
            (99_950, "100"),
            (99_999_499, "99999"),
            (99_999_500, "99s"),
        ] {
            assert_eq!(ms(us), text);
        }
    }

    #[test]
    fn a_summary_says_what_failed_how_and_what_is_not_stored() {
        let latest_text = format!("TLS: \u{202e}{}", "name ".repeat(20));
        let mut url = UrlSummary::default();
        url.url = "http://a/".to_owned();
        url.samples = 3;
        url.failures.insert("tls".to_owned(), FailureCount { samples: 2, latest_text });
        let mut summary = ProbeSummary::default();
        summary.urls.push(url);
        summary.turns_skipped = 4;
        let mut outcome = ProbeOutcome { summary, samples_lost: 1, fault: None };
        let text = probe_summary(&mut outcome, Path::new("a.db"));
        assert!(text.contains("  2 samples failed tls: http://a/\n    TLS: name name"), "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= COLUMNS + 20), "{text}");
        assert!(!text.contains('\u{202e}'), "{text}");
        let last = "2 samples in a.db, 1 sample not stored, 4 turns skipped: their time passed before they could begin\n";
        assert!(text.ends_with(last), "{text}");
        let json: Value = serde_json::from_str(&probe_summary_json(&outcome)).unwrap_or_default();
        let failures = &json["summary"]["urls"][0]["failures"]["tls"];
        assert_eq!(
            (&failures["samples"], &json["summary"]["samples_lost"]),
            (&2.into(), &1.into())
        );
    }
}
