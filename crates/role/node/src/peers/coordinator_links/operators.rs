//! Operators' questions and orders: from coordinators to this node, and from this node to coordinators.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::mpsc::SyncSender;
use std::thread;

use skep_peer::stream::{LinkId, Outbox};
use skep_wire::cache::{NodeQuestion, RelayedAnswer, ServerOrder, ToCoordinator};
use skep_wire::message::Name;

use super::CoordinatorLinks;
use crate::limits::OPERATOR_QUESTIONS_MAX;
use crate::peers::Command;

/// The answers of all nodes.
pub type RelayedAnswers = Vec<(Name, RelayedAnswer)>;

/// Questions from operators of this process to all nodes.
#[derive(Default)]
pub(super) struct Relays {
    last: u64,
    open: HashMap<u64, Relay>,
}

struct Relay {
    link: LinkId,
    answers: RelayedAnswers,
    /// Dropped without an answer if the link ends.
    asker: SyncSender<RelayedAnswers>,
}

impl Relays {
    fn ask(&mut self, link: LinkId, asker: SyncSender<RelayedAnswers>) -> u64 {
        self.last += 1;
        self.open.insert(self.last, Relay { link, answers: Vec::new(), asker });
        self.last
    }

    fn answered(&mut self, link: LinkId, ask: u64, answer: (Name, RelayedAnswer)) {
        if let Some(relay) = self.open.get_mut(&ask).filter(|relay| relay.link == link) {
            relay.answers.push(answer);
        }
    }

    fn ended(&mut self, link: LinkId, ask: u64) {
        if self.open.get(&ask).is_some_and(|relay| relay.link == link)
            && let Some(relay) = self.open.remove(&ask)
        {
            // The asker may have given up.
            drop(relay.asker.try_send(relay.answers));
        }
    }

    /// Drops the questions asked on a link that has ended.
    pub(super) fn link_lost(&mut self, link: LinkId) {
        self.open.retain(|_, relay| relay.link != link);
    }
}

impl CoordinatorLinks {
    /// Answers a question or carries out an order that a coordinator has relayed.
    pub(super) fn asked(
        &mut self,
        link: LinkId,
        question: u64,
        what: NodeQuestion,
        outbox: &mut Outbox<ToCoordinator>,
    ) {
        let json = match what {
            NodeQuestion::Order(order) => {
                let outcome = self.orders.carry_out(&order);
                if outcome.is_done {
                    // Before the answer: its receiver may rely on the order.
                    self.tell_orders(&[*order], None, outbox);
                }
                outcome.json
            }
            NodeQuestion::Requests => return self.ask_workers(link, question),
            NodeQuestion::Pools | NodeQuestion::Series { .. } => self.orders.answer(&what),
        };
        self.answer_operator(link, question, json, outbox);
    }

    pub(super) fn answer_operator(
        &mut self,
        link: LinkId,
        question: u64,
        json: Vec<u8>,
        outbox: &mut Outbox<ToCoordinator>,
    ) {
        // A link with a full queue ends, of which the asker is notified.
        let _ = outbox.send(link, &ToCoordinator::Status { question, json });
    }

    /// Queries the workers on a thread of its own: they may take a while, and others wait for this thread.
    /// The number of such threads is limited; further questions get no answer.
    fn ask_workers(&self, link: LinkId, question: u64) {
        let (orders, teller) = (self.orders.clone(), self.teller.clone());
        let asking = Arc::clone(&self.asking_workers);
        if Arc::strong_count(&asking) > OPERATOR_QUESTIONS_MAX + 1 {
            return;
        }
        let ask = move || {
            let json = orders.answer(&NodeQuestion::Requests);
            drop(asking);
            if let Some(teller) = teller.get() {
                drop(teller.tell(Command::Said { link, question, json }));
            }
        };
        // If no thread can be started, there is no answer, as if it were not in time.
        drop(thread::Builder::new().name("skep-operator".into()).spawn(ask));
    }

    /// Applies orders received from a coordinator, and passes on new ones.
    pub(super) fn ordered(
        &mut self,
        link: LinkId,
        orders: Vec<ServerOrder>,
        outbox: &mut Outbox<ToCoordinator>,
    ) {
        let Some(coordinator) = self.links.get_mut(&link) else { return };
        if !std::mem::replace(&mut coordinator.operates, true) {
            let known = self.orders.known();
            if !known.is_empty() {
                let _ = outbox.send(link, &ToCoordinator::ServerOrders(known));
            }
        }
        let new = self.orders.learn(orders);
        self.tell_orders(&new, Some(link), outbox);
    }

    /// Sends orders to all coordinators except `but`.
    pub(super) fn tell_orders(
        &self,
        orders: &[ServerOrder],
        but: Option<LinkId>,
        outbox: &mut Outbox<ToCoordinator>,
    ) {
        if orders.is_empty() {
            return;
        }
        let message = ToCoordinator::ServerOrders(orders.to_vec());
        let others = self.links.iter().filter(|(link, it)| it.operates && Some(**link) != but);
        others.for_each(|(&link, _)| _ = outbox.send(link, &message));
    }

    /// Relays a question of an operator of this process to all nodes. If no coordinator supports that,
    /// `asker` is dropped.
    pub(super) fn relay(
        &mut self,
        (question, limit_ms): (NodeQuestion, u64),
        asker: SyncSender<RelayedAnswers>,
        outbox: &mut Outbox<ToCoordinator>,
    ) {
        let takes_it = |link: &LinkId| self.links.get(link).is_some_and(|it| it.operates);
        let Some(link) = self.active().filter(takes_it) else { return };
        let ask = self.relays.ask(link, asker);
        let _ = outbox.send(link, &ToCoordinator::Relay { ask, question, limit_ms });
    }

    /// Stores the answer of a node.
    pub(super) fn relayed(&mut self, link: LinkId, ask: u64, answer: (Name, RelayedAnswer)) {
        self.relays.answered(link, ask, answer);
    }

    /// Returns the answers to the operator: no further ones will arrive.
    pub(super) fn relay_ended(&mut self, link: LinkId, ask: u64) {
        self.relays.ended(link, ask);
    }
}
