//! The clocks on a machine that was suspended. A separate executable: a child holds a copy of every socket
//! until it executes its program, and the unit tests check whether an address is free.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::process::Command;

use skep_serve::{boottime_ms, monotonic_ms};

/// How long the machine was suspended according to the child's clock, in seconds.
const SUSPENDED_S: u64 = 100_000;
const IS_CHILD: &str = "SKEP_TEST_SUSPENDED";

/// In a time namespace (time_namespaces(7)) the clock is that of a machine that was suspended.
#[test]
fn time_in_which_the_machine_was_suspended_counts() {
    let ahead_ms = boottime_ms().saturating_sub(monotonic_ms());
    if std::env::var_os(IS_CHILD).is_some() {
        assert!(ahead_ms >= SUSPENDED_S * 1_000, "{ahead_ms} ms");
        return;
    }
    if !rustix::process::geteuid().is_root() {
        eprintln!("SKIPPED: time namespaces need root");
        return;
    }
    let test = "time_in_which_the_machine_was_suspended_counts";
    let mut child = Command::new("unshare");
    child.args(["--time", "--boottime", &SUSPENDED_S.to_string()]);
    child.arg(std::env::current_exe().unwrap()).args(["--exact", test]).env(IS_CHILD, "1");
    let output = child.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}
