//! Orders to netguard that were not sent yet, or whose results have not arrived.

use std::collections::VecDeque;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use skep_guard::{GuardError, HandoffAnswer, HandoffGuard};
use skep_handoff::OfferKey;
use skep_units::Now;
use skep_wire::handoff::HandoffId;
use skep_wire::handoff::guard::{BATCH_MAX, HandoffOrder};

use crate::limits::LATER_MS_MAX;

/// The source of an order, which gets its result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OrderSource {
    Donor(HandoffId),
    Receiver(OfferKey),
    /// The result is ignored.
    Nobody,
}

/// Orders of both roles, in order.
pub(super) struct Orders {
    guard: HandoffGuard,
    waiting: VecDeque<(OrderSource, HandoffOrder, Option<Arc<OwnedFd>>)>,
    /// Orders without a source that are sent with others, or when the first of them has waited long
    /// enough.
    later: Vec<HandoffOrder>,
    later_due: Option<Now>,
    /// The orders sent, in the order of their results.
    given: VecDeque<(OrderSource, HandoffOrder)>,
}

impl Orders {
    pub(super) fn new(guard: HandoffGuard) -> Self {
        Self {
            guard,
            waiting: VecDeque::new(),
            later: Vec::new(),
            later_due: None,
            given: VecDeque::new(),
        }
    }

    /// Queues an order, with `socket` if its kind requires one.
    pub(super) fn give(
        &mut self,
        source: OrderSource,
        order: HandoffOrder,
        socket: Option<&Arc<OwnedFd>>,
    ) {
        let socket = socket.filter(|_| order.has_descriptor()).cloned();
        self.waiting.push_back((source, order, socket));
    }

    /// Queues an order without source and descriptor that may wait: it needs no wake-up of its own.
    pub(super) fn give_later(&mut self, now: Now, order: HandoffOrder) {
        self.later.push(order);
        self.later_due.get_or_insert(now.plus_ms(LATER_MS_MAX));
    }

    /// The time at which to call [`Self::flush`] at the latest.
    pub(super) fn next_due(&self) -> Option<Now> {
        self.later_due
    }

    /// Sends as many orders as netguard accepts now.
    pub(super) fn flush(&mut self, now: Now) -> Result<(), GuardError> {
        let is_due = self.later_due.is_some_and(|due| now >= due) || self.later.len() >= BATCH_MAX;
        if is_due || !self.waiting.is_empty() {
            // Sent first: a later order may be about the next connection between the same addresses.
            for order in self.later.drain(..).rev() {
                self.waiting.push_front((OrderSource::Nobody, order, None));
            }
            self.later_due = None;
        }
        while !self.waiting.is_empty() {
            let count = self.waiting.len().min(BATCH_MAX);
            let batch: Vec<_> = self
                .waiting
                .iter()
                .take(count)
                .map(|(_, order, socket)| (order.clone(), socket.as_ref().map(|it| it.as_fd())))
                .collect();
            if !self.guard.try_send(&batch)? {
                break;
            }
            let given = self.waiting.drain(..count).map(|(source, order, _)| (source, order));
            self.given.extend(given);
        }
        Ok(())
    }

    /// Whether netguard has left an order unanswered for too long; [`Self::results`] then fails.
    pub(super) fn are_overdue(&self) -> bool {
        self.guard.is_silent()
    }

    /// The results received, after the guard was readable.
    pub(super) fn results(
        &mut self,
    ) -> Result<Vec<(OrderSource, HandoffOrder, HandoffAnswer)>, GuardError> {
        let mut results = Vec::new();
        while let Some(answers) = self.guard.try_receive()? {
            for answer in answers {
                let (source, order) = self.given.pop_front().ok_or(GuardError::Foreign)?;
                results.push((source, order, answer));
            }
            if self.given.is_empty() {
                break;
            }
        }
        Ok(results)
    }
}
