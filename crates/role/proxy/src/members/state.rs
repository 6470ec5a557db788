//! The state of a group, behind its lock: the table of members (`core/cluster`), the last config
//! file's values, and each member's state with the time it was entered.
//!
//! Methods log what they change. [`GroupState::publish`] then makes it visible to the workers.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Weak};

use arc_swap::ArcSwap;
use skep_cluster::{
    Change, Failure, HealthState, Member, Membership, MembershipError, MembershipEvent,
};
use skep_comparison::ArmSpec;
use skep_units::{NodeId, Now, ServerAddress};
use skep_wire::message::Name;

use crate::members::comparison::Comparison;
use crate::members::member::{Eligibility, Load, SharedMember};
use crate::members::node_reports::NodeReports;
use crate::members::published::{Entry, Published};
use crate::members::settings::{GroupSettings, GroupWords, LoadMeasure, MemberSpec, SizeSource};
use crate::members::status::{MemberSource, MemberStatus};

/// The state of one group.
pub(crate) struct GroupState {
    /// The group's name, for the log.
    pub(crate) name: Arc<str>,
    pub(crate) words: &'static GroupWords,
    pub(crate) membership: Membership,
    /// For each member, the data that is not in the table.
    pub(crate) details: BTreeMap<NodeId, Details>,
    pub(crate) settings: Arc<GroupSettings>,
    /// The policy that the config file last named. A policy set at run time stays in force until the file
    /// names another one.
    pub(crate) policy_filed: String,
    /// The arms that the config file last named. A test started or stopped at run time stays so until the
    /// file names other arms.
    pub(crate) arms_filed: Vec<ArmSpec>,
    /// The current A/B test.
    pub(crate) comparison: Option<Arc<Comparison>>,
    /// Members of the file that were removed at run time: a reload does not add them again, unless the file
    /// was without them in between.
    pub(crate) removed: BTreeSet<String>,
    /// Whether changes beyond shares have to be published to workers.
    pub(crate) unpublished: bool,
    /// Members removed since the last [`Self::publish`], to which workers may still send requests.
    gone: Vec<Arc<SharedMember>>,
    /// Counts changes of members, their states and weights, and of settings.
    pub(crate) revision: u64,
    /// The load reports of nodes.
    reports: Option<Arc<NodeReports>>,
    /// The load at each address, as long as there are requests.
    loads: HashMap<ServerAddress, Weak<Load>>,
}

/// The data of a member besides the table.
pub(crate) struct Details {
    pub(crate) member: Arc<SharedMember>,
    pub(crate) source: MemberSource,
    /// Its address for clients.
    pub(crate) authority: String,
    /// The weight in the last config file.
    pub(crate) weight_filed: u32,
    /// It answers checks, but announces that it drains.
    pub(crate) announces_drain: bool,
    /// Time at which it entered its state.
    pub(crate) since: Now,
    /// A check is in progress.
    pub(crate) is_checking: bool,
    /// Time at which a command to this process drained or resumed it.
    pub(crate) drain_set_at: Option<Now>,
    /// Number of times that its heartbeats had stopped at the last look.
    silences: u64,
}

/// The result of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CheckOutcome {
    /// It responds as expected.
    Good,
    /// It is alive but requests no more work.
    DrainAnnounced,
    /// It does not respond as expected.
    Bad(Failure),
}

impl GroupState {
    /// A group without members.
    pub(crate) fn new(name: &str, words: &'static GroupWords, settings: GroupSettings) -> Self {
        Self {
            name: name.into(),
            words,
            membership: Membership::new(settings.membership),
            details: BTreeMap::new(),
            policy_filed: settings.policy.clone(),
            arms_filed: Vec::new(),
            comparison: None,
            settings: Arc::new(settings),
            removed: BTreeSet::new(),
            unpublished: true,
            gone: Vec::new(),
            revision: 0,
            reports: None,
            loads: HashMap::new(),
        }
    }

    /// Adds a member; it gets requests after its first successful check.
    pub(crate) fn add(
        &mut self,
        now: Now,
        new: MemberSpec,
        source: MemberSource,
    ) -> Result<(), MembershipError> {
        let event = self.membership.add(now, &new.name, new.address, new.weight)?;
        // Requests of an earlier member may still be in progress at the same server.
        self.loads.retain(|_, load| load.strong_count() > 0);
        let load = self.loads.get(&new.address).and_then(Weak::upgrade).unwrap_or_default();
        self.loads.insert(new.address, Arc::downgrade(&load));
        let member = SharedMember::new(event.node, Arc::clone(&event.name), new.address, load);
        member.set_requests_max(new.requests_max);
        member.set_slots(new.slots.unwrap_or(0));
        let mut details = Details {
            member: Arc::new(member),
            source,
            authority: new.authority,
            weight_filed: new.weight,
            announces_drain: false,
            since: now,
            is_checking: false,
            drain_set_at: None,
            silences: 0,
        };
        if let Some(reports) = &self.reports {
            details.follow(reports);
        }
        self.details.insert(event.node, details);
        self.note(Some(event));
        Ok(())
    }

    /// Records the end of a request at `id`; see [`Membership::on_request`]. Returns whether it is spared
    /// from now on.
    pub(crate) fn on_request(
        &mut self,
        now: Now,
        id: NodeId,
        outcome: Result<(), Failure>,
    ) -> bool {
        let details = &self.details;
        let serves = |id| details.get(&id).is_some_and(|it| it.member.share_permille() > 0);
        let event = self.membership.on_request(now, id, outcome, serves);
        if let Some(details) = self.details.get(&id) {
            details.member.set_suspect(outcome.is_err());
        }
        let is_spared = matches!(event, Some(MembershipEvent { change: Change::Spared(_), .. }));
        self.note(event);
        is_spared
    }

    /// Reads the loads of nodes, and whether they are silent, from `reports` from now on.
    pub(crate) fn follow_reports(&mut self, reports: &Arc<NodeReports>) {
        self.details.values_mut().for_each(|details| details.follow(reports));
        self.reports = Some(Arc::clone(reports));
        self.unpublished = true;
    }

    /// Marks nodes whose heartbeats stopped as down.
    fn apply_silences(&mut self, now: Now) {
        let mut silent = Vec::new();
        for (id, details) in &mut self.details {
            let silences = details.member.reported.silences();
            if std::mem::replace(&mut details.silences, silences) != silences {
                silent.push(*id);
            }
        }
        for id in silent {
            let event = self.membership.on_silence(now, id);
            self.note(event);
        }
    }

    /// Records the result of a check of `id`; `None`: it could not be made.
    pub(crate) fn on_check(&mut self, now: Now, id: NodeId, verdict: Option<CheckOutcome>) {
        let Some(details) = self.details.get_mut(&id) else { return };
        details.is_checking = false;
        let Some(verdict) = verdict else { return };
        if details.announces_drain != (verdict == CheckOutcome::DrainAnnounced) {
            // A node that announced a drain and then stopped responding has not come back.
            let is_back = verdict == CheckOutcome::Good;
            if verdict == CheckOutcome::DrainAnnounced || is_back {
                details.announces_drain = !is_back;
                self.revision += 1;
                details.since = now;
                let what =
                    if is_back { "takes requests again" } else { "reports that it is draining" };
                let (name, GroupWords { group, member }) = (&details.member.name, self.words);
                tracing::info!("{group} {}: {member} {name} {what}", self.name);
            }
        }
        let result = match verdict {
            CheckOutcome::Good | CheckOutcome::DrainAnnounced => Ok(()),
            CheckOutcome::Bad(failure) => Err(failure),
        };
        let event = self.membership.on_check(now, id, result);
        self.note(event);
    }

    /// Marks silent nodes as down, and ends drains and removals that are complete.
    pub(crate) fn tick(&mut self, now: Now) {
        self.apply_silences(now);
        let requests = requests_of(&self.details, self.settings.loads);
        let events = self.membership.tick(now, requests);
        events.into_iter().for_each(|event| self.note(Some(event)));
    }

    /// Ends removals whose deadline has passed; workers may still send requests to idle members.
    pub(crate) fn end_due_removals(&mut self, now: Now) {
        let requests = requests_of(&self.details, self.settings.loads);
        let events = self.membership.end_due_removals(now, requests);
        events.into_iter().for_each(|event| self.note(Some(event)));
    }

    /// Logs `event` and stores its time.
    pub(crate) fn note(&mut self, event: Option<MembershipEvent>) {
        let Some(event) = event else { return };
        self.revision += 1;
        let details = self.details.get_mut(&event.node);
        let announces_drain = details.as_ref().is_some_and(|details| details.announces_drain);
        let (of, GroupWords { group, member }) = (&self.name, self.words);
        let (name, change) = (&event.name, &event.change);
        match event.change {
            // The end of a node that announced its drain is not logged as a warning.
            Change::State(transition) if is_down(transition.to) && !announces_drain => {
                tracing::warn!("{group} {of}: {member} {name}: {change}");
            }
            Change::Spared(_) => {
                tracing::warn!("{group} {of}: {member} {name}: {change}");
                return;
            }
            _ => tracing::info!("{group} {of}: {member} {name}: {change}"),
        }
        if let Some(details) = details {
            details.since = event.at;
        }
        match event.change {
            Change::Removed { .. } => {
                self.gone.extend(self.details.remove(&event.node).map(|gone| gone.member));
                self.unpublished = true;
            }
            Change::Added { .. } | Change::Weight { .. } => self.unpublished = true,
            Change::State(_) | Change::Spared(_) | Change::Removing { .. } => {}
        }
    }

    /// Makes all changes visible to the workers: health and drains by each member's eligibility, the rest by a new
    /// [`Published`]. A worker may read at any moment in between. So members are opened first and closed last, and
    /// a new [`Published`] is stored before any is closed: a worker that finds all closed knows by it that it must
    /// read again.
    pub(crate) fn publish(&mut self, now: Now, published: &ArcSwap<Published>) {
        let changes = self.eligibility_changes(now);
        for (member, new) in &changes {
            member.set_eligibility(member.eligibility().union(*new));
        }
        let closes = |(member, new): &(Arc<SharedMember>, Eligibility)| {
            let old = member.eligibility();
            (old.is_in() && !new.is_in()) || (old.keeps_sessions() && !new.keeps_sessions())
        };
        if std::mem::take(&mut self.unpublished) || changes.iter().any(closes) {
            published.store(Arc::new(self.snapshot()));
        }
        for (member, new) in changes {
            member.set_eligibility(new);
        }
        for gone in self.gone.drain(..) {
            gone.set_eligibility(Eligibility::default());
        }
    }

    /// The members whose eligibility differs from that of the membership table, each with the new one.
    fn eligibility_changes(&self, now: Now) -> Vec<(Arc<SharedMember>, Eligibility)> {
        let views = self.membership.view(now);
        let changes = views.filter_map(|view| {
            let details = self.details.get(&view.id)?;
            let is_open = view.eligible && !details.announces_drain;
            // A member without requests is called drained, but requests of its sessions may still arrive.
            let drains = matches!(view.state, HealthState::Draining | HealthState::Drained);
            let is_well = view.state == HealthState::Up;
            let new = Eligibility {
                // At least 1 for a node that just came up, since 0 means no requests.
                share_permille: if is_open { view.slow_start_permille.max(1) } else { 0 },
                is_joining: view.state == HealthState::Joining,
                is_draining: drains || (is_well && details.announces_drain),
            };
            let is_changed = details.member.eligibility() != new;
            is_changed.then(|| (Arc::clone(&details.member), new))
        });
        changes.collect()
    }

    /// The state for the workers, without the shared numbers.
    pub(crate) fn snapshot(&self) -> Published {
        let entries = self.membership.members().iter().filter_map(|member| {
            let details = self.details.get(&member.id())?;
            let shared = Arc::clone(&details.member);
            Some(Entry::new(shared, member.weight(), &details.authority, &self.settings))
        });
        let reports = self.reports.as_ref().filter(|_| self.settings.sizes == SizeSource::Told);
        Published {
            members_version: self.membership.version(),
            settings: Arc::clone(&self.settings),
            members: entries.collect(),
            comparison: self.comparison.clone(),
            served: reports.map(|reports| Arc::clone(reports.served())),
        }
    }

    /// The displayed state of the members.
    pub(crate) fn member_statuses(&self, now: Now) -> Vec<MemberStatus> {
        let status = |member: &Member| {
            let details = self.details.get(&member.id())?;
            Some(member_status(member, details, self.settings.loads, now))
        };
        self.membership.members().iter().filter_map(status).collect()
    }
}

impl Details {
    fn follow(&mut self, reports: &NodeReports) {
        // A name too long for the wire cannot be in a report.
        if let Ok(name) = Name::new(&self.member.name) {
            self.member.reported.follow(reports.cell(&name));
            self.silences = self.member.reported.silences();
        }
    }
}

/// Requests and tunnels of each member.
fn requests_of(
    details: &BTreeMap<NodeId, Details>,
    source: LoadMeasure,
) -> impl Fn(NodeId) -> u64 + '_ {
    move |id| details.get(&id).map_or(0, |it| u64::from(it.member.current(source).in_use()))
}

fn is_down(life: HealthState) -> bool {
    matches!(life, HealthState::Down { .. })
}

fn member_status(
    member: &Member,
    details: &Details,
    source: LoadMeasure,
    now: Now,
) -> MemberStatus {
    let (state, reason) = shown(member, details, now);
    let current = details.member.current(source);
    let (shared, totals) = (&details.member, &details.member.totals);
    let failures_by_cause = totals.failures.each_ref().map(|count| count.load(Relaxed));
    MemberStatus {
        name: member.name().to_string(),
        address: member.address(),
        public_address: details.authority.clone(),
        state: state.to_owned(),
        reason,
        since_ms: now.since_ms(details.since),
        source: details.source,
        weight: member.weight(),
        share_permille: shared.share_permille(),
        connections: current.in_use(),
        connections_max: shared.requests_max(),
        slots: shared.slots(),
        elsewhere: shared.elsewhere(),
        outstanding_requests: current.requests,
        outstanding_bytes: current.bytes,
        tunnels: current.tunnels,
        requests: totals.requests.load(Relaxed),
        failures: failures_by_cause.iter().sum(),
        failures_by_cause,
        bytes: totals.bytes.load(Relaxed),
        latency_us: shared.latency_us(),
        gateway: totals.gateway.status(),
    }
}

/// The state of a member as text, and its reason.
fn shown(member: &Member, details: &Details, now: Now) -> (&'static str, Option<String>) {
    if let Some(deadline) = member.removal_deadline() {
        let left_s = deadline.since_ms(now).div_ceil(1000);
        return ("removing", Some(format!("gone when idle, at the latest in {left_s} s")));
    }
    match member.health().state() {
        HealthState::Up | HealthState::Joining if details.announces_drain => {
            ("draining", Some("reported by its health check".to_owned()))
        }
        HealthState::Down { reason, .. } => ("down", Some(reason.to_string())),
        HealthState::Joining => ("joining", Some("no good check yet".to_owned())),
        life @ (HealthState::Up | HealthState::Draining | HealthState::Drained) => {
            (life.word(), None)
        }
    }
}
