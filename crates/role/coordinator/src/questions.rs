//! Questions of operators to all linked nodes, in the link thread.
//!
//! Invariant: each question ends, at its deadline at the latest, with an answer of every node that was
//! linked, or a statement that there was none.

use std::collections::BTreeMap;
use std::sync::mpsc::SyncSender;

use skep_peer::stream::{LinkId, Outbox};
use skep_units::Now;
use skep_wire::cache::{NodeQuestion, ToNode};
use skep_wire::message::Name;

use crate::limits::{QUESTIONS_MAX, QUESTIONS_PER_NODE_MAX};

/// The answer of a node to a question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NodeAnswer<A> {
    /// Its answer.
    Answered(A),
    /// None: its build does not know the question.
    Earlier,
    /// None in time, or its link has ended.
    Silent,
}

/// The answers of all nodes that were linked.
pub type NodeAnswers<A> = Vec<(Name, NodeAnswer<A>)>;

/// The origin of a question.
#[derive(Debug)]
pub(crate) enum Asker<A> {
    /// An operator of this process.
    Here(SyncSender<NodeAnswers<A>>),
    /// An operator of the node with this link, whose number for the question this is.
    Node(LinkId, u64),
}

/// Questions of one kind.
pub(crate) struct Questions<A> {
    /// The number of the last question.
    last: u64,
    open: BTreeMap<u64, Question<A>>,
    /// Ended questions of nodes.
    over: ForNodes<A>,
}

struct Question<A> {
    /// Whether it changes something: the result of such a question must reach its origin.
    is_order: bool,
    ends: Now,
    /// Nodes by link; `None`: not answered yet.
    nodes: BTreeMap<LinkId, (Name, Option<NodeAnswer<A>>)>,
    asker: Asker<A>,
}

/// Answers for nodes that have asked: the link, the node's number for the question, and the answers.
pub(crate) type ForNodes<A> = Vec<(LinkId, u64, NodeAnswers<A>)>;

impl<A> Default for Questions<A> {
    fn default() -> Self {
        Self { last: 0, open: BTreeMap::new(), over: Vec::new() }
    }
}

impl<A> Questions<A> {
    /// Asks all `nodes`; the flag states whether the node supports the question. `message` creates the
    /// message from its number.
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

    /// The question that is ended early when `asker` asks one more: the oldest of a node that has reached its
    /// limit, or the oldest of all; questions that change nothing come first.
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

    /// Handles a node's answer. Only the first answer counts.
    pub(crate) fn answered(&mut self, link: LinkId, question: u64, said: A) {
        let asked = self.open.get_mut(&question).and_then(|it| it.nodes.get_mut(&link));
        if let Some((_, answer)) = asked {
            answer.get_or_insert(NodeAnswer::Answered(said));
        }
    }

    /// Handles the end of a link.
    pub(crate) fn left(&mut self, link: LinkId) {
        let asked = self.open.values_mut().filter_map(|it| it.nodes.get_mut(&link));
        asked.for_each(|(_, answer)| _ = answer.get_or_insert(NodeAnswer::Silent));
    }

    /// Ends questions that all nodes have answered, or that have timed out. Returns the answers for nodes.
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
            // The caller may have stopped waiting.
            Asker::Here(asker) => drop(asker.try_send(answers.collect())),
            Asker::Node(link, ask) => for_nodes.push((link, ask, answers.collect())),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    /// Questions in this order: the origin of each, and whether it is an order.
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
        // One of its own, and one that changes nothing before an order, although that is older.
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
