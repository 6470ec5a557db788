//! Information that the active dispatcher sends to those that select nodes: the packet program, and nodes
//! that decide on handoffs.

use skep_units::Now;
use skep_wire::message::{Message, ServedObjects, TransferRates};
use skep_wire::seal::PeerId;

use crate::event_loop::DirectLoop;
use crate::load_orders::load_orders;
use crate::netguard_executor::Job;

impl DirectLoop {
    /// Sends loads to the packet program.
    pub(crate) fn tell_loads(&mut self) {
        for told in load_orders(&self.told, self.publisher.detector()) {
            self.job(Job::Loads(told.services, told.loads));
        }
    }

    /// Sends the other nodes' loads, and A/B tests, to nodes that decide on handoffs.
    pub(crate) fn tell_deciding_nodes(&mut self, now: Now) {
        let detector = self.publisher.detector();
        if let Some(digest) = self.load_digests.next(now, &self.told, detector) {
            self.socket.send_all(self.nodes().collect::<Vec<_>>(), &digest);
        }
        let arms = || self.loads.arms_of_nodes();
        if let Some(arms) = self.load_digests.next_arms(now, arms) {
            self.socket.send_all(self.nodes().collect::<Vec<_>>(), &arms);
        }
    }

    /// A node has measured these rates, for services that choose a node for each request.
    pub(crate) fn hear_rates(&mut self, from: PeerId, rates: TransferRates) {
        let nodes = &self.plans.plan().nodes;
        if let Some(node) = nodes.iter().find(|node| node.name.peer() == from) {
            self.loads.hear_rates(&node.name, rates);
        }
    }

    /// Handles a node's report of objects. Nodes that decide on handoffs see no responses of others: the
    /// active dispatcher relays the sizes to them.
    pub(crate) fn hear_served(&mut self, now: Now, served: ServedObjects) {
        self.loads.hear_served(served.clone());
        self.load_digests.note_served(served.clone());
        if !self.is_active() {
            return;
        }
        let others: Vec<PeerId> = self.nodes().filter(|node| *node != served.node).collect();
        if self.load_digests.may_relay(now, others.len() as u64) {
            self.socket.send_all(others, &Message::Served(served));
        }
    }
}
