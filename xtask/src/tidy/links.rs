//! Links from one page of the repo to another file of it lead somewhere.

use super::Finding;
use crate::repo::Page;

/// Finds relative links whose target, as a path from the root, `exists` denies.
pub(crate) fn check(page: &Page, exists: impl Fn(&str) -> bool) -> Vec<Finding> {
    let folder = page.path.rsplit_once('/').map_or("", |(folder, _)| folder);
    let mut findings = Vec::new();
    let mut in_code = false;
    for (index, line) in page.text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            in_code = !in_code;
        }
        let targets = if in_code { Vec::new() } else { targets_of(line) };
        for target in targets {
            if !exists(&from_root(folder, target)) {
                let what = format!("`{target}` is not there: mend the link or write the page");
                findings.push(Finding::new(&page.path, index + 1, "link", what));
            }
        }
    }
    findings
}

/// The files that a line links to, without anchors: `[text](file#anchor)`.
fn targets_of(line: &str) -> Vec<&str> {
    let behind_text = line.split("](").skip(1);
    behind_text
        .filter_map(|rest| rest.split_once(')'))
        .map(|(target, _)| target.split('#').next().unwrap_or_default())
        .filter(|target| !target.is_empty() && !target.contains(':'))
        .collect()
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

#[cfg(test)]
mod tests {
    use super::*;

    fn missing(text: &str) -> Vec<usize> {
        let page = Page { path: "docs/operate/start.md".to_owned(), text: text.to_owned() };
        let exists = |path: &str| ["README.md", "docs/operate/logs.md", "docs"].contains(&path);
        check(&page, exists).into_iter().map(|finding| finding.line).collect()
    }

    #[test]
    fn relative_links_are_followed_from_the_page() {
        for (text, lines) in [
            ("[a](logs.md) [b](../../README.md#top) [c](..)", vec![]),
            ("[a](https://example.org/x) [b](#here) [c](mailto:a@b.c)", vec![]),
            ("x\n[a](logs.md) ![b](gone.svg)", vec![2]),
            ("[a](../gone.md) [b](/gone.md)", vec![1, 1]),
            ("```\n[a](gone.md)\n```\n[b](gone.md)", vec![4]),
        ] {
            assert_eq!(missing(text), lines, "{text}");
        }
    }
}
