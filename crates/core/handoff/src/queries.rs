//! Queries to the active dispatcher: which node should answer this request? A late answer is
//! ignored, and the node that has the connection answers.

use std::collections::BTreeMap;

use skep_units::Now;
use skep_wire::handoff::lccp::{Lccp, LccpCommand, QueryKey};
use skep_wire::handoff::{HandoffId, SocketId};
use skep_wire::steer::NodeIndex;

use crate::limits::{QUERIES_MAX, QUERY_MS, QUERY_RETRY_MS};
use crate::retry::Retry;
use crate::timers::Timers;

/// Pending queries, at most [`QUERIES_MAX`].
#[derive(Clone, Debug)]
pub struct DispatcherQueries {
    incarnation: u64,
    next_number: u64,
    pending: BTreeMap<u64, Pending>,
    timers: Timers<u64>,
    counters: QueryCounters,
}

/// Counters since the start, in queries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueryCounters {
    /// Queries that a dispatcher answered in time.
    pub answered: u64,
    /// Queries without an answer in time.
    pub unanswered: u64,
    /// Queries that were not sent, since [`QUERIES_MAX`] were pending.
    pub full: u64,
}

#[derive(Clone, Debug)]
struct Pending {
    socket: SocketId,
    key: QueryKey,
    retry: Retry,
}

/// The maximum number of queries is pending.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{QUERIES_MAX} queries wait for an answer")]
pub struct QueriesFull;

/// The outcome of a timer of a query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum QueryOutcome {
    /// The query is sent again.
    Repeat(Lccp),
    /// No answer came in time.
    Unanswered(u64),
}

impl DispatcherQueries {
    /// The queries of a process started at `incarnation`.
    pub fn new(incarnation: u64) -> Self {
        Self {
            incarnation,
            next_number: 1,
            pending: BTreeMap::new(),
            timers: Timers::default(),
            counters: QueryCounters::default(),
        }
    }

    /// Sends a query about a request; returns its number, and the message for the active
    /// dispatcher.
    ///
    /// # Errors
    /// Too many queries are pending; none was sent.
    pub fn ask(
        &mut self,
        now: Now,
        socket: SocketId,
        key: QueryKey,
    ) -> Result<(u64, Lccp), QueriesFull> {
        if self.pending.len() >= QUERIES_MAX {
            self.counters.full += 1;
            return Err(QueriesFull);
        }
        let number = self.next_number;
        self.next_number += 1;
        let retry = Retry::new(now, QUERY_RETRY_MS, QUERY_MS);
        let pending = Pending { socket, key, retry };
        let message = self.message(number, &pending);
        self.pending.insert(number, pending);
        self.timers.set(number, Some(retry.next));
        Ok((number, message))
    }

    /// A dispatcher has answered: returns the number of the pending query, and the node; `None` for
    /// any node.
    pub fn heard(&mut self, message: &Lccp) -> Option<(u64, Option<NodeIndex>)> {
        let HandoffId { incarnation, number } = message.id;
        let LccpCommand::Decision(socket, node) = &message.command else { return None };
        let is_its = |it: &Pending| incarnation == self.incarnation && it.socket == *socket;
        self.pending.get(&number).filter(|it| is_its(it))?;
        self.forget(number);
        self.counters.answered += 1;
        Some((number, *node))
    }

    /// Drops a query because the connection is gone, or the request was decided otherwise.
    pub fn forget(&mut self, number: u64) {
        self.pending.remove(&number);
        self.timers.set(number, None);
    }

    /// The queries to repeat, and those that timed out.
    pub fn tick(&mut self, now: Now) -> Vec<QueryOutcome> {
        let mut outcomes = Vec::new();
        for number in self.timers.take_due(now) {
            let Some(pending) = self.pending.get_mut(&number) else { continue };
            if pending.retry.age_ms(now) >= QUERY_MS {
                self.pending.remove(&number);
                self.counters.unanswered += 1;
                outcomes.push(QueryOutcome::Unanswered(number));
                continue;
            }
            pending.retry.is_due(now);
            let due = pending.retry.next.min(pending.retry.since.plus_ms(QUERY_MS));
            self.timers.set(number, Some(due));
            outcomes.extend(
                self.pending.get(&number).map(|it| QueryOutcome::Repeat(self.message(number, it))),
            );
        }
        outcomes
    }

    /// The latest time for the next call of [`DispatcherQueries::tick`].
    pub fn next_due(&self) -> Option<Now> {
        self.timers.next()
    }

    pub fn counters(&self) -> QueryCounters {
        self.counters
    }

    fn message(&self, number: u64, pending: &Pending) -> Lccp {
        let id = HandoffId { incarnation: self.incarnation, number };
        Lccp { id, command: LccpCommand::Query(pending.socket, pending.key.clone()) }
    }
}
