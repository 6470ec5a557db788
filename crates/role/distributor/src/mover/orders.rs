//! Orders to netguard that were not given yet, or whose results have not come.

use std::collections::VecDeque;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use skep_guard::{GuardError, HandoffAnswer, HandoffGuard};
use skep_handoff::OfferKey;
use skep_wire::handoff::HandoffId;
use skep_wire::handoff::guard::{BATCH_MAX, HandoffOrder};

/// Who gave an order, and is told its result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Giver {
    Donor(HandoffId),
    Receiver(OfferKey),
    /// The result changes nothing.
    Nobody,
}

/// Orders of both roles, in their order.
pub(super) struct Orders {
    guard: HandoffGuard,
    waiting: VecDeque<(Giver, HandoffOrder, Option<Arc<OwnedFd>>)>,
    /// Those that were given, in the order of their results.
    given: VecDeque<(Giver, HandoffOrder)>,
}

impl Orders {
    pub(super) fn new(guard: HandoffGuard) -> Self {
        Self { guard, waiting: VecDeque::new(), given: VecDeque::new() }
    }

    /// Queues an order. `socket` goes with it, if it is of a kind that has one.
    pub(super) fn give(
        &mut self,
        giver: Giver,
        order: HandoffOrder,
        socket: Option<&Arc<OwnedFd>>,
    ) {
        let socket = socket.filter(|_| order.has_descriptor()).cloned();
        self.waiting.push_back((giver, order, socket));
    }

    /// Gives as many orders as netguard takes now.
    pub(super) fn flush(&mut self) -> Result<(), GuardError> {
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
            let given = self.waiting.drain(..count).map(|(giver, order, _)| (giver, order));
            self.given.extend(given);
        }
        Ok(())
    }

    /// The results that have come.
    pub(super) fn results(
        &mut self,
    ) -> Result<Vec<(Giver, HandoffOrder, HandoffAnswer)>, GuardError> {
        let mut results = Vec::new();
        while let Some(answers) = self.guard.try_receive()? {
            for answer in answers {
                let (giver, order) = self.given.pop_front().ok_or(GuardError::Foreign)?;
                results.push((giver, order, answer));
            }
        }
        Ok(results)
    }
}
