//! CPU time by user: all of the bed, the dispatcher's processes, and others.
//!
//! The work of a bed's kernels is charged to the packet's sender, or done by ksoftirqd. So the time of all
//! processes of the bed, including clients, plus that of ksoftirqd is the total cost of its machines,
//! independent of what else runs.

use std::fs;

use anyhow::{Context, Result};

use crate::process::{Server, softirq_ns};

/// CPU times since boot, in nanoseconds.
#[derive(Clone, Copy)]
pub(super) struct CpuAccount {
    nodes_ns: u64,
    dispatcher_ns: u64,
    softirq_ns: u64,
    /// All cores and processes.
    busy_ns: u64,
}

/// CPU time used between two readings, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Used {
    /// Nodes, dispatcher and ksoftirqd, without the client.
    pub(super) servers_ns: u64,
    /// Processes of the dispatcher's machine.
    pub(super) dispatcher_ns: u64,
    /// All cores and processes.
    pub(super) busy_ns: u64,
}

impl CpuAccount {
    pub(super) fn now(nodes: &[Server], dispatcher: &Server) -> Result<Self> {
        let stat = fs::read_to_string("/proc/stat").context("/proc/stat")?;
        let [busy_ns, softirq] = all_cores(&stat).context("/proc/stat")?;
        let apart = if softirq_is_apart() { softirq } else { 0 };
        Ok(Self {
            nodes_ns: nodes.iter().map(Server::tree_ns).sum(),
            dispatcher_ns: dispatcher.tree_ns(),
            softirq_ns: softirq_ns("ksoftirqd/") + apart,
            busy_ns,
        })
    }

    pub(super) fn since(&self, before: &Self) -> Used {
        let dispatcher_ns = self.dispatcher_ns.saturating_sub(before.dispatcher_ns);
        let nodes_ns = self.nodes_ns.saturating_sub(before.nodes_ns);
        let softirq_ns = self.softirq_ns.saturating_sub(before.softirq_ns);
        Used {
            servers_ns: nodes_ns + dispatcher_ns + softirq_ns,
            dispatcher_ns,
            busy_ns: self.busy_ns.saturating_sub(before.busy_ns),
        }
    }
}

/// Nanoseconds per tick of `/proc` (proc(5)).
pub(super) fn tick_ns() -> u64 {
    1_000_000_000 / rustix::param::clock_ticks_per_second().max(1)
}

/// The busy time of all cores, and the part of it spent in softirqs. Fields: user, nice, system, idle,
/// iowait, irq, softirq, steal (proc(5)).
fn all_cores(stat: &str) -> Option<[u64; 2]> {
    let line = stat.lines().find_map(|line| line.strip_prefix("cpu "))?;
    let mut ticks = line.split_whitespace().map_while(|word| word.parse::<u64>().ok());
    let ticks: [u64; 8] = std::array::from_fn(|_| ticks.next().unwrap_or(0));
    let [user, nice, system, _, _, irq, softirq, steal] = ticks;
    Some([(user + nice + system + irq + softirq + steal) * tick_ns(), softirq * tick_ns()])
}

/// Whether this kernel accounts softirq time separately from the process to which it is charged
/// (`CONFIG_IRQ_TIME_ACCOUNTING`, as in Debian's kernels).
fn softirq_is_apart() -> bool {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let config = fs::read_to_string(format!("/boot/config-{}", release.trim()));
    config.is_ok_and(|text| text.lines().any(|line| line == "CONFIG_IRQ_TIME_ACCOUNTING=y"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn busy_is_all_but_idle_and_waiting() {
        let stat = "cpu  1 2 4 1000 1000 8 16 32 64 128\ncpu0 1 1 1 1 1 1 1 1 1 1\n";
        assert_eq!(all_cores(stat), Some([63 * tick_ns(), 16 * tick_ns()]));
        assert_eq!(all_cores("intr 5\n"), None);
    }

    #[test]
    fn servers_are_nodes_dispatcher_and_softirqs() {
        let look =
            |x| CpuAccount { nodes_ns: x, dispatcher_ns: 2 * x, softirq_ns: 4 * x, busy_ns: 8 * x };
        let used = look(20).since(&look(10));
        assert_eq!(used, Used { servers_ns: 70, dispatcher_ns: 20, busy_ns: 80 });
    }
}
