//! Operators in the link thread: their questions to all nodes, and their orders about pool servers.
//!
//! The nodes to which an order was sent carry it out. The order is recorded here when the first of them has
//! done so; then all nodes that link later, or could not be reached, receive it.

use skep_directory::OrderTable;
use skep_peer::stream::{LinkId, Outbox};
use skep_serve::unix_ms;
use skep_units::Now;
use skep_wire::cache::{NodeFeatures, NodeQuestion, RelayedAnswer, ServerOrder, ToNode};
use skep_wire::message::Name;

use crate::limits::RELAY_QUEUE_BYTES_MAX;
use crate::questions::{Asker, NodeAnswer, Questions};

/// The questions and orders of operators.
pub(crate) struct Operators {
    /// Number of the dispatcher.
    number: u16,
    orders: OrderTable,
    questions: Questions<Vec<u8>>,
}

impl Operators {
    pub(crate) fn new(number: u16) -> Self {
        Self { number, orders: OrderTable::default(), questions: Questions::default() }
    }

    /// Handles a node's hello; the node gets all orders.
    pub(crate) fn joined(
        &mut self,
        link: LinkId,
        features: NodeFeatures,
        outbox: &mut Outbox<ToNode>,
    ) {
        if features.has_operate() {
            // A link whose queue is full is closed, and the node links again.
            let _ = outbox.send(link, &ToNode::ServerOrders(self.orders.all()));
        }
    }

    /// Handles the end of a link.
    pub(crate) fn left(&mut self, link: LinkId) {
        self.questions.left(link);
    }

    /// Asks all `nodes`.
    pub(crate) fn ask<'n>(
        &mut self,
        ends: Now,
        nodes: impl Iterator<Item = (LinkId, &'n Name, NodeFeatures)>,
        mut what: NodeQuestion,
        asker: Asker<Vec<u8>>,
        outbox: &mut Outbox<ToNode>,
    ) {
        if let NodeQuestion::Order(order) = &mut what {
            order.stamp = self.orders.next_stamp(unix_ms(), self.number);
            let (change, server, pool) = (order.change.word(), &order.server, &order.pool);
            tracing::info!("pool {pool}: {change} of server {server} ordered at all nodes");
        }
        let knows_it = match what {
            // Builds without the other questions know this one.
            NodeQuestion::Pools => NodeFeatures::has_status,
            _ => NodeFeatures::has_operate,
        };
        let nodes = nodes.map(|(link, name, it)| (link, name, knows_it(it)));
        let message = |question| match what {
            NodeQuestion::Pools => ToNode::AskStatus { question },
            what => ToNode::Ask { question, what },
        };
        self.questions.ask(ends, nodes, message, asker, outbox);
    }

    /// Handles a node's answer.
    pub(crate) fn answered(&mut self, link: LinkId, question: u64, json: Vec<u8>) {
        self.questions.answered(link, question, json);
    }

    /// Handles orders that a node has carried out, or knows: those that are new here are sent to all other
    /// nodes.
    pub(crate) fn learn<'n>(
        &mut self,
        from: LinkId,
        orders: Vec<ServerOrder>,
        nodes: impl Iterator<Item = (LinkId, &'n Name, NodeFeatures)>,
        outbox: &mut Outbox<ToNode>,
    ) {
        let new = self.orders.learn(unix_ms(), orders);
        if new.is_empty() {
            return;
        }
        let message = ToNode::ServerOrders(new);
        for (link, _, features) in nodes {
            if link != from && features.has_operate() {
                let _ = outbox.send(link, &message);
            }
        }
    }

    /// Reports and removes questions that have ended.
    pub(crate) fn report(&mut self, now: Now, outbox: &mut Outbox<ToNode>) {
        for (link, ask, answers) in self.questions.report(now) {
            for (node, answer) in answers {
                let answer = match answer {
                    NodeAnswer::Answered(json) => RelayedAnswer::Said(json),
                    NodeAnswer::Earlier => RelayedAnswer::Earlier,
                    NodeAnswer::Silent => RelayedAnswer::Silent,
                };
                let has_room = outbox.queued_bytes(link) < RELAY_QUEUE_BYTES_MAX;
                let answer = if has_room { answer } else { RelayedAnswer::Said(Vec::new()) };
                let _ = outbox.send(link, &ToNode::Relayed { ask, node, answer });
            }
            let _ = outbox.send(link, &ToNode::RelayEnd { ask });
        }
    }
}
