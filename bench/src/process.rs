//! A server process and its descendants: starting on a core, accounting, stopping.
//!
//! Dropping a [`Server`] ends its whole process group, so no error path leaves a server running.

use std::fs::{self, File};
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process_group};

use crate::limits::{POLL_INTERVAL, STOP_TIMEOUT};
use crate::machine;

/// A running server with all its descendants.
pub(crate) struct Server {
    child: Child,
    /// The port at which it answers, on 127.0.0.1.
    pub(crate) port: u16,
}

impl Server {
    /// Starts `argv` on one core. Its output is written to `output.log` in `dir`.
    pub(crate) fn start(argv: &[String], dir: &Path, core: usize, port: u16) -> Result<Self> {
        let mut command = Command::new("taskset");
        command.arg("-c").arg(core.to_string()).args(argv);
        Self::launch(command, dir, port).with_context(|| format!("cannot start {}", argv.join(" ")))
    }

    /// Starts any command. Its output is written to `output.log` in `dir`.
    pub(crate) fn launch(mut command: Command, dir: &Path, port: u16) -> Result<Self> {
        let log = File::create(dir.join("output.log")).context("output.log")?;
        let command = command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        Ok(Self { child: command.process_group(0).spawn()?, port })
    }

    /// Returns an error if the process has ended.
    pub(crate) fn check_alive(&mut self) -> Result<()> {
        match self.child.try_wait()? {
            Some(status) => bail!("it ended with {status}"),
            None => Ok(()),
        }
    }

    /// CPU time of all threads of the tree so far, user and system, including softirq work that the kernel
    /// charged to them, in nanoseconds; plus the softirq work that the kernel moved to its own thread for the
    /// server's core. Threads that have ended are no longer counted.
    pub(crate) fn cpu_ns(&self) -> u64 {
        let core = crate::limits::SERVER_CORE;
        self.tree_ns() + softirq_ns(&format!("ksoftirqd/{core}\n"))
    }

    /// The same without the kernel's own thread.
    pub(crate) fn tree_ns(&self) -> u64 {
        self.tree().iter().map(|&pid| threads_ns(pid)).sum()
    }

    /// Resident memory of the tree, in bytes.
    pub(crate) fn resident_bytes(&self) -> u64 {
        self.tree().iter().map(|&pid| memory_bytes(pid, "VmRSS:")).sum()
    }

    /// The sum of each process's maximum resident memory since [`Server::reset_peak`], in bytes.
    pub(crate) fn peak_bytes(&self) -> u64 {
        self.tree().iter().map(|&pid| memory_bytes(pid, "VmHWM:")).sum()
    }

    /// Resets the maximum to the present value (`clear_refs` of proc(5)).
    pub(crate) fn reset_peak(&self) -> Result<()> {
        let reset = |pid| fs::write(format!("/proc/{pid}/clear_refs"), "5");
        self.tree().into_iter().try_for_each(reset).context("clear_refs")
    }

    /// Raises the weight of every session of the tree, if permitted.
    pub(crate) fn prefer(&self) {
        for pid in self.tree() {
            machine::prefer_session(&pid.to_string());
        }
    }

    fn tree(&self) -> Vec<u32> {
        descendants(self.child.id(), &parents())
    }

    fn signal(&self, signal: Signal) {
        if let Some(group) = Pid::from_raw(self.child.id().cast_signed()) {
            let _ = kill_process_group(group, signal);
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Some servers put a child into a separate session: those are ended one by one.
        let tree: Vec<_> = self.tree().into_iter().map(|pid| (pid, started_at(pid))).collect();
        self.signal(Signal::TERM);
        let deadline = Instant::now() + STOP_TIMEOUT;
        while Instant::now() < deadline && matches!(self.child.try_wait(), Ok(None)) {
            std::thread::sleep(POLL_INTERVAL);
        }
        self.signal(Signal::KILL);
        let _ = self.child.wait();
        let left = tree.into_iter().filter(|(pid, at)| at.is_some() && *at == started_at(*pid));
        for (pid, _) in left {
            if let Some(pid) = Pid::from_raw(pid.cast_signed()) {
                let _ = rustix::process::kill_process(pid, Signal::KILL);
            }
        }
    }
}

/// Returns a port of 127.0.0.1 that is currently free.
pub(crate) fn free_port() -> Result<u16> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port())
}

/// When a process started, in ticks since boot: identifies it together with its id.
fn started_at(pid: u32) -> Option<String> {
    stat_fields(pid)?.into_iter().nth(19)
}

/// The fields of /proc/PID/stat after the name: state, parent, group, ...
fn stat_fields(pid: u32) -> Option<Vec<String>> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, rest) = stat.rsplit_once(") ")?;
    Some(rest.split(' ').map(str::to_owned).collect())
}

/// All processes with their parents.
fn parents() -> Vec<(u32, u32)> {
    pids().filter_map(|pid| Some((pid, stat_fields(pid)?.get(1)?.parse().ok()?))).collect()
}

fn pids() -> impl Iterator<Item = u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// `root` and all its descendants, parents first.
fn descendants(root: u32, parents: &[(u32, u32)]) -> Vec<u32> {
    let mut tree = vec![root];
    let mut at = 0;
    while let Some(&parent) = tree.get(at) {
        tree.extend(parents.iter().filter(|(_, p)| *p == parent).map(|(pid, _)| pid));
        at += 1;
    }
    tree
}

/// CPU time of all threads of a process, in nanoseconds: the first field of /proc/PID/task/TID/schedstat
/// (kernel: Documentation/scheduler/sched-stats).
fn threads_ns(pid: u32) -> u64 {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    threads
        .filter_map(|thread| {
            let text = fs::read_to_string(thread.path().join("schedstat")).ok()?;
            text.split(' ').next()?.parse::<u64>().ok()
        })
        .sum()
}

/// CPU time of the kernel's softirq threads whose names begin with `name`, in nanoseconds.
pub(crate) fn softirq_ns(name: &str) -> u64 {
    let is_one = |pid: &u32| {
        fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|comm| comm.starts_with(name))
    };
    pids().filter(is_one).map(threads_ns).sum()
}

/// A value of /proc/PID/status, in bytes.
fn memory_bytes(pid: u32, name: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kib.unwrap_or(0) * 1024
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_has_all_generations_and_no_stranger() {
        let parents = [(2, 1), (3, 2), (4, 9), (5, 3), (9, 1)];
        assert_eq!(descendants(2, &parents), [2, 3, 5]);
    }

    #[test]
    fn this_process_has_used_time_and_memory() {
        let me = std::process::id();
        assert!(threads_ns(me) > 0);
        assert!(memory_bytes(me, "VmRSS:") > 0);
    }
}
