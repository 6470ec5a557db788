//! The displayed state of direct dispatch: `skep status`, metrics.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use arc_swap::ArcSwap;
use skep_guard::{CheckFindings, Complaints};
use skep_store::Health;
use skep_wire::guard::{AttachedProgram, Expectations, PacketCounters};
use skep_wire::message::{Name, Stage};
use skep_wire::table::{Table, TableVersion};

/// The state of a dispatcher at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SteeringStatus {
    /// `joining`, `standby`, `active` or `leaving`.
    pub stage: String,
    /// The epoch of its own term, or the latest one received.
    pub epoch: u64,
    /// Name of the active dispatcher, if there is one.
    pub active: Option<String>,
    /// Generation of the table by which packets are steered.
    pub table_generation: u64,
    /// Generation of the table that this dispatcher publishes, or has received from the active one.
    pub published_generation: u64,
    /// By node: the number of tables of this term that it has not applied yet.
    pub nodes_behind: Arc<Vec<(Name, u64)>>,
    /// By machine: the longest time between two heartbeats of its process that were received here,
    /// in milliseconds.
    pub heartbeat_gaps: Arc<Vec<(Name, u64)>>,
    /// Whether this machine has the virtual addresses.
    pub has_addresses: bool,
    /// Whether a standby has all flows of the active dispatcher.
    pub flows_synced: bool,
    /// How the packet program is attached: "native XDP".
    pub attached: String,
    pub device: String,
    /// The health of the shared store, if there is one: `3 of 3 endpoints answer`.
    pub store: Option<String>,
    /// Endpoints of the shared store that answer.
    pub store_answering: Option<u64>,
    /// The other dispatchers.
    pub peers: Vec<PeerStatus>,
    /// Faults, as sentences.
    pub complaints: Vec<String>,
}

/// Another dispatcher.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerStatus {
    pub name: String,
    /// As [`SteeringStatus::stage`], or `silent`.
    pub stage: String,
    /// Time since its last heartbeat, in milliseconds.
    pub silent_ms: u64,
}

/// Receives the epoch in which this dispatcher is active, after every change; `None`: it is not
/// active.
pub type OnTerm = Box<dyn Fn(Option<u64>) + Send + Sync>;

/// The state that the threads of direct dispatch publish.
pub(crate) struct Shared {
    opened: AttachedProgram,
    on_term: OnTerm,
    view: ArcSwap<View>,
    counters: ArcSwap<PacketCounters>,
    /// Errors between this process and netguard.
    complaints: Mutex<Complaints>,
    /// Faults of this machine.
    findings: Mutex<CheckFindings>,
}

/// The state of the event loop.
#[derive(Clone, Debug)]
pub(crate) struct View {
    pub(crate) stage: Stage,
    pub(crate) epoch: u64,
    pub(crate) active: Option<String>,
    pub(crate) flows_synced: bool,
    /// The health of the shared store.
    pub(crate) store: Option<Arc<Health>>,
    pub(crate) peers: Vec<PeerStatus>,
    pub(crate) table: Arc<Table>,
    pub(crate) applied: TableVersion,
    pub(crate) has_addresses: bool,
    pub(crate) nodes_behind: Arc<Vec<(Name, u64)>>,
    pub(crate) heartbeat_gaps: Arc<Vec<(Name, u64)>>,
    /// Faults that the event loop has found, as sentences.
    pub(crate) trouble: Vec<String>,
    pub(crate) expectations: Expectations,
}

impl View {
    /// The epoch in which this dispatcher is active, if it is.
    fn term(&self) -> Option<u64> {
        (self.stage == Stage::Active).then_some(self.epoch)
    }

    /// The version of the current table, if a node is drained in it or absent from it.
    pub(crate) fn drained_in(&self, node: &str) -> Option<TableVersion> {
        let is_drained = self.table.node(node).is_none_or(|node| node.is_drained);
        is_drained.then_some(self.table.version)
    }
}

impl Shared {
    pub(crate) fn new(opened: AttachedProgram, on_term: OnTerm) -> Self {
        let view = View {
            stage: Stage::Joining,
            epoch: 0,
            active: None,
            flows_synced: false,
            store: None,
            peers: Vec::new(),
            table: Arc::default(),
            applied: TableVersion::default(),
            has_addresses: false,
            nodes_behind: Arc::default(),
            heartbeat_gaps: Arc::default(),
            trouble: Vec::new(),
            expectations: Expectations::default(),
        };
        Self {
            opened,
            on_term,
            view: ArcSwap::from_pointee(view),
            counters: ArcSwap::default(),
            complaints: Mutex::default(),
            findings: Mutex::default(),
        }
    }

    pub(crate) fn set_view(&self, view: View) {
        let before = self.view.swap(Arc::new(view.clone()));
        if before.term() != view.term() {
            (self.on_term)(view.term());
        }
    }

    pub(crate) fn view(&self) -> Arc<View> {
        self.view.load_full()
    }

    pub(crate) fn set_counters(&self, counters: PacketCounters) {
        self.counters.store(Arc::new(counters));
    }

    pub(crate) fn counters(&self) -> Arc<PacketCounters> {
        self.counters.load_full()
    }

    /// Stores the faults that a check of this machine has found; logs new ones.
    pub(crate) fn set_findings(&self, wrong: Vec<String>, doubtful: Vec<String>) {
        self.findings.lock().unwrap_or_else(PoisonError::into_inner).replace(wrong, doubtful);
    }

    pub(crate) fn status(&self) -> SteeringStatus {
        let view = self.view.load();
        SteeringStatus {
            stage: stage_word(view.stage).to_owned(),
            epoch: view.epoch,
            active: view.active.clone(),
            table_generation: view.applied.generation,
            published_generation: view.table.version.generation,
            nodes_behind: Arc::clone(&view.nodes_behind),
            heartbeat_gaps: Arc::clone(&view.heartbeat_gaps),
            has_addresses: view.has_addresses,
            flows_synced: view.flows_synced,
            attached: self.opened.how.clone(),
            device: self.opened.device.clone(),
            store: view.store.as_ref().map(ToString::to_string),
            store_answering: view.store.as_ref().map(|health| health.answering as u64),
            peers: view.peers.clone(),
            complaints: self.wrong(&view),
        }
    }

    /// Errors between this process and netguard.
    pub(crate) fn complaints(&self) -> MutexGuard<'_, Complaints> {
        self.complaints.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// All faults, as sentences.
    fn wrong(&self, view: &View) -> Vec<String> {
        let mut wrong = self.complaints().sentences(Instant::now());
        wrong.extend(view.trouble.iter().cloned());
        let findings = self.findings.lock().unwrap_or_else(PoisonError::into_inner);
        wrong.extend(findings.wrong().iter().cloned());
        wrong
    }
}

/// The name of a dispatcher's stage.
pub(crate) fn stage_word(stage: Stage) -> &'static str {
    match stage {
        Stage::Joining => "joining",
        Stage::Standby => "standby",
        Stage::Active => "active",
        Stage::Leaving => "leaving",
    }
}
