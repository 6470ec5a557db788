//! The page of metrics names every metric, and no others.

use std::collections::{BTreeMap, BTreeSet};

use super::{Finding, escapes};
use crate::repo::Page;
use crate::source::Source;

const PAGE: &str = "docs/operate/metrics.md";
const PREFIX: &str = "skep_";

/// Finds metrics without a line in the page, and lines without a metric.
pub(crate) fn check(
    sources: &[Source],
    pages: &[Page],
    test_only: &BTreeSet<String>,
) -> Vec<Finding> {
    let registered = registered(sources, test_only);
    let documented = documented(pages);
    let finding =
        |(path, line): &(String, usize), what: String| Finding::new(path, *line, "metrics", what);
    let missing = registered.iter().filter(|(name, _)| !documented.contains_key(*name));
    let stale = documented.iter().filter(|(name, _)| !is_registered(name, &registered));
    missing
        .map(|(name, place)| finding(place, format!("`{name}` has no line in {PAGE}")))
        .chain(stale.map(|(name, place)| finding(place, format!("no crate has a metric `{name}`"))))
        .collect()
}

type Places = BTreeMap<String, (String, usize)>;

/// Metric names in string literals of the crates, except in tests.
fn registered(sources: &[Source], test_only: &BTreeSet<String>) -> Places {
    let mut names = Places::new();
    for source in sources.iter().filter(|source| source.path.starts_with("crates/")) {
        let in_tests = escapes::test_ranges(source, test_only);
        for (at, _) in source.text.match_indices(&format!("\"{PREFIX}")) {
            let name = name_at(&source.text[at + 1..]);
            let is_whole = source.text[at + 1 + name.len()..].starts_with('"');
            if is_whole && name != PREFIX && !in_tests.iter().any(|range| range.contains(&at)) {
                names.entry(name.to_owned()).or_insert((source.path.clone(), source.line_of(at)));
            }
        }
    }
    names
}

/// Names in code spans of the page.
fn documented(pages: &[Page]) -> Places {
    let mut names = Places::new();
    for page in pages.iter().filter(|page| page.path == PAGE) {
        for (line, number) in page.text.lines().zip(1..) {
            for (at, _) in line.match_indices(&format!("`{PREFIX}")) {
                let name = name_at(&line[at + 1..]).to_owned();
                names.entry(name).or_insert((page.path.clone(), number));
            }
        }
    }
    names
}

/// Whether some crate has a metric with this name, or a histogram with such parts.
fn is_registered(name: &str, registered: &Places) -> bool {
    let stem = ["_bucket", "_sum", "_count"].iter().find_map(|part| name.strip_suffix(part));
    registered.contains_key(name) || stem.is_some_and(|stem| registered.contains_key(stem))
}

fn name_at(text: &str) -> &str {
    let end = text.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(text.len());
    &text[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_code_and_page_must_agree() {
        let code = "count(\"skep_a_total\");\ntime(\"skep_t\");\n\
                    #[cfg(test)] mod t { f(\"skep_only_in_tests\"); }";
        let source = [Source::new("crates/edge/telemetry/src/a.rs", code)];
        let found = |text: &str| {
            let page = [Page { path: PAGE.to_owned(), text: text.to_owned() }];
            let findings = check(&source, &page, &BTreeSet::new());
            findings.into_iter().map(|finding| finding.to_string()).collect::<Vec<_>>()
        };
        assert!(
            found("`skep_a_total`, `skep_t`, `skep_t_sum` and `skep_a_total{x=\"y\"}`").is_empty()
        );
        assert!(found("`skep_t`")[0].starts_with("crates/edge/telemetry/src/a.rs:1: metrics"));
        assert!(
            found("`skep_a_total` `skep_t`\n`skep_b`")[0].starts_with("docs/operate/metrics.md:2")
        );
    }
}
