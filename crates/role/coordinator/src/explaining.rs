//! Questions of operators to all linked nodes, in the thread of the links: why something is kept, or not.
//!
//! Invariant: each question ends, at the latest at its deadline, and says of every node that was linked
//! what it answered, or that it did not.

use std::collections::BTreeMap;
use std::sync::mpsc::SyncSender;

use skep_peer::stream::{LinkId, Outbox};
use skep_units::Now;
use skep_wire::cache::{ExplainRequest, Explanation, NodeFeatures, ToNode};
use skep_wire::message::Name;

/// What a node said to a question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NodeAnswer {
    /// Its explanation.
    Explained(Box<Explanation>),
    /// It makes no sense of the request.
    Unclear,
    /// Nothing: it is of a build that knows no such question.
    Earlier,
    /// Nothing in time, or its link has ended.
    Silent,
}

/// The answers of all nodes that were linked.
pub type NodeAnswers = Vec<(Name, NodeAnswer)>;

/// See the module.
#[derive(Default)]
pub(crate) struct Explaining {
    next: u64,
    open: BTreeMap<u64, Question>,
}

struct Question {
    ends: Now,
    /// Nodes by link; `None`: it has not answered.
    nodes: BTreeMap<LinkId, (Name, Option<NodeAnswer>)>,
    asker: SyncSender<NodeAnswers>,
}

impl Explaining {
    /// Asks all `nodes`.
    pub(crate) fn ask<'n>(
        &mut self,
        ends: Now,
        request: ExplainRequest,
        nodes: impl Iterator<Item = (LinkId, &'n Name, NodeFeatures)>,
        asker: SyncSender<NodeAnswers>,
        outbox: &mut Outbox<ToNode>,
    ) {
        let question = self.next;
        self.next += 1;
        let message = ToNode::Explain { question, request };
        let ask = |(link, name, features): (LinkId, &Name, NodeFeatures)| {
            let answer = match features.has_explain() {
                true if outbox.send(link, &message) => None,
                true => Some(NodeAnswer::Silent),
                false => Some(NodeAnswer::Earlier),
            };
            (link, (name.clone(), answer))
        };
        let nodes = nodes.map(ask).collect();
        self.open.insert(question, Question { ends, nodes, asker });
    }

    /// A node answers.
    pub(crate) fn answered(
        &mut self,
        link: LinkId,
        question: u64,
        explanation: Option<Box<Explanation>>,
    ) {
        let asked = self.open.get_mut(&question).and_then(|it| it.nodes.get_mut(&link));
        if let Some((_, answer)) = asked {
            *answer = Some(explanation.map_or(NodeAnswer::Unclear, NodeAnswer::Explained));
        }
    }

    /// A link is gone.
    pub(crate) fn left(&mut self, link: LinkId) {
        let asked = self.open.values_mut().filter_map(|it| it.nodes.get_mut(&link));
        asked.for_each(|(_, answer)| _ = answer.get_or_insert(NodeAnswer::Silent));
    }

    /// Reports questions that all have answered, or whose time is over.
    pub(crate) fn report(&mut self, now: Now) {
        let is_over = |question: &Question| {
            now >= question.ends || question.nodes.values().all(|(_, answer)| answer.is_some())
        };
        for (_, question) in self.open.extract_if(.., |_, question| is_over(question)) {
            let silent = |answer: Option<NodeAnswer>| answer.unwrap_or(NodeAnswer::Silent);
            let answers = question.nodes.into_values().map(|(name, it)| (name, silent(it)));
            // Who asked may have given up.
            drop(question.asker.try_send(answers.collect()));
        }
    }
}
