//! Processes of the tests: this test binary again, and etcd. All of them are killed when the test ends, in
//! any way.

#![allow(dead_code, reason = "each test binary uses a part")]

pub(crate) mod etcd;

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// Timeout of a condition. It ends a test that hangs, and does not limit speed.
const PATIENCE: Duration = Duration::from_secs(60);

/// The environment variable with a child's role and its arguments.
pub(crate) const ROLE: &str = "SKEP_STORE_CHILD";

/// Waits until `condition` returns a value.
pub(crate) fn until<T>(what: &str, mut condition: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(value) = condition() {
            return value;
        }
        assert!(Instant::now() < deadline, "waited in vain: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Whether this process is root, which some tests need.
pub(crate) fn is_root() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    status.lines().any(|line| line.starts_with("Uid:\t0\t"))
}

/// A process that is killed on drop, and when the thread that started it ends in any other way.
pub(crate) struct Process(pub(crate) Child);

impl Process {
    /// Starts `command`, which `setpriv` has killed when this thread ends.
    pub(crate) fn start(command: &[&str], set: impl FnOnce(&mut Command)) -> Self {
        let mut bound = Command::new("setpriv");
        bound.args(["--pdeathsig", "KILL", "--"]).args(command);
        set(&mut bound);
        Self(bound.spawn().expect("setpriv of util-linux starts"))
    }

    /// Sends a signal to the process.
    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.0), signal).unwrap();
    }

    /// Kills the process and waits for its end.
    pub(crate) fn kill(&mut self) {
        // The process may have ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// This test binary again, running its ignored test `child` in `role`. `within` is a command to run it with,
/// such as `unshare --mount`.
pub(crate) struct Twin {
    pub(crate) process: Process,
    lines: std::io::Lines<BufReader<std::process::ChildStdout>>,
}

impl Twin {
    pub(crate) fn start(within: &[&str], child: &str, role: &str) -> Self {
        let binary = std::env::current_exe().unwrap();
        let test = [binary.to_str().unwrap(), "--exact", child, "--ignored", "--nocapture"];
        let mut process = Process::start(&[within, &test].concat(), |command| {
            command.env(ROLE, role).stdout(Stdio::piped());
        });
        let lines = BufReader::new(process.0.stdout.take().unwrap()).lines();
        Self { process, lines }
    }

    /// The next line printed by [`say`]; `None` at the end of the output.
    pub(crate) fn next(&mut self) -> Option<String> {
        loop {
            let line = self.lines.next()?.unwrap();
            if let Some((_, said)) = line.split_once("said: ") {
                return Some(said.to_owned());
            }
        }
    }
}

/// Prints a line for the parent process.
pub(crate) fn say(line: &str) {
    println!("said: {line}");
}
