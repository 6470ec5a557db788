//! Words that a layer must not use.
//!
//! Most of the architecture's invariants are absences; this is their table. Tests are exempt, except where a
//! row states otherwise.

use std::collections::BTreeSet;

use super::{Finding, escapes};
use crate::source::Source;

/// Words that must not appear in code below some folders.
struct Absent {
    tokens: &'static [&'static str],
    below: &'static [&'static str],
    also_in_tests: bool,
    what: &'static str,
}

const PURE: &[&str] = &["crates/base/", "crates/core/", "bpf/steer/"];
const LIBRARIES: &[&str] = &["crates/base/", "crates/core/", "crates/edge/", "crates/role/"];

const TABLE: &[Absent] = &[
    Absent {
        tokens: &["unsafe", "unsafe_code"],
        below: &[
            "crates/base/",
            "crates/core/",
            "crates/role/",
            "crates/cli/",
            "crates/skep/",
            "bpf/steer/",
            "xtask/",
        ],
        also_in_tests: true,
        what: "unsafe code lives in crates/edge only, behind a safe interface",
    },
    Absent {
        tokens: &["TcpStream", "TcpListener", "UdpSocket", "UnixStream", "UnixListener"],
        below: PURE,
        also_in_tests: false,
        what: "no I/O here: take bytes and messages, return bytes and messages",
    },
    Absent {
        tokens: &["std::fs", "std::process", "std::env"],
        below: PURE,
        also_in_tests: false,
        what: "no files, processes or environment here: the caller reads and hands in",
    },
    Absent {
        tokens: &["std::thread", "std::sync::Mutex", "std::sync::RwLock", "std::sync::mpsc"],
        below: PURE,
        also_in_tests: false,
        what: "no threads and no locks here: one owner calls with `&mut self`",
    },
    Absent {
        tokens: &["SystemTime", "Instant::now", "std::time::Instant"],
        below: PURE,
        also_in_tests: false,
        what: "no clock here: take `skep_units::Now` (or wall-clock seconds) as an argument",
    },
    Absent {
        tokens: &["RandomState", "getrandom", "thread_rng", "rand"],
        below: PURE,
        also_in_tests: false,
        what: "no entropy here: take a seed and use `skep_units::Rng`",
    },
    Absent {
        tokens: &["async fn", ".await", "async move"],
        below: PURE,
        also_in_tests: false,
        what: "no async here: return what to do, let a role await it",
    },
    Absent {
        tokens: &["println!", "eprintln!", "print!", "eprint!"],
        below: LIBRARIES,
        also_in_tests: false,
        what: "libraries do not print: return it, or log it through `tracing`",
    },
    Absent {
        tokens: &["process::exit", "process::abort"],
        below: &["crates/base/", "crates/core/", "crates/edge/", "crates/role/", "crates/cli/"],
        also_in_tests: false,
        what: "only the binary ends the process",
    },
];

/// Finds the words of the table in the layers that must not use them.
pub(crate) fn check(source: &Source, test_only: &BTreeSet<String>) -> Vec<Finding> {
    let in_tests = escapes::test_ranges(source, test_only);
    let mut findings = Vec::new();
    for row in TABLE.iter().filter(|row| is_below(&source.path, row.below)) {
        for token in row.tokens {
            for at in source.find(token) {
                let is_test = in_tests.iter().any(|range| range.contains(&at));
                if !is_ban(source, at) && (row.also_in_tests || !is_test) {
                    let what = format!("`{token}`: {}", row.what);
                    findings.push(Finding::new(&source.path, source.line_of(at), "absence", what));
                }
            }
        }
    }
    findings
}

/// Whether the word at `at` is only named in order to forbid it.
fn is_ban(source: &Source, at: usize) -> bool {
    ["forbid(", "deny("].iter().any(|ban| source.code[..at].ends_with(ban))
}

fn is_below(path: &str, folders: &[&str]) -> bool {
    folders.iter().any(|folder| path.starts_with(folder))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(path: &str, text: &str) -> Vec<usize> {
        let found = check(&Source::new(path, text), &BTreeSet::new());
        found.into_iter().map(|finding| finding.line).collect()
    }

    #[test]
    fn a_core_has_no_clock_socket_thread_or_unsafe() {
        let core = "crates/core/http/src/head.rs";
        for text in [
            "use std::net::TcpStream;",
            "use std::thread;",
            "fn f() { std::thread::spawn(g); }",
            "let now = Instant::now();",
            "use std::time::SystemTime;",
            "unsafe { f() }",
            "#![allow(unsafe_code, reason = \"fast\")]",
            "async fn f() {}",
            "x.await;",
            "println!();",
        ] {
            assert_eq!(lines(core, text), [1], "{text}");
        }
    }

    #[test]
    fn words_in_comments_literals_names_and_bans_do_not_count() {
        let core = "crates/core/http/src/head.rs";
        for text in [
            "#![forbid(unsafe_code)]",
            "// std::thread",
            "const X: &str = \"SystemTime\";",
            "use std::net::IpAddr;",
            "fn operand(strand: u8) {}",
            "use std::time::Duration;",
        ] {
            assert!(lines(core, text).is_empty(), "{text}");
        }
    }

    #[test]
    fn tests_may_use_threads_but_not_unsafe() {
        let core = "crates/core/http/src/head.rs";
        assert!(lines(core, "#[cfg(test)] mod tests { use std::thread; }").is_empty());
        assert_eq!(lines(core, "#[cfg(test)] mod tests { unsafe fn f() {} }"), [1]);
    }

    #[test]
    fn each_layer_has_its_own_rows() {
        assert!(lines("crates/edge/serve/src/lib.rs", "use std::thread; unsafe {}").is_empty());
        assert_eq!(lines("crates/edge/serve/src/lib.rs", "\nprintln!()"), [2]);
        assert_eq!(lines("crates/role/node/src/lib.rs", "unsafe {}"), [1]);
        assert!(lines("crates/skep/src/main.rs", "println!(); std::process::exit(1)").is_empty());
        assert_eq!(lines("crates/cli/src/up.rs", "println!();\nstd::process::exit(1)"), [2]);
    }
}
