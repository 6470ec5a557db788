//! The netguard executor: sends orders to netguard and waits for the answers, on its own thread, so
//! that the event loop never waits.
//!
//! Jobs are executed in the order of arrival. Addresses, program and table are not jobs but a
//! desired state ([`crate::packet_path::Desired`]), of which only the latest is used.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use skep_guard::{Guard, GuardError};
use skep_peer::Pulse;
use skep_wire::guard::{FLOWS_MAX, Order, OrderReply, Side, VipHolder};
use skep_wire::message::FlowsTaken;
use skep_wire::steer::{Flow, OwnerChange, WeightedLoad};

use crate::clock::now;
use crate::limits::{
    CHECK_MS, COUNTERS_MS, FIRST_CHECK_MS, JOBS_PER_TURN_MAX, LOOK_MS, PROBE_MS, STREAM_MS,
};
use crate::packet_path::{PacketPath, PathState};
use crate::queue::{Popped, Queue};
use crate::status::Shared;

/// An order to execute once. States to be kept are in [`crate::packet_path::Desired`].
#[derive(Debug)]
pub(crate) enum Job {
    /// The desired state has changed.
    Reconcile,
    /// Probe the network for other holders of the virtual addresses.
    Probe,
    /// Sets the loads of nodes, for all these services.
    Loads(Vec<u16>, Vec<WeightedLoad>),
    /// Inserts flows of another dispatcher; the result is [`News::Inserted`].
    Insert(Vec<Flow>, FlowsTaken),
    /// Updates flows that a node has handed off to other nodes.
    ChangeOwners(Vec<OwnerChange>),
    /// Lists the flow table; the result is [`News::Listed`].
    List,
    /// Starts or stops watching for new flows.
    Stream(bool),
}

/// The results of jobs, for the event loop.
#[derive(Debug)]
pub(crate) enum News {
    /// Other machines that claim the virtual addresses.
    Owners(Vec<VipHolder>),
    /// A batch of listed flows; an empty one is the end.
    Listed(Vec<Flow>),
    /// The listing ended early.
    ListFailed,
    /// Flows of the active dispatcher were inserted, or could not be.
    Inserted(Result<FlowsTaken, FlowsTaken>),
    /// New flows.
    Begun(Vec<Flow>),
    /// The state of the packet path has changed.
    Path(PathState),
}

impl Job {
    /// Its name in complaints.
    fn kind(&self) -> &'static str {
        match self {
            Self::Reconcile => "reconcile",
            Self::Probe => "probe",
            Self::Loads(..) => "loads",
            Self::Insert(..) => "insert flows",
            Self::ChangeOwners(..) => "change owners of flows",
            Self::List => "list flows",
            Self::Stream(_) => "stream",
        }
    }
}

/// Executes [`Job`]s by orders to netguard, on its own thread.
pub(crate) struct NetguardExecutor {
    pub(crate) guard: Arc<Guard>,
    pub(crate) path: PacketPath,
    pub(crate) on_guard_gone: Box<dyn Fn() + Send>,
    pub(crate) shared: Arc<Shared>,
    pub(crate) jobs: Arc<Queue<Job>>,
    pub(crate) news: Arc<Queue<News>>,
}

impl NetguardExecutor {
    /// Runs until the event loop has closed the queue of jobs.
    pub(crate) fn run(mut self, pulse: &Pulse) {
        let mut rounds = Rounds::default();
        loop {
            pulse.tick();
            let mut next = match self.jobs.pop(rounds.until_next()) {
                Popped::Item(job) => Some(job),
                Popped::Nothing => None,
                Popped::Closed => return self.reconcile(pulse),
            };
            self.reconcile(pulse);
            let mut jobs = 0;
            while let Some(job) = next {
                let kind = job.kind();
                let done = self.perform(&mut rounds, job);
                self.note(kind, &done);
                pulse.tick();
                // Before the next job: flows and loads must not delay a takeover.
                self.reconcile(pulse);
                jobs += 1;
                next = if jobs < JOBS_PER_TURN_MAX { self.jobs.next() } else { None };
            }
            self.look_around(&mut rounds);
        }
    }

    fn reconcile(&mut self, pulse: &Pulse) {
        let before = self.path.state();
        while let Some(done) = self.path.step(now()) {
            pulse.tick();
            self.see_to(&done);
        }
        let after = self.path.state();
        if after != before {
            self.tell(News::Path(after));
        }
        self.shared.complaints().set("path", self.path.failures());
    }

    fn perform(&mut self, rounds: &mut Rounds, job: Job) -> Result<(), GuardError> {
        match job {
            Job::Reconcile => Ok(()),
            Job::Probe => self.look(rounds, true),
            Job::Loads(services, loads) => self.ask(&Order::Loads(services, loads)),
            Job::Insert(flows, taken) => {
                let done = self.insert(flows);
                self.tell(News::Inserted(if done.is_ok() { Ok(taken) } else { Err(taken) }));
                done
            }
            Job::ChangeOwners(changes) => self.change_owners(&changes, rounds.streams),
            Job::List => self.list().inspect_err(|_| self.tell(News::ListFailed)),
            Job::Stream(on) => {
                rounds.streams = on;
                Ok(())
            }
        }
    }

    fn insert(&self, flows: Vec<Flow>) -> Result<(), GuardError> {
        let order = |flows: &[Flow]| self.ask(&Order::InsertFlows(flows.to_vec()));
        flows.chunks(FLOWS_MAX).try_for_each(order)
    }

    /// Standbys receive the changes after the flows that began before.
    fn change_owners(&self, changes: &[OwnerChange], streams: bool) -> Result<(), GuardError> {
        if streams {
            self.list_new()?;
        }
        changes
            .chunks(FLOWS_MAX)
            .try_for_each(|changes| self.begun(&Order::ChangeOwners(changes.to_vec())))
    }

    fn list(&self) -> Result<(), GuardError> {
        let mut order = Order::FirstFlows;
        loop {
            let OrderReply::Flows(flows) = self.guard.ask(&order)? else { return Ok(()) };
            let is_end = flows.is_empty();
            self.tell(News::Listed(flows));
            if is_end {
                return Ok(());
            }
            order = Order::NextFlows;
        }
    }

    /// Sends the periodic requests to netguard.
    fn look_around(&mut self, rounds: &mut Rounds) {
        for round in rounds.due(Instant::now()) {
            let (kind, looked) = match round {
                Round::Counters => ("counters", self.count()),
                Round::Look { probe } => ("look", self.look(rounds, probe)),
                Round::Check => ("check", self.check()),
                Round::Stream => ("new flows", self.list_new()),
            };
            self.note(kind, &looked);
        }
    }

    fn note(&self, kind: &'static str, done: &Result<(), GuardError>) {
        self.shared.complaints().note(kind, done);
        self.see_to(done);
    }

    fn see_to(&self, done: &Result<(), GuardError>) {
        if done.as_ref().is_err_and(GuardError::is_fatal) {
            (self.on_guard_gone)();
        }
    }

    fn count(&self) -> Result<(), GuardError> {
        if let OrderReply::Counters(counters) = self.guard.ask(&Order::Counters(Side::Dispatch))? {
            self.shared.set_counters(counters);
        }
        Ok(())
    }

    fn list_new(&self) -> Result<(), GuardError> {
        self.begun(&Order::NewFlows)
    }

    /// Reports the flows in the answer to an order.
    fn begun(&self, order: &Order) -> Result<(), GuardError> {
        if let OrderReply::Flows(flows) = self.guard.ask(order)?
            && !flows.is_empty()
        {
            self.tell(News::Begun(flows));
        }
        Ok(())
    }

    fn check(&self) -> Result<(), GuardError> {
        let expectations = self.shared.view().expectations.clone();
        let order = Order::Check(Side::Dispatch, expectations);
        if let OrderReply::Checked { wrong, doubtful } = self.guard.ask(&order)? {
            self.shared.set_findings(wrong, doubtful);
        }
        Ok(())
    }

    /// Checks for other owners of the addresses, and for changes of this machine.
    fn look(&mut self, rounds: &mut Rounds, probe: bool) -> Result<(), GuardError> {
        let order = Order::Look { side: Side::Dispatch, probe };
        let OrderReply::Machine(looked) = self.guard.ask(&order)? else { return Ok(()) };
        if looked.has_changed {
            rounds.check_soon(Instant::now());
        }
        for drift in self.path.found(&looked) {
            self.shared.complaints().repaired(Instant::now(), drift.to_string());
        }
        if !looked.owners.is_empty() {
            self.tell(News::Owners(looked.owners));
        }
        Ok(())
    }

    fn ask(&self, order: &Order) -> Result<(), GuardError> {
        self.guard.ask(order).map(drop)
    }

    fn tell(&self, news: News) {
        self.news.push(news);
    }
}

/// The time at which each periodic request is due.
#[derive(Debug, Default)]
struct Rounds {
    streams: bool,
    counters_at: Option<Instant>,
    look_at: Option<Instant>,
    probe_at: Option<Instant>,
    check_at: Option<Instant>,
}

enum Round {
    Counters,
    Look { probe: bool },
    Check,
    Stream,
}

impl Rounds {
    fn until_next(&self) -> Duration {
        Duration::from_millis(if self.streams { STREAM_MS } else { LOOK_MS })
    }

    /// Checks the machine soon: something has changed, and more may follow.
    fn check_soon(&mut self, now: Instant) {
        let soon = now + Duration::from_millis(FIRST_CHECK_MS);
        self.check_at = self.check_at.map(|at| at.min(soon));
    }

    fn due(&mut self, now: Instant) -> Vec<Round> {
        let is_due = |at: &mut Option<Instant>, every_ms| {
            let due = at.is_none_or(|at| now >= at);
            if due {
                *at = Some(now + Duration::from_millis(every_ms));
            }
            due
        };
        let mut rounds = Vec::new();
        if self.streams {
            rounds.push(Round::Stream);
        }
        if is_due(&mut self.counters_at, COUNTERS_MS) {
            rounds.push(Round::Counters);
        }
        if is_due(&mut self.look_at, LOOK_MS) {
            rounds.push(Round::Look { probe: is_due(&mut self.probe_at, PROBE_MS) });
        }
        // Not at once: neighbours and tables are not known yet.
        let check_at = self.check_at.get_or_insert(now + Duration::from_millis(FIRST_CHECK_MS));
        if now >= *check_at {
            *check_at = now + Duration::from_millis(CHECK_MS);
            rounds.push(Round::Check);
        }
        rounds
    }
}

/// The claims of virtual addresses in the form for failover.
pub(crate) fn conflicts(owners: Vec<VipHolder>) -> impl Iterator<Item = (IpAddr, [u8; 6])> {
    owners.into_iter().map(|owner| (owner.vip, owner.mac))
}
