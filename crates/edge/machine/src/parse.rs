//! Parses files of `/proc`. No text causes a panic; what does not have the form of proc(5) is treated as
//! missing.

use crate::limits::{DEVICE_CHARS_MAX, DEVICES_MAX};
use crate::{CpuTimes, DiskCounters, LoadAverage, MemoryUse, NicCounters, ProcessUse, Swapping};

/// Prefixes of devices that are not disks, or are layered on others, so that their requests would count
/// twice: memory, loops, the device mapper, RAID, optical drives and floppies.
const NO_DISKS: [&str; 7] = ["ram", "zram", "loop", "dm-", "md", "sr", "fd"];

/// The kernel's units.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Units {
    pub(crate) ticks_per_s: u64,
    pub(crate) page_bytes: u64,
}

impl Units {
    fn ms(self, ticks: u64) -> u64 {
        ticks.saturating_mul(1000) / self.ticks_per_s.max(1)
    }

    fn bytes(self, pages: u64) -> u64 {
        pages.saturating_mul(self.page_bytes)
    }
}

/// Parses `/proc/stat`.
pub(crate) fn cpu(text: &str, units: Units) -> Option<CpuTimes> {
    let all = text.lines().find_map(|line| line.strip_prefix("cpu "))?;
    let ticks: Vec<u64> = all.split_ascii_whitespace().map_while(|it| it.parse().ok()).collect();
    let ms = |at: usize| ticks.get(at).map_or(0, |ticks| units.ms(*ticks));
    let is_one = |line: &&str| {
        let name = line.split(' ').next().unwrap_or_default();
        name.strip_prefix("cpu").is_some_and(|number| number.parse::<u32>().is_ok())
    };
    // Every kernel has the first four.
    (ticks.len() >= 4).then(|| CpuTimes {
        cpus: text.lines().filter(is_one).count().max(1) as u64,
        user_ms: ms(0),
        nice_ms: ms(1),
        system_ms: ms(2),
        idle_ms: ms(3),
        iowait_ms: ms(4),
        irq_ms: ms(5),
        softirq_ms: ms(6),
        steal_ms: ms(7),
    })
}

/// Parses `/proc/meminfo`.
pub(crate) fn memory(text: &str) -> Option<MemoryUse> {
    let bytes = |name: &str| value(text, name, ':').map(|kib| kib.saturating_mul(1024));
    Some(MemoryUse {
        total_bytes: bytes("MemTotal")?,
        free_bytes: bytes("MemFree")?,
        available_bytes: bytes("MemAvailable"),
        swap_total_bytes: bytes("SwapTotal"),
        swap_free_bytes: bytes("SwapFree"),
    })
}

/// Parses `/proc/vmstat`.
pub(crate) fn swapping(text: &str, units: Units) -> Option<Swapping> {
    let bytes = |name: &str| value(text, name, ' ').map(|pages| units.bytes(pages));
    Some(Swapping { in_bytes: bytes("pswpin")?, out_bytes: bytes("pswpout")? })
}

/// Parses `/proc/diskstats`.
pub(crate) fn disks(text: &str) -> Vec<DiskCounters> {
    let mut disks: Vec<DiskCounters> = Vec::new();
    for disk in text.lines().filter_map(disk) {
        let is_part = disks.iter().any(|whole| is_partition(&disk.device, &whole.device));
        let is_none = NO_DISKS.iter().any(|prefix| disk.device.starts_with(prefix));
        if !is_part && !is_none && disks.len() < DEVICES_MAX {
            disks.push(disk);
        }
    }
    disks
}

fn disk(line: &str) -> Option<DiskCounters> {
    let mut fields = line.split_ascii_whitespace().skip(2);
    let device = device(fields.next()?)?;
    // A counter is negative if the kernel has lost count: treated as missing.
    let counts: Vec<Option<u64>> = fields.map(|it| it.parse().ok()).collect();
    let count = |at: usize| counts.get(at).copied().flatten();
    Some(DiskCounters {
        device,
        reads: count(0)?,
        writes: count(4)?,
        sectors_read: count(2)?,
        sectors_written: count(6)?,
        busy_ms: count(9)?,
    })
}

/// Whether `device` is a partition of `whole`, as `sda1` is of `sda` and `nvme0n1p2` of `nvme0n1`.
fn is_partition(device: &str, whole: &str) -> bool {
    let Some(rest) = device.strip_prefix(whole) else { return false };
    let ends_in_digit = whole.ends_with(|it: char| it.is_ascii_digit());
    let number = match ends_in_digit {
        true => rest.strip_prefix('p').unwrap_or_default(),
        false => rest,
    };
    !number.is_empty() && number.bytes().all(|it| it.is_ascii_digit())
}

/// Parses `/proc/net/dev`.
pub(crate) fn nics(text: &str) -> Vec<NicCounters> {
    // The two header lines have no colon.
    let nics = text.lines().filter_map(nic).filter(|nic| nic.device != "lo");
    nics.take(DEVICES_MAX).collect()
}

fn nic(line: &str) -> Option<NicCounters> {
    // The name of an alias contains a colon.
    let (name, counts) = line.rsplit_once(':')?;
    let counts: Vec<u64> =
        counts.split_ascii_whitespace().map_while(|it| it.parse().ok()).collect();
    let count = |at: usize| counts.get(at).copied();
    Some(NicCounters {
        device: device(name.trim())?,
        received_bytes: count(0)?,
        received_packets: count(1)?,
        received_dropped: count(3)?,
        sent_bytes: count(8)?,
        sent_packets: count(9)?,
        sent_dropped: count(11)?,
    })
}

/// Parses `/proc/loadavg`.
pub(crate) fn load(text: &str) -> Option<LoadAverage> {
    let mut fields = text.split_ascii_whitespace();
    let mut average = || {
        let value: f64 = fields.next()?.parse().ok()?;
        (value.is_finite() && value >= 0.0).then_some(value)
    };
    let (load1, load5, load15) = (average()?, average()?, average()?);
    let tasks = fields.next().and_then(|it| it.split_once('/'));
    Some(LoadAverage {
        load1,
        load5,
        load15,
        runnable: tasks.and_then(|(runnable, _)| runnable.parse().ok()),
        tasks: tasks.and_then(|(_, all)| all.parse().ok()),
    })
}

/// Parses `/proc/self/stat`.
pub(crate) fn process(text: &str, units: Units) -> Option<ProcessUse> {
    // The program's name, in parentheses, may contain any characters.
    let (_, fields) = text.rsplit_once(')')?;
    let fields: Vec<&str> = fields.split_ascii_whitespace().collect();
    // Fields are counted from the state, which is the third field in proc(5).
    let field = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
    Some(ProcessUse {
        cpu_ms: units.ms(field(14)?.saturating_add(field(15)?)),
        threads: field(20)?,
        resident_bytes: units.bytes(field(24)?),
    })
}

/// Returns the number after a name at the beginning of a line.
fn value(text: &str, name: &str, separator: char) -> Option<u64> {
    let rest = text.lines().find_map(|it| it.strip_prefix(name)?.strip_prefix(separator))?;
    rest.split_ascii_whitespace().next()?.parse().ok()
}

fn device(name: &str) -> Option<String> {
    let is_name = !name.is_empty()
        && name.chars().count() <= DEVICE_CHARS_MAX
        && !name.contains(char::is_control);
    is_name.then(|| name.to_owned())
}

#[cfg(test)]
mod tests;
