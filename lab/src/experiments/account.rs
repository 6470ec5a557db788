//! CPU time by user: processes of the bed with all their threads, this process, which is the client, and the
//! kernel's own threads for packets.
//!
//! The work of a bed's kernels is charged to the packet's sender, or done by ksoftirqd.

use std::collections::{BTreeMap, HashMap};
use std::fs;

/// CPU time in nanoseconds, by the name of a thread.
pub(super) type ByThread = BTreeMap<String, u64>;

/// The prefix of the names of threads of children: a daemon's only child is its netguard.
pub(super) const CHILD: &str = "netguard, ";

/// CPU times at one moment, in nanoseconds.
#[derive(Clone, Copy)]
pub(super) struct CpuAccount {
    bed_ns: u64,
    /// Of all cores and processes.
    busy_ns: u64,
}

impl CpuAccount {
    /// The time of these processes with their children, and of this process.
    pub(super) fn now(roots: &[u32]) -> Self {
        let parents = parents();
        let servers: u64 = roots.iter().map(|&root| sum(&tree_ns(root, &parents))).sum();
        let kernel = processes_named("ksoftirqd/").map(threads_ns);
        let kernel: u64 = kernel.map(|times| sum(&times)).sum();
        let own = sum(&threads_ns(std::process::id()));
        Self { bed_ns: servers + kernel + own, busy_ns: busy_ns() }
    }

    /// CPU time since `before` in nanoseconds: of the bed including the client, and of everything else.
    pub(super) fn since(self, before: Self) -> (u64, u64) {
        let bed_ns = self.bed_ns.saturating_sub(before.bed_ns);
        let busy_ns = self.busy_ns.saturating_sub(before.busy_ns);
        (bed_ns, busy_ns.saturating_sub(bed_ns))
    }
}

/// The share of all cores that `ns` is within `seconds`, in percent.
pub(super) fn percent_of_cores(ns: u64, seconds: f64) -> f64 {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    ns as f64 / 1e7 / seconds / cores as f64
}

/// The time so far of a process and its children, by the names of their threads.
pub(super) fn threads_of(root: u32) -> ByThread {
    tree_ns(root, &parents())
}

fn tree_ns(root: u32, parents: &HashMap<u32, u32>) -> ByThread {
    let mut times = threads_ns(root);
    let children = parents.iter().filter(|(_, parent)| **parent == root).map(|(child, _)| *child);
    for child in children {
        for (name, ns) in tree_ns(child, parents) {
            *times.entry(format!("{CHILD}{name}")).or_default() += ns;
        }
    }
    times
}

/// The time so far of a process's threads, by their names.
pub(super) fn threads_ns(pid: u32) -> ByThread {
    let mut times = ByThread::new();
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    for thread in threads.map(|thread| thread.path()) {
        let read = |file: &str| fs::read_to_string(thread.join(file)).unwrap_or_default();
        let ns = read("schedstat").split(' ').next().and_then(|word| word.parse().ok());
        *times.entry(read("comm").trim().to_owned()).or_default() += ns.unwrap_or(0u64);
    }
    times
}

fn sum(times: &ByThread) -> u64 {
    times.values().sum()
}

/// All processes with their parents: the second field after the name (proc(5)).
fn parents() -> HashMap<u32, u32> {
    let parent = |pid: u32| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let (_, fields) = stat.rsplit_once(')')?;
        Some((pid, fields.split_whitespace().nth(1)?.parse().ok()?))
    };
    processes().filter_map(parent).collect()
}

fn processes() -> impl Iterator<Item = u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

fn processes_named(name: &str) -> impl Iterator<Item = u32> {
    let is_one = move |pid: &u32| {
        fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|comm| comm.starts_with(name))
    };
    processes().filter(is_one)
}

/// The busy time of all cores. Fields: user, nice, system, idle, iowait, irq, softirq, steal (proc(5)).
fn busy_ns() -> u64 {
    let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
    let line = stat.lines().find_map(|line| line.strip_prefix("cpu ")).unwrap_or_default();
    let ticks: Vec<u64> = line.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    let busy: u64 = [0, 1, 2, 5, 6, 7].iter().filter_map(|&field| ticks.get(field)).sum();
    busy * (1_000_000_000 / rustix::param::clock_ticks_per_second().max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_has_used_time_and_is_a_child() {
        let own = std::process::id();
        assert!(sum(&threads_of(own)) > 0);
        assert!(parents().contains_key(&own));
        let (before, now) = (CpuAccount::now(&[]), CpuAccount::now(&[]));
        assert!(now.bed_ns >= before.bed_ns && now.busy_ns >= before.busy_ns);
    }
}
