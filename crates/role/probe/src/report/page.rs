//! The page of a report, in Markdown.

use std::fmt::Write;
use std::time::{Duration, UNIX_EPOCH};

use super::{ReportInput, Series, Times};
use crate::http_client::is_drawn;
use crate::sample::ProbePhase;
use crate::statistics::SampleTimes;
use crate::summary::UrlSummary;

/// The first line of a report, by which it is recognised.
pub(super) const TITLE: &str = "# Response times\n";

/// Writes the page.
pub(super) fn page(input: ReportInput, figures: &[(&str, &str)], notes: &[String]) -> String {
    let mut out = TITLE.to_owned();
    out.push_str(
        "\nMeans with intervals of confidence of 95 % (Student's t). Times are those of whole responses with a \
         status of success; all others are failures. Failures and skipped turns have no times: where one label \
         has more of them than another, its means are of easier requests, or of easier times.\n",
    );
    for (file, title) in figures {
        let _ = write!(out, "\n![{title}]({file})\n");
    }
    if !notes.is_empty() {
        out.push('\n');
    }
    for note in notes {
        let _ = writeln!(out, "- {note}");
    }
    by_size(&mut out, &input);
    nodes(&mut out, &input);
    for (label, series) in input.labels {
        section(&mut out, &label, series);
    }
    out
}

/// Means by size and label, side by side: the points of the first figure.
fn by_size(out: &mut String, input: &ReportInput) {
    out.push_str("\n## Mean by size, in ms\n\n");
    if input.labels.values().all(|series| series.totals.is_empty()) {
        out.push_str("No response was whole and of success: see the failures below.\n");
        return;
    }
    out.push_str("| label | size | mean | 95 % |\n|---|---:|---:|---:|\n");
    for (label, series) in &input.labels {
        for (size, mean, half) in series.by_size(|_| true) {
            let interval = if half > 0.0 { format!("± {half:.3}") } else { "-".to_owned() };
            let _ = writeln!(out, "| {} | {size} B | {mean:.3} | {interval} |", cell(label));
        }
    }
}

/// The mean values of the nodes of each label, at times of light and of heavy load.
fn nodes(out: &mut String, input: &ReportInput) {
    let times = [("all", Times::All), ("light", Times::Light), ("heavy", Times::Heavy)];
    let mut rows = String::new();
    let mut head = String::new();
    for label in input.labels.keys() {
        for (word, which) in times {
            let Some(used) = input.used(label, which) else { continue };
            let _ = write!(rows, "| {} | {word} |", cell(label));
            head = String::from("| label | load |");
            for (name, value) in used.figures() {
                let _ = write!(head, " {name} |");
                let value = value.map_or("-".to_owned(), |value| format!("{value:.2}"));
                let _ = write!(rows, " {value} |");
            }
            rows.push('\n');
        }
    }
    if !rows.is_empty() {
        let columns = head.matches('|').count() - 3;
        let line = format!("|---|---|{}", "---:|".repeat(columns));
        let _ = write!(out, "\n## Nodes\n\nIn the mean of a node.\n\n{head}\n{line}\n{rows}");
    }
}

fn section(out: &mut String, label: &str, mut series: Series) {
    let samples: u64 = series.summary.urls.iter().map(|url| url.samples).sum();
    let failed: u64 = series.summary.urls.iter().map(UrlSummary::failed).sum();
    let _ = write!(out, "\n## {}\n\n{}, {failed} failed", cell(label), counted(samples, "sample"));
    if series.turns_skipped > 0 {
        let _ = write!(out, ", {} skipped", counted(series.turns_skipped, "turn"));
    }
    if let Some((first, last)) = series.stamps_unix_ms {
        let _ = write!(out, "; {} to {}", date(first), date(last));
    }
    out.push_str(". Mean / p50 / p99 in ms:\n\n| URL | size | count | failures | total |");
    for phase in ProbePhase::ALL {
        let _ = write!(out, " {} |", phase.word());
    }
    let _ = writeln!(out, "\n|---|---:|---:|---|---:|{}", "---:|".repeat(ProbePhase::COUNT));
    for url in &mut series.summary.urls {
        row(out, url);
    }
}

fn counted(count: u64, thing: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {thing}{plural}")
}

fn row(out: &mut String, url: &mut UrlSummary) {
    let size = url.size_bytes().map_or("-".to_owned(), |size| format!("{size} B"));
    let failures: Vec<String> =
        url.failures.iter().map(|(kind, it)| format!("{} {}", it.samples, cell(kind))).collect();
    let failures = if failures.is_empty() { "0".to_owned() } else { failures.join(", ") };
    let _ = write!(out, "| {} | {size} | {} | {failures} |", code(&url.url), url.samples);
    let _ = write!(out, " {} |", times(&mut url.total));
    for phase in &mut url.phases {
        let _ = write!(out, " {} |", times(phase));
    }
    out.push('\n');
}

fn times(times: &mut SampleTimes) -> String {
    let (Some(mean), Some(p50), Some(p99)) =
        (times.mean_us(), times.quantile_us(0.5), times.quantile_us(0.99))
    else {
        return "-".to_owned();
    };
    let [mean, p50, p99] = [mean, p50 as f64, p99 as f64].map(|us| format!("{:.2}", us / 1e3));
    format!("{mean} / {p50} / {p99}")
}

/// A text that contains no cell separator and no markup.
fn cell(text: &str) -> String {
    let mut out = String::new();
    for it in text.chars().filter(|it| is_drawn(*it)) {
        if matches!(it, '|' | '\\' | '`' | '*' | '_' | '<' | '[' | ']' | '#' | '~' | '&' | '!') {
            out.push('\\');
        }
        out.push(it);
    }
    out
}

/// A text in a code span, where only the table's bars are markup.
fn code(text: &str) -> String {
    let text: String = text.chars().filter(|it| is_drawn(*it)).collect();
    let longest = text.split(|it| it != '`').map(str::len).max().unwrap_or(0);
    let fence = "`".repeat(longest + 1);
    let space = if text.starts_with('`') || text.ends_with('`') { " " } else { "" };
    format!("{fence}{space}{}{space}{fence}", text.replace('|', "\\|"))
}

fn date(unix_ms: u64) -> String {
    UNIX_EPOCH
        .checked_add(Duration::from_millis(unix_ms))
        .filter(|_| unix_ms < DATE_UNIX_MS_MAX)
        .map_or("?".to_owned(), httpdate::fmt_http_date)
}

/// End of the year 9999: the last time that can be written as a date; clocks that jump may exceed
/// it.
const DATE_UNIX_MS_MAX: u64 = 253_402_300_800_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_and_urls_break_no_table() {
        assert_eq!(cell("a|b\n`c`\u{202e}"), "a\\|b\\`c\\`");
        assert_eq!(code("http://a_b_c/|x\x1b"), "`http://a_b_c/\\|x`");
        assert_eq!(code("a``b`"), "``` a``b` ```");
    }

    #[test]
    fn kinds_of_failures_of_any_file_are_no_markup() {
        let mut url = UrlSummary::default();
        url.failures.entry("<b>|".to_owned()).or_default().samples = 2;
        let mut out = String::new();
        row(&mut out, &mut url);
        assert!(out.contains("| 2 \\<b>\\| |"), "{out}");
    }

    #[test]
    fn dates_of_any_clock_are_written() {
        assert_eq!(date(0), "Thu, 01 Jan 1970 00:00:00 GMT");
        assert_eq!(date(u64::MAX), "?");
    }
}
