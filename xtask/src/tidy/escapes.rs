//! No `unwrap` and no bare `expect` where bytes from the network are handled.
//!
//! Clippy checks the same for the whole workspace, but a file-wide `allow` would silence it. Here the
//! exception must be on the function or the statement, and it must give a reason.

use std::collections::BTreeSet;
use std::ops::Range;

use super::Finding;
use crate::source::Source;

/// Where bytes from the network are handled.
const PATHS: &[&str] = &[
    "crates/core/ajp/",
    "crates/core/fastcgi/",
    "crates/core/http/",
    "crates/edge/",
    "crates/role/",
];

/// Calls that end in a panic, and the lint that an exception names.
const CALLS: &[(&str, &str)] = &[
    (".unwrap()", "clippy::unwrap_used"),
    (".unwrap_err()", "clippy::unwrap_used"),
    (".expect(", "clippy::expect_used"),
    (".expect_err(", "clippy::expect_used"),
];

/// Finds calls that hostile bytes might turn into a panic.
pub(crate) fn check(source: &Source, test_only: &BTreeSet<String>) -> Vec<Finding> {
    if !PATHS.iter().any(|path| source.path.starts_with(path)) {
        return Vec::new();
    }
    let in_tests = test_ranges(source, test_only);
    let mut findings = Vec::new();
    for (call, lint) in CALLS {
        let excused = excused_ranges(source, lint);
        for at in source.find(call) {
            let covered = |ranges: &[Range<usize>]| ranges.iter().any(|range| range.contains(&at));
            if !covered(&in_tests) && !covered(&excused) {
                let what = format!(
                    "`{call}` on a path that network bytes reach: return a typed error, or put \
                     `#[expect({lint}, reason = \"why it cannot fail\")]` on the statement"
                );
                findings.push(Finding::new(&source.path, source.line_of(at), "escape", what));
            }
        }
    }
    findings
}

/// Ranges of a file that are compiled for tests only; the whole file if it is one of `test_only`.
pub(crate) fn test_ranges(source: &Source, test_only: &BTreeSet<String>) -> Vec<Range<usize>> {
    let is_in = |file: &String| {
        let folder = format!("{}/", file.trim_end_matches(".rs"));
        source.path == *file || source.path.starts_with(&folder)
    };
    if is_test_folder(&source.path) || test_only.iter().any(is_in) {
        return std::iter::once(0..source.code.len()).collect();
    }
    source.test_ranges()
}

/// Files included by `#[cfg(test)] mod name;`, each also representing the folder of the same name.
pub(crate) fn test_only_files(sources: &[Source]) -> BTreeSet<String> {
    sources.iter().flat_map(test_modules_of).collect()
}

fn test_modules_of(source: &Source) -> Vec<String> {
    let folder = match source.path.rsplit_once('/') {
        Some((folder, "lib.rs" | "main.rs" | "mod.rs")) => folder.to_owned(),
        _ => source.path.trim_end_matches(".rs").to_owned(),
    };
    let ranges = source.test_ranges();
    let declared = ranges.iter().filter_map(|range| source.code[range.clone()].strip_suffix(';'));
    declared
        .filter_map(|item| item.rsplit_once("mod "))
        .map(|(_, name)| format!("{folder}/{}.rs", name.trim()))
        .collect()
}

/// Whether the path is in `tests/` or `benches/` beside a crate's `src/`.
fn is_test_folder(path: &str) -> bool {
    path.starts_with("tests/") || path.contains("/tests/") || path.contains("/benches/")
}

/// Ranges that attributes exempt from `lint` with a reason, functions and statements only: an inner attribute
/// or one on a module covers too much to be justified.
fn excused_ranges(source: &Source, lint: &str) -> Vec<Range<usize>> {
    let excuses = |text: &str| {
        (text.starts_with("#[expect(") || text.starts_with("#[allow("))
            && text.contains(lint)
            && text.contains("reason")
    };
    source
        .attributes()
        .iter()
        .filter(|attribute| !attribute.inner && excuses(&source.code[attribute.range.clone()]))
        .map(|attribute| source.governed_by(attribute))
        .filter(|range| !governs_module(&source.code[range.clone()]))
        .collect()
}

fn governs_module(code: &str) -> bool {
    let head = code.split(['{', ';']).next().unwrap_or_default();
    head.split_whitespace().any(|word| word == "mod" || word == "impl")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(path: &str, text: &str) -> usize {
        check(&Source::new(path, text), &BTreeSet::new()).len()
    }

    #[test]
    fn calls_without_an_excuse_are_found_where_bytes_arrive() {
        for (path, text, expected) in [
            ("crates/core/http/src/a.rs", "fn f() { x.unwrap(); y.expect(\"z\"); }", 2),
            ("crates/edge/serve/src/a.rs", "fn f() { x.unwrap() }", 1),
            ("crates/role/node/src/a.rs", "fn f() { x.expect_err(\"z\") }", 1),
            ("crates/core/policy/src/a.rs", "fn f() { x.unwrap() }", 0),
            ("crates/edge/serve/src/a.rs", "fn f() { x.unwrap_or(1); x.unwrap_or_default() }", 0),
            ("crates/edge/serve/src/a.rs", "fn f() {} // x.unwrap()", 0),
            ("crates/edge/serve/src/a.rs", "#[cfg(test)] mod t { fn f() { x.unwrap() } }", 0),
            ("crates/edge/serve/tests/a.rs", "fn f() { x.unwrap() }", 0),
        ] {
            assert_eq!(count(path, text), expected, "{path}: {text}");
        }
    }

    #[test]
    fn an_excuse_gives_a_reason_and_covers_little() {
        const LET: &str = "let x = y.expect(\"z\");";
        for (text, expected) in [
            (
                "fn f() { #[expect(clippy::expect_used, reason = \"r\")] let x = y.expect(\"z\"); }",
                0,
            ),
            ("#[expect(clippy::expect_used, reason = \"r\")] fn f() { y.expect(\"z\") }", 0),
            ("fn f() { #[expect(clippy::expect_used)] let x = y.expect(\"z\"); }", 1),
            (
                "fn f() { #[expect(clippy::unwrap_used, reason = \"r\")] let x = y.expect(\"z\"); }",
                1,
            ),
            (
                "#[expect(clippy::expect_used, reason = \"r\")] mod m { fn f() { y.expect(\"z\") } }",
                1,
            ),
            (
                "#[expect(clippy::expect_used, reason = \"r\")] impl X { fn f() { y.expect(\"z\") } }",
                1,
            ),
            ("#![allow(clippy::expect_used, reason = \"r\")] fn f() { y.expect(\"z\") }", 1),
        ] {
            assert_eq!(count("crates/edge/serve/src/a.rs", text), expected, "{text}");
        }
        let twice =
            format!("fn f() {{ #[expect(clippy::expect_used, reason = \"r\")] {LET} {LET} }}");
        assert_eq!(count("crates/edge/serve/src/a.rs", &twice), 1, "one excuse, one statement");
    }

    #[test]
    fn files_brought_in_by_test_modules_are_tests() {
        let parent = Source::new("crates/edge/serve/src/lib.rs", "#[cfg(test)]\nmod testing;");
        let deep = Source::new("crates/edge/serve/src/pool.rs", "#[cfg(test)] mod tests;");
        let files = test_only_files(&[parent, deep]);
        assert!(files.contains("crates/edge/serve/src/testing.rs"));
        assert!(files.contains("crates/edge/serve/src/pool/tests.rs"));
        for (path, expected) in [
            ("crates/edge/serve/src/testing.rs", 0),
            ("crates/edge/serve/src/testing/fakes.rs", 0),
            ("crates/edge/serve/src/testing_not.rs", 1),
        ] {
            let source = Source::new(path, "fn f() { x.unwrap() }");
            assert_eq!(check(&source, &files).len(), expected, "{path}");
        }
    }
}
