//! Questions of operators to all linked nodes, in the thread of the links.
//!
//! Invariant: each question ends, at the latest at its deadline, and says of every node that was linked
//! what it answered, or that it did not.

use std::collections::BTreeMap;
use std::sync::mpsc::SyncSender;

use skep_peer::stream::{LinkId, Outbox};
use skep_units::Now;
use skep_wire::cache::{NodeQuestion, ToNode};
use skep_wire::message::Name;

use crate::limits::{QUESTIONS_MAX, QUESTIONS_PER_NODE_MAX};

/// What a node said to a question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NodeAnswer<A> {
    /// Its answer.
    Answered(A),
    /// Nothing: it is of a build that knows no such question.
    Earlier,
    /// Nothing in time, or its link has ended.
    Silent,
}

/// The answers of all nodes that were linked.
pub type NodeAnswers<A> = Vec<(Name, NodeAnswer<A>)>;

/// Who has asked.
#[derive(Debug)]
pub(crate) enum Asker<A> {
    /// An operator of this process.
    Here(SyncSender<NodeAnswers<A>>),
    /// One of the node of this link, by a number of its own.
    Node(LinkId, u64),
}

/// Questions of one kind.
pub(crate) struct Questions<A> {
    /// The number of the last one.
    last: u64,
    open: BTreeMap<u64, Question<A>>,
    /// Questions that are over, of nodes.
    over: ForNodes<A>,
}

struct Question<A> {
    /// Whether it changes something: then who asked needs to hear what came of it.
    is_order: bool,
    ends: Now,
    /// Nodes by link; `None`: it has not answered.
    nodes: BTreeMap<LinkId, (Name, Option<NodeAnswer<A>>)>,
    asker: Asker<A>,
}

/// Answers for nodes that have asked: the link, the number of the question there, and what was said.
pub(crate) type ForNodes<A> = Vec<(LinkId, u64, NodeAnswers<A>)>;

impl<A> Default for Questions<A> {
    fn default() -> Self {
        Self { last: 0, open: BTreeMap::new(), over: Vec::new() }
    }
}

impl<A> Questions<A> {
    /// Asks all `nodes`, of which each is said to know the question or not; `message` is the one with a
    /// number.
    pub(crate) fn ask<'n>(
        &mut self,
        ends: Now,
        nodes: impl Iterator<Item = (LinkId, &'n Name, bool)>,
        message: impl FnOnce(u64) -> ToNode,
        asker: Asker<A>,
        outbox: &mut Outbox<ToNode>,
    ) {
        if let Some(question) = self.gives_way(&asker).and_then(|number| self.open.remove(&number))
        {
            question.end(&mut self.over);
        }
        self.last += 1;
        let message = message(self.last);
        let is_order = matches!(message, ToNode::Ask { what: NodeQuestion::Order(_), .. });
        let ask = |(link, name, knows_it): (LinkId, &Name, bool)| {
            let answer = match knows_it {
                true if outbox.send(link, &message) => None,
                true => Some(NodeAnswer::Silent),
                false => Some(NodeAnswer::Earlier),
            };
            (link, (name.clone(), answer))
        };
        let nodes = nodes.map(ask).collect();
        self.open.insert(self.last, Question { is_order, ends, nodes, asker });
    }

    /// The question that ends with what it has when `asker` asks one more: the oldest of a node that has as many
    /// as it may, or the oldest of all, of those that change nothing first.
    fn gives_way(&self, asker: &Asker<A>) -> Option<u64> {
        let oldest = |among: &dyn Fn(&Question<A>) -> bool| {
            let among = self.open.iter().filter(|(_, it)| among(it));
            among.map(|(number, it)| (it.is_order, *number)).min().map(|(_, number)| number)
        };
        if let Asker::Node(link, _) = asker {
            let is_its = |it: &Question<A>| matches!(it.asker, Asker::Node(of, _) if of == *link);
            if self.open.values().filter(|it| is_its(it)).count() >= QUESTIONS_PER_NODE_MAX {
                return oldest(&is_its);
            }
        }
        (self.open.len() >= QUESTIONS_MAX).then(|| oldest(&|_| true)).flatten()
    }

    /// A node answers. The first answer counts.
    pub(crate) fn answered(&mut self, link: LinkId, question: u64, said: A) {
        let asked = self.open.get_mut(&question).and_then(|it| it.nodes.get_mut(&link));
        if let Some((_, answer)) = asked {
            answer.get_or_insert(NodeAnswer::Answered(said));
        }
    }

    /// A link is gone.
    pub(crate) fn left(&mut self, link: LinkId) {
        let asked = self.open.values_mut().filter_map(|it| it.nodes.get_mut(&link));
        asked.for_each(|(_, answer)| _ = answer.get_or_insert(NodeAnswer::Silent));
    }

    /// Ends the questions that all have answered, or whose time is over. Returns the answers for nodes.
    pub(crate) fn report(&mut self, now: Now) -> ForNodes<A> {
        let is_over = |it: &Question<A>| {
            now >= it.ends || it.nodes.values().all(|(_, answer)| answer.is_some())
        };
        let over = self.open.extract_if(.., |_, question| is_over(question));
        over.for_each(|(_, question)| question.end(&mut self.over));
        std::mem::take(&mut self.over)
    }
}

impl<A> Question<A> {
    fn end(self, for_nodes: &mut ForNodes<A>) {
        let said = |answer: Option<NodeAnswer<A>>| answer.unwrap_or(NodeAnswer::Silent);
        let answers = self.nodes.into_values().map(|(name, answer)| (name, said(answer)));
        match self.asker {
            // Who asked may have given up.
            Asker::Here(asker) => drop(asker.try_send(answers.collect())),
            Asker::Node(link, ask) => for_nodes.push((link, ask, answers.collect())),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    /// Questions in this order: who has asked, and whether it is an order.
    fn open(all: Vec<(Asker<()>, bool)>) -> Questions<()> {
        let (ends, nodes) = (Now::default(), BTreeMap::new());
        let question = |(asker, is_order)| Question { is_order, ends, nodes: nodes.clone(), asker };
        let open = (1..).zip(all.into_iter().map(question)).collect();
        Questions { last: 0, open, over: Vec::new() }
    }

    fn here() -> Asker<()> {
        Asker::Here(mpsc::sync_channel(1).0)
    }

    fn node(link: u64) -> Asker<()> {
        Asker::Node(LinkId(link), 0)
    }

    #[test]
    fn a_node_that_asks_much_keeps_no_question_of_others_from_its_end() {
        let of_one = [true, true, false, true].map(|is_order| (node(1), is_order));
        let asked: Vec<_> = [(here(), false)].into_iter().chain(of_one).collect();
        let questions = open(asked);
        assert_eq!(questions.gives_way(&here()), None);
        assert_eq!(questions.gives_way(&node(2)), None);
        // Its own, and what changes nothing before an order, though that is older.
        assert_eq!(questions.gives_way(&node(1)), Some(4));
    }

    #[test]
    fn orders_are_the_last_to_give_way() {
        let of_nodes = |is_order| (2..8).map(move |link| (node(link), is_order));
        let with_a_look = [(here(), true), (here(), false)].into_iter().chain(of_nodes(true));
        assert_eq!(open(with_a_look.collect()).gives_way(&node(1)), Some(2));
        let orders = [(here(), true), (here(), true)].into_iter().chain(of_nodes(true));
        assert_eq!(open(orders.collect()).gives_way(&node(1)), Some(1));
    }
}
