//! A node that hands connections off to itself, to measure what a move costs: figure 5 of Doh and Noh.
//!
//! The kernel has one socket for a connection, so the donor's is closed before the receiver's is created. What
//! was read of it is then all that there is of the connection. A creation that fails is tried again from that,
//! until the donor waits no longer; then the connection is lost, and the client gets its RST with its next packet.
//! The messages of donor and receiver do not leave the process, and the flow is blocked until the new socket
//! is started: there is nowhere to redirect it to.

use skep_handoff::{DonorAction, OfferKey, OrderResult, Preparation};
use skep_wire::handoff::SocketId;
use skep_wire::handoff::guard::HandoffOrder;

use super::{Giver, MoveStep, MoverThread, now};

impl MoverThread {
    /// What this node said to itself; false if that was nothing.
    pub(super) fn hear_self(&mut self) -> bool {
        let own = self.lccp.own();
        let messages = std::mem::take(&mut self.to_self);
        messages.iter().for_each(|message| self.take(own, message));
        !messages.is_empty()
    }

    /// Does what is to be done otherwise, and gives back everything else.
    pub(super) fn act_as_own_donor(&mut self, action: DonorAction) -> Option<DonorAction> {
        match action {
            DonorAction::Redirect(id, _, node) if node == self.own_index() => {
                self.departures.lap(id, MoveStep::Offer, self.counters.times());
                self.departures.lap(id, MoveStep::Redirect, self.counters.times());
                self.donor.ordered(now(), id, OrderResult::Done);
            }
            DonorAction::Thaw(id, _) if self.departures.has_left(id) => {
                self.donor.ordered(now(), id, OrderResult::Refused);
            }
            DonorAction::Reset(id, socket) if self.departures.has_left(id) => {
                self.orders.give(Giver::Nobody, HandoffOrder::Forget(socket), None);
                self.donor.ordered(now(), id, OrderResult::Done);
            }
            action => return Some(action),
        }
        None
    }

    /// The order that creates the socket of a connection that comes.
    pub(super) fn creation(&mut self, key: OfferKey, socket: SocketId) -> HandoffOrder {
        if key.donor != self.lccp.own() {
            return HandoffOrder::Create(socket);
        }
        self.departures.leave(key.id);
        HandoffOrder::Recreate(socket)
    }

    /// Tries a creation again that has failed; false if it is not to be.
    pub(super) fn create_again(
        &mut self,
        key: OfferKey,
        socket: SocketId,
        prepared: Preparation,
    ) -> bool {
        let is_restored = prepared == Preparation::Restored;
        let is_awaited = key.donor == self.lccp.own() && self.departures.has_left(key.id);
        if is_restored || !is_awaited {
            return false;
        }
        // Most often its worker has not closed its descriptor yet: an order takes as long.
        self.incoming.close_socket(key);
        self.orders.give(Giver::Receiver(key), HandoffOrder::Create(socket), None);
        true
    }
}
