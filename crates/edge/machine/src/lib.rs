//! Counters of the machine and of this process that the kernel shows in `/proc` (proc(5)): processors,
//! memory, swap, disks, networks, load averages.
//!
//! ```text
//!   lib.rs: MachineCounters::read   <--  files of /proc  --  parse.rs: text to numbers
//! ```
//!
//! Invariants: no content of these files causes a panic; a value that is missing or malformed is left out
//! alone. Numbers are the kernel's totals since the machine, or this process, started: rates require two
//! readings.

#![forbid(unsafe_code)]

mod limits;
mod parse;

use std::fs::File;
use std::io::Read;
use std::path::Path;

use limits::FILE_BYTES_MAX;
use parse::Units;

/// The folder of the kernel's counters.
pub const PROC: &str = "/proc";

/// The counters at one moment; a value that the kernel does not provide is `None`, or has no entry.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MachineCounters {
    pub cpu: Option<CpuTimes>,
    pub memory: Option<MemoryUse>,
    pub swapping: Option<Swapping>,
    /// Whole disks, without partitions and devices that are layered on other disks.
    pub disks: Vec<DiskCounters>,
    /// All network devices but the loopback.
    pub nics: Vec<NicCounters>,
    pub load: Option<LoadAverage>,
    pub process: Option<ProcessUse>,
}

/// CPU time of all processors together in milliseconds, by use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuTimes {
    /// The number of processors.
    pub cpus: u64,
    pub user_ms: u64,
    pub nice_ms: u64,
    pub system_ms: u64,
    pub idle_ms: u64,
    /// Idle while a task waited for a disk.
    pub iowait_ms: u64,
    pub irq_ms: u64,
    pub softirq_ms: u64,
    /// Used by other guests of the hypervisor.
    pub steal_ms: u64,
}

/// Memory and swap, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryUse {
    pub total_bytes: u64,
    pub free_bytes: u64,
    /// Free, or reclaimable at once; not provided by kernels before 3.14.
    pub available_bytes: Option<u64>,
    pub swap_total_bytes: Option<u64>,
    pub swap_free_bytes: Option<u64>,
}

/// Bytes moved between memory and swap.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Swapping {
    pub in_bytes: u64,
    pub out_bytes: u64,
}

/// Totals of a disk.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DiskCounters {
    pub device: String,
    pub reads: u64,
    pub writes: u64,
    /// In units of 512 bytes, whatever the disk's sector size.
    pub sectors_read: u64,
    pub sectors_written: u64,
    /// Time during which any request was at the disk.
    pub busy_ms: u64,
}

/// Totals of a network device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NicCounters {
    pub device: String,
    pub received_bytes: u64,
    pub received_packets: u64,
    pub received_dropped: u64,
    pub sent_bytes: u64,
    pub sent_packets: u64,
    pub sent_dropped: u64,
}

/// Tasks that run or wait for a disk: means of 1, 5 and 15 minutes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LoadAverage {
    pub load1: f64,
    pub load5: f64,
    pub load15: f64,
    /// Tasks that run or are ready to run.
    pub runnable: Option<u64>,
    /// Tasks of the machine: processes and threads.
    pub tasks: Option<u64>,
}

/// The resources that this process uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProcessUse {
    /// CPU time since its start.
    pub cpu_ms: u64,
    pub threads: u64,
    /// Its own or mapped memory; memory files are not part of it.
    pub resident_bytes: u64,
}

impl MachineCounters {
    /// Reads all counters from `proc`, which is [`PROC`] or a copy of it.
    pub fn read(proc: &Path) -> Self {
        let units = Units {
            ticks_per_s: rustix::param::clock_ticks_per_second(),
            page_bytes: rustix::param::page_size() as u64,
        };
        let text = |name| read_text(&proc.join(name));
        Self {
            cpu: parse::cpu(&text("stat"), units),
            memory: parse::memory(&text("meminfo")),
            swapping: parse::swapping(&text("vmstat"), units),
            disks: parse::disks(&text("diskstats")),
            // Devices of this process's network namespace.
            nics: parse::nics(&text("net/dev")),
            load: parse::load(&text("loadavg")),
            process: parse::process(&text("self/stat"), units),
        }
    }
}

/// Reads a file up to a limit that none reaches; empty if the file cannot be opened.
fn read_text(path: &Path) -> String {
    let mut bytes = Vec::new();
    if let Ok(file) = File::open(path) {
        // What was read before an error is parsed.
        let _ = file.take(FILE_BYTES_MAX).read_to_end(&mut bytes);
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_says_what_it_does() {
        let counters = MachineCounters::read(Path::new(PROC));
        assert!(counters.cpu.is_some_and(|cpu| cpu.cpus > 0 && cpu.user_ms > 0), "{counters:?}");
        assert!(counters.memory.is_some_and(|it| it.total_bytes > it.free_bytes), "{counters:?}");
        let process = counters.process.unwrap_or_default();
        assert!(process.threads > 0 && process.resident_bytes > 1 << 20, "{process:?}");
    }

    #[test]
    fn a_machine_without_proc_says_nothing() {
        assert_eq!(MachineCounters::read(Path::new("/nowhere")), MachineCounters::default());
        // A folder in place of each file.
        assert_eq!(MachineCounters::read(Path::new("/")).cpu, None);
    }
}
