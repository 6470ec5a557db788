//! What a window of exchanges used: processors and packets.

use std::fs;

use crate::experiments::Failure;
use crate::experiments::account::{CpuAccount, threads_ns};

/// Names of the threads of both ends: those of their machines.
pub(super) const THREADS: [&str; 2] = ["node-1", "node-2"];

/// Reads what was used so far; of the machine in which its thread is.
pub(super) struct Meter {
    /// The machine's device, whose packets are counted.
    device: &'static str,
}

/// What was used at a moment.
pub(super) struct Reading {
    account: CpuAccount,
    threads_ns: [u64; 2],
    packets: u64,
}

/// What was used between two moments.
#[derive(Clone, Copy, Default)]
pub(super) struct Usage {
    /// Both ends and their kernels, with all of ksoftirqd.
    pub(super) cpu_ns: u64,
    /// Everything else that ran.
    pub(super) others_ns: u64,
    /// The threads of donor and receiver, with what the kernel did in their names.
    pub(super) threads_ns: [u64; 2],
    /// Frames that the donor's machine has sent, and that have come to it.
    pub(super) packets: u64,
}

impl Meter {
    pub(super) fn new(device: &'static str) -> Self {
        Self { device }
    }

    pub(super) fn read(&self) -> Result<Reading, Failure> {
        let count = |name: &str| -> Result<u64, Failure> {
            let path = format!("/sys/class/net/{}/statistics/{name}", self.device);
            Ok(fs::read_to_string(path)?.trim().parse()?)
        };
        let packets = count("tx_packets")? + count("rx_packets")?;
        let of_threads = threads_ns(std::process::id());
        let threads_ns = THREADS.map(|name| of_threads.get(name).copied().unwrap_or(0));
        Ok(Reading { account: CpuAccount::now(&[]), threads_ns, packets })
    }
}

impl Reading {
    pub(super) fn since(&self, before: &Self) -> Usage {
        let (cpu_ns, others_ns) = self.account.since(before.account);
        let thread = |at: usize| self.threads_ns[at].saturating_sub(before.threads_ns[at]);
        Usage {
            cpu_ns,
            others_ns,
            threads_ns: [thread(0), thread(1)],
            packets: self.packets.saturating_sub(before.packets),
        }
    }
}
