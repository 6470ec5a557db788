//! Reconciles a machine's packet path with its wanted state: packet program, virtual addresses,
//! forwarding table.
//!
//! ```text
//!   failover, publisher --[Wants]--> Reconciler --[Step]--> netguard
//!                                        ^                     |
//!                                        +--[done, found]------+
//! ```
//!
//! Wants are levels: only the latest one counts, and it need not be repeated. A step that fails is
//! repeated every [`RETRY_MS`] until it succeeds or is not wanted any more; other steps proceed
//! meanwhile. Changes by others are corrected by the same steps.
//!
//! Invariants: addresses are announced only once they are held; they are claimed only if the wants
//! are recent, since after a pause of the process another dispatcher may hold them.

use std::sync::Arc;

use skep_units::Now;
use skep_wire::guard::{ChangedMap, MachineState};
use skep_wire::message::Stage;
use skep_wire::table::{Table, TableVersion};

use crate::failover::Failover;
use crate::limits::{RETRY_MS, WANTS_MS_MAX};

/// The desired state of a machine's packet path.
#[derive(Clone, Debug, Default)]
pub struct Wants {
    /// When this was decided.
    pub at: Now,
    /// Whether the machine should have the virtual addresses; `None`: it keeps them if it has them.
    pub addresses: Option<bool>,
    /// The table to steer by.
    pub table: Option<Arc<Table>>,
    /// The number of announcements of the addresses requested so far.
    pub announcements: u64,
}

/// A step for the executor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Load and attach the packet program, with its settings.
    Attach,
    /// Assign the virtual addresses to this machine, and announce them.
    Claim,
    /// Remove them.
    Release,
    /// Announce them again.
    Announce,
    Apply(Arc<Table>),
    /// Pass the settings to the packet program again.
    SetUp,
}

/// A change made by others than the executor.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Drift {
    #[error(
        "a virtual address or its settings were removed from this machine: {}; they are put back. \
         If this happens again, exempt them in what manages its addresses and sysctls", .0.join(", ")
    )]
    Addresses(Vec<String>),
    #[error("the packet program was detached from its device, {0}; it is attached again")]
    Program(String),
    #[error(
        "the map {} of the packet program differs from what netguard wrote to it, at key {}; it is \
         written again. If this happens again, find what changes it: nothing but netguard may write to maps \
         that are pinned in /sys/fs/bpf/skep", .0.map.name(), .0.key
    )]
    Map(ChangedMap),
}

/// Determines the next step; see the module.
#[derive(Debug)]
pub struct Reconciler {
    wants: Wants,
    is_attached: bool,
    /// Whether the machine has all addresses (true) or none, if known.
    has_addresses: Option<bool>,
    applied: Option<TableVersion>,
    /// Whether the maps match the table that was applied last.
    has_table: bool,
    /// Whether the packet program has its settings.
    is_set_up: bool,
    /// Announcements that were made, or were not needed.
    announced: u64,
    gate: ClaimGate,
    failures: [Option<StepFailure>; KINDS],
}

/// In a starting cluster, addresses are claimed only once each service has a node that takes new
/// flows: before that, the kernel would refuse every connection, as if nothing listened. A cluster
/// without such a node claims them some time later, so that its clients receive that refusal.
#[derive(Debug)]
struct ClaimGate {
    patience_ms: u64,
    state: GateState,
    wanted_since: Now,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum GateState {
    /// No table is known by which clients could have been served.
    New,
    /// The program steers no packets until any table is applied.
    Closed,
    Open,
}

/// A step that has failed and not succeeded since.
#[derive(Clone, Debug)]
struct StepFailure {
    retry_at: Now,
    why: String,
}

/// Kinds of steps; each fails and is repeated independently.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Attach,
    Addresses,
    Announce,
    Apply,
    SetUp,
}

const KINDS: usize = 5;

impl Wants {
    /// Follows failover's decision about the addresses. Addresses left by an earlier, killed
    /// process are kept until another dispatcher holds them, since this one may be the next to do
    /// so.
    pub fn follow(&mut self, now: Now, failover: &Failover) {
        let is_others = failover.active().is_some() || self.addresses == Some(true);
        self.addresses = match failover.stage() {
            Stage::Active => Some(true),
            Stage::Leaving => Some(false),
            Stage::Standby | Stage::Joining if is_others => Some(false),
            Stage::Standby | Stage::Joining => self.addresses,
        };
        if failover.is_awake() {
            self.at = now;
        }
    }

    /// Whether `other` is the same except for its time.
    pub fn is_same(&self, other: &Self) -> bool {
        let wants = |it: &Self| (it.addresses, it.version(), it.announcements);
        wants(self) == wants(other)
    }

    fn version(&self) -> Option<TableVersion> {
        self.table.as_ref().map(|table| table.version)
    }
}

impl Reconciler {
    /// For a machine whose packet program was attached and set up just now. It claims addresses
    /// without any node to steer to after they were wanted for `patience_ms`.
    pub fn new(patience_ms: u64) -> Self {
        Self {
            wants: Wants::default(),
            is_attached: true,
            has_addresses: None,
            applied: None,
            has_table: true,
            is_set_up: true,
            announced: 0,
            gate: ClaimGate { patience_ms, state: GateState::New, wanted_since: Now(0) },
            failures: [const { None }; KINDS],
        }
    }

    /// Sets the latest wants. May be repeated.
    pub fn want(&mut self, wants: Wants) {
        if wants.version() != self.wants.version() {
            // Another table may be accepted although the last one was not.
            self.may_retry(Kind::Apply);
        }
        if wants.addresses != self.wants.addresses {
            self.failures[Kind::Addresses as usize] = None;
            self.gate.wanted_since = wants.at;
        }
        if wants.addresses != Some(true) {
            self.announced = wants.announcements;
        }
        self.wants = wants;
        self.check_invariants();
    }

    /// The next step, if one is due. To be called until it returns `None`.
    pub fn next(&self, now: Now) -> Option<Step> {
        let is_due = |kind: Kind| {
            self.failures[kind as usize].as_ref().is_none_or(|failure| now >= failure.retry_at)
        };
        let attach = (!self.is_attached && is_due(Kind::Attach)).then_some(Step::Attach);
        let set_up =
            || (self.is_attached && !self.is_set_up && is_due(Kind::SetUp)).then_some(Step::SetUp);
        let addresses = || self.address_step(now).filter(|_| is_due(Kind::Addresses));
        let table = || self.table_step().filter(|_| is_due(Kind::Apply));
        let announce = || self.announce_step(now).filter(|_| is_due(Kind::Announce));
        attach.or_else(set_up).or_else(addresses).or_else(table).or_else(announce)
    }

    /// The result of a step that [`Reconciler::next`] returned.
    pub fn done(&mut self, now: Now, step: &Step, result: Result<(), String>) {
        let is_done = result.is_ok();
        self.failures[step.kind() as usize] =
            result.err().map(|why| StepFailure { retry_at: now.plus_ms(RETRY_MS), why });
        match step {
            Step::Attach if is_done => {
                (self.is_attached, self.is_set_up, self.has_table) = (true, true, true);
                // The device and the program may be new, without addresses and tables.
                (self.applied, self.has_addresses) = (None, None);
                self.gate.close(now);
            }
            // Only some of several addresses may have been moved.
            Step::Claim | Step::Release if !is_done => self.has_addresses = None,
            Step::Claim => {
                self.has_addresses = Some(true);
                self.gate.open();
                self.announced = self.wants.announcements;
            }
            Step::Release => self.has_addresses = Some(false),
            Step::Announce if is_done => self.announced = self.wants.announcements,
            Step::Apply(table) if is_done => {
                (self.applied, self.has_table) = (Some(table.version), true);
                self.gate.applied(table, self.wants.addresses);
            }
            Step::SetUp if is_done => self.is_set_up = true,
            Step::Attach | Step::Announce | Step::Apply(_) | Step::SetUp => {}
        }
        self.check_invariants();
    }

    /// Compares with the machine's actual state; returns changes by others, which will be
    /// corrected.
    pub fn found(&mut self, looked: &MachineState) -> Vec<Drift> {
        let mut drifts = Vec::new();
        if self.has_addresses == Some(true) && !looked.missing.is_empty() {
            self.has_addresses = None;
            drifts.push(Drift::Addresses(looked.missing.clone()));
        }
        if self.is_attached && !looked.is_attached {
            self.is_attached = false;
            drifts.push(Drift::Program(looked.device.clone()));
        }
        for changed in &looked.changed_maps {
            let is_right =
                if changed.map.is_of_table() { &mut self.has_table } else { &mut self.is_set_up };
            *is_right = false;
            drifts.push(Drift::Map(changed.clone()));
        }
        drifts
    }

    /// The table that packets are steered by, if one was applied.
    pub fn applied(&self) -> Option<TableVersion> {
        self.applied
    }

    /// Whether this machine has the virtual addresses.
    pub fn has_addresses(&self) -> bool {
        self.has_addresses == Some(true)
    }

    /// The errors of steps that fail at present.
    pub fn failures(&self) -> impl Iterator<Item = &str> {
        self.failures.iter().flatten().map(|failure| failure.why.as_str())
    }

    /// Whether the machine cannot steer as it should: some step other than an announcement fails.
    pub fn is_hindered(&self) -> bool {
        let kinds = [Kind::Attach, Kind::Addresses, Kind::Apply, Kind::SetUp];
        kinds.into_iter().any(|kind| self.failures[kind as usize].is_some())
    }

    /// Checks the invariants that hold between any two calls.
    fn check_invariants(&self) {
        let may_announce = self.announced < self.wants.announcements;
        debug_assert!(
            !may_announce || self.wants.addresses == Some(true),
            "only wanted addresses are announced: {self:?}"
        );
        debug_assert!(self.announced <= self.wants.announcements, "{self:?}");
    }

    fn address_step(&self, now: Now) -> Option<Step> {
        let wanted = self.wants.addresses.filter(|wanted| self.has_addresses != Some(*wanted))?;
        if !wanted {
            return Some(Step::Release);
        }
        (self.is_recent(now) && self.is_attached && self.gate.is_open(now)).then_some(Step::Claim)
    }

    fn table_step(&self) -> Option<Step> {
        let is_off = |it: &&Arc<Table>| self.applied != Some(it.version) || !self.has_table;
        let table = self.wants.table.as_ref().filter(is_off)?;
        self.is_attached.then(|| Step::Apply(Arc::clone(table)))
    }

    fn announce_step(&self, now: Now) -> Option<Step> {
        let is_wanted = self.announced < self.wants.announcements && self.is_recent(now);
        (is_wanted && self.has_addresses == Some(true)).then_some(Step::Announce)
    }

    /// Whether the wants are recent: after a pause, another dispatcher may be active.
    fn is_recent(&self, now: Now) -> bool {
        now.since_ms(self.wants.at) <= WANTS_MS_MAX
    }

    fn may_retry(&mut self, kind: Kind) {
        if let Some(failure) = &mut self.failures[kind as usize] {
            failure.retry_at = Now::default();
        }
    }
}

impl ClaimGate {
    fn is_open(&self, now: Now) -> bool {
        self.state == GateState::Open || now.since_ms(self.wanted_since) >= self.patience_ms
    }

    fn open(&mut self) {
        self.state = GateState::Open;
    }

    /// The packet program was replaced.
    fn close(&mut self, now: Now) {
        self.wanted_since = now;
        if self.state == GateState::Open {
            self.state = GateState::Closed;
        }
    }

    /// The program now steers by this table. `wants_addresses`: whether the machine should have the
    /// addresses.
    fn applied(&mut self, table: &Table, wants_addresses: Option<bool>) {
        let takes = |it| table.history(it).next().is_some_and(|nodes| !nodes.is_empty());
        let mut services = table.services.iter();
        let opens = match (self.state, wants_addresses) {
            (GateState::Open | GateState::Closed, _) => true,
            (GateState::New, Some(true)) => services.all(takes),
            // The active dispatcher serves clients by the table that a standby applies.
            (GateState::New, Some(false)) => !table.services.is_empty(),
            // Likewise the previous active one, by a table received by a dispatcher that has just
            // started.
            (GateState::New, None) => services.any(takes),
        };
        if opens {
            self.open();
        }
    }
}

impl Step {
    fn kind(&self) -> Kind {
        match self {
            Self::Attach => Kind::Attach,
            Self::Claim | Self::Release => Kind::Addresses,
            Self::Announce => Kind::Announce,
            Self::Apply(_) => Kind::Apply,
            Self::SetUp => Kind::SetUp,
        }
    }
}
