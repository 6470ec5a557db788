//! Functions have at most 70 lines and files at most 600, except for those in a ratchet.
//!
//! Longer ones are listed in `xtask/ratchet.toml` with their present length. A listed length may only
//! decrease: growth is a finding, and so is a number that is higher than the actual length. Files of cases
//! are marked with `//! tidy: table` and are exempt.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use toml_edit::{Document, Item};

use super::Finding;
use crate::source::Source;

const FUNCTION_LINES_MAX: usize = 70;
const FILE_LINES_MAX: usize = 600;
const RATCHET: &str = "xtask/ratchet.toml";

/// Finds what is longer than the limit or than its length in the ratchet.
pub(crate) fn check(sources: &[Source], ratchet: &str) -> Result<Vec<Finding>> {
    let ratchet = Document::parse(ratchet).context(RATCHET)?;
    let mut functions = Kind::new("function-lines", FUNCTION_LINES_MAX, &ratchet)?;
    let mut files = Kind::new("file-lines", FILE_LINES_MAX, &ratchet)?;
    let mut findings = Vec::new();
    for source in sources.iter().filter(|source| !source.is_table()) {
        let lines = source.text.lines().count();
        findings.extend(files.judge(&source.path, &source.path, 1, lines));
        for function in source.functions() {
            let key = format!("{}::{}", source.path, function.name);
            findings.extend(functions.judge(&source.path, &key, function.line, function.lines));
        }
    }
    findings.extend(functions.left_over());
    findings.extend(files.left_over());
    Ok(findings)
}

/// One limit, and the exceptions to it that were not needed so far.
struct Kind {
    name: &'static str,
    lines_max: usize,
    listed: BTreeMap<String, usize>,
}

impl Kind {
    fn new(name: &'static str, lines_max: usize, ratchet: &Document<&str>) -> Result<Self> {
        let mut listed = BTreeMap::new();
        let table = ratchet.get(name).and_then(Item::as_table);
        for (key, value) in table.into_iter().flatten() {
            let number = value.as_integer().and_then(|number| usize::try_from(number).ok());
            let number = number.with_context(|| format!("{RATCHET}: {key} wants a number"))?;
            listed.insert(key.to_owned(), number);
        }
        Ok(Self { name, lines_max, listed })
    }

    /// Compares a length with the limit, or with its entry in the ratchet.
    fn judge(&mut self, path: &str, key: &str, line: usize, lines: usize) -> Option<Finding> {
        if lines <= self.lines_max {
            return None;
        }
        let max = self.lines_max;
        let what = match self.listed.remove(key) {
            Some(number) if number == lines => return None,
            Some(number) if number > lines => {
                format!("{lines} lines, {number} in {RATCHET}: write the lower number there")
            }
            Some(number) => format!("grew from {number} to {lines} lines: split it"),
            None => format!("{lines} lines, at most {max}: split it"),
        };
        Some(Finding::new(path, line, self.name, what))
    }

    /// Exceptions that are no longer needed.
    fn left_over(&self) -> Vec<Finding> {
        let stale = |key: &String| {
            Finding::new(RATCHET, 1, self.name, format!("`{key}` is within the limit: remove it"))
        };
        self.listed.keys().map(stale).collect()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    fn function(lines: usize) -> Source {
        let text = format!("//! X.\nfn long() {{{}}}\n", "\n".repeat(lines - 1));
        Source::new("crates/x/src/a.rs", text)
    }

    fn rules(source: Source, ratchet: &str) -> Vec<(&'static str, String)> {
        let found = check(&[source], ratchet).unwrap();
        found.into_iter().map(|finding| (finding.rule, finding.what)).collect()
    }

    #[test]
    fn the_limit_itself_is_allowed() {
        assert!(rules(function(70), "").is_empty());
        assert_eq!(rules(function(71), "").len(), 1);
        let file = |lines: usize| Source::new("a.rs", "//\n".repeat(lines));
        assert!(rules(file(600), "").is_empty());
        assert_eq!(rules(file(601), "")[0].0, "file-lines");
    }

    #[test]
    fn the_ratchet_holds_the_present_length_and_only_goes_down() {
        let listed =
            |number: usize| format!("[function-lines]\n\"crates/x/src/a.rs::long\" = {number}\n");
        assert!(rules(function(80), &listed(80)).is_empty());
        assert!(rules(function(81), &listed(80))[0].1.contains("grew from 80 to 81"));
        assert!(rules(function(79), &listed(80))[0].1.contains("lower number"));
        assert!(rules(function(70), &listed(80))[0].1.contains("remove it"));
    }

    #[test]
    fn a_table_is_exempt_and_a_broken_ratchet_is_an_error() {
        let text = format!("//! X.\n//! tidy: table\nfn long() {{{}}}\n", "\n".repeat(700));
        assert!(rules(Source::new("a.rs", text), "").is_empty());
        assert!(check(&[], "[function-lines").is_err());
        assert!(check(&[], "[function-lines]\nx = \"y\"\n").is_err());
    }
}
