//! Questions from workers that wait for the answer of a coordinator.

use std::collections::HashMap;

use skep_peer::stream::LinkId;
use tokio::sync::oneshot;

/// Receives the answer; `None`: it does not count as an answer.
pub(in crate::peers) type Asker<A> = oneshot::Sender<Option<A>>;

pub(super) struct Questions<A> {
    open: HashMap<u64, (LinkId, Asker<A>)>,
    next: u64,
}

impl<A> Default for Questions<A> {
    fn default() -> Self {
        Self { open: HashMap::new(), next: 0 }
    }
}

impl<A> Questions<A> {
    /// Records a question sent on a link; returns its number.
    pub(super) fn ask(&mut self, link: LinkId, asker: Asker<A>) -> u64 {
        let number = self.next;
        self.next += 1;
        self.open.insert(number, (link, asker));
        number
    }

    /// Passes an answer on; returns whether an asker was waiting for it.
    pub(super) fn answered(&mut self, link: LinkId, number: u64, answer: Option<A>) -> bool {
        let open = self.open.remove(&number).filter(|(asked_on, _)| *asked_on == link);
        open.is_some_and(|(_, asker)| asker.send(answer).is_ok())
    }

    /// Ends the questions asked on a link that has ended.
    pub(super) fn link_lost(&mut self, link: LinkId) {
        let lost = self.open.extract_if(|_, (asked_on, _)| *asked_on == link);
        lost.for_each(|(_, (_, asker))| drop(asker.send(None)));
    }

    /// Drops questions whose askers no longer wait.
    pub(super) fn forget_closed(&mut self) {
        self.open.retain(|_, (_, asker)| !asker.is_closed());
    }
}
