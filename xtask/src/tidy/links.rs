//! Links from one page of the repo to another file of it, or to a heading of a
//! page, lead somewhere.

use std::collections::BTreeMap;

use super::Finding;
use crate::repo::Page;

/// Finds relative links whose file, as a path from the root, `exists` denies, and
/// anchors that no heading of the page they lead to has. `pages` are all of the repo.
pub(crate) fn check(page: &Page, pages: &[Page], exists: impl Fn(&str) -> bool) -> Vec<Finding> {
    let folder = page.path.rsplit_once('/').map_or("", |(folder, _)| folder);
    let mut findings = Vec::new();
    for (number, line) in outside_of_code(&page.text) {
        for target in targets_of(line) {
            let (file, anchor) = target.split_once('#').unwrap_or((target, ""));
            let path = if file.is_empty() { page.path.clone() } else { from_root(folder, file) };
            let what = if !exists(&path) {
                format!("`{file}` is not there: mend the link or write the page")
            } else if lacks(pages, &path, anchor) {
                format!("no heading of {path} has the anchor `#{anchor}`: mend the link")
            } else {
                continue;
            };
            findings.push(Finding::new(&page.path, number, "link", what));
        }
    }
    findings
}

/// Lines that are not within a fence, with their numbers (from 1).
fn outside_of_code(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut in_code = false;
    let is_text = move |&(_, line): &(usize, &str)| {
        let is_fence = line.trim_start().starts_with("```");
        in_code ^= is_fence;
        !in_code && !is_fence
    };
    (1..).zip(text.lines()).filter(is_text)
}

/// What a line links to within the repo: `[text](file#anchor)`.
fn targets_of(line: &str) -> impl Iterator<Item = &str> {
    let behind_text = line.split("](").skip(1);
    behind_text
        .filter_map(|rest| rest.split_once(')'))
        .map(|(target, _)| target)
        .filter(|target| !target.is_empty() && !target.contains(':'))
}

/// The path from the root of what `folder` calls `target`.
fn from_root(folder: &str, target: &str) -> String {
    let mut parts: Vec<&str> = folder.split('/').filter(|part| !part.is_empty()).collect();
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    parts.join("/")
}

/// Whether a link has an anchor and leads to a page without it. What is no page
/// (a source) has anchors that only its host knows.
fn lacks(pages: &[Page], path: &str, anchor: &str) -> bool {
    let page = pages.iter().find(|page| page.path == path);
    !anchor.is_empty() && page.is_some_and(|page| !anchors(&page.text).any(|it| it == anchor))
}

/// The anchors of a page's headings, as GitHub and GitLab make them: a second
/// heading of the same words gets `-1`, and so on.
fn anchors(text: &str) -> impl Iterator<Item = String> {
    let mut counts = BTreeMap::<String, usize>::new();
    outside_of_code(text).filter_map(heading).map(move |heading| {
        let anchor = slug(heading);
        let count = counts.entry(anchor.clone()).and_modify(|count| *count += 1).or_default();
        if *count == 0 { anchor } else { format!("{anchor}-{count}") }
    })
}

fn heading((_, line): (usize, &str)) -> Option<&str> {
    let words = line.trim_start_matches('#');
    let level = line.len() - words.len();
    (1..=6).contains(&level).then(|| words.strip_prefix(' ')).flatten()
}

/// A heading in small letters, with `-` for spaces and without other signs.
fn slug(heading: &str) -> String {
    let sign = |sign: char| match sign {
        ' ' => Some('-'),
        '-' | '_' => Some(sign),
        _ => sign.is_alphanumeric().then_some(sign),
    };
    heading.trim().to_lowercase().chars().filter_map(sign).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOGS: &str = "# Logs\n## What `skep-logs` say, and why\n## Files\n```\n# No heading\n```\n\
                        ## Files\n#hash\n";

    fn missing(text: &str) -> Vec<usize> {
        let page = |path: &str, text: &str| Page { path: path.to_owned(), text: text.to_owned() };
        let pages = [page("docs/operate/start.md", text), page("docs/operate/logs.md", LOGS)];
        let exists = |path: &str| {
            ["README.md", "src/a.rs", "docs"].contains(&path)
                || pages.iter().any(|it| it.path == path)
        };
        check(&pages[0], &pages, exists).into_iter().map(|finding| finding.line).collect()
    }

    #[test]
    fn relative_links_are_followed_from_the_page() {
        for (text, lines) in [
            ("[a](logs.md) [b](../../README.md) [c](..)", vec![]),
            ("[a](https://example.org/x#y) [c](mailto:a@b.c)", vec![]),
            ("x\n[a](logs.md) ![b](gone.svg)", vec![2]),
            ("[a](../gone.md) [b](/gone.md)", vec![1, 1]),
            ("```\n[a](gone.md)\n```\n[b](gone.md)", vec![4]),
        ] {
            assert_eq!(missing(text), lines, "{text}");
        }
    }

    #[test]
    fn anchors_are_headings_of_the_page_they_lead_to() {
        for (text, lines) in [
            ("# To here\n[a](#to-here) [b](logs.md#logs)", vec![]),
            ("[a](logs.md#what-skep-logs-say-and-why)", vec![]),
            ("[a](logs.md#files) [b](logs.md#files-1) [c](../../src/a.rs#L7)", vec![]),
            ("# Here\n[a](#there) [b](logs.md#here)", vec![2, 2]),
            ("[a](logs.md#no-heading) [b](logs.md#hash) [c](logs.md#files-2)", vec![1, 1, 1]),
            ("[a](logs.md#Logs)\n[b](gone.md#logs)", vec![1, 2]),
        ] {
            assert_eq!(missing(text), lines, "{text}");
        }
    }
}
