//! The data of recorders: sums by node and step, and the assignment of nodes to labels.

use std::collections::{BTreeMap, BTreeSet};

use skep_database::RecordedRow;

/// Size of a sector in the kernel's counts, in bytes.
const SECTOR_BYTES: f64 = 512.0;

/// Data by node and step.
#[derive(Default)]
pub(super) struct Recorded {
    uses: BTreeMap<(String, u64), NodeUse>,
    /// Names of nodes by the host and port at which clients reach them.
    authorities: BTreeMap<String, String>,
}

/// The nodes that answered the probes of each label, in each step: by the name in their responses, or by the
/// host to which clients were redirected.
#[derive(Default)]
pub(super) struct Answered {
    by_step: BTreeMap<u64, BTreeMap<String, BTreeSet<String>>>,
}

impl Answered {
    pub(super) fn add(&mut self, step: u64, label: &str, node: Option<&str>) {
        let labels = self.by_step.entry(step).or_default();
        let nodes = labels.entry(label.to_owned()).or_default();
        nodes.extend(node.filter(|node| !nodes.contains(*node)).map(str::to_owned));
    }
}

/// Sums of one or more samples.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct NodeUse {
    interval_ms: f64,
    hits: f64,
    lookups: f64,
    requests: f64,
    sent_bytes: f64,
    cpu_busy_ms: f64,
    cpu_all_ms: f64,
    disk_reads: f64,
    disk_writes: f64,
    disk_bytes: f64,
    nic_bytes: f64,
    nic_packets: f64,
    /// Gauges, each multiplied by the interval.
    in_flight: Timed,
    load1: Timed,
    memory_share: Timed,
    swap_share: Timed,
    threads: Timed,
}

/// A gauge, and the time for which it is known.
#[derive(Clone, Copy, Debug, Default)]
struct Timed {
    sum: f64,
    ms: f64,
}

impl Recorded {
    pub(super) fn add(&mut self, step: u64, row: &RecordedRow) {
        if !row.is_node {
            return;
        }
        if let Some(authority) = &row.authority {
            self.authorities.insert(authority.clone(), row.name.clone());
        }
        self.uses.entry((row.name.clone(), step)).or_default().add(&NodeUse::of(row));
    }

    /// The mean load of the nodes in each step: requests in flight, which correspond to the processes of the
    /// paper; if these are unknown or constant, load averages.
    pub(super) fn loads(&self) -> Vec<(u64, f64)> {
        let all = self.by_step(|_, _| true);
        let by = |load: fn(&NodeUse) -> Option<f64>| -> Vec<(u64, f64)> {
            all.iter().filter_map(|(step, it)| Some((*step, load(it)?))).collect()
        };
        let loads = by(NodeUse::in_flight);
        let is_flat = loads.windows(2).all(|pair| pair[0].1 == pair[1].1);
        if is_flat { by(NodeUse::load1) } else { loads }
    }

    /// The use of the nodes of `label` in each step.
    pub(super) fn of_label(&self, label: &str, answered: &Answered) -> BTreeMap<u64, NodeUse> {
        self.by_step(|node, step| self.counts(node, step, label, answered))
    }

    /// Nodes that are assigned to no label.
    pub(super) fn strangers(&self, labels: &[String], answered: &Answered) -> BTreeSet<&str> {
        let mut nodes: BTreeSet<&str> = self.uses.keys().map(|(node, _)| node.as_str()).collect();
        for (node, step) in self.uses.keys() {
            if labels.iter().any(|label| self.counts(node, *step, label, answered)) {
                nodes.remove(node.as_str());
            }
        }
        nodes
    }

    fn by_step(&self, counts: impl Fn(&str, u64) -> bool) -> BTreeMap<u64, NodeUse> {
        let mut by_step: BTreeMap<u64, NodeUse> = BTreeMap::new();
        for ((_, step), used) in self.uses.iter().filter(|((node, step), _)| counts(node, *step)) {
            by_step.entry(*step).or_default().add(used);
        }
        by_step
    }

    /// Whether a node is assigned to a label: if it answered probes of the label in that step. If it is
    /// unknown which nodes answered, all are assigned to the label of the step, if there is only one.
    fn counts(&self, node: &str, step: u64, label: &str, answered: &Answered) -> bool {
        let Some(labels) = answered.by_step.get(&step) else { return false };
        let Some(names) = labels.get(label) else { return false };
        let mut known = names.iter().filter_map(|name| self.name_of(name)).peekable();
        match known.peek() {
            Some(_) => known.any(|name| name == node),
            None => labels.len() == 1,
        }
    }

    /// The recorder's name of a node that a probe names.
    fn name_of<'a>(&'a self, node: &'a str) -> Option<&'a str> {
        let from = (node.to_owned(), 0);
        let is_name = self.uses.range(from..).next().is_some_and(|((name, _), _)| name == node);
        if is_name { Some(node) } else { self.authorities.get(node).map(String::as_str) }
    }
}

impl NodeUse {
    fn of(row: &RecordedRow) -> Self {
        let node = &row.node;
        let ms = row.interval_ms as f64;
        let sum = |values: &[Option<u64>]| -> f64 {
            values.iter().flatten().map(|value| *value as f64).sum()
        };
        let busy = [
            node.cpu_user_ms,
            node.cpu_nice_ms,
            node.cpu_system_ms,
            node.cpu_irq_ms,
            node.cpu_softirq_ms,
            node.cpu_steal_ms,
        ];
        let free = node.memory_available_bytes.or(node.memory_free_bytes);
        let (disks, nics) = (&row.disks, &row.nics);
        Self {
            interval_ms: ms,
            hits: sum(&[node.cache_hits]),
            lookups: sum(&[node.cache_lookups]),
            requests: sum(&[node.requests]),
            sent_bytes: sum(&[node.sent_bytes]),
            cpu_busy_ms: sum(&busy),
            cpu_all_ms: sum(&busy) + sum(&[node.cpu_idle_ms, node.cpu_iowait_ms]),
            disk_reads: sum(&[disks.reads]),
            disk_writes: sum(&[disks.writes]),
            disk_bytes: sum(&[disks.sectors_read, disks.sectors_written]) * SECTOR_BYTES,
            nic_bytes: sum(&[nics.received_bytes, nics.sent_bytes]),
            nic_packets: sum(&[nics.received_packets, nics.sent_packets]),
            in_flight: Timed::of(node.requests_in_flight_mean, ms),
            load1: Timed::of(node.load1, ms),
            memory_share: Timed::of(used_share(node.memory_total_bytes, free), ms),
            swap_share: Timed::of(used_share(node.swap_total_bytes, node.swap_free_bytes), ms),
            threads: Timed::of(node.process_threads.map(|it| it as f64), ms),
        }
    }

    pub(super) fn add(&mut self, other: &Self) {
        self.interval_ms += other.interval_ms;
        self.hits += other.hits;
        self.lookups += other.lookups;
        self.requests += other.requests;
        self.sent_bytes += other.sent_bytes;
        self.cpu_busy_ms += other.cpu_busy_ms;
        self.cpu_all_ms += other.cpu_all_ms;
        self.disk_reads += other.disk_reads;
        self.disk_writes += other.disk_writes;
        self.disk_bytes += other.disk_bytes;
        self.nic_bytes += other.nic_bytes;
        self.nic_packets += other.nic_packets;
        self.in_flight.add(other.in_flight);
        self.load1.add(other.load1);
        self.memory_share.add(other.memory_share);
        self.swap_share.add(other.swap_share);
        self.threads.add(other.threads);
    }

    /// Share of requests answered from memory, in percent.
    pub(super) fn hit_percent(&self) -> Option<f64> {
        (self.lookups > 0.0).then(|| self.hits / self.lookups * 100.0)
    }

    /// Mean number of requests in flight at a node.
    pub(super) fn in_flight(&self) -> Option<f64> {
        self.in_flight.mean()
    }

    fn load1(&self) -> Option<f64> {
        self.load1.mean()
    }

    /// The values for the page: names of columns, and values.
    pub(super) fn figures(&self) -> [(&'static str, Option<f64>); 14] {
        let per_s = |sum: f64| (self.interval_ms > 0.0).then(|| sum / self.interval_ms * 1e3);
        let percent = |share: Option<f64>| share.map(|share| share * 100.0);
        let cpu = (self.cpu_all_ms > 0.0).then(|| self.cpu_busy_ms / self.cpu_all_ms);
        [
            ("hits %", self.hit_percent()),
            ("in flight", self.in_flight()),
            ("requests/s", per_s(self.requests)),
            ("sent MB/s", per_s(self.sent_bytes / 1e6)),
            ("CPU %", percent(cpu)),
            ("memory %", percent(self.memory_share.mean())),
            ("swap %", percent(self.swap_share.mean())),
            ("disk reads/s", per_s(self.disk_reads)),
            ("disk writes/s", per_s(self.disk_writes)),
            ("disk MB/s", per_s(self.disk_bytes / 1e6)),
            ("network MB/s", per_s(self.nic_bytes / 1e6)),
            ("packets/s", per_s(self.nic_packets)),
            ("load", self.load1()),
            ("threads", self.threads.mean()),
        ]
    }
}

impl Timed {
    fn of(state: Option<f64>, ms: f64) -> Self {
        state.map_or(Self::default(), |state| Self { sum: state * ms, ms })
    }

    fn add(&mut self, other: Self) {
        self.sum += other.sum;
        self.ms += other.ms;
    }

    fn mean(self) -> Option<f64> {
        (self.ms > 0.0).then(|| self.sum / self.ms)
    }
}

/// `None` if the total is 0: a machine without swap uses no share of it.
fn used_share(total: Option<u64>, free: Option<u64>) -> Option<f64> {
    let (total, free) = (total.filter(|it| *it > 0)?, free?);
    Some(1.0 - free.min(total) as f64 / total as f64)
}

#[cfg(test)]
mod tests {
    use skep_database::NodeSample;

    use super::*;

    fn row(name: &str, hits: u64) -> RecordedRow {
        let node = NodeSample {
            cache_hits: Some(hits),
            cache_lookups: Some(10),
            load1: Some(1.0),
            memory_total_bytes: Some(100),
            memory_free_bytes: Some(25),
            swap_total_bytes: Some(0),
            swap_free_bytes: Some(0),
            ..NodeSample::default()
        };
        let authority = Some(format!("{name}:80"));
        RecordedRow {
            name: name.to_owned(),
            authority,
            is_node: true,
            interval_ms: 60_000,
            node,
            ..RecordedRow::default()
        }
    }

    fn hits(recorded: &Recorded, label: &str, answered: &Answered) -> Vec<(u64, Option<f64>)> {
        let by_step = recorded.of_label(label, answered);
        by_step.iter().map(|(step, used)| (*step, used.hit_percent())).collect()
    }

    #[test]
    fn nodes_count_for_the_labels_that_they_answered() {
        let mut recorded = Recorded::default();
        for (step, name, count) in
            [(0, "a", 5), (0, "b", 9), (0, "ab", 0), (1, "a", 1), (2, "a", 2)]
        {
            recorded.add(step, &row(name, count));
        }
        recorded.add(0, &RecordedRow { is_node: false, ..row("dispatcher", 0) });
        let mut answered = Answered::default();
        answered.add(0, "lard", Some("a"));
        answered.add(0, "robin", Some("b:80"));
        // It is unknown which node answered, but there is only one label.
        answered.add(1, "lard", None);
        assert_eq!(hits(&recorded, "lard", &answered), [(0, Some(50.0)), (1, Some(10.0))]);
        assert_eq!(hits(&recorded, "robin", &answered), [(0, Some(90.0))]);
        let labels = ["lard".to_owned(), "robin".to_owned()];
        assert_eq!(recorded.strangers(&labels, &answered), BTreeSet::from(["ab"]));
        assert_eq!(recorded.loads().len(), 3);
    }

    #[test]
    fn states_are_means_and_what_is_unknown_is_none() {
        let mut used = NodeUse::of(&row("a", 5));
        used.add(&NodeUse::of(&row("a", 0)));
        let figures: BTreeMap<_, _> = used.figures().into_iter().collect();
        assert_eq!((figures["hits %"], figures["memory %"]), (Some(25.0), Some(75.0)));
        assert_eq!((figures["swap %"], figures["in flight"], figures["CPU %"]), (None, None, None));
        assert_eq!(figures["load"], Some(1.0));
        assert!(NodeUse::default().figures().iter().all(|(_, value)| value.is_none()));
    }
}
