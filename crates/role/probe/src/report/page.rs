//! The page of a report, in Markdown.

use std::fmt::Write;
use std::time::{Duration, UNIX_EPOCH};

use super::{Material, Series};
use crate::sample::ProbePhase;
use crate::statistics::SampleTimes;
use crate::summary::UrlSummary;

/// Writes the page.
pub(super) fn page(material: Material, figures: &[(&str, &str)], notes: &[String]) -> String {
    let mut out = "# Response times\n\n".to_owned();
    out.push_str(
        "Means with intervals of confidence of 95 % (Student's t). Times are those of whole responses with a \
         status of success; all others are failures.\n",
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
    by_size(&mut out, &material);
    for (label, series) in material.labels {
        section(&mut out, &label, series);
    }
    out
}

/// Means by size and label, side by side: the points of the first figure.
fn by_size(out: &mut String, material: &Material) {
    out.push_str(
        "\n## Mean by size, in ms\n\n| label | size | mean | 95 % |\n|---|---:|---:|---:|\n",
    );
    for (label, series) in &material.labels {
        for (size, mean, half) in series.by_size(|_| true) {
            let interval = if half > 0.0 { format!("± {half:.3}") } else { "-".to_owned() };
            let _ = writeln!(out, "| {} | {size} B | {mean:.3} | {interval} |", cell(label));
        }
    }
}

fn section(out: &mut String, label: &str, mut series: Series) {
    let samples: u64 = series.summary.urls.iter().map(|url| url.samples).sum();
    let failed: u64 = series.summary.urls.iter().map(UrlSummary::failed).sum();
    let _ = write!(out, "\n## {}\n\n{samples} samples, {failed} failed", cell(label));
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

fn row(out: &mut String, url: &mut UrlSummary) {
    let size = url.size_bytes().map_or("-".to_owned(), |size| format!("{size} B"));
    let failures: Vec<String> =
        url.failures.iter().map(|(word, count)| format!("{count} {word}")).collect();
    let failures = if failures.is_empty() { "0".to_owned() } else { failures.join(", ") };
    let _ = write!(out, "| {} | {size} | {} | {failures} |", cell(&url.url), url.samples);
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

/// A text that ends no cell and begins no markup.
fn cell(text: &str) -> String {
    let mut out = String::new();
    for it in text.chars().filter(|it| !it.is_control()) {
        if matches!(it, '|' | '\\' | '`' | '*' | '_' | '<' | '[' | ']' | '#') {
            out.push('\\');
        }
        out.push(it);
    }
    out
}

fn date(unix_ms: u64) -> String {
    UNIX_EPOCH
        .checked_add(Duration::from_millis(unix_ms))
        .filter(|_| unix_ms < DATE_UNIX_MS_MAX)
        .map_or("?".to_owned(), httpdate::fmt_http_date)
}

/// End of the year 9999: what can be written as a date, which clocks that jump need not be.
const DATE_UNIX_MS_MAX: u64 = 253_402_300_800_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_and_urls_break_no_table() {
        assert_eq!(cell("a|b\n`c`"), "a\\|b\\`c\\`");
    }

    #[test]
    fn dates_of_any_clock_are_written() {
        assert_eq!(date(0), "Thu, 01 Jan 1970 00:00:00 GMT");
        assert_eq!(date(u64::MAX), "?");
    }
}
