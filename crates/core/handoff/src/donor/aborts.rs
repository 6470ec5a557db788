//! ABORTs: repeated until the receiver acknowledges, and sent again whenever it asks.

use std::collections::BTreeMap;

use skep_units::Now;
use skep_wire::handoff::lccp::{Lccp, LccpCommand};
use skep_wire::handoff::{HandoffId, SocketId};
use skep_wire::seal::PeerId;

use crate::expiry::ExpiryQueue;
use crate::limits::{ABORT_MS_MAX, ABORTS_MAX, MEMORY_MS, REMEMBERED_MAX, RETRY_MS, RETRY_MS_MAX};
use crate::retry::Retry;
use crate::timers::Timers;

/// Offers that were aborted.
#[derive(Clone, Debug, Default)]
pub(super) struct Aborts {
    /// ABORTs that are being repeated; at most [`ABORTS_MAX`].
    repeated: BTreeMap<HandoffId, Abort>,
    timers: Timers<HandoffId>,
    /// Remembered offers and their receivers; at most [`REMEMBERED_MAX`].
    remembered: BTreeMap<HandoffId, PeerId>,
    expiry: ExpiryQueue<HandoffId, MEMORY_MS, REMEMBERED_MAX>,
}

#[derive(Clone, Copy, Debug)]
struct Abort {
    to: PeerId,
    socket: SocketId,
    retry: Retry,
}

impl Aborts {
    /// Aborts an offer; returns the message to send.
    pub(super) fn add(
        &mut self,
        now: Now,
        id: HandoffId,
        to: PeerId,
        socket: SocketId,
    ) -> (PeerId, Lccp) {
        if self.repeated.len() >= ABORTS_MAX
            && let Some((oldest, _)) = self.repeated.pop_first()
        {
            self.timers.set(oldest, None);
        }
        let retry = Retry::new(now, RETRY_MS, RETRY_MS_MAX);
        self.timers.set(id, Some(retry.next));
        self.repeated.insert(id, Abort { to, socket, retry });
        self.remember(now, id, to);
        (to, Lccp { id, command: LccpCommand::Abort(socket) })
    }

    /// Records that this offer does not result in a move.
    pub(super) fn remember(&mut self, now: Now, id: HandoffId, to: PeerId) {
        if self.remembered.insert(id, to).is_none() {
            self.expiry.push(now, id);
        }
        self.forget(now);
    }

    /// A receiver has acknowledged.
    pub(super) fn understood(&mut self, id: HandoffId, by: PeerId) {
        if self.repeated.get(&id).is_some_and(|abort| abort.to == by) {
            self.repeated.remove(&id);
            self.timers.set(id, None);
        }
    }

    /// Whether this offer to this receiver was aborted, so that the receiver must be informed.
    pub(super) fn is_aborted(&self, id: HandoffId, by: PeerId) -> bool {
        self.remembered.get(&id) == Some(&by)
    }

    /// The messages to send again now.
    pub(super) fn due(&mut self, now: Now) -> Vec<(PeerId, Lccp)> {
        self.forget(now);
        let mut due = Vec::new();
        for id in self.timers.take_due(now) {
            let Some(abort) = self.repeated.get_mut(&id) else { continue };
            if abort.retry.age_ms(now) >= ABORT_MS_MAX {
                self.repeated.remove(&id);
                continue;
            }
            if abort.retry.is_due(now) {
                due.push((abort.to, Lccp { id, command: LccpCommand::Abort(abort.socket) }));
            }
            self.timers.set(id, Some(abort.retry.next));
        }
        due
    }

    pub(super) fn next_due(&self) -> Option<Now> {
        self.timers.next()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.repeated.is_empty()
    }

    fn forget(&mut self, now: Now) {
        while let Some((_, id)) = self.expiry.pop_expired(now) {
            self.remembered.remove(&id);
        }
    }

    pub(super) fn check_invariants(&self) {
        debug_assert!(self.repeated.len() <= ABORTS_MAX, "{} ABORTs", self.repeated.len());
        debug_assert!(self.expiry.len() <= REMEMBERED_MAX, "{} remembered", self.expiry.len());
        debug_assert_eq!(self.timers.len(), self.repeated.len(), "each ABORT has its time");
    }
}
