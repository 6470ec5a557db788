//! Queries to the active dispatcher that are not answered yet, and the connections that wait for
//! the answers.

use std::collections::HashMap;

use skep_handoff::{DispatcherQueries, QueryCounters, QueryOutcome};
use skep_units::Now;
use skep_wire::handoff::SocketId;
use skep_wire::handoff::lccp::{Lccp, QueryKey};
use skep_wire::steer::NodeIndex;
use tokio::sync::oneshot;

pub(super) struct PendingQueries {
    queries: DispatcherQueries,
    waiting: HashMap<u64, oneshot::Sender<Option<NodeIndex>>>,
}

impl PendingQueries {
    pub(super) fn new(incarnation: u64) -> Self {
        Self { queries: DispatcherQueries::new(incarnation), waiting: HashMap::new() }
    }

    /// The query to send; `None`: too many queries wait, and this one gets no answer.
    pub(super) fn ask(
        &mut self,
        now: Now,
        id: SocketId,
        key: QueryKey,
        done: oneshot::Sender<Option<NodeIndex>>,
    ) -> Option<Lccp> {
        let (number, message) = self.queries.ask(now, id, key).ok()?;
        self.waiting.insert(number, done);
        Some(message)
    }

    /// Handles a message of a dispatcher.
    pub(super) fn heard(&mut self, message: &Lccp) {
        if let Some((number, node)) = self.queries.heard(message) {
            self.answer(number, node);
        }
    }

    /// The queries to repeat. A query that was not answered in time has the result `None`.
    pub(super) fn tick(&mut self, now: Now) -> Vec<Lccp> {
        let mut repeated = Vec::new();
        for outcome in self.queries.tick(now) {
            match outcome {
                QueryOutcome::Repeat(message) => repeated.push(message),
                QueryOutcome::Unanswered(number) => self.answer(number, None),
            }
        }
        repeated
    }

    pub(super) fn next_due(&self) -> Option<Now> {
        self.queries.next_due()
    }

    pub(super) fn counters(&self) -> QueryCounters {
        self.queries.counters()
    }

    fn answer(&mut self, number: u64, node: Option<NodeIndex>) {
        if let Some(done) = self.waiting.remove(&number) {
            // The connection may be gone.
            let _ = done.send(node);
        }
    }
}
