//! The netguard executor: sends orders to netguard and waits for the answers, on a thread of its
//! own, so that the event loop never waits.
//!
//! Jobs are executed in the order of their arrival; a table that a later one supersedes is skipped,
//! a claim never is.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender};
use std::time::{Duration, Instant};

use skep_guard::{Applier, Guard, GuardError};
use skep_peer::Pulse;
use skep_wire::guard::{Order, OrderReply, Side, VipHolder};
use skep_wire::steer::{Flow, WeightedLoad};
use skep_wire::table::Table;

use crate::limits::{
    CHECK_MS, CLAIM_AGAIN_MS, CLAIM_PATIENCE_MS, COUNTERS_MS, FIRST_CHECK_MS, OWNERS_MS,
    PROBE_OWNERS_MS, STREAM_MS,
};
use crate::plan::{is_weighted, networks};
use crate::status::Shared;

/// An order to execute.
#[derive(Debug)]
pub(crate) enum Job {
    Claim,
    Announce,
    Release,
    /// Probe the network for other holders of the virtual addresses.
    Probe,
    /// Steer by this table.
    Apply(Arc<Table>),
    /// Loads of the nodes of a service, by its index.
    Loads(u16, Vec<WeightedLoad>),
    /// Networks that are admitted, and those that are not.
    Networks(Vec<String>, Vec<String>),
    /// Flows of another dispatcher.
    Insert(Vec<Flow>),
    /// List the flow table into [`News::Flows`].
    List,
    /// Watch for new flows, or no longer.
    Stream(bool),
}

/// The results of jobs, for the event loop.
#[derive(Debug)]
pub(crate) enum News {
    /// Other machines that claim the virtual addresses.
    Owners(Vec<VipHolder>),
    /// A batch of the dump of flows; an empty one is its end.
    Listed(Vec<Flow>),
    /// Flows that began since.
    Begun(Vec<Flow>),
    /// The packet program uses a table now.
    Applied(skep_wire::table::TableVersion),
}

/// Executes [`Job`]s, by orders to netguard, on a thread of its own.
pub(crate) struct NetguardExecutor {
    pub(crate) guard: Arc<Guard>,
    pub(crate) own_mac: [u8; 6],
    pub(crate) on_guard_gone: Box<dyn Fn() + Send>,
    pub(crate) shared: Arc<Shared>,
    pub(crate) jobs: Receiver<Job>,
    pub(crate) news: SyncSender<News>,
}

impl NetguardExecutor {
    /// Runs until the senders of jobs are dropped.
    pub(crate) fn run(mut self, pulse: &Pulse) {
        let mut applier =
            Applier::new(Arc::clone(&self.guard), Side::Dispatch, self.own_mac, is_weighted);
        let mut waiting = VecDeque::new();
        let mut rounds = Rounds::default();
        let mut claim = PendingClaim::default();
        loop {
            pulse.beat();
            let first = match self.jobs.recv_timeout(rounds.until_next()) {
                Ok(job) => Some(job),
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => return,
            };
            waiting.extend(first.into_iter().chain(self.jobs.try_iter()));
            while let Some(job) = waiting.pop_front() {
                let is_overtaken = matches!(job, Job::Apply(_))
                    && waiting.iter().any(|later| matches!(later, Job::Apply(_)));
                if !is_overtaken
                    && let Err(error) = self.perform(&mut applier, &mut rounds, &mut claim, job)
                {
                    self.note(&error);
                }
                waiting.extend(self.jobs.try_iter());
                pulse.beat();
            }
            if claim.is_overdue(Instant::now())
                && let Err(error) = self.claim(&mut claim)
            {
                self.note(&error);
            }
            self.look_around(&mut rounds);
        }
    }

    fn perform(
        &mut self,
        applier: &mut Applier,
        rounds: &mut Rounds,
        claim: &mut PendingClaim,
        job: Job,
    ) -> Result<(), GuardError> {
        match job {
            Job::Claim if claim.may_come(Instant::now()) => self.claim(claim)?,
            Job::Claim => {}
            Job::Announce if claim.is_waiting() => {}
            Job::Announce => self.ask(&Order::Announce)?,
            Job::Release => {
                claim.give_up();
                self.ask(&Order::Release)?;
            }
            Job::Probe => self.look_for_owners(true)?,
            Job::Apply(table) => {
                applier.apply(&table)?;
                self.tell(News::Applied(table.version));
                if claim.is_due_after(&table) {
                    self.claim(claim)?;
                }
            }
            Job::Loads(service, loads) => self.ask(&Order::Loads(service, loads))?,
            Job::Networks(allow, deny) => {
                let (allow, deny) = (networks(&allow), networks(&deny));
                self.ask(&Order::Networks { allow, deny })?;
            }
            Job::Insert(flows) => self.ask(&Order::InsertFlows(flows))?,
            Job::List => self.list()?,
            Job::Stream(on) => rounds.streams = on,
        }
        Ok(())
    }

    /// Claims the addresses, and announces them by ARP; retries soon if that fails.
    fn claim(&self, claim: &mut PendingClaim) -> Result<(), GuardError> {
        claim.overdue_at = Some(Instant::now() + Duration::from_millis(CLAIM_AGAIN_MS));
        self.ask(&Order::Claim)?;
        *claim = PendingClaim { has_steered: true, overdue_at: None };
        self.ask(&Order::Announce)
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

    /// Periodic requests to netguard, without a job.
    fn look_around(&mut self, rounds: &mut Rounds) {
        let looked = rounds.due(Instant::now()).into_iter().try_for_each(|round| match round {
            Round::Counters => {
                let answer = self.guard.ask(&Order::Counters(Side::Dispatch))?;
                if let OrderReply::Counters(counters) = answer {
                    self.shared.set_counters(counters);
                }
                Ok(())
            }
            Round::Owners { probe } => self.look_for_owners(probe),
            Round::Check => self.check(),
            Round::Stream => {
                if let OrderReply::Flows(flows) = self.guard.ask(&Order::NewFlows)?
                    && !flows.is_empty()
                {
                    self.tell(News::Begun(flows));
                }
                Ok(())
            }
        });
        if let Err(error) = looked {
            self.note(&error);
        }
    }

    fn note(&self, error: &GuardError) {
        if matches!(error, GuardError::Aborted) {
            // This process says why it ends.
            return;
        }
        if self.shared.complain(error) && matches!(error, GuardError::Gone(_)) {
            (self.on_guard_gone)();
        }
    }

    fn check(&self) -> Result<(), GuardError> {
        let expectations = self.shared.view().expectations.clone();
        let order = Order::Check(Side::Dispatch, expectations);
        if let OrderReply::Checked { wrong, doubtful } = self.guard.ask(&order)? {
            self.shared.set_findings(wrong, doubtful);
        }
        Ok(())
    }

    fn look_for_owners(&self, probe: bool) -> Result<(), GuardError> {
        if let OrderReply::Owners(owners) = self.guard.ask(&Order::Owners { probe })?
            && !owners.is_empty()
        {
            self.tell(News::Owners(owners));
        }
        Ok(())
    }

    fn ask(&self, order: &Order) -> Result<(), GuardError> {
        self.guard.ask(order).map(drop)
    }

    fn tell(&self, news: News) {
        // The event loop has ended: so will this thread.
        let _ = self.news.send(news);
    }
}

/// Addresses are claimed once each service has a node that takes new flows: before, the kernel
/// would refuse every connection to one, as it does where nothing listens. A cluster without such a
/// node claims them after [`CLAIM_PATIENCE_MS`], so that its clients get that refusal.
#[derive(Debug, Default)]
struct PendingClaim {
    has_steered: bool,
    overdue_at: Option<Instant>,
}

impl PendingClaim {
    /// A claim is wanted: whether it may be made at once. If not, it is postponed.
    fn may_come(&mut self, now: Instant) -> bool {
        if !self.has_steered {
            self.overdue_at = Some(now + Duration::from_millis(CLAIM_PATIENCE_MS));
        }
        self.has_steered
    }

    /// Whether a claim is wanted that was not made yet.
    fn is_waiting(&self) -> bool {
        self.overdue_at.is_some()
    }

    /// No claim is wanted any more.
    fn give_up(&mut self) {
        self.overdue_at = None;
    }

    /// The packet program uses `table`: whether a postponed claim is to be made now.
    fn is_due_after(&mut self, table: &Table) -> bool {
        let takes = |service| table.history(service).next().is_some_and(|nodes| !nodes.is_empty());
        self.has_steered |= table.services.iter().all(takes);
        self.has_steered && self.overdue_at.take().is_some()
    }

    /// Whether a claim was postponed for long enough, and is to be made now.
    fn is_overdue(&mut self, now: Instant) -> bool {
        self.overdue_at.take_if(|at| now >= *at).is_some()
    }
}

/// When each periodic request is due.
#[derive(Debug, Default)]
struct Rounds {
    streams: bool,
    counters_at: Option<Instant>,
    owners_at: Option<Instant>,
    probe_at: Option<Instant>,
    check_at: Option<Instant>,
}

enum Round {
    Counters,
    Owners { probe: bool },
    Check,
    Stream,
}

impl Rounds {
    fn until_next(&self) -> Duration {
        Duration::from_millis(if self.streams { STREAM_MS } else { OWNERS_MS })
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
        if is_due(&mut self.owners_at, OWNERS_MS) {
            rounds.push(Round::Owners { probe: is_due(&mut self.probe_at, PROBE_OWNERS_MS) });
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

/// The virtual address that a machine claims, as failover takes it.
pub(crate) fn conflicts(owners: Vec<VipHolder>) -> impl Iterator<Item = (IpAddr, [u8; 6])> {
    owners.into_iter().map(|owner| (owner.vip, owner.mac))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use skep_wire::table::{Share, TableService};

    use super::*;

    fn table(memberships: &[usize]) -> Table {
        let share = |index| Share { index: index as u16, weight: 1 };
        let listen = std::net::SocketAddr::from(([192, 0, 2, 1], 80));
        let service = |at| TableService {
            service: skep_wire::steer::DatapathService {
                id: at,
                address: listen,
                protocol: skep_wire::steer::Protocol::Tcp,
                choices: 1,
                measure: skep_wire::steer::Measure::First,
                by_address: false,
            },
            policy: skep_wire::message::Name::new("maglev").unwrap(),
            history: vec![at],
        };
        Table {
            services: (0..memberships.len() as u16).map(service).collect(),
            memberships: memberships.iter().map(|&nodes| (0..nodes).map(share).collect()).collect(),
            ..Table::default()
        }
    }

    #[test]
    fn addresses_are_claimed_once_every_service_has_a_node() {
        let (mut claim, now) = (PendingClaim::default(), Instant::now());
        assert!(!claim.may_come(now) && claim.is_waiting());
        assert!(!claim.is_due_after(&table(&[0, 0])));
        assert!(!claim.is_due_after(&table(&[2, 0])));
        assert!(claim.is_due_after(&table(&[2, 1])) && !claim.is_waiting());
        assert!(!claim.is_due_after(&table(&[2, 1])), "once is enough");
        assert!(claim.may_come(now), "the next takeover waits for nothing");
    }

    #[test]
    fn without_nodes_they_are_claimed_late_so_that_clients_are_refused() {
        let (mut claim, now) = (PendingClaim::default(), Instant::now());
        let later = now + Duration::from_millis(CLAIM_PATIENCE_MS);
        assert!(!claim.may_come(now) && !claim.is_overdue(now));
        assert!(claim.is_overdue(later) && !claim.is_overdue(later));
        assert!(!claim.may_come(now));
        claim.give_up();
        assert!(!claim.is_overdue(later) && !claim.is_waiting());
    }
}
