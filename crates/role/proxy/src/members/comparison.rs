//! An A/B test of policies in a group: its arms, the arm of each client, and what workers count of them.

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
    /// A worker asks it for a client that it does not remember.
    table: Mutex<HostTable>,
    /// That of the table, so that workers know when to forget.
    revision: AtomicU64,
    sync: Mutex<TableSync>,
    counts: Mutex<Vec<Arc<WorkerArmCounts>>>,
    /// What nodes count, where they decide; `None`: they do not.
    nodes: Option<Mutex<NodeCounts>>,
}

/// What one worker counts of each arm: only this worker writes.
#[derive(Debug)]
pub(crate) struct WorkerArmCounts {
    cells: Box<[AtomicU64]>,
}

/// An A/B test at one moment.
#[derive(Clone, Debug)]
pub struct ComparisonStatus {
    /// How long it has been counting, in milliseconds.
    pub counted_ms: u64,
    /// Whether further clients go by the hash of their address.
    pub is_table_full: bool,
    /// Whether all clients do, since nodes decide: then there is no table, and nobody counts clients.
    pub is_by_hash: bool,
    pub arms: Vec<ArmStatus>,
}

/// An arm at one moment.
#[derive(Clone, Debug)]
pub struct ArmStatus {
    pub spec: ArmSpec,
    /// Clients of the host table.
    pub clients: u64,
    pub tally: ArmTally,
}

impl Comparison {
    /// Counts from now on. Clients of an earlier test with the same arms keep theirs. `is_by_hash`: nodes decide, by the
    /// hash of clients' addresses.
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

    /// The arm of a client, from now on.
    pub(crate) fn arm_of(&self, client: ClientId) -> usize {
        lock(&self.table).arm_of(client)
    }

    /// Rises when clients' arms may have changed.
    pub(crate) fn revision(&self) -> u64 {
        self.revision.load(Relaxed)
    }

    /// Cells for one worker more.
    pub(crate) fn new_counts(&self) -> Arc<WorkerArmCounts> {
        let cells = self.arms.list().len() * ArmTally::CELLS;
        let counts =
            Arc::new(WorkerArmCounts { cells: (0..cells).map(|_| AtomicU64::new(0)).collect() });
        lock(&self.counts).push(Arc::clone(&counts));
        counts
    }

    /// Takes in what another dispatcher says of clients. Returns whether it is of this test.
    pub fn hear(&self, now: Now, from: PeerId, told: &ArmClients) -> bool {
        let mut table = lock(&self.table);
        let is_ours = lock(&self.sync).hear(now, from, told, &mut table);
        self.revision.store(table.revision(), Relaxed);
        is_ours
    }

    /// Takes in what a node has counted. False: it is of another test. Waits for nobody: what comes at a bad moment is
    /// made up for by the next.
    pub fn hear_counts(&self, now: Now, node: PeerId, told: &ArmCounts) -> bool {
        let Some(nodes) = self.nodes.as_ref().filter(|_| told.test == self.arms.id()) else {
            return false;
        };
        if let Ok(mut nodes) = nodes.try_lock() {
            nodes.hear(node, told, now.since_ms(self.began));
        }
        true
    }

    /// What other dispatchers shall be told of clients now.
    pub fn tell(&self, now: Now) -> Vec<ArmClients> {
        let mut table = lock(&self.table);
        lock(&self.sync).tell(now, &mut table)
    }

    /// What was counted so far.
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
    /// Counts what happened to a request of a client of the arm.
    pub(crate) fn count(&self, arm: usize, client: ClientId, event: &ArmEvent) {
        record(client, event, |cell, count| {
            let cell = &self.cells[arm * ArmTally::CELLS + cell];
            cell.store(cell.load(Relaxed).wrapping_add(count), Relaxed);
        });
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A panic under it is a bug of ours; what is there is whole.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
