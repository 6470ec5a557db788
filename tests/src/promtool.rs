//! Checks a metrics page with Prometheus's own linter.

use std::io::Write;
use std::process::{Command, Stdio};

/// Asserts that `promtool check metrics` reports nothing for a page.
#[track_caller]
pub fn assert_clean(page: &str) {
    let mut promtool = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("promtool runs: Debian's package prometheus");
    let mut stdin = promtool.stdin.take().expect("it was asked for");
    stdin.write_all(page.as_bytes()).expect("promtool reads");
    drop(stdin);
    let output = promtool.wait_with_output().expect("promtool ends");
    let said = [output.stdout, output.stderr].map(|it| String::from_utf8_lossy(&it).into_owned());
    assert!(output.status.success() && said.concat().is_empty(), "{}", said.concat());
}
