//! The binary: its output, and how it ends.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdout, Command, Output, Stdio};

use crate::common::{Traces, poll_until, root_or_skip};
use rustix::process::{Pid, Signal, kill_process};
use skep_testbed::BedInfo;

fn lab(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_skep-lab"));
    command.args(arguments);
    command
}

fn run(arguments: &[&str]) -> (Option<i32>, String, String) {
    let Output { status, stdout, stderr } = lab(arguments).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (status.code(), text(stdout), text(stderr))
}

/// A bed of another process.
struct Up {
    child: Child,
    lines: Vec<String>,
    slot: String,
    stdout: BufReader<ChildStdout>,
}

impl Up {
    fn new(arguments: &[&str]) -> Self {
        let mut command = lab(&[&["up"], arguments].concat());
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let mut up = Self { child, lines: Vec::new(), slot: String::new(), stdout };
        while up.slot.is_empty() {
            let mut line = String::new();
            assert!(up.stdout.read_line(&mut line).unwrap() > 0, "ended: {:?}", up.lines);
            match line.strip_prefix("skep-lab: bed ") {
                Some(rest) => up.slot = rest.split(' ').next().unwrap().to_owned(),
                None => up.lines.push(line),
            }
        }
        up
    }

    fn info(&self) -> BedInfo {
        let (code, text, _) = run(&["list", "--json"]);
        assert_eq!(code, Some(0));
        let beds: Vec<BedInfo> = serde_json::from_str(&text).unwrap();
        beds.into_iter().find(|bed| bed.slot.to_string() == self.slot).unwrap()
    }

    fn signal(&mut self, signal: Signal) -> Option<i32> {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
        self.child.wait().unwrap().code()
    }
}

impl Drop for Up {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn wrong_usage_is_two_and_failure_one_with_a_sentence() {
    for arguments in [&[][..], &["fly"], &["up", "--nodes", "many"], &["exec", "node-1"]] {
        assert_eq!(run(arguments).0, Some(2), "{arguments:?}");
    }
    assert_eq!(run(&["up", "--help"]).0, Some(0));
    let (code, _, error) = run(&["up", "/no/such/topology.toml"]);
    assert_eq!(code, Some(1));
    assert!(error.contains("skep-lab: cannot read /no/such/topology.toml"), "{error}");
    let (code, _, error) = run(&["up", "--nodes", "65"]);
    assert_eq!(code, Some(1));
    assert!(error.contains("at most 64"), "{error}");
}

#[test]
fn a_bed_is_made_from_a_file_shown_entered_and_ended() {
    if !root_or_skip() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("bed.toml");
    fs::write(
        &path,
        "nodes = 1\ndispatchers = 0\nrouter = true\n[limits.node-2]\ncpu_cores = 0.5\n",
    )
    .unwrap();
    let mut up = Up::new(&[path.to_str().unwrap(), "--nodes", "2"]);
    // Two nodes, a client, a router; and the bridges.
    assert_eq!(up.lines.len(), 5, "{:?}", up.lines);
    assert!(up.lines.iter().all(|line| line.contains("nsenter --target ")));
    let info = up.info();
    let names: Vec<_> = info.machines.iter().map(|it| it.name.as_str()).collect();
    assert_eq!(names, ["client-1", "router", "node-1", "node-2"]);

    let bed = up.slot.clone();
    let exec = |rest: &[&str]| run(&[&["exec", "--bed", &bed], rest].concat());
    let (code, text, _) = exec(&["node-2", "ip", "-o", "address"]);
    assert_eq!(code, Some(0));
    assert!(text.contains(&info.machines[3].ipv4.to_string()), "{text}");
    assert_eq!(exec(&["node-2", "sh", "-c", "exit 7"]).0, Some(7));
    let (code, _, error) = exec(&["node-3", "true"]);
    assert_eq!(code, Some(1));
    assert!(error.contains("no machine node-3") && error.contains("node-2"), "{error}");
    let (code, _, error) = exec(&["node-1", "/no/such/program"]);
    assert_eq!(code, Some(1));
    assert!(error.contains("cannot run `/no/such/program` in node-1"), "{error}");
    let (code, _, error) = run(&["exec", "--bed", "9999", "node-1", "true"]);
    assert_eq!((code, error.contains("no bed 9999")), (Some(1), true), "{error}");

    let traces = Traces::from_info(info);
    assert_eq!(up.signal(Signal::INT), Some(0));
    traces.assert_none();
}

#[test]
fn a_killed_one_leaves_nothing_that_clean_could_find() {
    if !root_or_skip() {
        return;
    }
    let mut up = Up::new(&["--nodes", "1", "--host", "203.0.113.9"]);
    let traces = Traces::from_info(up.info());
    assert!(traces.host_device_is_there());
    assert_eq!(up.signal(Signal::KILL), None);
    poll_until("the janitor is done", || traces.file_is_gone());
    traces.assert_none();
    let (code, text, _) = run(&["clean"]);
    assert_eq!(code, Some(0));
    assert!(!text.contains(&format!("bed {}\n", up.slot)), "{text}");
}

#[test]
fn clean_takes_no_bed_that_ends_by_itself_for_one_that_was_left() {
    if !root_or_skip() {
        return;
    }
    for _ in 0..10 {
        let mut up = Up::new(&["--nodes", "1"]);
        let traces = Traces::from_info(up.info());
        kill_process(Pid::from_child(&up.child), Signal::INT).unwrap();
        poll_until("the bed has ended", || {
            let (code, text, _) = run(&["clean"]);
            assert_eq!(code, Some(0));
            assert!(!text.contains(&format!("bed {}\n", up.slot)), "{text}");
            traces.file_is_gone()
        });
        traces.assert_none();
        assert_eq!(up.child.wait().unwrap().code(), Some(0));
    }
}
