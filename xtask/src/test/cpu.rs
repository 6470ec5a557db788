//! CPU time of a test executable, including all processes that it has started and waited for.

use std::fs;
use std::process::Child;

use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};

/// Ticks of `/proc/PID/stat` per second: USER_HZ, which is part of Linux's interface.
const TICKS_PER_S: f64 = 100.0;

/// Waits for the end of `child`, without reaping it, and returns its CPU time in seconds; 0 if unknown.
pub(super) fn seconds_of_ended(child: &Child) -> f64 {
    let id = Pid::from_child(child);
    // A zombie still has its file.
    let _ = waitid(WaitId::Pid(id), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT);
    let stat = fs::read_to_string(format!("/proc/{}/stat", child.id())).unwrap_or_default();
    ticks(&stat).map_or(0.0, |ticks| ticks as f64 / TICKS_PER_S)
}

/// The sum of utime, stime, cutime and cstime: fields 14 to 17 (proc_pid_stat(5)). The name before them may
/// contain spaces.
fn ticks(stat: &str) -> Option<u64> {
    let (_, behind) = stat.rsplit_once(") ")?;
    let fields = behind.split(' ').skip(11).take(4);
    fields.map(|field| field.parse::<u64>().ok()).sum()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use std::process::Command;

    use super::*;

    #[test]
    fn ticks_are_those_of_the_process_and_of_its_children() {
        let stat = "7 (a ) b) Z 1 7 7 0 -1 4 1 2 3 4 10 20 300 4000 20 0 1 0 5 0";
        assert_eq!(ticks(stat), Some(4330));
        assert_eq!(ticks("7 (a) Z 1"), Some(0));
        assert_eq!(ticks(""), None);
    }

    #[test]
    fn who_was_looked_at_can_still_be_waited_for() {
        let mut child = Command::new("sh").args(["-c", "exit 3"]).spawn().unwrap();
        let seconds = seconds_of_ended(&child);
        assert!((0.0..60.0).contains(&seconds), "{seconds}");
        assert_eq!(child.wait().unwrap().code(), Some(3));
    }
}
