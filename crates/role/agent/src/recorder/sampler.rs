//! Differences of counters, and means of gauges, over one interval.

use skep_database::{DiskUse, NicUse, NodeSample, RecordedSample};
use skep_machine::{DiskCounters, MachineCounters, NicCounters};

use super::{CacheBytes, ServerCounters, ServerGauges};

/// The counters at the beginning of the interval, and the gauges read since.
pub(super) struct Sampler {
    begun_ms: u64,
    machine: MachineCounters,
    server: ServerCounters,
    looks: u64,
    connections: Seen,
    requests_in_flight: Seen,
    bytes_outstanding: Seen,
}

/// Readings of a gauge.
#[derive(Clone, Copy, Default)]
struct Seen {
    sum: f64,
    most: u64,
}

impl Seen {
    fn add(&mut self, value: u64) {
        self.sum += value as f64;
        self.most = self.most.max(value);
    }
}

impl Sampler {
    /// Begins an interval at `now_ms`, by the monotonic clock.
    pub(super) fn begin(now_ms: u64, machine: MachineCounters, server: ServerCounters) -> Self {
        Self {
            begun_ms: now_ms,
            machine,
            server,
            looks: 0,
            connections: Seen::default(),
            requests_in_flight: Seen::default(),
            bytes_outstanding: Seen::default(),
        }
    }

    pub(super) fn look(&mut self, gauges: ServerGauges) {
        self.looks += 1;
        self.connections.add(gauges.connections);
        self.requests_in_flight.add(gauges.requests_in_flight);
        self.bytes_outstanding.add(gauges.bytes_outstanding);
    }

    /// Ends the interval, and begins the next one. `None`: it was empty.
    pub(super) fn take(
        &mut self,
        now_ms: u64,
        at_unix_ms: u64,
        machine: MachineCounters,
        server: ServerCounters,
        cache: Option<CacheBytes>,
    ) -> Option<RecordedSample> {
        let interval_ms = now_ms.checked_sub(self.begun_ms).filter(|it| *it > 0)?;
        let ended = std::mem::replace(self, Self::begin(now_ms, machine, server));
        let (before, after) = (&ended.machine, &self.machine);
        let mut node = NodeSample::default();
        set_machine(&mut node, before, after);
        set_process(&mut node, before, after, cache);
        set_server(&mut node, &ended.server, &self.server);
        set_gauges(&mut node, &ended);
        node.cache_bytes = cache.map(|it| it.stored_bytes);
        Some(RecordedSample {
            at_unix_ms,
            interval_ms,
            node,
            disks: used(&before.disks, &after.disks, |it| &it.device, disk),
            nics: used(&before.nics, &after.nics, |it| &it.device, nic),
        })
    }
}

/// The use of each device that existed during the whole interval and whose counters were not reset.
fn used<Counters, Use>(
    before: &[Counters],
    after: &[Counters],
    name: fn(&Counters) -> &str,
    used: fn(&Counters, &Counters) -> Option<Use>,
) -> Vec<(String, Use)> {
    let one = |new: &Counters| {
        let old = before.iter().find(|old| name(old) == name(new))?;
        Some((name(new).to_owned(), used(old, new)?))
    };
    after.iter().filter_map(one).collect()
}

fn disk(old: &DiskCounters, new: &DiskCounters) -> Option<DiskUse> {
    Some(DiskUse {
        reads: Some(new.reads.checked_sub(old.reads)?),
        writes: Some(new.writes.checked_sub(old.writes)?),
        sectors_read: Some(new.sectors_read.checked_sub(old.sectors_read)?),
        sectors_written: Some(new.sectors_written.checked_sub(old.sectors_written)?),
        // A 32-bit value in the kernel, which wraps after 49 days.
        busy_ms: new.busy_ms.checked_sub(old.busy_ms),
    })
}

fn nic(old: &NicCounters, new: &NicCounters) -> Option<NicUse> {
    Some(NicUse {
        received_bytes: Some(new.received_bytes.checked_sub(old.received_bytes)?),
        received_packets: Some(new.received_packets.checked_sub(old.received_packets)?),
        received_dropped: new.received_dropped.checked_sub(old.received_dropped),
        sent_bytes: Some(new.sent_bytes.checked_sub(old.sent_bytes)?),
        sent_packets: Some(new.sent_packets.checked_sub(old.sent_packets)?),
        sent_dropped: new.sent_dropped.checked_sub(old.sent_dropped),
    })
}

fn set_machine(node: &mut NodeSample, before: &MachineCounters, after: &MachineCounters) {
    if let Some((old, new)) = before.cpu.zip(after.cpu) {
        // Idle times may decrease slightly (proc(5)): that counts as 0.
        let since = |old: u64, new: u64| Some(new.saturating_sub(old));
        node.cpus = Some(new.cpus);
        node.cpu_user_ms = since(old.user_ms, new.user_ms);
        node.cpu_nice_ms = since(old.nice_ms, new.nice_ms);
        node.cpu_system_ms = since(old.system_ms, new.system_ms);
        node.cpu_idle_ms = since(old.idle_ms, new.idle_ms);
        node.cpu_iowait_ms = since(old.iowait_ms, new.iowait_ms);
        node.cpu_irq_ms = since(old.irq_ms, new.irq_ms);
        node.cpu_softirq_ms = since(old.softirq_ms, new.softirq_ms);
        node.cpu_steal_ms = since(old.steal_ms, new.steal_ms);
    }
    if let Some(memory) = after.memory {
        node.memory_total_bytes = Some(memory.total_bytes);
        node.memory_free_bytes = Some(memory.free_bytes);
        node.memory_available_bytes = memory.available_bytes;
        node.swap_total_bytes = memory.swap_total_bytes;
        node.swap_free_bytes = memory.swap_free_bytes;
    }
    if let Some((old, new)) = before.swapping.zip(after.swapping) {
        node.swapped_in_bytes = new.in_bytes.checked_sub(old.in_bytes);
        node.swapped_out_bytes = new.out_bytes.checked_sub(old.out_bytes);
    }
    if let Some(load) = after.load {
        (node.load1, node.load5, node.load15) =
            (Some(load.load1), Some(load.load5), Some(load.load15));
        (node.tasks_runnable, node.tasks) = (load.runnable, load.tasks);
    }
}

fn set_process(
    node: &mut NodeSample,
    before: &MachineCounters,
    after: &MachineCounters,
    cache: Option<CacheBytes>,
) {
    let Some(new) = after.process else { return };
    node.process_cpu_ms = before.process.and_then(|old| new.cpu_ms.checked_sub(old.cpu_ms));
    node.process_threads = Some(new.threads);
    let files = cache.map_or(0, |it| it.file_bytes);
    node.process_memory_bytes = Some(new.resident_bytes.saturating_add(files));
}

fn set_server(node: &mut NodeSample, old: &ServerCounters, new: &ServerCounters) {
    let since = |count: fn(&ServerCounters) -> u64| count(new).checked_sub(count(old));
    node.connections_accepted = since(|it| it.connections_accepted);
    node.requests = since(|it| it.requests);
    node.responses_5xx = since(|it| it.responses_5xx);
    node.redirects = since(|it| it.redirects);
    node.received_bytes = since(|it| it.received_bytes);
    node.sent_bytes = since(|it| it.sent_bytes);
    node.peer_sent_bytes = since(|it| it.peer_sent_bytes);
    node.cache_lookups = since(|it| it.cache_lookups);
    node.cache_hits = since(|it| it.cache_hits);
    node.peer_hits = since(|it| it.peer_hits);
    node.peer_filled_bytes = since(|it| it.peer_filled_bytes);
    node.origin_filled_bytes = since(|it| it.origin_filled_bytes);
}

fn set_gauges(node: &mut NodeSample, ended: &Sampler) {
    if ended.looks == 0 {
        return;
    }
    let mean = |seen: Seen| Some(seen.sum / ended.looks as f64);
    node.connections_mean = mean(ended.connections);
    node.connections_max = Some(ended.connections.most);
    node.requests_in_flight_mean = mean(ended.requests_in_flight);
    node.requests_in_flight_max = Some(ended.requests_in_flight.most);
    node.bytes_outstanding_mean = mean(ended.bytes_outstanding);
    node.bytes_outstanding_max = Some(ended.bytes_outstanding.most);
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use skep_machine::{CpuTimes, ProcessUse, Swapping};

    use super::*;

    fn machine(reads: u64, user_ms: u64) -> MachineCounters {
        let disk = |device: &str| DiskCounters {
            device: device.to_owned(),
            reads,
            ..DiskCounters::default()
        };
        MachineCounters {
            cpu: Some(CpuTimes {
                cpus: 2,
                user_ms,
                idle_ms: 1000 - user_ms,
                ..CpuTimes::default()
            }),
            disks: vec![disk("sda"), disk(&format!("new{reads}"))],
            process: Some(ProcessUse { cpu_ms: user_ms, threads: 3, resident_bytes: 100 }),
            ..MachineCounters::default()
        }
    }

    #[test]
    fn a_sample_has_what_was_counted_since_the_one_before() {
        let server = |requests| ServerCounters { requests, ..ServerCounters::default() };
        let mut sampler = Sampler::begin(5_000, machine(10, 100), server(7));
        for requests_in_flight in [0, 4, 2] {
            sampler.look(ServerGauges { requests_in_flight, ..ServerGauges::default() });
        }
        let cache = Some(CacheBytes { stored_bytes: 9, file_bytes: 5 });
        let sample = sampler.take(6_500, 77, machine(13, 150), server(10), cache).unwrap();
        assert_eq!((sample.at_unix_ms, sample.interval_ms), (77, 1_500));
        let node = sample.node;
        assert_eq!(
            (node.requests, node.cpu_user_ms, node.cpu_idle_ms),
            (Some(3), Some(50), Some(0))
        );
        assert_eq!(
            (node.requests_in_flight_mean, node.requests_in_flight_max),
            (Some(2.0), Some(4))
        );
        assert_eq!((node.process_cpu_ms, node.process_memory_bytes), (Some(50), Some(105)));
        assert_eq!((node.cache_bytes, node.load1, node.swapped_in_bytes), (Some(9), None, None));
        // The other device is new.
        assert_eq!(sample.disks.len(), 1);
        assert_eq!((sample.disks[0].0.as_str(), sample.disks[0].1.reads), ("sda", Some(3)));
        let next = sampler.take(6_600, 78, machine(13, 150), server(10), cache).unwrap();
        assert_eq!((next.interval_ms, next.node.requests), (100, Some(0)));
        assert_eq!(next.node.requests_in_flight_mean, None, "nobody has looked");
    }

    #[test]
    fn what_counts_anew_is_unknown_and_an_interval_has_a_length() {
        let mut before = machine(10, 100);
        before.swapping = Some(Swapping { in_bytes: 5, out_bytes: 5 });
        let mut after = machine(3, 100);
        after.swapping = Some(Swapping { in_bytes: 4, out_bytes: 6 });
        let mut sampler = Sampler::begin(1_000, before, ServerCounters::default());
        let server = ServerCounters::default();
        assert_eq!(sampler.take(1_000, 0, machine(10, 100), server, None), None);
        assert_eq!(sampler.take(900, 0, machine(10, 100), server, None), None);
        let sample = sampler.take(1_001, u64::MAX, after, server, None).unwrap();
        assert_eq!(sample.disks, []);
        assert_eq!((sample.node.swapped_in_bytes, sample.node.swapped_out_bytes), (None, Some(1)));
    }
}
