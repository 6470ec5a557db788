//! Reports of moved flows to the active dispatcher, which then steers them directly to their new
//! nodes.
//!
//! A lost report costs a detour over the donor, but no connection. Each report is repeated until it
//! is acknowledged, for a bounded time.

use std::collections::{BTreeMap, VecDeque};

use skep_units::Now;
use skep_wire::handoff::lccp::{Lccp, LccpCommand, MovedFlow};
use skep_wire::handoff::{HandoffId, SocketId};
use skep_wire::limits::MOVED_FLOWS_MAX;

use crate::expiry::ExpiryQueue;
use crate::limits::{
    LEARNED_MAX, LEARNED_MS, MOVED_MS_MAX, MOVED_REPORTS_MAX, MOVED_RETRY_MS, MOVED_WAIT_MS,
    RETRY_MS_MAX,
};
use crate::retry::Retry;

/// Flows that were moved away from this node; see the module.
#[derive(Clone, Debug)]
pub struct MovedReports {
    incarnation: u64,
    next_number: u64,
    /// Flows not reported yet, and since when; at most [`MOVED_FLOWS_MAX`].
    open: Vec<MovedFlow>,
    open_since: Now,
    /// Reports not acknowledged yet, oldest first; at most [`MOVED_REPORTS_MAX`].
    reports: VecDeque<Report>,
    counters: MovedCounters,
}

#[derive(Clone, Debug)]
struct Report {
    number: u64,
    flows: Vec<MovedFlow>,
    made_at: Now,
    /// `None` if it was not sent yet.
    retry: Option<Retry>,
}

/// Counters since the start, in flows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MovedCounters {
    /// Flows that a dispatcher has acknowledged.
    pub learned: u64,
    /// Flows that no dispatcher has acknowledged in time.
    pub given_up: u64,
}

/// The flows that a dispatcher has learned recently: a late report must not undo a later move.
#[derive(Clone, Debug, Default)]
pub struct MovedFlows {
    /// How often each flow was moved, and when that was learned; at most [`LEARNED_MAX`].
    learned: BTreeMap<SocketId, (u8, Now)>,
    expiry: ExpiryQueue<SocketId, LEARNED_MS, LEARNED_MAX>,
}

impl MovedFlows {
    /// A report was received: returns the flows to store in the flow table. The report is
    /// acknowledged in any case.
    pub fn take(&mut self, now: Now, report: &[MovedFlow]) -> Vec<MovedFlow> {
        self.forget(now);
        let mut taken = Vec::with_capacity(report.len());
        for flow in report {
            let known = self.learned.get(&flow.socket);
            if known.is_some_and(|(moves, _)| *moves > flow.moves) {
                continue;
            }
            self.learned.insert(flow.socket, (flow.moves, now));
            self.expiry.push(now, flow.socket);
            taken.push(*flow);
        }
        self.forget(now);
        taken
    }

    fn forget(&mut self, now: Now) {
        while let Some((at, socket)) = self.expiry.pop_expired(now) {
            if self.learned.get(&socket).is_some_and(|(_, learned_at)| *learned_at == at) {
                self.learned.remove(&socket);
            }
        }
    }
}

impl MovedReports {
    /// The reports of a process started at `incarnation`.
    pub fn new(incarnation: u64) -> Self {
        Self {
            incarnation,
            next_number: 1,
            open: Vec::new(),
            open_since: Now::default(),
            reports: VecDeque::new(),
            counters: MovedCounters::default(),
        }
    }

    /// A flow has moved to another node.
    pub fn push(&mut self, now: Now, flow: MovedFlow) {
        if self.open.is_empty() {
            self.open_since = now;
        }
        self.open.push(flow);
        if self.open.len() >= MOVED_FLOWS_MAX {
            self.close(now);
        }
    }

    /// A dispatcher has acknowledged a report.
    pub fn heard(&mut self, message: &Lccp) {
        let HandoffId { incarnation, number } = message.id;
        let is_ours = incarnation == self.incarnation && message.command == LccpCommand::MovedTaken;
        let at = self.reports.iter().position(|report| report.number == number);
        if let Some(report) = at.filter(|_| is_ours).and_then(|at| self.reports.remove(at)) {
            self.counters.learned += report.flows.len() as u64;
        }
    }

    /// Another dispatcher is active: unacknowledged reports are sent to it at once.
    pub fn dispatcher_changed(&mut self) {
        self.reports.iter_mut().for_each(|report| report.retry = None);
    }

    /// The messages to send to the active dispatcher now.
    pub fn due(&mut self, now: Now) -> Vec<Lccp> {
        if !self.open.is_empty() && now.since_ms(self.open_since) >= MOVED_WAIT_MS {
            self.close(now);
        }
        self.give_up(now);
        let incarnation = self.incarnation;
        let message = |report: &Report| Lccp {
            id: HandoffId { incarnation, number: report.number },
            command: LccpCommand::Moved(report.flows.clone()),
        };
        self.reports.iter_mut().filter_map(|it| it.is_due(now).then(|| message(it))).collect()
    }

    /// Drops reports that are too old, even if no dispatcher is active.
    pub fn give_up(&mut self, now: Now) {
        let counters = &mut self.counters;
        self.reports.retain(|report| {
            let is_old = now.since_ms(report.made_at) >= MOVED_MS_MAX;
            counters.given_up += if is_old { report.flows.len() as u64 } else { 0 };
            !is_old
        });
    }

    /// The latest time for the next call of [`MovedReports::due`].
    pub fn next_due(&self) -> Option<Now> {
        let open = (!self.open.is_empty()).then(|| self.open_since.plus_ms(MOVED_WAIT_MS));
        let retries = self.reports.iter().map(|it| it.retry.map_or(Now(0), |retry| retry.next));
        retries.chain(open).min()
    }

    pub fn counters(&self) -> MovedCounters {
        self.counters
    }

    /// Turns the flows collected so far into a report.
    fn close(&mut self, now: Now) {
        if self.reports.len() >= MOVED_REPORTS_MAX
            && let Some(oldest) = self.reports.pop_front()
        {
            self.counters.given_up += oldest.flows.len() as u64;
        }
        let (number, flows) = (self.next_number, std::mem::take(&mut self.open));
        self.next_number += 1;
        self.reports.push_back(Report { number, flows, made_at: now, retry: None });
    }
}

impl Report {
    fn is_due(&mut self, now: Now) -> bool {
        match &mut self.retry {
            Some(retry) => retry.is_due(now),
            None => {
                self.retry = Some(Retry::new(now, MOVED_RETRY_MS, RETRY_MS_MAX));
                true
            }
        }
    }
}
