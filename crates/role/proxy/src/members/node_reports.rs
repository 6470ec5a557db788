//! The nodes' last load reports, by node name: stored once per report, whatever the number of groups, and
//! read by all of them on demand.
//!
//! **Invariant:** the writer of a report never waits. It is the event loop of direct dispatch, which runs at
//! real-time priority: a lock held by another thread would delay it until that thread is scheduled.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arc_swap::ArcSwap;
use skep_policy::ServedLog;
use skep_units::Now;
use skep_wire::limits::PEERS_MAX;
use skep_wire::message::{Name, NodeLoad, ServedObjects, TransferRates};
use skep_wire::seal::Stamp;

use crate::limits::{RATES_MS_MAX, REPORT_READS_MAX};

/// The reports of all nodes: those of services, and others from which reports are received, at most
/// [`PEERS_MAX`] in all with the latter.
#[derive(Debug, Default)]
pub struct NodeReports {
    cells: ArcSwap<Cells>,
    /// Held while a service gets a cell and while unused cells are removed, but not while reports are
    /// recorded.
    users: Mutex<()>,
    /// Objects that nodes have served.
    served: Arc<ArcSwap<ServedLog>>,
}

type Cells = HashMap<Name, Arc<ReportCell>>;

/// A node's last report, for all services.
///
/// A sequence lock whose values are atomics: `version` is odd while a report is being written, so a reader
/// that sees the same even version before and after has read one report.
#[derive(Debug, Default)]
pub(crate) struct ReportCell {
    version: AtomicU64,
    heard_at_ms: AtomicU64,
    incarnation: AtomicU64,
    sequence: AtomicU64,
    load: [AtomicU64; LOAD_NUMBERS],
    /// Of the last report of rates; 0: not known.
    rates_at_ms: AtomicU64,
    link_bytes_per_s: AtomicU64,
    fetch_bytes_per_s: AtomicU64,
    /// Whether a report was received since the last reload, or was received before and the node is in the
    /// config.
    is_listed: AtomicBool,
    /// Number of times that its heartbeats stopped.
    silences: AtomicU64,
}

const LOAD_NUMBERS: usize = 8;

/// A report, as received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeardReport {
    pub at: Now,
    pub load: NodeLoad,
    /// The last ones that it has reported.
    pub rates: TransferRates,
}

impl NodeReports {
    /// The cell of a node of a service, kept for as long as the service holds it.
    pub(crate) fn cell(&self, name: &Name) -> Arc<ReportCell> {
        let _users = self.lock_users();
        // The number of such nodes is bounded by the services.
        self.find_or_add(name, usize::MAX).unwrap_or_default()
    }

    /// Records a report; false if it is not the latest. A report without a stamp is from the node of this
    /// process.
    pub fn hear(&self, now: Now, name: &Name, stamp: Option<Stamp>, load: &NodeLoad) -> bool {
        match self.cells.load().get(name) {
            Some(cell) => cell.write(now, stamp, load),
            None => {
                self.find_or_add(name, PEERS_MAX).is_some_and(|cell| cell.write(now, stamp, load))
            }
        }
    }

    /// Records the rates that a node has measured, once it has reported its load.
    pub fn hear_rates(&self, now: Now, name: &Name, rates: TransferRates) {
        if let Some(cell) = self.cells.load().get(name) {
            cell.rates_at_ms.store(now.0, Ordering::Relaxed);
            cell.link_bytes_per_s.store(rates.link_bytes_per_s, Ordering::Relaxed);
            cell.fetch_bytes_per_s.store(rates.fetch_bytes_per_s, Ordering::Relaxed);
        }
    }

    /// Records objects that a node has served.
    pub fn hear_served(&self, served: &Arc<ServedObjects>) {
        self.served.rcu(|log| log.with(Arc::clone(served)));
    }

    /// Objects that nodes have served recently.
    pub(crate) fn served(&self) -> &Arc<ArcSwap<ServedLog>> {
        &self.served
    }

    /// Records that the heartbeats of a node stopped.
    pub fn miss(&self, name: &Name) {
        if let Some(cell) = self.cells.load().get(name) {
            cell.silences.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Sets the nodes of a config. Other nodes are listed again when they report; they are removed as soon as
    /// no service uses them.
    pub fn reload(&self, configured: &[Name]) {
        let _users = self.lock_users();
        self.cells.rcu(|cells| {
            let mut cells = Cells::clone(cells);
            // The cloned table holds a reference as well.
            cells.retain(|name, cell| configured.contains(name) || Arc::strong_count(cell) > 2);
            for name in configured.iter().take(PEERS_MAX) {
                cells.entry(name.clone()).or_default();
            }
            cells
        });
        let cells = self.cells.load();
        cells.iter().filter(|(name, _)| !configured.contains(name)).for_each(|(_, cell)| {
            cell.is_listed.store(false, Ordering::Relaxed);
        });
    }

    /// The last reports received of the listed nodes, each with a number that changes with the next report.
    pub fn listed(&self) -> Vec<(Name, u64, HeardReport)> {
        let cells = self.cells.load();
        let listed = cells.iter().filter(|(_, cell)| cell.is_listed.load(Ordering::Relaxed));
        let read = |(name, cell): (&Name, &Arc<ReportCell>)| {
            let (version, report) = cell.read()?;
            Some((name.clone(), version, report))
        };
        listed.filter_map(read).collect()
    }
}

impl NodeReports {
    /// The cell of a node; `None` if it has none and there are `cells_max`.
    fn find_or_add(&self, name: &Name, cells_max: usize) -> Option<Arc<ReportCell>> {
        if let Some(cell) = self.cells.load().get(name) {
            return Some(Arc::clone(cell));
        }
        let new = Arc::<ReportCell>::default();
        self.cells.rcu(|cells| {
            let mut cells = Cells::clone(cells);
            if cells.len() < cells_max {
                cells.entry(name.clone()).or_insert_with(|| Arc::clone(&new));
            }
            cells
        });
        self.cells.load().get(name).map(Arc::clone)
    }

    fn lock_users(&self) -> MutexGuard<'_, ()> {
        self.users.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ReportCell {
    /// Records a report, unless it is older than the last one or arrives while another is being written.
    pub(crate) fn write(&self, now: Now, stamp: Option<Stamp>, load: &NodeLoad) -> bool {
        use Ordering::{Acquire, Relaxed, Release};
        let version = self.version.load(Relaxed);
        let is_free = version.is_multiple_of(2)
            && self.version.compare_exchange(version, version + 1, Acquire, Relaxed).is_ok();
        if !is_free {
            return false;
        }
        let last = Stamp {
            incarnation: self.incarnation.load(Relaxed),
            sequence: self.sequence.load(Relaxed),
        };
        if version > 0 && stamp.is_some_and(|stamp| stamp <= last) {
            self.version.store(version, Release);
            return false;
        }
        // The following stores are not visible before the odd version.
        fence(Release);
        let stamp = stamp.unwrap_or_default();
        self.incarnation.store(stamp.incarnation, Relaxed);
        self.sequence.store(stamp.sequence, Relaxed);
        self.heard_at_ms.store(now.0, Relaxed);
        self.load.iter().zip(numbers(load)).for_each(|(at, number)| at.store(number, Relaxed));
        self.is_listed.store(true, Relaxed);
        self.version.store(version + 2, Release);
        true
    }

    /// The last report, with its version; `None` before the first. If reports are written all the time it may
    /// mix two of them: it is used for selection and display only.
    pub(crate) fn read(&self) -> Option<(u64, HeardReport)> {
        let mut last = self.read_once();
        for _ in 1..REPORT_READS_MAX {
            let (_, _, is_whole) = last;
            if is_whole {
                break;
            }
            std::hint::spin_loop();
            last = self.read_once();
        }
        let (version, report, _) = last;
        (version > 1).then_some((version, report))
    }

    /// The version, the report, and whether the whole report is of that version.
    fn read_once(&self) -> (u64, HeardReport, bool) {
        use Ordering::{Acquire, Relaxed};
        let version = self.version.load(Acquire);
        let at = Now(self.heard_at_ms.load(Relaxed));
        let load = load_of(std::array::from_fn(|place| self.load[place].load(Relaxed)));
        let rates = self.rates();
        fence(Acquire);
        let is_whole = version.is_multiple_of(2) && self.version.load(Relaxed) == version;
        (version, HeardReport { at, load, rates }, is_whole)
    }

    /// Changes with each report; odd while one is being written.
    pub(crate) fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// The rates of the last report of them; unknown if that is old.
    pub(crate) fn current_rates(&self, now: Now) -> TransferRates {
        let heard_at = Now(self.rates_at_ms.load(Ordering::Relaxed));
        match now.since_ms(heard_at) > RATES_MS_MAX {
            true => TransferRates::default(),
            false => self.rates(),
        }
    }

    fn rates(&self) -> TransferRates {
        TransferRates {
            link_bytes_per_s: self.link_bytes_per_s.load(Ordering::Relaxed),
            fetch_bytes_per_s: self.fetch_bytes_per_s.load(Ordering::Relaxed),
        }
    }

    /// Number of times that the node's heartbeats stopped.
    pub(crate) fn silences(&self) -> u64 {
        self.silences.load(Ordering::Relaxed)
    }
}

fn numbers(load: &NodeLoad) -> [u64; LOAD_NUMBERS] {
    [
        load.connections,
        load.requests_in_flight,
        load.bytes_outstanding,
        load.cpu_permille.into(),
        load.memory_bytes,
        load.sent_bytes_s,
        load.filled_bytes_s,
        load.hit_permille.into(),
    ]
}

fn load_of(numbers: [u64; LOAD_NUMBERS]) -> NodeLoad {
    let [connections, requests, bytes, cpu, memory_bytes, sent, filled, hits] = numbers;
    NodeLoad {
        connections,
        requests_in_flight: requests,
        bytes_outstanding: bytes,
        cpu_permille: u16::try_from(cpu).unwrap_or(u16::MAX),
        memory_bytes,
        sent_bytes_s: sent,
        filled_bytes_s: filled,
        hit_permille: u16::try_from(hits).unwrap_or(u16::MAX),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn name(text: &str) -> Name {
        Name::new(text).unwrap()
    }

    fn load(number: u64) -> NodeLoad {
        NodeLoad {
            connections: number,
            requests_in_flight: number,
            bytes_outstanding: number,
            cpu_permille: (number % 1000) as u16,
            memory_bytes: number,
            sent_bytes_s: number,
            filled_bytes_s: number,
            hit_permille: (number % 1000) as u16,
        }
    }

    #[test]
    fn a_report_that_comes_while_another_is_written_is_dropped_and_nobody_waits() {
        let cell = ReportCell::default();
        assert_eq!(cell.read(), None);
        assert!(cell.write(Now(5), None, &load(1)));
        let is_written = HeardReport { at: Now(5), load: load(1), rates: TransferRates::default() };
        assert_eq!(cell.read(), Some((2, is_written)));
        // A writer was interrupted.
        cell.version.store(3, Ordering::Relaxed);
        assert!(!cell.write(Now(6), None, &load(2)));
        assert_eq!(cell.read(), Some((3, is_written)), "after so many reads it is taken as it is");
    }

    #[test]
    fn a_read_is_of_one_report() {
        let cell = Arc::<ReportCell>::default();
        let writer = Arc::clone(&cell);
        let written = std::thread::spawn(move || {
            for number in 1..=100_000 {
                assert!(writer.write(Now(number), None, &load(number)));
            }
        });
        let mut last = 0;
        while last < 200_000 {
            let (version, report, is_whole) = cell.read_once();
            assert!(version >= last);
            if is_whole && version > 0 {
                let (at, load) = (Now(version / 2), load(version / 2));
                assert_eq!((report.at, report.load), (at, load));
                last = version;
            }
        }
        written.join().unwrap();
    }

    #[test]
    fn a_service_and_the_network_find_the_same_report_whatever_the_config() {
        let reports = NodeReports::default();
        reports.reload(&[name("a")]);
        let (of_a, of_b) = (reports.cell(&name("a")), reports.cell(&name("b")));
        let listed = |reports: &NodeReports| {
            let mut names: Vec<Name> = reports.listed().into_iter().map(|it| it.0).collect();
            names.sort();
            names
        };
        for (number, node) in ["a", "b", "c"].iter().enumerate() {
            assert!(reports.hear(Now(7), &name(node), None, &load(number as u64)));
        }
        assert_eq!(of_a.read().unwrap().1.load, load(0));
        assert_eq!(listed(&reports), ["a", "b", "c"].map(name));
        reports.reload(&[name("a")]);
        assert_eq!(listed(&reports), [name("a")]);
        assert!(!reports.cells.load().contains_key(&name("c")), "no service has it");
        reports.hear(Now(8), &name("b"), None, &load(9));
        assert_eq!(of_b.read().unwrap().1.load, load(9), "a service has it");
        assert_eq!(listed(&reports), ["a", "b"].map(name));
        reports.miss(&name("b"));
        reports.miss(&name("nobody"));
        assert_eq!((of_a.silences(), of_b.silences()), (0, 1));
    }

    #[test]
    fn there_is_a_bound() {
        let reports = NodeReports::default();
        let names: Vec<Name> = (0..PEERS_MAX).map(|it| name(&format!("n{it}"))).collect();
        reports.reload(&names);
        reports.hear(Now(1), &name("one more"), None, &load(1));
        assert_eq!(reports.listed(), []);
        assert_eq!(reports.cells.load().len(), PEERS_MAX);
        let of_service = reports.cell(&name("one more"));
        assert!(reports.hear(Now(2), &name("one more"), None, &load(2)));
        assert_eq!(
            of_service.read().unwrap().1.load,
            load(2),
            "nodes of services have their place"
        );
    }

    #[test]
    fn a_service_that_gets_a_node_during_reloads_hears_of_it() {
        let reports = NodeReports::default();
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    reports.reload(&[]);
                }
            });
            let heard = (1..=20_000).all(|number| {
                // A report is received before a service has the node.
                reports.hear(Now(0), &name("a"), None, &load(0));
                let cell = reports.cell(&name("a"));
                reports.hear(Now(number), &name("a"), None, &load(number));
                cell.read().is_some_and(|(_, report)| report.load == load(number))
            });
            is_over.store(true, Ordering::Relaxed);
            assert!(heard);
        });
    }

    #[test]
    fn rates_are_those_of_the_last_report_and_unknown_when_that_is_old() {
        let (reports, node) = (NodeReports::default(), name("a"));
        let cell = reports.cell(&node);
        let rates = |link_bytes_per_s| TransferRates { link_bytes_per_s, fetch_bytes_per_s: 7 };
        reports.hear_rates(Now(1_000), &node, rates(5));
        assert_eq!(cell.current_rates(Now(1_000 + RATES_MS_MAX)), rates(5));
        assert_eq!(cell.current_rates(Now(1_001 + RATES_MS_MAX)), TransferRates::default());
        reports.hear_rates(Now(30_000), &node, rates(0));
        assert_eq!(cell.current_rates(Now(30_000)), rates(0), "the setting is gone");
    }
}
