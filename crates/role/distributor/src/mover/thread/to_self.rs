//! Handoffs of a node to itself, to measure what a move costs: figure 5 of Doh and Noh.
//!
//! The kernel has one socket per connection, so the donor's is closed before the receiver's is created. The
//! state that was read from it is then all that is left of the connection: a failed creation is retried with
//! it. When the donor stops waiting, the connection is lost, and the socket is created only to send an RST.
//! If no creation succeeds within some seconds, the client gets an RST in reply to its next packet, once no
//! process holds the donor's socket any more: only that can have prevented the creation for so long. The
//! messages between donor and receiver stay within the process, and the flow is blocked until the new socket
//! is started, since there is nowhere to redirect it to.

use std::collections::{HashMap, VecDeque};

use skep_handoff::{DonorAction, OfferKey, OrderResult, Preparation, ReceiverAction};
use skep_units::Now;
use skep_wire::handoff::SocketId;
use skep_wire::handoff::guard::HandoffOrder;
use skep_wire::handoff::lccp::Lccp;

use super::{MoveStep, MoverThread, OrderSource, now};
use crate::limits::{RECREATE_MS, RECREATE_MS_MAX};

/// The state of handoffs to this node itself.
#[derive(Default)]
pub(super) struct ToSelf {
    /// Messages between donor and receiver.
    pub(super) messages: VecDeque<Lccp>,
    /// Failed creations.
    failed: HashMap<OfferKey, Creation>,
}

struct Creation {
    socket: SocketId,
    /// Time of the next attempt; `None`: one is in progress.
    due: Option<Now>,
    /// Time of the first failure.
    since: Now,
}

impl MoverThread {
    /// Handles the messages that this node sent to itself; false if there were none.
    pub(super) fn hear_self(&mut self) -> bool {
        let own = self.lccp.own();
        let messages = std::mem::take(&mut self.to_self.messages);
        messages.iter().for_each(|message| self.take(own, message));
        !messages.is_empty()
    }

    /// Handles an action of a handoff to this node itself; returns all others.
    pub(super) fn donor_action_to_self(&mut self, action: DonorAction) -> Option<DonorAction> {
        match action {
            DonorAction::Redirect(id, _, node) if node == self.own_index() => {
                self.departures.lap(id, MoveStep::Offer, self.counters.times());
                self.departures.lap(id, MoveStep::Redirect, self.counters.times());
                self.donor.ordered(now(), id, OrderResult::Done);
            }
            DonorAction::Thaw(id, _) if self.departures.is_closed(id) => {
                self.donor.ordered(now(), id, OrderResult::Refused);
            }
            // The donor has no socket; the receiver's will be reset.
            DonorAction::Reset(id, _) if self.departures.is_closed(id) => {
                self.donor.ordered(now(), id, OrderResult::Done);
            }
            action => return Some(action),
        }
        None
    }

    /// The order that creates the socket of an arriving connection.
    pub(super) fn creation(&mut self, key: OfferKey, socket: SocketId) -> HandoffOrder {
        if !self.is_own(key) {
            return HandoffOrder::Create(socket);
        }
        self.departures.close_socket(key.id);
        HandoffOrder::Recreate(socket)
    }

    /// Handles an action of a handoff to this node itself; returns all others.
    pub(super) fn receiver_action_to_self(
        &mut self,
        action: ReceiverAction,
    ) -> Option<ReceiverAction> {
        let ReceiverAction::Discard(key, socket) = action else { return Some(action) };
        let own = self.incoming.socket(key).filter(|_| key.donor == self.lccp.own());
        let Some(descriptor) = own else { return Some(action) };
        // The donor does not have the connection any more.
        self.orders.give(OrderSource::Nobody, HandoffOrder::Reset(socket), Some(descriptor));
        self.incoming.drop(key);
        None
    }

    /// Schedules another attempt of a failed creation; false if there is none.
    pub(super) fn recreate(
        &mut self,
        key: OfferKey,
        socket: SocketId,
        prepared: Preparation,
    ) -> bool {
        let failed = self.to_self.failed.remove(&key);
        if prepared == Preparation::Restored || !self.is_own(key) {
            return false;
        }
        self.incoming.close_socket(key);
        let (now, since) = (now(), failed.map(|it| it.since));
        let due = match since {
            // Usually the worker has not closed its descriptor yet; it will have when netguard tries again.
            None => now,
            Some(since) if now.since_ms(since) < RECREATE_MS_MAX => now.plus_ms(RECREATE_MS),
            Some(_) => {
                // The client gets an RST in reply to its next packet.
                self.orders.give(OrderSource::Nobody, HandoffOrder::Forget(socket), None);
                return false;
            }
        };
        let creation = Creation { socket, due: Some(due), since: since.unwrap_or(now) };
        self.to_self.failed.insert(key, creation);
        true
    }

    /// Repeats the creations that are due.
    pub(super) fn recreate_due(&mut self) {
        let now = now();
        for (key, creation) in &mut self.to_self.failed {
            if creation.due.take_if(|due| *due <= now).is_some() {
                let order = HandoffOrder::Create(creation.socket);
                self.orders.give(OrderSource::Receiver(*key), order, None);
            }
        }
    }

    fn is_own(&self, key: OfferKey) -> bool {
        key.donor == self.lccp.own()
    }
}

impl ToSelf {
    /// The time at which to call [`MoverThread::recreate_due`] at the latest.
    pub(super) fn next_due(&self) -> Option<Now> {
        self.failed.values().filter_map(|creation| creation.due).min()
    }
}
