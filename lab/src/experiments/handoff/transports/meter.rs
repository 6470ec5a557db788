//! The resources that a window of exchanges used: CPU time and packets.

use std::fs;

use crate::experiments::Failure;
use crate::experiments::account::{CpuAccount, threads_ns};

/// Names of the threads of both ends, which are those of their machines.
pub(super) const THREADS: [&str; 2] = ["node-1", "node-2"];

/// Reads the usage so far, of the machine in which its thread runs.
pub(super) struct Meter {
    /// The machine's device, whose packets are counted.
    device: &'static str,
}

/// The usage at one moment.
pub(super) struct Reading {
    account: CpuAccount,
    threads_ns: [u64; 2],
    packets: u64,
}

/// The usage between two moments.
#[derive(Clone, Copy, Default)]
pub(super) struct Usage {
    /// Both ends and their kernels, including all of ksoftirqd.
    pub(super) cpu_ns: u64,
    /// All other processes.
    pub(super) others_ns: u64,
    /// The threads of donor and receiver, with the kernel's work charged to them.
    pub(super) threads_ns: [u64; 2],
    /// Frames that the donor's machine has sent and received.
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
