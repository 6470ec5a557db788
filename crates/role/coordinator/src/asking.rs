//! Questions of operators to all linked nodes, in the thread of the links: collects the answers until all
//! have come, or the time is over.

use std::collections::BTreeMap;
use std::sync::mpsc::SyncSender;

use skep_peer::stream::{LinkId, Outbox};
use skep_units::Now;
use skep_wire::cache::{NodeFeatures, ToNode};
use skep_wire::message::Name;

use crate::limits::QUESTIONS_MAX;

/// A node, and what it shows operators as JSON; `None`: it has not answered in time.
pub type NodeShown = (Name, Option<Vec<u8>>);

/// See the module.
#[derive(Default)]
pub(crate) struct Asking {
    open: BTreeMap<u64, Question>,
    /// The number of the last question.
    last: u64,
}

struct Question {
    ends_at: Now,
    teller: SyncSender<Vec<NodeShown>>,
    waits_for: BTreeMap<LinkId, Name>,
    answers: Vec<NodeShown>,
}

impl Asking {
    /// Asks all `nodes`. Those of earlier builds know no such question, and are named without an answer.
    pub(crate) fn begin<'n>(
        &mut self,
        ends_at: Now,
        nodes: impl Iterator<Item = (LinkId, &'n Name, NodeFeatures)>,
        teller: SyncSender<Vec<NodeShown>>,
        outbox: &mut Outbox<ToNode>,
    ) {
        if self.open.len() >= QUESTIONS_MAX {
            self.open.pop_first().into_iter().for_each(|(_, oldest)| oldest.end());
        }
        self.last += 1;
        let ask = ToNode::AskStatus { question: self.last };
        let (mut waits_for, mut answers) = (BTreeMap::new(), Vec::new());
        for (link, name, features) in nodes {
            if features.has_status() && outbox.send(link, &ask) {
                waits_for.insert(link, name.clone());
            } else {
                answers.push((name.clone(), None));
            }
        }
        self.open.insert(self.last, Question { ends_at, teller, waits_for, answers });
    }

    pub(crate) fn answered(&mut self, link: LinkId, question: u64, json: Vec<u8>) {
        let Some(asked) = self.open.get_mut(&question) else { return };
        if let Some(name) = asked.waits_for.remove(&link) {
            asked.answers.push((name, Some(json)));
        }
    }

    /// A link is gone: from there no answer comes.
    pub(crate) fn left(&mut self, link: LinkId) {
        for asked in self.open.values_mut() {
            asked.answers.extend(asked.waits_for.remove(&link).map(|name| (name, None)));
        }
    }

    /// Ends the questions that all have answered, or whose time is over.
    pub(crate) fn report(&mut self, now: Now) {
        let is_over = |it: &Question| it.waits_for.is_empty() || it.ends_at <= now;
        let over = self.open.extract_if(.., |_, asked| is_over(asked));
        over.for_each(|(_, asked)| asked.end());
    }
}

impl Question {
    fn end(mut self) {
        self.answers.extend(self.waits_for.into_values().map(|name| (name, None)));
        // Who asked may have given up.
        drop(self.teller.try_send(self.answers));
    }
}
