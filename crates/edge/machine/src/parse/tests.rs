//! Recorded files, incomplete files, and files of arbitrary bytes.

use proptest::prelude::*;

use super::*;

const UNITS: Units = Units { ticks_per_s: 100, page_bytes: 4096 };

const STAT: &str = "\
cpu  4393612 446382 1604359 1654620 17397 3 337034 8549 0 0
cpu0 2192906 214271 791134 853898 5613 1 168420 4331 0 0
cpu1 2200705 232111 813224 800721 11783 2 168614 4218 0 0
intr 96201315 0 0 0 0
ctxt 258984416
btime 1795714177
procs_running 3
";

const MEMINFO: &str = "\
MemTotal:       24684084 kB
MemFree:         9263412 kB
MemAvailable:   23388584 kB
Buffers:          123360 kB
SwapCached:            0 kB
SwapTotal:       1048576 kB
SwapFree:         524288 kB
";

const DISKSTATS: &str = "   7       0 loop0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0
   8       0 sda 10 1 200 5 30 2 400 6 0 77 11 0 0 0 0 0 0
   8       1 sda1 9 1 190 5 30 2 400 6 0 70 11 0 0 0 0 0 0
   8      16 sdaa 1 0 2 0 3 0 4 0 0 5 0
 259       0 nvme0n1 100 0 2000 0 300 0 4000 0 0 9 0 0 0 0 0 0 0
 259       1 nvme0n1p1 99 0 1990 0 300 0 4000 0 0 9 0 0 0 0 0 0 0
 253       0 dm-0 100 0 2000 0 300 0 4000 0 0 9 0 0 0 0 0 0 0
   9       0 md127 100 0 2000 0 300 0 4000 0 0 9 0
 253       0 zram0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0
  11       0 sr0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0
";

/// From a kernel that writes no space after the colon.
const NET_DEV: &str = "\
Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed
    lo: 667223487441 63255020    0   28    0     0          0         0 667223487441 63255020    0    0    0     0       0          0
  eth0:2606708516   53690    1    2    0     0          0         0  2528373   31873    3    4    0     0       0          0
eth0:1: 5 6 0 7 0 0 0 0 8 9 0 10 0 0 0 0
";

const SELF_STAT: &str = "27523 (a) R (b) S 27507 27507 18683 0 -1 4194304 138 0 0 0 250 150 0 0 20 0 7 0 4241570 2998272 395 18446744073709551615 94125335638016";

#[test]
fn processors() {
    let cpu = cpu(STAT, UNITS).unwrap_or_default();
    assert_eq!((cpu.cpus, cpu.user_ms, cpu.nice_ms), (2, 43_936_120, 4_463_820));
    assert_eq!((cpu.system_ms, cpu.idle_ms, cpu.iowait_ms), (16_043_590, 16_546_200, 173_970));
    assert_eq!((cpu.irq_ms, cpu.softirq_ms, cpu.steal_ms), (30, 3_370_340, 85_490));
    // Linux 2.4 has only four numbers.
    let old = super::cpu("cpu  1 2 3 4\n", UNITS).unwrap_or_default();
    assert_eq!((old.cpus, old.idle_ms, old.iowait_ms), (1, 40, 0));
}

#[test]
fn memory_and_swap() {
    let memory = memory(MEMINFO).unwrap_or_default();
    assert_eq!((memory.total_bytes, memory.free_bytes), (24_684_084 << 10, 9_263_412 << 10));
    assert_eq!(memory.available_bytes, Some(23_388_584 << 10));
    assert_eq!((memory.swap_total_bytes, memory.swap_free_bytes), (Some(1 << 30), Some(1 << 29)));
    let swapping = swapping("pswpin 3\npswpout 5\npswpinx 9\n", UNITS).unwrap_or_default();
    assert_eq!((swapping.in_bytes, swapping.out_bytes), (3 * 4096, 5 * 4096));
}

#[test]
fn whole_disks_count_and_parts_do_not_count_again() {
    let disks = disks(DISKSTATS);
    let names: Vec<&str> = disks.iter().map(|disk| disk.device.as_str()).collect();
    assert_eq!(names, ["sda", "sdaa", "nvme0n1"]);
    let sda = &disks[0];
    assert_eq!((sda.reads, sda.writes, sda.busy_ms), (10, 30, 77));
    assert_eq!((sda.sectors_read, sda.sectors_written), (200, 400));
}

#[test]
fn network_devices_without_the_loopback() {
    let nics = nics(NET_DEV);
    assert_eq!(nics.len(), 2, "{nics:?}");
    let eth0 = &nics[0];
    assert_eq!((eth0.device.as_str(), eth0.received_bytes), ("eth0", 2_606_708_516));
    assert_eq!((eth0.received_packets, eth0.received_dropped), (53_690, 2));
    assert_eq!((eth0.sent_bytes, eth0.sent_packets, eth0.sent_dropped), (2_528_373, 31_873, 4));
    assert_eq!((nics[1].device.as_str(), nics[1].sent_packets), ("eth0:1", 9));
}

#[test]
fn load_averages_and_this_process() {
    let load = load("2.54 5.35 5.98 3/191 27522\n").unwrap_or_default();
    assert_eq!((load.load1, load.load5, load.load15), (2.54, 5.35, 5.98));
    assert_eq!((load.runnable, load.tasks), (Some(3), Some(191)));
    let process = process(SELF_STAT, UNITS).unwrap_or_default();
    assert_eq!((process.cpu_ms, process.threads), (4_000, 7));
    assert_eq!(process.resident_bytes, 395 * 4096);
}

#[test]
fn what_is_missing_or_no_number_is_not_there() {
    for text in
        ["", "cpu", "cpu  ", "cpu  1 2 3", "cpu  a b c d", "cpu0 1 2 3 4", "cpu  1 -2 3 4 5"]
    {
        assert_eq!(cpu(text, UNITS), None, "{text:?}");
    }
    for text in ["", "MemTotal:", "MemTotal: x kB\nMemFree: 1 kB", "MemTotal: 1 kB", "MemTotal"] {
        assert_eq!(memory(text), None, "{text:?}");
    }
    assert!(memory("MemTotal: 1 kB\nMemFree: 1 kB").is_some_and(|it| it.swap_free_bytes.is_none()));
    assert_eq!(swapping("pswpin 1\n", UNITS), None);
    for text in ["8 0 sda 1 2 3", "8 0 sda", "sda 1 2 3", "8 0 sda 1 0 1 0 1 0 1 0 0 -1 0"] {
        assert_eq!(disks(text), [], "{text:?}");
    }
    for text in
        ["eth0: 1 2 3", "eth0", ": 1 1 1 1 1 1 1 1 1 1 1 1", "eth0: x 1 1 1 1 1 1 1 1 1 1 1"]
    {
        assert_eq!(nics(text), [], "{text:?}");
    }
    for text in ["", "1 2", "nan 1 1", "-1 1 1", "1 inf 1 1/2 3"] {
        assert_eq!(load(text), None, "{text:?}");
    }
    assert!(load("1 1 1").is_some_and(|it| it.tasks.is_none()));
    for text in ["", "1 (a", "1 (a) S 1 2 3", "1 (a) S x"] {
        assert_eq!(process(text, UNITS), None, "{text:?}");
    }
}

#[test]
fn numbers_are_as_large_as_they_can_be_without_overflow() {
    let most = u64::MAX;
    let cpu = cpu(&format!("cpu  {most} 0 0 {most}\n"), UNITS).unwrap_or_default();
    assert_eq!(cpu.user_ms, most / 100);
    let memory = memory(&format!("MemTotal: {most} kB\nMemFree: 0 kB")).unwrap_or_default();
    assert_eq!(memory.total_bytes, most);
    assert_eq!(cpu_of_zero_ticks().user_ms, 1000);
}

/// A system that does not report the number of ticks per second.
fn cpu_of_zero_ticks() -> CpuTimes {
    cpu("cpu  1 1 1 1", Units { ticks_per_s: 0, ..UNITS }).unwrap_or_default()
}

#[test]
fn devices_are_bounded_in_number_and_in_name() {
    let many: String = (0..1000).map(|n| format!("e{n}: 1 1 1 1 1 1 1 1 1 1 1 1\n")).collect();
    assert_eq!(nics(&many).len(), DEVICES_MAX);
    let many: String = (0..1000).map(|n| format!("8 0 d{n}x 1 1 1 1 1 1 1 1 1 1 1\n")).collect();
    assert_eq!(disks(&many).len(), DEVICES_MAX);
    let long = "e".repeat(DEVICE_CHARS_MAX + 1);
    assert_eq!(nics(&format!("{long}: 1 1 1 1 1 1 1 1 1 1 1 1\n")), []);
}

/// Runs all parsers.
fn parse_all(text: &str) {
    let _ = (cpu(text, UNITS), memory(text), swapping(text, UNITS), disks(text));
    let _ = (nics(text), load(text), process(text, UNITS));
}

proptest! {
    #[test]
    fn no_text_panics(text in ".{0,300}") {
        parse_all(&text);
    }

    /// Recorded files in which bytes are overwritten, deleted and duplicated.
    #[test]
    fn no_damage_panics(
        which in 0_usize..6,
        cuts in prop::collection::vec((0_usize..2_000, 0_usize..40, "[ -~]{0,4}|\n|é"), 1..8),
    ) {
        let file = [STAT, MEMINFO, DISKSTATS, NET_DEV, SELF_STAT, "2.5 5 5 3/1 2\n"][which];
        let mut text = file.to_owned();
        for (at, length, instead) in cuts {
            let from = text.floor_char_boundary(at % (text.len() + 1));
            let to = text.floor_char_boundary((from + length).min(text.len()));
            text.replace_range(from..to.max(from), &instead);
        }
        parse_all(&text);
    }
}
