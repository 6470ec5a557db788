//! The clocks, read without a system call.

use rustix::time::{ClockId, clock_gettime};

/// Milliseconds of the coarse monotonic clock (resolution: one tick, 1-4 ms).
/// Costs a few nanoseconds; good enough for timeouts.
pub fn monotonic_ms() -> u64 {
    let now = clock_gettime(ClockId::MonotonicCoarse);
    now.tv_sec as u64 * 1000 + now.tv_nsec as u64 / 1_000_000
}

/// Milliseconds since boot, those included in which the machine was suspended (clock_gettime(2),
/// `CLOCK_BOOTTIME`): for what is told to other machines, whose time went on. To the virtual machine
/// that its host suspends it may stand still all the same.
pub fn boottime_ms() -> u64 {
    let now = clock_gettime(ClockId::Boottime);
    now.tv_sec as u64 * 1000 + now.tv_nsec as u64 / 1_000_000
}

/// Milliseconds since 1970 of the coarse wall clock; for `Date` and logs.
pub fn unix_ms() -> u64 {
    let now = clock_gettime(ClockId::RealtimeCoarse);
    now.tv_sec as u64 * 1000 + now.tv_nsec as u64 / 1_000_000
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use std::process::Command;

    use super::*;

    /// For how long the machine was suspended, as the child is made to believe, in seconds.
    const SUSPENDED_S: u64 = 100_000;
    const IS_CHILD: &str = "SKEP_TEST_SUSPENDED";

    /// In a time namespace (time_namespaces(7)) the clock is that of a machine which was suspended.
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
        let test = "clock::tests::time_in_which_the_machine_was_suspended_counts";
        let mut child = Command::new("unshare");
        child.args(["--time", "--boottime", &SUSPENDED_S.to_string()]);
        child.arg(std::env::current_exe().unwrap()).args(["--exact", test]).env(IS_CHILD, "1");
        let output = child.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    }
}
