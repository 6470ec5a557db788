//! The privileges of processes, as reported by the kernel for each thread.

use std::collections::BTreeSet;
use std::fs;

use rustix::process::Pid;

use crate::site::server;

/// Capabilities that netguard keeps: NET_ADMIN, NET_RAW, PERFMON and BPF
/// (linux/capability.h).
pub const NETGUARD: u64 = 1 << 12 | 1 << 13 | 1 << 38 | 1 << 39;

/// `SECCOMP_MODE_FILTER` of linux/seccomp.h.
const FILTERED: u64 = 2;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Thread {
    pub name: String,
    /// Real, effective, saved and file system user IDs.
    pub users: Vec<u64>,
    /// Real, effective, saved and file system group IDs.
    pub groups: Vec<u64>,
    /// Supplementary groups.
    pub more_groups: Vec<u64>,
    /// Capabilities: inheritable, permitted, effective, bounding, ambient.
    pub capabilities: [u64; 5],
    /// Whether the no_new_privs flag is set.
    pub no_new_privs: bool,
    /// Mode of its seccomp filter.
    pub seccomp: u64,
}

/// Returns all threads of a process.
pub fn threads(pid: Pid) -> Vec<Thread> {
    let tasks = fs::read_dir(format!("/proc/{}/task", pid.as_raw_pid())).expect("it runs");
    let texts = tasks.flatten().map(|task| fs::read_to_string(task.path().join("status")));
    // Threads that have ended meanwhile are skipped.
    texts.flatten().map(|text| Thread::parse(&text)).collect()
}

/// Returns the IDs of a process and of all its descendants; its own first.
pub fn family(pid: Pid) -> Vec<Pid> {
    let mut all = vec![pid];
    let mut next = 0;
    while let Some(parent) = all.get(next).copied() {
        let list = format!("/proc/{}/task", parent.as_raw_pid());
        for task in fs::read_dir(list).into_iter().flatten().flatten() {
            let children = fs::read_to_string(task.path().join("children")).unwrap_or_default();
            let children = children.split_whitespace().filter_map(|it| it.parse().ok());
            all.extend(children.filter_map(Pid::from_raw));
        }
        next += 1;
    }
    all
}

/// Returns the command line of a process.
pub fn command_line(pid: Pid) -> String {
    let line = fs::read(format!("/proc/{}/cmdline", pid.as_raw_pid())).unwrap_or_default();
    String::from_utf8_lossy(&line).replace('\0', " ")
}

/// Asserts that every thread of a process runs as the unprivileged user, with these supplementary groups and
/// no other privileges.
#[track_caller]
pub fn assert_serves(pid: Pid, more_groups: &[u64]) {
    let user = u64::from(server());
    let line = command_line(pid);
    let all = threads(pid);
    assert!(!all.is_empty(), "{line}: no thread");
    for thread in &all {
        assert_eq!(thread.users, [user; 4], "users of {} in {line}", thread.name);
        let groups: BTreeSet<_> = thread.groups.iter().collect();
        assert!(groups.len() == 1 && !groups.contains(&0), "groups: {thread:?} in {line}");
        assert_eq!(thread.more_groups, more_groups, "groups of {} in {line}", thread.name);
        assert_has_nothing(thread, &line);
    }
}

/// Asserts that a thread has no capabilities and can gain none.
#[track_caller]
pub fn assert_has_nothing(thread: &Thread, line: &str) {
    assert_eq!(thread.capabilities, [0; 5], "capabilities of {} in {line}", thread.name);
    assert!(thread.no_new_privs, "no_new_privs of {} in {line}", thread.name);
    assert_eq!(thread.seccomp, FILTERED, "seccomp of {} in {line}", thread.name);
}

/// The additional capability of the netguard of a node with handoff: CAP_NET_BIND_SERVICE.
pub const HANDOFFS: u64 = 1 << 10;

/// Asserts that every thread of a process has the capabilities of netguard, plus `beside`, and no others.
#[track_caller]
pub fn assert_guards(pid: Pid, beside: u64) {
    let line = command_line(pid);
    let all = threads(pid);
    assert!(!all.is_empty(), "{line}: no thread");
    for thread in &all {
        let own = NETGUARD | beside;
        let kept = [0, own, own, own, 0];
        assert_eq!(thread.capabilities, kept, "capabilities of {} in {line}", thread.name);
        assert!(thread.no_new_privs, "no_new_privs of {} in {line}", thread.name);
        assert_eq!(thread.seccomp, FILTERED, "seccomp of {} in {line}", thread.name);
    }
}

impl Thread {
    fn parse(text: &str) -> Self {
        let field = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name));
            line.and_then(|rest| rest.strip_prefix(':')).expect("a line of status").trim()
        };
        let numbers = |name| field(name).split_whitespace().map(|it| it.parse().expect("a number"));
        let capabilities = ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"];
        Self {
            name: field("Name").to_owned(),
            users: numbers("Uid").collect(),
            groups: numbers("Gid").collect(),
            more_groups: numbers("Groups").collect(),
            capabilities: capabilities
                .map(|name| u64::from_str_radix(field(name), 16).expect("a set")),
            no_new_privs: field("NoNewPrivs") == "1",
            seccomp: numbers("Seccomp").next().expect("a number"),
        }
    }
}
