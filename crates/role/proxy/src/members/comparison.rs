//! An A/B test of policies in a group: its arms, the arm of each client, and the workers' counts for each
//! arm.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use skep_comparison::{
    ArmEvent, ArmSpec, ArmTally, Arms, ClientId, HostTable, NodeCounts, TableSync, record,
};
use skep_units::Now;
use skep_wire::message::{ArmClients, ArmCounts};
use skep_wire::seal::PeerId;

/// Shared by all threads.
#[derive(Debug)]
pub struct Comparison {
    arms: Arms,
    began: Now,
    /// Workers look up clients here that they have not cached.
    table: Mutex<HostTable>,
    /// The table's revision, which tells workers when to clear their caches.
    revision: AtomicU64,
    sync: Mutex<TableSync>,
    counts: Mutex<Vec<Arc<WorkerArmCounts>>>,
    /// The counts of nodes, if they determine clients' arms.
    nodes: Option<Mutex<NodeCounts>>,
}

/// One worker's counts for each arm, written by this worker only.
#[derive(Debug)]
pub(crate) struct WorkerArmCounts {
    cells: Box<[AtomicU64]>,
}

/// An A/B test at one moment.
#[derive(Clone, Debug)]
pub struct ComparisonStatus {
    /// Time since the start of counting, in milliseconds.
    pub counted_ms: u64,
    /// Whether additional clients are assigned by the hash of their address.
    pub is_table_full: bool,
    /// Whether all clients are, because nodes determine the arms: then there is no table, and clients are not
    /// counted.
    pub is_by_hash: bool,
    pub arms: Vec<ArmStatus>,
}

/// An arm at one moment.
#[derive(Clone, Debug)]
pub struct ArmStatus {
    pub spec: ArmSpec,
    /// Clients in the host table.
    pub clients: u64,
    pub tally: ArmTally,
}

impl Comparison {
    /// Starts counting now. Clients of an earlier test with the same arms keep their arms. `is_by_hash`:
    /// nodes determine the arms, by the hash of clients' addresses.
    pub(crate) fn new(arms: Arms, began: Now, earlier: Option<&Self>, is_by_hash: bool) -> Self {
        let earlier = earlier.filter(|earlier| earlier.arms == arms);
        let table =
            earlier.map_or_else(|| HostTable::new(arms.weights()), |it| lock(&it.table).clone());
        let sync = TableSync::new(arms.id());
        let nodes = is_by_hash.then(|| Mutex::new(NodeCounts::new(arms.list().len())));
        Self {
            arms,
            began,
            nodes,
            revision: AtomicU64::new(table.revision()),
            table: Mutex::new(table),
            sync: Mutex::new(sync),
            counts: Mutex::default(),
        }
    }

    pub fn arms(&self) -> &Arms {
        &self.arms
    }

    /// The arm of a client, which keeps it from now on.
    pub(crate) fn arm_of(&self, client: ClientId) -> usize {
        lock(&self.table).arm_of(client)
    }

    /// Incremented when clients' arms may have changed.
    pub(crate) fn revision(&self) -> u64 {
        self.revision.load(Relaxed)
    }

    /// Creates the counts of another worker.
    pub(crate) fn new_counts(&self) -> Arc<WorkerArmCounts> {
        let cells = self.arms.list().len() * ArmTally::CELLS;
        let counts =
            Arc::new(WorkerArmCounts { cells: (0..cells).map(|_| AtomicU64::new(0)).collect() });
        lock(&self.counts).push(Arc::clone(&counts));
        counts
    }

    /// Merges another dispatcher's client assignments. Returns whether they are of this test.
    pub fn hear(&self, now: Now, from: PeerId, told: &ArmClients) -> bool {
        let mut table = lock(&self.table);
        let is_ours = lock(&self.sync).hear(now, from, told, &mut table);
        self.revision.store(table.revision(), Relaxed);
        is_ours
    }

    /// Merges the counts of a node. False: they are of another test. Never blocks: counts that arrive while
    /// the lock is held are superseded by the next ones.
    pub fn hear_counts(&self, now: Now, node: PeerId, told: &ArmCounts) -> bool {
        let Some(nodes) = self.nodes.as_ref().filter(|_| told.test == self.arms.id()) else {
            return false;
        };
        if let Ok(mut nodes) = nodes.try_lock() {
            nodes.hear(node, told, now.since_ms(self.began));
        }
        true
    }

    /// The client assignments to send to other dispatchers now.
    pub fn tell(&self, now: Now) -> Vec<ArmClients> {
        let mut table = lock(&self.table);
        lock(&self.sync).tell(now, &mut table)
    }

    /// The counts so far.
    pub fn status(&self, now: Now) -> ComparisonStatus {
        let (clients, is_table_full) = {
            let table = lock(&self.table);
            (table.clients().to_vec(), table.is_full())
        };
        let mut tallies = vec![ArmTally::default(); clients.len()];
        for counts in &*lock(&self.counts) {
            for (at, cell) in counts.cells.iter().enumerate() {
                tallies[at / ArmTally::CELLS].add(at % ArmTally::CELLS, cell.load(Relaxed));
            }
        }
        if let Some(nodes) = &self.nodes {
            let nodes = lock(nodes);
            tallies.iter_mut().enumerate().for_each(|(arm, tally)| nodes.add_to(arm, tally));
        }
        let is_by_hash = self.nodes.is_some();
        let arms = self.arms.list().iter().zip(clients).zip(tallies);
        let arm = |((spec, clients), tally): ((&ArmSpec, u64), ArmTally)| ArmStatus {
            spec: spec.clone(),
            clients,
            tally,
        };
        let counted_ms = now.since_ms(self.began);
        ComparisonStatus { counted_ms, is_table_full, is_by_hash, arms: arms.map(arm).collect() }
    }
}

impl WorkerArmCounts {
    /// Counts an event of a request by a client of the arm.
    pub(crate) fn count(&self, arm: usize, client: ClientId, event: &ArmEvent) {
        record(client, event, |cell, count| {
            let cell = &self.cells[arm * ArmTally::CELLS + cell];
            cell.store(cell.load(Relaxed).wrapping_add(count), Relaxed);
        });
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A panic while it is held is a bug of ours; the data is still consistent.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
