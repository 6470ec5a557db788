//! Failover between dispatchers: the state machine that decides which of them is active.
//!
//! ```text
//!            active one heard, or                silence, and nobody fitter
//!            listened for the takeover time      claims; or preemption
//!  Joining ------------------------------> Standby -----------------> Active
//!     ^                                     |  ^                        |
//!     +--- the address conflict is over ----+  +--- a better claim -----+
//! ```
//!
//! All dispatchers send a heartbeat every interval. A standby that receives no heartbeat of an active
//! dispatcher for `missed_max` intervals and a half **claims**: it becomes active in a new epoch,
//! later than all it has seen. Of standbys that receive each other's heartbeats the fittest claims
//! first (by flows, then priority); each less fit one waits one takeover time longer.
//!
//! There is no vote, so both sides of a partition may have an active dispatcher; that is harmless,
//! since their tables consist of the same nodes, and nodes follow the latest epoch. When the
//! partition ends, only the best claim stays: latest epoch, then priority, then name. The low bits
//! of an epoch are its owner's number, which follows from its name, so no two dispatchers ever claim
//! the same epoch, whatever their configs.
//!
//! **Witnesses.** Nodes and standbys report which dispatcher's heartbeats they receive, and the age
//! of the last one. This restrains a standby that lost some heartbeats, or its path to the active
//! dispatcher, while others still receive them.
//!
//! **The store**, if any, arbitrates between two active dispatchers that do not receive each
//! other's heartbeats (`arbitration.rs`). Takeover does not wait for it.
//!
//! **Address conflicts** (RFC 5227): a dispatcher that is not active does not claim while a machine
//! outside the cluster holds an address. Between two active ones, the one with the higher MAC steps
//! down.
//!
//! Invariants: the epochs of claims increase, and are persisted before they are used, unless that
//! fails (`epochs.rs`); without `preempt`, no dispatcher claims while an active one is known to be
//! alive; silence counts only while this dispatcher was listening.

mod action;
mod arbitration;
mod conflicts;
mod data_path;
mod epochs;
mod hindrance;
mod lasting;
mod peers;
mod settings;
mod state;
mod witness_state;

use skep_units::{Now, dispatcher_number};
use skep_wire::limits::DISPATCHERS_MAX;
use skep_wire::message::{DispatcherHeartbeat, Hears, Name, Stage};
use skep_wire::seal::{PeerId, Stamp};
use skep_wire::table::TableVersion;

pub use action::{AddressConflict, FailoverAction, FailoverNote, StepDownReason, TakeoverReason};
pub use arbitration::LeaseView;
pub use settings::FailoverSettings;
pub use witness_state::WitnessState;

use crate::failure_detector::silence_ms;
use crate::limits::{ANNOUNCE_AGAIN_MS, PREEMPT_SETTLE_MS};
use crate::listening::Listening;
use arbitration::Arbitration;
use conflicts::Conflicts;
use data_path::DataPath;
use epochs::Epochs;
use hindrance::Hindrance;
use peers::{ClaimRank, Fitness, Peers};
use state::{Follows, Seen, State};

/// Decides when a dispatcher becomes active, and when it steps down. Call [`Failover::tick`] every
/// [`Failover::tick_ms`]; the caller carries out the actions returned by every call, in order.
#[derive(Clone, Debug)]
pub struct Failover {
    settings: FailoverSettings,
    own: PeerId,
    listening: Listening,
    state: State,
    peers: Peers,
    /// The dispatcher that stepped down last, and its epoch.
    let_go: Option<(PeerId, u64)>,
    epochs: Epochs,
    conflicts: Conflicts,
    hindrance: Hindrance,
    arbitration: Arbitration,
    data_path: DataPath,
    heartbeat_at: Now,
    outputs: Vec<FailoverAction>,
}

impl Failover {
    /// A dispatcher that starts at `now`: it probes the addresses and listens first. `epoch` is the
    /// last persisted one, or 0 if unknown; `random` must differ between processes in all bits.
    pub fn new(
        settings: FailoverSettings,
        now: Now,
        epoch: u64,
        random: u64,
    ) -> (Self, Vec<FailoverAction>) {
        assert!(settings.interval_ms > 0 && settings.missed_max > 0, "{settings:?}");
        let mut listening = Listening::new(settings.interval_ms);
        let since = listening.at(now);
        let epochs = Epochs::new(dispatcher_number(settings.name.as_str()), epoch, random);
        let arbitration = Arbitration::new(settings.name.peer(), settings.lease_patience_ms);
        let mut failover = Self {
            own: settings.name.peer(),
            settings,
            listening,
            state: State::Joining { since },
            peers: Peers::default(),
            let_go: None,
            epochs,
            conflicts: Conflicts::default(),
            hindrance: Hindrance::default(),
            arbitration,
            data_path: DataPath::default(),
            heartbeat_at: now,
            outputs: vec![FailoverAction::Probe],
        };
        failover.reserve_epochs(now);
        failover.heartbeat_soon(now);
        let outputs = failover.drain();
        (failover, outputs)
    }

    /// Time from one heartbeat to the next, in milliseconds.
    pub fn interval_ms(&self) -> u64 {
        self.settings.interval_ms
    }

    /// How often to call [`Failover::tick`], in milliseconds: takeovers and heartbeats may be late
    /// by this much.
    pub fn tick_ms(&self) -> u64 {
        (self.settings.interval_ms / 4).max(1)
    }

    /// Silence after which it considers an active dispatcher dead, in milliseconds.
    pub fn takeover_ms(&self) -> u64 {
        silence_ms(self.settings.interval_ms, self.settings.missed_max)
    }

    /// Whether it has listened without a pause for long enough to have received all live
    /// heartbeats.
    pub fn is_awake(&self) -> bool {
        self.listening.is_awake()
    }

    /// Its current stage.
    pub fn stage(&self) -> Stage {
        match self.state {
            State::Stopped { .. } => Stage::Leaving,
            State::Active { .. } => Stage::Active,
            _ if self.conflicts.is_any() || self.hindrance.yields() => Stage::Leaving,
            State::Joining { .. } => Stage::Joining,
            State::Standby { .. } => Stage::Standby,
        }
    }

    /// Its own epoch if it is active, else the latest that it has seen.
    pub fn epoch(&self) -> u64 {
        match self.state {
            State::Active { epoch, .. } => epoch,
            _ => self.epochs.seen(),
        }
    }

    /// The active dispatcher as far as known; it may be this one.
    pub fn active(&self) -> Option<PeerId> {
        match self.state {
            State::Active { .. } => Some(self.own),
            _ => self.state.followed().map(|seen| seen.id),
        }
    }

    /// The heartbeat to send.
    pub fn heartbeat(&self, now: Now, table: TableVersion) -> DispatcherHeartbeat {
        DispatcherHeartbeat {
            name: self.settings.name.clone(),
            stage: self.stage(),
            epoch: self.epoch(),
            priority: self.settings.priority,
            flows_synced: self.state.flows_synced(),
            table,
            hears: self.hears(now),
            mac: self.settings.mac,
        }
    }

    /// Sets whether it has all flows of the active dispatcher; ignored unless it is a standby.
    pub fn set_flows_synced(&mut self, is_synced: bool) {
        if let State::Standby { flows_synced, .. } = &mut self.state {
            *flows_synced = is_synced;
        }
    }

    /// Advances the time.
    pub fn tick(&mut self, now: Now) -> Vec<FailoverAction> {
        let listened = self.listening.at(now);
        self.expire_conflict(listened);
        match self.state {
            State::Joining { since } => {
                if listened.since_ms(since) > self.takeover_ms() {
                    self.state = State::standby(listened, Follows::Nobody { since: listened });
                    self.arbitration.vacant(None);
                    self.stand_by(now, listened);
                }
            }
            State::Standby { .. } => self.stand_by(now, listened),
            State::Active { .. } => self.tick_active(now, listened),
            State::Stopped { .. } => return Vec::new(),
        }
        self.reserve_epochs(now);
        if now >= self.heartbeat_at {
            self.heartbeat_soon(now);
        }
        self.drain()
    }

    /// All epochs up to `last` have been persisted: [`FailoverAction::PersistEpochs`].
    pub fn epochs_persisted(&mut self, last: u64) {
        self.epochs.persisted(last);
    }

    /// The epochs could not be persisted. Until that succeeds, this dispatcher uses unpersisted
    /// ones.
    pub fn epochs_not_persisted(&mut self, now: Now) {
        self.epochs.failed(now);
    }

    /// Whether it has an epoch to claim in; it may have to wait until some are persisted.
    pub fn has_epoch(&self, now: Now) -> bool {
        self.epochs.next(now).is_some()
    }

    /// A dispatcher's heartbeat was received at `arrived`; it must be authentic and fresh.
    pub fn heard(
        &mut self,
        arrived: Now,
        heartbeat: &DispatcherHeartbeat,
        from: PeerId,
        stamp: Stamp,
    ) -> Vec<FailoverAction> {
        let listened = self.listening.at(arrived);
        if from == self.own || self.state.is_stopped() {
            return Vec::new();
        }
        let heard_at = self.listening.of(arrived);
        let Some(before) = self.peers.hear((arrived, heard_at), heartbeat, from, stamp) else {
            return Vec::new();
        };
        self.end_conflict(|_| false);
        let is_back = before.is_none_or(|peer| !peer.is_fresh(heard_at, self.takeover_ms()));
        if is_back {
            self.log(FailoverNote::Heard(heartbeat.name.clone()));
        }
        self.note_epoch(listened, heartbeat.epoch);
        if heartbeat.stage == Stage::Active {
            let seen = Seen { id: from, epoch: heartbeat.epoch, at: heard_at };
            self.on_active_heartbeat(arrived, listened, heartbeat, seen);
        } else {
            self.on_standby_heartbeat(listened, heartbeat, from);
            if let Some(hears) = heartbeat.hears {
                self.on_reported_dispatcher(listened, heard_at, hears);
            }
            if is_back {
                // It may have been active, too, while its heartbeats were lost, and have stepped
                // down already: its announcements are still in effect.
                self.announce(listened);
            }
        }
        self.drain()
    }

    /// A node's heartbeat, received at `arrived`, reports the active dispatcher whose heartbeats
    /// the node receives, and the table that it has applied.
    pub fn witness(
        &mut self,
        arrived: Now,
        hears: Option<Hears>,
        table: TableVersion,
    ) -> Vec<FailoverAction> {
        let listened = self.listening.at(arrived);
        self.data_path.has_heard();
        self.note_epoch(listened, table.epoch);
        if let Some(hears) = hears {
            self.on_reported_dispatcher(listened, self.listening.of(arrived), hears);
        }
        self.drain()
    }

    /// A table was received from another dispatcher or a node: its epoch is in use, even if no
    /// heartbeat of that term was received. The next claim needs a later epoch, or its tables would
    /// be refused.
    pub fn table_heard(&mut self, now: Now, table: TableVersion) {
        let listened = self.listening.at(now);
        self.note_epoch(listened, table.epoch);
    }

    /// Sets whether any node's heartbeats are received at present; true if there are no nodes. To
    /// be called before each tick. A standby that has lost all nodes does not claim.
    pub fn set_hears_nodes(&mut self, now: Now, hears_nodes: bool) {
        let listened = self.listening.at(now);
        self.data_path.see(listened, hears_nodes);
    }

    /// Sets whether this machine cannot steer as it should at present. To be called before each
    /// tick.
    pub fn set_hindered(&mut self, now: Now, is_hindered: bool) {
        let listened = self.listening.at(now);
        self.hindrance.see(listened, is_hindered);
    }

    /// Whether a live standby could take over.
    pub fn has_standby(&mut self, now: Now) -> bool {
        let listened = self.listening.at(now);
        self.peers.has_standby(listened, self.takeover_ms())
    }

    /// The longest interval between two heartbeats of each other dispatcher's process, in
    /// milliseconds.
    pub fn heartbeat_gaps(&self) -> impl Iterator<Item = (&Name, u64)> {
        self.peers.gaps()
    }

    /// The process is stopping: a standby may take over at once.
    pub fn stop(&mut self, now: Now) -> Vec<FailoverAction> {
        let listened = self.listening.at(now);
        if matches!(self.state, State::Active { .. }) {
            self.step_down(listened, StepDownReason::Stopping);
        }
        self.state = State::Stopped { active: self.state.followed() };
        self.heartbeat_soon(now);
        self.drain()
    }

    // --- received heartbeats ---

    fn on_active_heartbeat(
        &mut self,
        now: Now,
        listened: Now,
        heartbeat: &DispatcherHeartbeat,
        seen: Seen,
    ) {
        let State::Active { epoch, announce_at, .. } = self.state else {
            return self.follow(listened, seen);
        };
        let theirs: ClaimRank = (heartbeat.epoch, heartbeat.priority, seen.id);
        if theirs > (epoch, self.settings.priority, self.own) {
            self.step_down(listened, StepDownReason::Outranked { epoch: heartbeat.epoch });
            self.follow(listened, seen);
        } else if announce_at.is_none() {
            // It steps down at our next heartbeat, but clients and routers still use its
            // announcements. Once a second is enough while it receives none of our heartbeats.
            self.log(FailoverNote::Stays { name: heartbeat.name.clone(), epoch: heartbeat.epoch });
            self.announce(listened);
            self.heartbeat_soon(now);
        }
    }

    fn on_standby_heartbeat(
        &mut self,
        listened: Now,
        heartbeat: &DispatcherHeartbeat,
        from: PeerId,
    ) {
        // A heartbeat sent before its claim does not carry that epoch yet.
        let is_over = |seen: &Seen| seen.id == from && heartbeat.epoch >= seen.epoch;
        if let Some(seen) = self.state.followed().filter(is_over) {
            self.let_go = Some((from, seen.epoch));
            self.lose_active(listened);
            self.arbitration.vacant(Some(from));
            self.log(FailoverNote::LetGo(heartbeat.name.clone()));
        }
    }

    fn on_reported_dispatcher(&mut self, listened: Now, heard_at: Now, hears: Hears) {
        self.note_epoch(listened, hears.epoch);
        let at = Now(heard_at.0.saturating_sub(u64::from(hears.ago_ms)));
        let has_ended = |(id, epoch): (PeerId, u64)| id == hears.dispatcher && epoch >= hears.epoch;
        let is_old = listened.since_ms(at) > self.takeover_ms();
        let is_over = is_old || self.let_go.is_some_and(has_ended);
        if hears.dispatcher == self.own || is_over {
            return;
        }
        let seen = Seen { id: hears.dispatcher, epoch: hears.epoch, at };
        match self.state {
            State::Active { epoch, .. } if epoch < hears.epoch => {
                self.step_down(listened, StepDownReason::Outranked { epoch: hears.epoch });
                self.follow(listened, seen);
            }
            State::Active { .. } | State::Stopped { .. } => {}
            State::Joining { .. } | State::Standby { .. } => self.follow(listened, seen),
        }
    }

    /// Another dispatcher is active, and this one is not.
    fn follow(&mut self, listened: Now, seen: Seen) {
        let is_fresh = |known: &Seen| listened.since_ms(known.at) <= self.takeover_ms();
        let followed = match self.state.followed().filter(is_fresh) {
            Some(known) if known.id == seen.id && known.epoch == seen.epoch => {
                Seen { at: known.at.max(seen.at), ..seen }
            }
            Some(known) if known.epoch > seen.epoch => known,
            _ => seen,
        };
        self.arbitration.heard(listened, seen.id, self.takeover_ms());
        match &mut self.state {
            State::Standby { follows, .. } => *follows = Follows::Active(followed),
            state => *state = State::standby(listened, Follows::Active(followed)),
        }
    }

    /// The active dispatcher is lost: a standby follows another live one, or none.
    fn lose_active(&mut self, listened: Now) {
        if let State::Standby { follows, .. } = &mut self.state {
            *follows = Follows::Nobody { since: listened };
        }
        if let Some((id, epoch, at)) = self.peers.active(listened, self.takeover_ms()) {
            self.follow(listened, Seen { id, epoch, at });
        }
    }

    fn note_epoch(&mut self, listened: Now, epoch: u64) {
        self.epochs.see(epoch);
        if let State::Active { epoch, outdated_since, .. } = &mut self.state
            && *epoch < self.epochs.seen()
        {
            outdated_since.get_or_insert(listened);
        }
    }

    // --- timers ---

    fn stand_by(&mut self, now: Now, listened: Now) {
        if !self.listening.is_awake() {
            return;
        }
        let takeover_ms = self.takeover_ms();
        if let Some(seen) = self.state.followed() {
            let ms = listened.since_ms(seen.at);
            if ms <= takeover_ms {
                if self.would_preempt(listened, seen) {
                    self.claim(now, listened, TakeoverReason::Priority);
                }
                return;
            }
            let name = self.peers.get(seen.id).map(|peer| peer.heartbeat.name.clone());
            self.log(FailoverNote::Silent { name, ms });
            self.lose_active(listened);
        }
        let State::Standby { follows: Follows::Nobody { since }, .. } = self.state else { return };
        let waits_ms = takeover_ms * self.peers.fitter(listened, takeover_ms, self.fitness());
        let waits_ms = waits_ms + self.hindrance.wait_ms();
        let is_turn = listened.since_ms(since) >= waits_ms;
        if is_turn && self.may_claim() {
            self.claim(now, listened, TakeoverReason::Vacancy);
        }
    }

    fn tick_active(&mut self, now: Now, listened: Now) {
        self.obey_lease(listened);
        let can_leave = self.has_standby(now);
        if can_leave && self.hindrance.is_lasting() {
            self.hindrance.hold(listened);
            return self.step_down(listened, StepDownReason::Hindered);
        }
        let takeover_ms = self.takeover_ms();
        let State::Active { announce_at, outdated_since, .. } = &mut self.state else { return };
        let waited = |since| listened.since_ms(since) > takeover_ms;
        if outdated_since.is_some_and(waited) {
            // No active dispatcher reports that epoch any more: its term has ended unnoticed. Nodes
            // keep its tables unless a later one follows.
            return self.claim(now, listened, TakeoverReason::LaterEpoch);
        }
        if announce_at.take_if(|at| listened >= *at).is_some() {
            self.outputs.push(FailoverAction::Announce);
        }
    }

    fn would_preempt(&self, listened: Now, seen: Seen) -> bool {
        let State::Standby { since, flows_synced, .. } = self.state else { return false };
        let peer = self.peers.get(seen.id).filter(|peer| peer.is_active());
        let outranks = peer.is_some_and(|peer| peer.heartbeat.priority < self.settings.priority);
        let has_settled = listened.since_ms(since) > PREEMPT_SETTLE_MS;
        (self.settings.preempt && self.may_claim() && !self.hindrance.yields())
            && (outranks && has_settled && flows_synced)
            && self.peers.fitter(listened, self.takeover_ms(), self.fitness()) == 0
    }

    fn may_claim(&self) -> bool {
        !self.conflicts.is_any() && self.arbitration.allows_claim() && !self.data_path.is_broken()
    }

    // --- transitions ---

    fn claim(&mut self, now: Now, listened: Now, cause: TakeoverReason) {
        let Some(epoch) = self.epochs.next(now) else { return };
        self.epochs.claimed(epoch);
        self.state = State::Active { epoch, announce_at: None, outdated_since: None };
        self.arbitration.claimed(listened);
        self.hindrance.release();
        self.outputs.push(FailoverAction::Claim { epoch });
        self.announce(listened);
        self.heartbeat_soon(now);
        self.log(FailoverNote::Claimed { epoch, cause });
    }

    fn announce(&mut self, listened: Now) {
        if let State::Active { announce_at, .. } = &mut self.state {
            *announce_at = Some(listened.plus_ms(ANNOUNCE_AGAIN_MS));
            self.outputs.push(FailoverAction::Announce);
        }
    }

    fn step_down(&mut self, listened: Now, why: StepDownReason) {
        self.state = State::standby(listened, Follows::Nobody { since: listened });
        self.lose_active(listened);
        // The next heartbeat reports it, and is sent at once.
        self.outputs.push(FailoverAction::StepDown { why: why.clone() });
        self.outputs.push(FailoverAction::SendHeartbeat);
        self.log(FailoverNote::SteppedDown(why));
    }

    fn hears(&self, now: Now) -> Option<Hears> {
        let seen = self.state.followed()?;
        let peer = self.peers.get(seen.id).filter(|peer| peer.is_active())?;
        let ago_ms = u32::try_from(peer.silent_ms(now)).ok()?;
        Some(Hears { dispatcher: seen.id, epoch: peer.heartbeat.epoch, ago_ms })
    }

    fn fitness(&self) -> Fitness {
        (self.state.flows_synced(), self.settings.priority, self.own)
    }

    fn reserve_epochs(&mut self, now: Now) {
        if let Some(last) = self.epochs.reserve(now) {
            self.outputs.push(FailoverAction::PersistEpochs { last });
        }
    }

    fn heartbeat_soon(&mut self, now: Now) {
        self.heartbeat_at = now.plus_ms(self.settings.interval_ms);
        self.outputs.push(FailoverAction::SendHeartbeat);
    }

    fn log(&mut self, note: FailoverNote) {
        self.outputs.push(FailoverAction::Log(note));
    }

    /// Checks the invariants that hold between any two calls.
    fn check_invariants(&self) {
        debug_assert!(self.peers.len() <= DISPATCHERS_MAX, "{} dispatchers", self.peers.len());
        debug_assert!(
            self.state.followed().is_none_or(|seen| seen.id != self.own),
            "it follows itself"
        );
        if let State::Active { epoch, .. } = self.state {
            debug_assert!(epoch <= self.epochs.seen(), "it has not seen its own epoch: {self:?}");
        }
    }

    fn drain(&mut self) -> Vec<FailoverAction> {
        self.check_invariants();
        std::mem::take(&mut self.outputs)
    }
}
